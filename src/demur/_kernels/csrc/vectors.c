#include "vectors.h"

int vector_version = 0;

int widest_vectors(void)
{
#if SEVERAL_VECTORS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f")) return 2;
    if (__builtin_cpu_supports("avx2")) return 1;
#endif
    return 0;
}
