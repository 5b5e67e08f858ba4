/* Adds the shares of the columns that the matrix kernel left apart, in order: y[t][r] = sum_s sums[s][t][r - split_row], for the rows from
 * split_row on. */
#version 450
#include "backend/gpu/glsl/matmul.glsl"

layout(local_size_x = 256) in;

void main()
{
    uint rows = a.rows - a.split_row, groups = (rows + gl_WorkGroupSize.x - 1) / gl_WorkGroupSize.x;
    uint t = gl_WorkGroupID.x / groups, i = gl_WorkGroupID.x % groups * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    uint row = a.split_row + i, p = 0;
    if (i >= rows)
        return;
    float sum = 0.0;
    for (uint s = 0; s < a.splits; s++)
        sum += F32(a.sums + 4ul * rows * (uint64_t(s) * a.T + t)).at[i];
    k3_matmul_part part = a.only;
    if (a.n_parts > 1) {
        while (p + 1 < a.n_parts && Parts(a.parts).at[p + 1].first_row <= row)
            p++;
        part = Parts(a.parts).at[p];
    }
    F32(part.y + 4ul * t * part.stride).at[row - part.first_row] = sum;
}
