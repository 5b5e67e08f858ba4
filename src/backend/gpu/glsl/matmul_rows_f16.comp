/* Short rows of x: little shared memory, so that two workgroups find place on a multiprocessor. Of 512 threads or more. */
#version 450
#extension GL_GOOGLE_include_directive : require
const uint MOST_UNITS = 224, MOST_ROUNDS = 2;
#include "matmul_rows_f16.glsl"
