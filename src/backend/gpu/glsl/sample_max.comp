/* The largest key of each part of a row, and empty histograms. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "sample.glsl"

void main()
{
    uint lane = gl_LocalInvocationID.x, from = gl_WorkGroupID.x * K3_SAMPLE_GROUP, own = 0u;
    for (uint i = from + lane; i < min(from + K3_SAMPLE_GROUP, a.V); i += LANES)
        own = max(own, key_at(i));
    uint best = group_most(own);
    if (lane == 0u)
        U32(a.maxima).at[a.groups * gl_WorkGroupID.y + gl_WorkGroupID.x] = best;
    U32x4 bins = U32x4(histogram_at(0u));
    for (uint i = gl_GlobalInvocationID.x; i < K3_SAMPLE_STEPS * (K3_SAMPLE_BINS + 1u); i += LANES * a.groups)
        bins.at[i] = uvec4(0u);
}
