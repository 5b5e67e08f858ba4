/* The frame of a kernel that computes y[i] of a[i] and b[i]: it defines `vec4 value(vec4 a, vec4 b)`. A thread reads four values before it
 * writes them, so y may be a or b. */
#include "vec4.glsl"
#include "backend/args/elementwise.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_elementwise_args a;
};

vec4 value(vec4 a, vec4 b);

void main()
{
    uint step = 4u * gl_WorkGroupSize.x * gl_NumWorkGroups.x;
    for (uint i = 4u * gl_GlobalInvocationID.x; i < a.n; i += step)
        k3_store4(a.y, i, a.n, value(k3_load4(a.a, i, a.n), k3_load4(a.b, i, a.n)));
}
