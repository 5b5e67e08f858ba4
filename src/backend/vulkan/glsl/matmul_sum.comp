/* Adds the shares of the columns that the matrix kernel left apart, in order: y[t][r] = sum_s sums[s][t][r]. */
#version 450
#include "backend/args/matmul.h"
#include "backend/vulkan/glsl/common.glsl"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { k3_matmul_args a; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Parts { k3_matmul_part at[]; };

void main()
{
    uint groups = (a.rows + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x, t = gl_WorkGroupID.x / groups, p = 0;
    uint row = gl_WorkGroupID.x % groups * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (row >= a.rows)
        return;
    float sum = 0.0;
    for (uint s = 0; s < a.splits; s++)
        sum += F32(a.sums + 4ul * a.rows * (uint64_t(s) * a.T + t)).at[row];
    Parts parts = Parts(a.parts);
    while (p + 1 < a.n_parts && parts.at[p + 1].first_row <= row)
        p++;
    F32(parts.at[p].y + 4ul * (uint64_t(t) * parts.at[p].stride)).at[row - parts.at[p].first_row] = sum;
}
