/* How many ids of each part of a row have the key that was found. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "sample.glsl"

shared uint ties;

void main()
{
    uint lane = gl_LocalInvocationID.x, from = gl_WorkGroupID.x * K3_SAMPLE_GROUP, own = 0u;
    if (lane == 0u)
        ties = 0u;
    advance(); /* with a barrier in it */
    for (uint i = from + lane; i < min(from + K3_SAMPLE_GROUP, a.V); i += LANES)
        own += key_at(i) == known_prefix() ? 1u : 0u;
    atomicAdd(ties, own);
    barrier();
    if (lane == 0u)
        U32(a.ties).at[a.groups * gl_WorkGroupID.y + gl_WorkGroupID.x] = ties;
}
