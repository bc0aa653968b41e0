#ifndef DEMUR_VECTORS_H
#define DEMUR_VECTORS_H

/* Compiled several times; the version with the widest vectors the processor has is called. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

#endif
