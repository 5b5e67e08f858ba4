/* Rows of x as f16 for the matrix units. A row's unit is the power of two that brings its largest value to 2^14 .. 2^15, so that a value is
 * off by at most 2^-12 of itself or 2^-40 of the largest. In every 8 columns the order is 0 4 1 5 2 6 3 7, that of decoded e2m1 words. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "backend/args/moe.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_half_args a;
};

void main()
{
    uint row = gl_WorkGroupID.x, thread = gl_LocalInvocationIndex, eights = a.cols / 8u;
    F32x4 x = F32x4(a.x + 4ul * row * a.cols);
    U32x4 y = U32x4(a.y + 2ul * row * a.cols);
    float most = 0.0;
    for (uint i = thread; i < 2u * eights; i += gl_WorkGroupSize.x) {
        vec4 v = abs(x.at[i]);
        most = max(most, max(max(v.x, v.y), max(v.z, v.w)));
    }
    uint exponent = clamp(floatBitsToUint(k3_group_max(most)) >> 23, 15u, 254u);
    float inverse = uintBitsToFloat((268u - exponent) << 23);
    for (uint i = thread; i < eights; i += gl_WorkGroupSize.x) {
        vec4 first = x.at[2u * i] * inverse, second = x.at[2u * i + 1u] * inverse;
        y.at[i] = uvec4(packHalf2x16(vec2(first.x, second.x)), packHalf2x16(vec2(first.y, second.y)),
                        packHalf2x16(vec2(first.z, second.z)), packHalf2x16(vec2(first.w, second.w)));
    }
    if (thread == 0u)
        F32(a.unit).at[row] = uintBitsToFloat((exponent - 14u) << 23);
}
