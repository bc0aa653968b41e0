/* Integers of 128 bits for sums of products of masses, with the few operations these need. */
#ifndef DEMUR_WIDE_H
#define DEMUR_WIDE_H

#include <math.h>
#include <stdint.h>

#include "portability.h"

#if NATIVE_INT128

typedef native_int128 Wide;

static inline Wide wide(int64_t a) { return a; }
static inline Wide wide_product(int64_t a, int64_t b) { return (Wide)a * b; }
static inline Wide wide_sum(Wide a, Wide b) { return a + b; }
static inline Wide wide_difference(Wide a, Wide b) { return a - b; }
static inline Wide wide_times(Wide a, int64_t b) { return a * b; }
static inline int wide_sign(Wide a) { return (a > 0) - (a < 0); }
static inline int wide_compare(Wide a, Wide b) { return (a > b) - (a < b); }
static inline double wide_double(Wide a) { return (double)a; }

/* Unsigned numbers in two limbs. */
static inline uint64_t high_limb(Wide a) { return (uint64_t)((native_uint128)a >> 64); }
static inline uint64_t low_limb(Wide a) { return (uint64_t)a; }
static inline uint64_t multiply_limbs(uint64_t a, uint64_t b, uint64_t *high)
{
    native_uint128 product = (native_uint128)a * b;
    *high = (uint64_t)(product >> 64);
    return (uint64_t)product;
}

#else

typedef struct {
    uint64_t low, high; /* two's complement */
} Wide;

static inline uint64_t high_limb(Wide a) { return a.high; }
static inline uint64_t low_limb(Wide a) { return a.low; }

static inline uint64_t multiply_limbs(uint64_t a, uint64_t b, uint64_t *high)
{
    const uint64_t half = 0xffffffffu;
    uint64_t a0 = a & half, a1 = a >> 32, b0 = b & half, b1 = b >> 32;
    uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32);
    uint64_t other = a0 * b1 + (cross & half);
    *high = a1 * b1 + (cross >> 32) + (other >> 32);
    return a * b;
}

static inline Wide wide(int64_t a)
{
    Wide w = {(uint64_t)a, a < 0 ? UINT64_MAX : 0};
    return w;
}

static inline Wide wide_sum(Wide a, Wide b)
{
    Wide sum = {a.low + b.low, a.high + b.high};
    sum.high += sum.low < a.low;
    return sum;
}

static inline Wide wide_difference(Wide a, Wide b)
{
    Wide rest = {a.low - b.low, a.high - b.high - (a.low < b.low)};
    return rest;
}

static inline Wide wide_times(Wide a, int64_t b)
{
    Wide product;
    product.low = multiply_limbs(a.low, (uint64_t)b, &product.high);
    product.high += a.high * (uint64_t)b;
    if (b < 0) product.high -= a.low; /* b was read as b + 2^64 */
    return product;
}

static inline Wide wide_product(int64_t a, int64_t b) { return wide_times(wide(a), b); }

static inline int wide_sign(Wide a)
{
    return a.high >> 63 ? -1 : (a.high | a.low) != 0;
}

static inline int wide_compare(Wide a, Wide b)
{
    const uint64_t sign = (uint64_t)1 << 63;
    if (a.high != b.high) return (a.high ^ sign) < (b.high ^ sign) ? -1 : 1;
    return (a.low > b.low) - (a.low < b.low);
}

static inline double wide_double(Wide a)
{
    if (a.high >> 63) return -wide_double(wide_difference(wide(0), a));
    int shift = 0;
    /* What is shifted out of 64 bits only matters by not being zero: a float keeps 53. */
    for (; a.high; shift++) {
        uint64_t lost = a.low & 1;
        a.low = (a.low >> 1 | a.high << 63) | lost;
        a.high >>= 1;
    }
    return ldexp((double)a.low, shift);
}

#endif

static inline Wide wide_size(Wide a) { return wide_sign(a) < 0 ? wide_difference(wide(0), a) : a; }

/* |a| * b for b >= 0, in three limbs, the lowest first. */
static inline void long_product(Wide a, int64_t b, uint64_t *limb)
{
    Wide size = wide_size(a);
    uint64_t carry;
    limb[0] = multiply_limbs(low_limb(size), (uint64_t)b, &carry);
    limb[1] = multiply_limbs(high_limb(size), (uint64_t)b, &limb[2]) + carry;
    limb[2] += limb[1] < carry;
}

/* Sign of a/b - c/d for positive b and d. */
static inline int compare_quotients(Wide a, int64_t b, Wide c, int64_t d)
{
    uint64_t left[3], right[3];
    int sign = wide_sign(a);
    if (sign != wide_sign(c)) return sign < wide_sign(c) ? -1 : 1;
    long_product(a, d, left);
    long_product(c, b, right);
    for (int k = 2; k >= 0; k--)
        if (left[k] != right[k]) return left[k] < right[k] ? -sign : sign;
    return 0;
}

#endif
