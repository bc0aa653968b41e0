/* Plain loops, compiled once for each width of vectors that processors have.
 *
 * What a processor can do is asked once, when the module is loaded; after that a call goes through
 * a table of function pointers. All versions do the same operations on the same numbers, so that
 * results do not depend on it. Where the compiler offers no choice (other processors, MSVC) there
 * is one version, with the vectors that the compiler finds in it: NEON on ARM.
 */
#ifndef DEMUR_VECTORS_H
#define DEMUR_VECTORS_H

#include "portability.h"

/* Which of the versions is called; there are at most VECTOR_VERSIONS. */
extern int vector_version;

/* Return the last version that this processor can run. */
int widest_vectors(void);

/* Make a function `name` of one whose name ends in _loops and which is always inlined. */
#if SEVERAL_VECTORS
#define VECTOR_VERSIONS 3
#define WITH_WIDEST_VECTORS(scope, name, parameters, arguments)                                   \
    static void name##_baseline parameters { name##_loops arguments; }                            \
    FOR_PROCESSORS_WITH("avx2") static void name##_avx2 parameters { name##_loops arguments; }    \
    FOR_PROCESSORS_WITH("avx512f") static void name##_avx512 parameters                           \
    {                                                                                             \
        name##_loops arguments;                                                                   \
    }                                                                                             \
    static void(*const name##_versions[VECTOR_VERSIONS]) parameters = {                           \
        name##_baseline, name##_avx2, name##_avx512};                                             \
    scope void name parameters { name##_versions[vector_version] arguments; }
#else
#define VECTOR_VERSIONS 1
#define WITH_WIDEST_VECTORS(scope, name, parameters, arguments) \
    scope void name parameters { name##_loops arguments; }
#endif

#endif
