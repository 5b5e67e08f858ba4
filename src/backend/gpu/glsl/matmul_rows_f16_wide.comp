/* Longer rows of x. Of 512 threads or more. */
#version 450
#extension GL_GOOGLE_include_directive : require
const uint MOST_UNITS = 384, MOST_ROUNDS = 3;
#include "matmul_rows_f16.glsl"
