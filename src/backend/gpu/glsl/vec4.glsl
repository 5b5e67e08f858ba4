/* Four floats at a time from and to arrays of any length at any place. */
#ifndef K3_VEC4_GLSL
#define K3_VEC4_GLSL

#include "common.glsl"

/* Every array that the kernel touches, and every row of it, begins at a multiple of 16 bytes and has a multiple of 4 values. */
layout(constant_id = 0) const uint K3_ALIGNED = 0;

/* Values i .. i+3, i a multiple of 4, of the n at this address; zeros past the end. */
vec4 k3_load4(uint64_t at, uint i, uint n)
{
    vec4 x = vec4(0.0);
    if (K3_ALIGNED != 0u) {
        if (i < n)
            x = F32x4(at).at[i / 4u];
        return x;
    }
    F32 from = F32(at);
    for (uint j = 0u; j < 4u; j++)
        if (i + j < n)
            x[j] = from.at[i + j];
    return x;
}

void k3_store4(uint64_t at, uint i, uint n, vec4 x)
{
    if (K3_ALIGNED != 0u) {
        if (i < n)
            F32x4(at).at[i / 4u] = x;
        return;
    }
    F32 to = F32(at);
    for (uint j = 0u; j < 4u; j++)
        if (i + j < n)
            to.at[i + j] = x[j];
}

#endif
