/* y[t] = the row ids[t] of a table, decoded. A row asked for that is in no part of the table is written as zeros and reported. */
#version 450
#include "backend/args/embed.h"
#include "backend/gpu/glsl/decode.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint TYPE = 0;

layout(push_constant, std430) uniform Push { k3_embed_args a; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Parts { k3_mat_args at[]; };

void main()
{
    uint t = gl_WorkGroupID.x / a.groups, col = gl_WorkGroupID.x % a.groups * gl_WorkGroupSize.x + gl_LocalInvocationID.x;
    if (col >= a.cols)
        return;
    Parts parts = Parts(a.parts);
    uint row = uint(I32(a.ids).at[t]), p = 0; /* a negative id is larger than any number of rows */
    while (p < a.n_parts && row >= parts.at[p].rows)
        row -= parts.at[p++].rows;
    float y = 0.0;
    if (p < a.n_parts)
        y = k3_weight(TYPE, parts.at[p], row, col);
    else if (col == 0)
        U32(a.fault).at[0] = a.bad_id;
    F32(a.y + 4ul * (uint64_t(t) * a.cols)).at[col] = y;
}
