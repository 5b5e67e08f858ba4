/* y = b1 tanh(g / b1) sigma(g) b2 tanh(u / b2); a is g, b is u. The gate branch is capped AND passed through the sigmoid of the uncapped g;
 * this is not SwiGLU with a clamp. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"
#include "math.glsl"

vec4 value(vec4 g, vec4 u)
{
    vec4 y;
    for (int i = 0; i < 4; i++)
        y[i] = k3_situ(g[i], u[i], a.b1, a.b2);
    return y;
}
