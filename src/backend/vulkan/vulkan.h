/* The Vulkan driver of the GPU backend (gpu/driver.h): its objects, and what its files share. */
#ifndef K3_BACKEND_VULKAN_VULKAN_H
#define K3_BACKEND_VULKAN_VULKAN_H

#include "backend/gpu/driver.h"

#include <volk.h>

enum { K3_VK_STAGES = 3 };

/* One VkDeviceMemory with one VkBuffer over all of it. */
typedef struct k3_vk_slab {
    k3_gpu_slab base;
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint32_t heap;
} k3_vk_slab;

/* The command buffer of a batch. */
typedef struct k3_vk_commands {
    VkCommandPool pool;
    VkCommandBuffer buffer;
    VkQueryPool queries; /* stamps: the start, one an operation, the end */
} k3_vk_commands;

/* A piece of host memory on its way to the device. */
typedef struct k3_vk_stage {
    VkCommandPool pool;
    VkCommandBuffer commands;
    k3_gpu_buf *buf;
    char *host;
    uint64_t value;
} k3_vk_stage;

typedef struct k3_vk {
    k3_gpu gpu;

    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    struct VolkDeviceTable fn;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t family, transfer_family;
    VkQueue queue, transfer_queue;
    uint64_t host_alignment;
    int has_budget, has_priority, has_host_import, has_size_control, is_unified;
    double stamp_ns;

    /* commands.c */
    VkSemaphore timeline, uploads; /* submissions, uploads */
    uint64_t uploaded, upload_wait;
    k3_vk_commands commands[K3_GPU_BATCHES];
    VkPipeline bound;

    /* pipelines.c */
    VkPipelineLayout layout;
    VkPipelineCache cache;
    char cache_path[1024];

    /* transfer.c */
    k3_vk_stage stages[K3_VK_STAGES];
    int next_stage;
} k3_vk;

static inline k3_vk *k3_vk_of(k3_gpu *gpu)
{
    return (k3_vk *)gpu;
}

/* Keeps a failure for a call that did not succeed; 1 if it did. K3_E_DEVICE, or K3_E_NOMEM where memory ran out. */
int k3_vk_ok(k3_vk *vk, VkResult result, const char *what);
const char *k3_vk_result_name(VkResult result);

/* The driver's functions, as gpu/driver.h has them. slabs.c */
k3_gpu_slab *k3_vk_new_slab(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, void *pages, k3_status *status, const char **why);
void k3_vk_free_slab(k3_gpu *gpu, k3_gpu_slab *slab);
uint64_t k3_vk_free_bytes(k3_gpu *gpu, uint64_t *total);

/* commands.c */
int k3_vk_open_commands(k3_vk *vk);
void k3_vk_close_commands(k3_vk *vk);
int k3_vk_begin(k3_gpu *gpu, int batch);
int k3_vk_submit(k3_gpu *gpu, int batch);
int k3_vk_wait(k3_gpu *gpu, uint64_t value);
void k3_vk_barrier(k3_gpu *gpu, int batch);
void k3_vk_dispatch(k3_gpu *gpu, int batch, void *pipeline, const void *args, size_t args_bytes, const uint32_t groups[3]);
void k3_vk_copy(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_slab *src, uint64_t src_at, uint64_t bytes);
void k3_vk_zero(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t at, uint64_t bytes);
void k3_vk_stamp(k3_gpu *gpu, int batch, int i);
int k3_vk_times(k3_gpu *gpu, int batch, uint64_t *ns, uint64_t *whole);
int k3_vk_wait_for(k3_vk *vk, VkSemaphore semaphore, uint64_t value, const char *what);

/* pipelines.c */
int k3_vk_open_pipelines(k3_vk *vk);
void k3_vk_close_pipelines(k3_vk *vk); /* after the pipelines themselves */
void *k3_vk_new_pipeline(k3_gpu *gpu, const k3_gpu_pipeline *wanted);
void k3_vk_free_pipeline(k3_gpu *gpu, void *pipeline);

/* transfer.c */
int k3_vk_open_transfer(k3_vk *vk);
void k3_vk_close_transfer(k3_vk *vk);
void k3_vk_upload(k3_gpu *gpu, k3_gpu_buf *buf, const k3_gpu_piece_of *piece, uint64_t at, const char *src, uint64_t bytes);
void k3_vk_wait_upload(k3_gpu *gpu, uint64_t number);

#endif
