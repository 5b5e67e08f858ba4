/* y = x sigma(gate); a is x, b the gate. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"
#include "math.glsl"

vec4 value(vec4 x, vec4 gate)
{
    for (int i = 0; i < 4; i++)
        x[i] *= k3_sigma(gate[i]);
    return x;
}
