/* y[t,c] = sum_k weights[t,k] slots[t,k,c], in rank order (specification 3.7). A thread takes a column of a row. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "backend/args/moe.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_sum_args a;
};

void main()
{
    uint c = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
    if (c >= a.L)
        return;
    F32 weights = F32(a.weights + 4ul * t * a.K), slots = F32(a.slots + 4ul * t * a.K * a.L);
    float sum = 0.0;
    for (uint k = 0; k < a.K; k++)
        sum = fma(weights.at[k], slots.at[k * a.L + c], sum);
    F32(a.y + 4ul * t * a.L).at[c] = sum;
}
