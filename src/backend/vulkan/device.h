/* The device behind the backend: Vulkan objects, memory, the command buffers being recorded. Only src/backend/vulkan includes this; the
 * operations' files need vulkan.h alone. */
#ifndef K3_BACKEND_VULKAN_DEVICE_H
#define K3_BACKEND_VULKAN_DEVICE_H

#include "backend/vulkan/vulkan.h"

#include <volk.h>

/* One VkDeviceMemory with one VkBuffer over all of it, handed out in ranges. */
typedef struct k3_vk_range {
    uint64_t at, bytes;
} k3_vk_range;

typedef struct k3_vk_slab {
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t bytes, address;
    char *host; /* mapped, or NULL */
    uint32_t heap;
    int wrapped;
    k3_vk_range *gaps; /* free ranges, by place */
    int n_gaps, max_gaps;
} k3_vk_slab;

typedef struct k3_vk_piece_of {
    k3_vk_slab *slab;
    uint64_t at, bytes;
} k3_vk_piece_of;

typedef struct k3_vk_buf k3_vk_buf;
struct k3_vk_buf {
    k3_buf base;
    k3_vk_piece_of *pieces;
    int n_pieces;
    uint64_t piece_bytes; /* of all but the last */
    uint64_t counted;     /* bytes that count against the budget */
    uint64_t last_use;    /* compute submission that uses it last; may still be recording */
    uint64_t last_upload; /* transfer submission */
    k3_vk_buf *next, *previous;
};

/* A range that a command reads or writes, by device address. */
typedef struct k3_vk_access {
    uint64_t first, end;
    uint64_t bytes; /* of it that are really read or written */
    k3_vk_buf *buf;
    int write;
} k3_vk_access;

/* The operation whose end a time stamp marks. */
typedef struct k3_vk_stamp {
    k3_vk_op op;
} k3_vk_stamp;

enum { K3_VK_BATCHES = 4, K3_VK_STAMPS = 2048, K3_VK_ACCESSES = 1024, K3_VK_MAX_SPEC = 12, K3_VK_STAGES = 3 };

/* A command buffer with what its commands read: tables written by the host. */
typedef struct k3_vk_batch {
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkQueryPool queries;
    k3_vk_buf *tables;
    char *tables_host;
    uint64_t tables_used;
    uint64_t value; /* submission number, 0: never submitted */
    int recording, held;
    int n_stamps;
    k3_vk_stamp stamps[K3_VK_STAMPS];
    double work; /* estimated seconds */
} k3_vk_batch;

typedef struct k3_vk_pipeline {
    k3_vk_shader shader;
    uint32_t spec[K3_VK_MAX_SPEC];
    int n_spec, full;
    VkPipeline pipeline;
} k3_vk_pipeline;

/* A piece of host memory on its way to the device. */
typedef struct k3_vk_stage {
    VkCommandPool pool;
    VkCommandBuffer commands;
    k3_vk_buf *buf;
    char *host;
    uint64_t value;
} k3_vk_stage;

struct k3_vk {
    k3_backend base;
    char name[300], line[900], notice[200];
    k3_error failure;
    int lost;

    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    struct VolkDeviceTable fn;
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory;
    uint32_t family, transfer_family;
    VkQueue queue, transfer_queue;
    k3_vk_limits limits;
    uint64_t max_allocation, host_alignment;
    int has_budget, has_priority, has_host_import, has_size_control, is_unified;
    double stamp_ns;

    /* memory.c */
    k3_vk_slab **slabs;
    int n_slabs, max_slabs;
    k3_vk_buf *buffers;
    uint64_t used, budget;
    int n_buffers;
    float priority;

    /* record.c */
    VkSemaphore timeline, uploads; /* compute submissions, transfer submissions */
    uint64_t submitted, completed, uploaded, upload_wait;
    k3_vk_batch batches[K3_VK_BATCHES];
    k3_vk_batch *batch;
    k3_vk_access pending[K3_VK_ACCESSES], active[K3_VK_ACCESSES];
    int n_pending, n_active;
    VkPipeline bound;
    k3_vk_buf *scratch, *fault;
    uint32_t *fault_host;
    double flops, work_scale; /* measured over estimated time */
    int timing;
    k3_vk_op op;
    k3_op_stat stats[K3_VK_N_OPS];

    /* pipelines.c */
    VkPipelineLayout layout;
    VkPipelineCache cache;
    k3_vk_pipeline *pipelines;
    int n_pipelines, max_pipelines, compiled;
    char cache_path[1024];
    k3_progress progress;
    void *user;

    /* transfer.c */
    k3_vk_stage stages[K3_VK_STAGES];
    int next_stage;
    k3_vk_buf *landing; /* host-visible, for downloads */
    char *landing_host;
};

static inline k3_vk *k3_vk_of(k3_backend *be)
{
    return (k3_vk *)be;
}

/* Keeps a failure for a call that did not succeed; 1 if it did. K3_E_DEVICE, or K3_E_NOMEM where memory ran out. */
int k3_vk_ok(k3_vk *vk, VkResult result, const char *what);
const char *k3_vk_result_name(VkResult result);

/* memory.c */
enum { K3_VK_ALIGN = 256 };
extern const k3_memory_ops k3_vk_memory_ops;
/* What memory is for: weights and state; tables that the host writes and kernels read; bytes that pass through on their way to the device,
 * or on their way back. All but the first are host-visible, coherent and mapped. */
typedef enum k3_vk_purpose { K3_VK_FOR_DEVICE, K3_VK_FOR_TABLES, K3_VK_FOR_STAGING, K3_VK_FOR_READING } k3_vk_purpose;
/* Memory that the host sees at *host. NULL and a kept failure. */
k3_vk_buf *k3_vk_host_buf(k3_vk *vk, uint64_t bytes, k3_vk_purpose purpose, char **host, const char *what);
void k3_vk_release_buf(k3_vk *vk, k3_vk_buf *buf);
void k3_vk_close_memory(k3_vk *vk);
/* The piece that holds byte `at` of a buffer, and the place in it. */
const k3_vk_piece_of *k3_vk_piece_at(const k3_vk_buf *buf, uint64_t at, uint64_t *within);
/* The device address at ref, and how many bytes from there lie in the same piece. */
uint64_t k3_vk_piece(k3_vk *vk, k3_ref ref, uint64_t *bytes_left);
/* Whether [at, at + bytes) lies in the buffer; a kept failure that names the call if not. */
int k3_vk_within(k3_vk *vk, k3_ref ref, uint64_t bytes, const char *call);
/* Free bytes of the heaps that device memory may come from, and their sizes. */
uint64_t k3_vk_free_bytes(k3_vk *vk, uint64_t *total);

/* record.c */
int k3_vk_open_recorder(k3_vk *vk);
void k3_vk_close_recorder(k3_vk *vk);
/* The batch that takes the next command, begun; NULL once there is a failure. */
k3_vk_batch *k3_vk_recording(k3_vk *vk);
/* Declares [address, address + bytes) of a buffer for the next command. */
void k3_vk_access_range(k3_vk *vk, k3_vk_buf *buf, uint64_t address, uint64_t bytes, int write);
/* Places a barrier if the declared ranges meet earlier ones. */
void k3_vk_order(k3_vk *vk, k3_vk_batch *batch);
void k3_vk_submit_batch(k3_vk *vk);
/* Waits for a compute submission (0: all of them). */
void k3_vk_wait(k3_vk *vk, uint64_t value);
void k3_vk_wait_upload(k3_vk *vk, uint64_t value);
k3_status k3_vk_sync(k3_backend *be, k3_error *err);
void k3_vk_submit(k3_backend *be);

/* pipelines.c */
int k3_vk_open_pipelines(k3_vk *vk);
void k3_vk_close_pipelines(k3_vk *vk);
VkPipeline k3_vk_pipeline_of(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, int full);

/* transfer.c */
int k3_vk_open_transfer(k3_vk *vk);
void k3_vk_close_transfer(k3_vk *vk);
void k3_vk_upload(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes);
void k3_vk_download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes);
void k3_vk_copy(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes);
void k3_vk_zero(k3_vk *vk, k3_vk_buf *buf);

/* selftest.c: compares the operations with the CPU; f16 matrix kernels that are wrong are switched off (vk->notice), anything else that is
 * wrong is an error. */
k3_status k3_vk_selftest(k3_vk *vk, k3_error *err);

#endif
