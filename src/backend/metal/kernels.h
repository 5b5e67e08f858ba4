/* The kernels as Metal's text, which the program carries and Metal compiles when one is first wanted. */
#ifndef K3_BACKEND_METAL_KERNELS_H
#define K3_BACKEND_METAL_KERNELS_H

#include "backend/gpu/shaders.h"

#include <stdint.h>

typedef struct k3_mt_kernel {
    const char *name;     /* of the kernel and of its function */
    const char *text;     /* NULL: Metal has no such kernel */
    uint32_t threads;     /* of a group */
    int threads_constant; /* the function constant that holds their number, which is then `threads` unless it is set; or -1 */
} k3_mt_kernel;

/* Made by cmake/metal.cmake of src/backend/metal/<name>.metal, or of msl/<name>.metal where there is none. */
extern const k3_mt_kernel k3_mt_kernels[K3_GPU_N_SHADERS];

#endif
