/* bfloat16: the upper half of a float. One pair of functions for loading weights, quantizing and the kernels. */
#ifndef K3_BASE_BF16_H
#define K3_BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline float k3_bf16_value(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* To the nearest, ties to even; a NaN stays a NaN. */
static inline uint16_t k3_bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

#endif
