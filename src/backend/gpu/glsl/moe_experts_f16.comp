/* moe_experts of a few rows with products in f16. */
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define K3_HALF
#include "moe_experts.glsl"
