/* x of moe_experts as f16 for the matrix units, in panels (k3_moe_tile_args): at each place the row of its pair. A row's unit is the power of two that brings its largest value to 2^14 .. 2^15, so that a value is off by at most 2^-12 of itself or 2^-40
 * of the largest. The columns' order is that of halves.glsl. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "halves.glsl"
#include "backend/args/moe.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_half_args a;
};

void main()
{
    uint place = gl_WorkGroupID.x, thread = gl_LocalInvocationIndex, eights = a.cols / 8u;
    uint pair = min(U32(a.pair_at).at[place], a.n_pairs - 1u); /* places at the end may have none */
    F32x4 x = F32x4(a.x + 4ul * (pair / a.pairs_a_row) * a.cols);
    U32x4 y = U32x4(a.y + 32ul * place);
    float most = 0.0;
    for (uint i = thread; i < 2u * eights; i += gl_WorkGroupSize.x) {
        vec4 v = abs(x.at[i]);
        most = max(most, max(max(v.x, v.y), max(v.z, v.w)));
    }
    uint exponent = clamp(floatBitsToUint(k3_group_max(most)) >> 23, 15u, 254u);
    float inverse = uintBitsToFloat((268u - exponent) << 23);
    for (uint i = thread; i < eights; i += gl_WorkGroupSize.x)
        y.at[2u * (i / 2u * a.places) + i % 2u] = k3_halves(x.at[2u * i] * inverse, x.at[2u * i + 1u] * inverse);
    if (thread == 0u)
        F32(a.unit).at[place] = uintBitsToFloat((exponent - 14u) << 23);
}
