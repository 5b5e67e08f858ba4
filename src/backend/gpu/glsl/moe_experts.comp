/* moe_experts of a few rows with products and sums in f32. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "moe_experts.glsl"
