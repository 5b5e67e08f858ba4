/* The frame of a kernel that scales vectors [D] by something of their sum of squares. One subgroup a vector at a time: no barrier, and
 * right for subgroups of any width. A lane writes only what it reads, so y may be x. The kernel defines factor() and weighted(). */
#include "vec4.glsl"
#include "backend/args/head_norm.h"

layout(local_size_x = 128) in;
layout(push_constant, std430) uniform Push
{
    k3_head_norm_args a;
};

/* What the whole vector is multiplied by, given the sum of its squares. */
float factor(float square);
/* What values d .. d+3 of the vector at byte `at` become. */
vec4 weighted(vec4 x, uint64_t at, uint d);

void main()
{
    uint step = gl_NumWorkGroups.x * gl_NumSubgroups, lane = 4u * gl_SubgroupInvocationID, width = 4u * gl_SubgroupSize;
    for (uint row = gl_WorkGroupID.x * gl_NumSubgroups + gl_SubgroupID; row < a.rows; row += step) {
        uint64_t at = 4ul * row * a.D;
        float square = 0.0;
        for (uint d = lane; d < a.D; d += width) {
            vec4 x = k3_load4(a.x + at, d, a.D);
            square += dot(x, x);
        }
        float scale = factor(subgroupAdd(square));
        for (uint d = lane; d < a.D; d += width)
            k3_store4(a.y + at, d, a.D, weighted(k3_load4(a.x + at, d, a.D) * scale, at, d));
    }
}
