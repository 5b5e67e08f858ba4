/* 16 bytes a thread at a time, four of them under way: the copy commands of some drivers reach a fifth of what memory gives. */
#version 450
#extension GL_GOOGLE_include_directive : require
#define K3_WITHOUT_GROUP_SUMS
#include "common.glsl"
#include "backend/args/copy.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_copy_args a;
};

void main()
{
    uint stride = gl_WorkGroupSize.x * gl_NumWorkGroups.x, i = gl_GlobalInvocationID.x;
    U32x4 to = U32x4(a.to), from = U32x4(a.from);
    for (; i + 3u * stride < a.n; i += 4u * stride) {
        uvec4 x0 = from.at[i], x1 = from.at[i + stride], x2 = from.at[i + 2u * stride], x3 = from.at[i + 3u * stride];
        to.at[i] = x0;
        to.at[i + stride] = x1;
        to.at[i + 2u * stride] = x2;
        to.at[i + 3u * stride] = x3;
    }
    for (; i < a.n; i += stride)
        to.at[i] = from.at[i];
}
