/* What every kernel includes: references to memory by address, and sums and maxima over a workgroup. */
#ifndef K3_COMMON_GLSL
#define K3_COMMON_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_arithmetic : require

#include "backend/args/types.h"

/* F32(address).at[i]. The number in a name is that of components, and 4 of them must lie at a multiple of 16 bytes. An index counts as
 * signed 32 bits: what may lie further away is added to the address. */
layout(buffer_reference, std430, buffer_reference_align = 4) buffer F32 { float at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer I32 { int at[]; };
layout(buffer_reference, std430, buffer_reference_align = 4) buffer U32 { uint at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U64 { uint64_t at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer F32x2 { vec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer U32x2 { uvec2 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer F32x4 { vec4 at[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer U32x4 { uvec4 at[]; };

#ifndef K3_WITHOUT_GROUP_SUMS
/* One slot a subgroup: 1024 invocations in subgroups of 8. A kernel of at most 512 invocations works with subgroups of 4 too. */
const uint K3_MAX_SUBGROUPS = 128;
shared float k3_slots[K3_MAX_SUBGROUPS];

/* The sum of x over the workgroup, the same in all of it. To be called by all invocations, with a barrier in it. A second sum or maximum in
 * one kernel would need one more, before it. */
float k3_group_sum(float x)
{
    float part = subgroupAdd(x);
    if (subgroupElect())
        k3_slots[gl_SubgroupID] = part;
    barrier();
    float sum = 0.0;
    for (uint i = 0; i < gl_NumSubgroups; i++)
        sum += k3_slots[i];
    return sum;
}

float k3_group_max(float x)
{
    float part = subgroupMax(x);
    if (subgroupElect())
        k3_slots[gl_SubgroupID] = part;
    barrier();
    float most = k3_slots[0];
    for (uint i = 1; i < gl_NumSubgroups; i++)
        most = max(most, k3_slots[i]);
    return most;
}
#endif

#endif
