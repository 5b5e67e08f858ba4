/* Adds the shares of the columns that the matrix kernel left apart, in order: y[t][r] = sum_s sums[s][t][r]. */
#version 450
#include "backend/gpu/glsl/matmul.glsl"

layout(local_size_x = 256) in;

void main()
{
    uint groups = (a.rows + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x, t = gl_WorkGroupID.x / groups, p = 0;
    uint row = gl_WorkGroupID.x % groups * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (row >= a.rows)
        return;
    float sum = 0.0;
    for (uint s = 0; s < a.splits; s++)
        sum += F32(a.sums + 4ul * a.rows * (uint64_t(s) * a.T + t)).at[row];
    k3_matmul_part part = a.only;
    if (a.n_parts > 1) {
        while (p + 1 < a.n_parts && Parts(a.parts).at[p + 1].first_row <= row)
            p++;
        part = Parts(a.parts).at[p];
    }
    F32(part.y + 4ul * t * part.stride).at[row - part.first_row] = sum;
}
