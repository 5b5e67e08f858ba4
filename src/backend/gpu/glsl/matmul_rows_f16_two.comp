/* Two rows of x. Of 512 threads or more. */
#version 450
#extension GL_GOOGLE_include_directive : require
#define K3_TIGHT
const uint MOST_UNITS = 448, MOST_ROUNDS = 4;
#include "matmul_rows_f16.glsl"
