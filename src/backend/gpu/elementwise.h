/* The host's half of glsl/elementwise.glsl and glsl/vec4.glsl. */
#ifndef K3_BACKEND_GPU_ELEMENTWISE_H
#define K3_BACKEND_GPU_ELEMENTWISE_H

#include "backend/gpu/gpu.h"

/* Dispatches a kernel y[i] = value(a[i], b[i]) over n values. b1, b2: as k3_elementwise_args has them. */
void k3_gpu_elementwise(k3_gpu *gpu, k3_gpu_shader shader, k3_ref y, k3_ref a, k3_ref b, int64_t n, float b1, float b2);

/* The specialization constant K3_ALIGNED: `bits` is the OR of all addresses and, in bytes, of row lengths and row strides. */
static inline uint32_t k3_gpu_aligned(uint64_t bits)
{
    return bits % 16 == 0;
}

#endif
