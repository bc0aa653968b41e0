#include "vectors.h"

int vector_version = 0;

int widest_vectors(void)
{
#if SEVERAL_VECTORS
    LOOK_AT_PROCESSOR();
    if (PROCESSOR_HAS("avx512f")) return 2;
    if (PROCESSOR_HAS("avx2")) return 1;
#endif
    return 0;
}
