/* What the kernels of matmul share. */
#ifndef K3_MATMUL_GLSL
#define K3_MATMUL_GLSL

#include "backend/args/matmul.h"
#include "backend/gpu/glsl/common.glsl"

layout(push_constant, std430) uniform Push { k3_matmul_args a; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Parts { k3_matmul_part at[]; };

/* The part that holds a block; uniform over the subgroup, whose lanes look at a part each. */
k3_matmul_part part_of(uint block)
{
    if (a.n_parts == 1)
        return a.only;
    uint begun = 0;
    for (uint i = gl_SubgroupInvocationID; i < a.n_parts; i += gl_SubgroupSize)
        begun += Parts(a.parts).at[i].first_block <= block ? 1 : 0;
    return Parts(a.parts).at[subgroupAdd(begun) - 1];
}

#endif
