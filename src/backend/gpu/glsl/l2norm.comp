/* y = scale x / sqrt(sum_d x[d]^2 + eps) for each of T * H vectors [D]. eps joins the SUM (specification 3.4). */
#version 450
#extension GL_GOOGLE_include_directive : require
#define WEIGHT(at, d) vec4(1.0)
#include "head_norm.glsl"

float factor(float square)
{
    return a.scale / sqrt(square + a.eps);
}
