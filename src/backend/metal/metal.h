/* The Metal driver: buffers, batches and pipelines of one device. The host and the device share memory, so that there are no uploads: the
 * host writes where kernels read. Kernels get one structure of arguments at index 0 and find everything else by address, so every buffer
 * is declared to every encoder. Objects are counted by hand. */
#ifndef K3_BACKEND_METAL_METAL_H
#define K3_BACKEND_METAL_METAL_H

#include "backend/gpu/driver.h"
#include "backend/metal/kernels.h" /* made at build time: the text of each kernel */

#import <Metal/Metal.h>

#include <time.h>

#if __has_feature(objc_arc)
#error "the Metal backend counts its objects by hand: build it with -fno-objc-arc"
#endif

typedef struct k3_mt_slab {
    k3_gpu_slab base;
    id<MTLBuffer> buffer;
} k3_mt_slab;

/* What a batch is recorded into. */
typedef struct k3_mt_commands {
    id<MTLCommandBuffer> buffer; /* nil before the first use and after a failure */
    id<MTLComputeCommandEncoder> encoder;
    int n_declared; /* resources that the encoder knows */
    uint64_t value; /* submission number once it is committed, 0 before */
} k3_mt_commands;

typedef struct k3_mt_pipeline k3_mt_pipeline;
struct k3_mt_pipeline {
    k3_gpu_pipeline wanted;
    uint32_t threads;                         /* of a group */
    id<MTLComputePipelineState> state, fresh; /* fresh: while a text is being tried */
    k3_mt_pipeline *next;
};

/* A file as it was when last looked at; all 0: there was none. */
typedef struct k3_mt_stamp {
    struct timespec changed;
    int64_t bytes, there;
} k3_mt_stamp;

/* A kernel's text, compiled. */
typedef struct k3_mt_library {
    id<MTLLibrary> library;
    k3_mt_stamp stamp; /* of the file that may replace the text */
    int from_file;
} k3_mt_library;

typedef struct k3_mt {
    k3_gpu gpu;
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
    id<MTLSharedEvent> event; /* counts submissions */
    uint64_t over;            /* submissions up to this one have ended, though the event may not have heard of it */
    k3_mt_commands commands[K3_GPU_BATCHES];
    id<MTLResource> *resources; /* the buffers of all slabs */
    int n_resources, max_resources;
    uint64_t slab_bytes;
    id<MTLComputePipelineState> copy; /* copies bytes */
    k3_mt_pipeline *pipelines;
    k3_mt_library libraries[K3_GPU_N_SHADERS];
    char kernels_dir[1024];
} k3_mt;

static inline k3_mt *k3_mt_of(k3_gpu *gpu)
{
    return (k3_mt *)gpu;
}

/* The description of an error in one line; "no reason given" for none. */
void k3_mt_reason(char *out, size_t size, NSError *error);

/* commands.m */
int k3_mt_begin(k3_gpu *gpu, int batch);
int k3_mt_submit(k3_gpu *gpu, int batch);
int k3_mt_wait(k3_gpu *gpu, uint64_t value);
void k3_mt_barrier(k3_gpu *gpu, int batch);
void k3_mt_dispatch(k3_gpu *gpu, int batch, void *pipeline, const void *args, size_t args_bytes, const uint32_t groups[3]);
void k3_mt_copy(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_slab *src, uint64_t src_at, uint64_t bytes);
int k3_mt_times(k3_gpu *gpu, int batch, uint64_t *ns, uint64_t *whole);
/* Nothing is recorded or in flight after it. */
void k3_mt_settle(k3_mt *mt);

/* pipelines.m */
int k3_mt_open_pipelines(k3_mt *mt);
void *k3_mt_new_pipeline(k3_gpu *gpu, const k3_gpu_pipeline *wanted);
void k3_mt_free_pipeline(k3_gpu *gpu, void *pipeline);
/* Compiles what has changed in the folder of kernels, if there is one. */
void k3_mt_reload(k3_mt *mt);
void k3_mt_close_pipelines(k3_mt *mt);

#endif
