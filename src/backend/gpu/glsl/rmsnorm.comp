/* y[t,c] = w[c] x[t,c] / sqrt(mean_c x[t,c]^2 + eps). One workgroup a row, which it holds in registers between its two uses, and the
 * weights beside it, so that it waits for memory once. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "vec4.glsl"
#include "backend/args/rmsnorm.h"

const uint FOURS = 4; /* C <= 4 * FOURS * 512 */
layout(local_size_x = 512) in;
layout(push_constant, std430) uniform Push
{
    k3_rmsnorm_args a;
};

/* The first of four channels. */
uint channel(uint k)
{
    return 4u * (gl_LocalInvocationID.x + k * gl_WorkGroupSize.x);
}

void main()
{
    uint64_t x_at = a.x + gl_WorkGroupID.x * a.x_row, y_at = a.y + gl_WorkGroupID.x * a.y_row;
    vec4 x[FOURS], w[FOURS];
    float square = 0.0;
    [[unroll]] for (uint k = 0u; k < FOURS; k++) {
        x[k] = k3_load4(x_at, channel(k), a.C);
        w[k] = k3_load4(a.w, channel(k), a.C);
    }
    [[unroll]] for (uint k = 0u; k < FOURS; k++)
        square += dot(x[k], x[k]);
    float inverse = 1.0 / sqrt(k3_group_sum(square) / float(a.C) + a.eps);
    [[unroll]] for (uint k = 0u; k < FOURS; k++)
        k3_store4(y_at, channel(k), a.C, x[k] * inverse * w[k]);
}
