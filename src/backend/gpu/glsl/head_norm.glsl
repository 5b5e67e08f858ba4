/* The frame of a kernel that scales vectors [D] by something of their sum of squares. One subgroup a vector at a time: no barrier, and
 * right for subgroups of any width. A lane holds the first four of its values, and what they are multiplied by, in registers, so that short
 * vectors wait for memory once. It writes only what it reads, so y may be x. The kernel defines factor(), and weight() or WEIGHT. */
#include "vec4.glsl"
#include "backend/args/head_norm.h"

layout(local_size_x = 128) in;
layout(push_constant, std430) uniform Push
{
    k3_head_norm_args a;
};

/* What the whole vector is multiplied by, given the sum of its squares. */
float factor(float square);
#ifndef WEIGHT
/* What values d .. d+3 of the vector at byte `at` are multiplied by beside it. */
vec4 weight(uint64_t at, uint d);
#define WEIGHT weight
#endif

void main()
{
    uint step = gl_NumWorkGroups.x * gl_NumSubgroups, lane = 4u * gl_SubgroupInvocationID, width = 4u * gl_SubgroupSize;
    for (uint row = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; row < a.rows; row += step) {
        uint64_t at = 4ul * row * a.D;
        vec4 first = k3_load4(a.x + at, lane, a.D), first_weight = WEIGHT(at, lane);
        float square = dot(first, first);
        for (uint d = lane + width; d < a.D; d += width) {
            vec4 x = k3_load4(a.x + at, d, a.D);
            square += dot(x, x);
        }
        float scale = factor(subgroupAdd(square));
        k3_store4(a.y + at, lane, a.D, first * scale * first_weight);
        for (uint d = lane + width; d < a.D; d += width)
            k3_store4(a.y + at, d, a.D, k3_load4(a.x + at, d, a.D) * scale * WEIGHT(at, d));
    }
}
