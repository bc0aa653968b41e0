/* All that depends on the compiler; every other file is plain C11.
 *
 * With DEMUR_PORTABLE defined, GCC and Clang take the branches that compilers without their
 * extensions take, so that these can be tested.
 */
#ifndef DEMUR_PORTABILITY_H
#define DEMUR_PORTABILITY_H

#include <stdint.h>

#if defined(__GNUC__) && !defined(DEMUR_PORTABLE)
#define DEMUR_GNU 1
#else
#define DEMUR_GNU 0
#endif

/* x + t*y must round twice, as it does in NumPy: a fused operation rounds once. GCC knows no
 * pragma for it, but -ffp-contract=off, which setup.py gives. */
#if defined(_MSC_VER)
#pragma fp_contract(off)
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#endif

/* Whether functions can be compiled for several kinds of processors; see vectors.h. */
#if DEMUR_GNU && defined(__x86_64__)
#define SEVERAL_VECTORS 1
#define FOR_PROCESSORS_WITH(feature) __attribute__((target(feature)))
#define LOOK_AT_PROCESSOR() __builtin_cpu_init()
#define PROCESSOR_HAS(feature) __builtin_cpu_supports(feature)
#else
#define SEVERAL_VECTORS 0
#endif

/* Vectors are as wide as those of the caller only where a function becomes a part of it. */
#if DEMUR_GNU
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define ALWAYS_INLINE static __forceinline
#else
#define ALWAYS_INLINE static inline
#endif

/* Hints that memory will be read, or written, soon. */
#if DEMUR_GNU
#define WILL_READ(address) __builtin_prefetch(address)
#define WILL_WRITE(address) __builtin_prefetch(address, 1)
#else
#define WILL_READ(address) ((void)0)
#define WILL_WRITE(address) ((void)0)
#endif

/* Four numbers that are added and masked together: left to itself, a compiler may take four rows
 * apart to make vectors of their columns. */
#if DEMUR_GNU
typedef uint64_t Quad __attribute__((vector_size(32)));
#define QUAD_ADD_MASKED(sum, row, mask) ((sum) += (row) & (mask))
#else
typedef struct {
    uint64_t part[4];
} Quad;
#define QUAD_ADD_MASKED(sum, row, mask)                                                       \
    do {                                                                                      \
        for (int part_ = 0; part_ < 4; part_++)                                               \
            (sum).part[part_] += (row).part[part_] & (mask);                                  \
    } while (0)
#endif

/* The highest bit set in a number that is not zero, as a number with that bit only. */
static inline uint32_t highest_bit(uint32_t x)
{
#if DEMUR_GNU
    return (uint32_t)1 << (31 - __builtin_clz(x));
#else
    for (int shift = 1; shift < 32; shift *= 2) x |= x >> shift;
    return x ^ (x >> 1);
#endif
}

/* Integers of 128 bits, where the compiler has them; see wide.h. */
#if DEMUR_GNU && defined(__SIZEOF_INT128__)
#define NATIVE_INT128 1
__extension__ typedef __int128 native_int128;
__extension__ typedef unsigned __int128 native_uint128;
#else
#define NATIVE_INT128 0
#endif

#endif
