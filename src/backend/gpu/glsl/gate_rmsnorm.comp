/* y[t,h,d] = w[d] o[t,h,d] / sqrt(mean_d o[t,h,d]^2 + eps) sigma(gate[t,h,d]) (specification 3.4). */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "head_norm.glsl"
#include "math.glsl"

float factor(float square)
{
    return 1.0 / sqrt(square / float(a.D) + a.eps);
}

vec4 weight(uint64_t at, uint d)
{
    vec4 gate = k3_load4(a.gate + at, d, a.D);
    vec4 open = vec4(k3_sigma(gate.x), k3_sigma(gate.y), k3_sigma(gate.z), k3_sigma(gate.w));
    return k3_load4(a.w, d, a.D) * open;
}
