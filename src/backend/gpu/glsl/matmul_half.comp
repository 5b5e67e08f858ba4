/* Rows of x as f16, each divided by the power of two that brings its largest value to 2^14 .. 2^15: no value overflows, and what is 2^28
 * times smaller than the largest still has all 11 bits. The columns' order is that of halves.glsl. A workgroup a row. */
#version 450
#include "backend/args/matmul.h"
#include "backend/gpu/glsl/halves.glsl"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { k3_matmul_half_args a; };

void main()
{
    uint t = gl_WorkGroupID.x;
    F32x4 x = F32x4(a.x + 4ul * (uint64_t(t) * a.cols));
    U32x4 half_row = U32x4(a.y + 2ul * (uint64_t(t) * a.cols));
    float peak = 0.0;
    for (uint v = gl_LocalInvocationID.x; v < a.cols / 4; v += gl_WorkGroupSize.x) {
        vec4 m = abs(x.at[v]);
        peak = max(max(peak, max(m.x, m.y)), max(m.z, m.w));
    }
    /* 2^(14 - exponent of the peak), both ways a normal number: peaks below 2^-112 count as that. */
    uint exponent = clamp(floatBitsToUint(k3_group_max(peak)) >> 23, 15u, 254u);
    float down = uintBitsToFloat((268u - exponent) << 23);
    for (uint v = gl_LocalInvocationID.x; v < a.cols / 8; v += gl_WorkGroupSize.x)
        half_row.at[v] = k3_halves(x.at[2 * v] * down, x.at[2 * v + 1] * down);
    if (gl_LocalInvocationID.x == 0)
        F32(a.scale).at[t] = uintBitsToFloat((exponent - 14u) << 23);
}
