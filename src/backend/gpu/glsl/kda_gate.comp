/* g[t,h,d] = lower sigma(exp(a_log[h]) (z[t,h,d] + dt_bias[h,d]));  alpha = exp(g);  beta[t,h] = sigma(b[t,h])   (specification 3.4)
 * A thread takes four values of a vector (t, h), and the first of a vector its beta. It reads before it writes, so alpha may be z and beta
 * may be b. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
#include "vec4.glsl"
#include "backend/args/kda_gate.h"

layout(local_size_x = 128) in;
layout(push_constant, std430) uniform Push
{
    k3_kda_gate_args a;
};

void main()
{
    uint fours = (a.D + 3u) / 4u, step = gl_WorkGroupSize.x * gl_NumWorkGroups.x;
    for (uint i = gl_GlobalInvocationID.x; i < a.rows * fours; i += step) {
        uint row = i / fours, h = row % a.H, d = i % fours * 4u;
        uint64_t at = 4ul * row * a.D;
        float b = d == 0u ? F32(a.b).at[row] : 0.0;
        vec4 x = exp(F32(a.a_log).at[h]) * (k3_load4(a.z + at, d, a.D) + k3_load4(a.dt_bias + 4ul * h * a.D, d, a.D));
        vec4 g = a.lower * vec4(k3_sigma(x.x), k3_sigma(x.y), k3_sigma(x.z), k3_sigma(x.w));
        if (a.g != 0ul)
            k3_store4(a.g + at, d, a.D, g);
        if (a.alpha != 0ul)
            k3_store4(a.alpha + at, d, a.D, exp(g));
        if (d == 0u)
            F32(a.beta).at[row] = k3_sigma(b);
    }
}
