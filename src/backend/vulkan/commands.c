/* Batches as command buffers: one pool and one buffer each, submitted to one queue. A timeline semaphore counts submissions. */
#include "backend/vulkan/vulkan.h"

enum { WAIT_SECONDS = 60 };

const char *k3_vk_result_name(VkResult result)
{
    switch (result) {
    case VK_SUCCESS:
        return "success";
    case VK_TIMEOUT:
        return "timeout";
    case VK_ERROR_OUT_OF_HOST_MEMORY:
        return "out of host memory";
    case VK_ERROR_OUT_OF_DEVICE_MEMORY:
        return "out of device memory";
    case VK_ERROR_DEVICE_LOST:
        return "device lost";
    case VK_ERROR_INITIALIZATION_FAILED:
        return "initialization failed";
    case VK_ERROR_MEMORY_MAP_FAILED:
        return "memory map failed";
    case VK_ERROR_FEATURE_NOT_PRESENT:
        return "feature not present";
    case VK_ERROR_EXTENSION_NOT_PRESENT:
        return "extension not present";
    case VK_ERROR_TOO_MANY_OBJECTS:
        return "too many objects";
    case VK_ERROR_INCOMPATIBLE_DRIVER:
        return "incompatible driver";
    default:
        return "an unknown error";
    }
}

int k3_vk_ok(k3_vk *vk, VkResult result, const char *what)
{
    if (result == VK_SUCCESS)
        return 1;
    int memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (result == VK_ERROR_DEVICE_LOST)
        vk->gpu.lost = 1;
    k3_gpu_fail(&vk->gpu, memory ? K3_E_NOMEM : K3_E_DEVICE, "%s: %s: %s (%d)", vk->gpu.base.name, what, k3_vk_result_name(result),
                (int)result);
    return 0;
}

/* ---- submissions ------------------------------------------------------------------------------------------- */

int k3_vk_wait_for(k3_vk *vk, VkSemaphore semaphore, uint64_t value, const char *what)
{
    VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, NULL, 0, 1, &semaphore, &value};
    if (vk->gpu.lost)
        return k3_vk_ok(vk, VK_ERROR_DEVICE_LOST, what);
    return k3_vk_ok(vk, vk->fn.vkWaitSemaphores(vk->device, &info, (uint64_t)WAIT_SECONDS * 1000000000u), what);
}

int k3_vk_wait(k3_gpu *gpu, uint64_t value)
{
    k3_vk *vk = k3_vk_of(gpu);
    return k3_vk_wait_for(vk, vk->timeline, value, "waiting for a submission");
}

int k3_vk_begin(k3_gpu *gpu, int batch)
{
    k3_vk *vk = k3_vk_of(gpu);
    const k3_vk_commands *commands = &vk->commands[batch];
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, NULL, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, NULL};
    if (!k3_vk_ok(vk, vk->fn.vkResetCommandPool(vk->device, commands->pool, 0), "resetting commands") ||
        !k3_vk_ok(vk, vk->fn.vkBeginCommandBuffer(commands->buffer, &begin), "beginning commands"))
        return 0;
    vk->bound = VK_NULL_HANDLE;
    if (commands->queries) {
        vk->fn.vkCmdResetQueryPool(commands->buffer, commands->queries, 0, K3_GPU_STAMPS + 2);
        vk->fn.vkCmdWriteTimestamp(commands->buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, commands->queries, 0);
    }
    k3_vk_barrier(gpu, batch); /* between this submission and earlier ones */
    return 1;
}

int k3_vk_submit(k3_gpu *gpu, int batch)
{
    k3_vk *vk = k3_vk_of(gpu);
    const k3_vk_commands *commands = &vk->commands[batch];
    const uint64_t *value = &gpu->batches[batch].value;
    if (commands->queries)
        vk->fn.vkCmdWriteTimestamp(commands->buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, commands->queries,
                                   (uint32_t)gpu->batches[batch].n_stamps + 1);
    if (!k3_vk_ok(vk, vk->fn.vkEndCommandBuffer(commands->buffer), "ending commands"))
        return 0;
    VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 1, &vk->upload_wait, 1, value};
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 1, &vk->uploads, &stages, 1, &commands->buffer, 1, &vk->timeline};
    return k3_vk_ok(vk, gpu->lost ? VK_ERROR_DEVICE_LOST : vk->fn.vkQueueSubmit(vk->queue, 1, &info, VK_NULL_HANDLE),
                    "submitting commands");
}

/* ---- commands ------------------------------------------------------------------------------------------------ */

void k3_vk_barrier(k3_gpu *gpu, int batch)
{
    k3_vk *vk = k3_vk_of(gpu);
    VkMemoryBarrier barrier = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, NULL, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                               VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                                   VK_ACCESS_TRANSFER_WRITE_BIT};
    VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    vk->fn.vkCmdPipelineBarrier(vk->commands[batch].buffer, stages, stages, 0, 1, &barrier, 0, NULL, 0, NULL);
}

void k3_vk_dispatch(k3_gpu *gpu, int batch, void *pipeline, const void *args, size_t args_bytes, const uint32_t groups[3])
{
    k3_vk *vk = k3_vk_of(gpu);
    VkCommandBuffer commands = vk->commands[batch].buffer;
    if (vk->bound != (VkPipeline)pipeline) {
        vk->fn.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vk->bound = pipeline;
    }
    vk->fn.vkCmdPushConstants(commands, vk->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)args_bytes, args);
    vk->fn.vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
}

void k3_vk_copy(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_slab *src, uint64_t src_at, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(gpu);
    VkBufferCopy region = {src_at, dst_at, bytes};
    vk->fn.vkCmdCopyBuffer(vk->commands[batch].buffer, ((k3_vk_slab *)src)->buffer, ((k3_vk_slab *)dst)->buffer, 1, &region);
}

void k3_vk_zero(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t at, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(gpu);
    vk->fn.vkCmdFillBuffer(vk->commands[batch].buffer, ((k3_vk_slab *)dst)->buffer, at, bytes, 0);
}

/* ---- time stamps --------------------------------------------------------------------------------------------- */

void k3_vk_stamp(k3_gpu *gpu, int batch, int i)
{
    k3_vk *vk = k3_vk_of(gpu);
    const k3_vk_commands *commands = &vk->commands[batch];
    vk->fn.vkCmdWriteTimestamp(commands->buffer, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, commands->queries, (uint32_t)i + 1);
}

int k3_vk_times(k3_gpu *gpu, int batch, uint64_t *ns, uint64_t *whole)
{
    static const VkQueryResultFlags flags = VK_QUERY_RESULT_64_BIT;
    k3_vk *vk = k3_vk_of(gpu);
    const k3_vk_commands *commands = &vk->commands[batch];
    uint64_t at[K3_GPU_STAMPS + 2];
    int n = gpu->batches[batch].n_stamps;
    if (!commands->queries ||
        vk->fn.vkGetQueryPoolResults(vk->device, commands->queries, 0, (uint32_t)n + 2, sizeof at, at, sizeof at[0], flags) != VK_SUCCESS)
        return 0;
    for (int i = 1; i < n + 2; i++)
        at[i] = at[i] > at[0] ? (uint64_t)((double)(at[i] - at[0]) * vk->stamp_ns) : 0;
    for (int i = 0; i < n; i++)
        ns[i] = at[i + 1];
    *whole = at[n + 1];
    return 1;
}

/* ---- open and close ------------------------------------------------------------------------------------------ */

static int open_batch(k3_vk *vk, k3_vk_commands *commands)
{
    VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, NULL, VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, vk->family};
    if (!k3_vk_ok(vk, vk->fn.vkCreateCommandPool(vk->device, &pool, NULL, &commands->pool), "making a command pool"))
        return 0;
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, commands->pool,
                                        VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
    if (!k3_vk_ok(vk, vk->fn.vkAllocateCommandBuffers(vk->device, &info, &commands->buffer), "making a command buffer"))
        return 0;
    VkQueryPoolCreateInfo queries = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, NULL, 0, VK_QUERY_TYPE_TIMESTAMP, K3_GPU_STAMPS + 2, 0};
    return vk->stamp_ns <= 0 ||
           k3_vk_ok(vk, vk->fn.vkCreateQueryPool(vk->device, &queries, NULL, &commands->queries), "making time stamps");
}

int k3_vk_open_commands(k3_vk *vk)
{
    VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, NULL, VK_SEMAPHORE_TYPE_TIMELINE, 0};
    VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    if (!k3_vk_ok(vk, vk->fn.vkCreateSemaphore(vk->device, &info, NULL, &vk->timeline), "making a semaphore") ||
        !k3_vk_ok(vk, vk->fn.vkCreateSemaphore(vk->device, &info, NULL, &vk->uploads), "making a semaphore"))
        return 0;
    for (int i = 0; i < K3_GPU_BATCHES; i++)
        if (!open_batch(vk, &vk->commands[i]))
            return 0;
    return 1;
}

void k3_vk_close_commands(k3_vk *vk)
{
    for (int i = 0; i < K3_GPU_BATCHES; i++) {
        if (vk->commands[i].queries)
            vk->fn.vkDestroyQueryPool(vk->device, vk->commands[i].queries, NULL);
        if (vk->commands[i].pool)
            vk->fn.vkDestroyCommandPool(vk->device, vk->commands[i].pool, NULL);
    }
    if (vk->timeline)
        vk->fn.vkDestroySemaphore(vk->device, vk->timeline, NULL);
    if (vk->uploads)
        vk->fn.vkDestroySemaphore(vk->device, vk->uploads, NULL);
}
