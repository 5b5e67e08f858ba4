/* y = a + b */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "elementwise.glsl"

vec4 value(vec4 a, vec4 b)
{
    return a + b;
}
