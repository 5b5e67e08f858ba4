/* Large uploads: a ring of staging memory on the transfer queue. */
#include "backend/vulkan/vulkan.h"

#include <string.h>

enum { STAGE_BYTES = 16 << 20 };

static k3_vk_slab *slab_of(const k3_gpu_piece_of *piece)
{
    return (k3_vk_slab *)piece->slab;
}

void k3_vk_wait_upload(k3_gpu *gpu, uint64_t number)
{
    k3_vk *vk = k3_vk_of(gpu);
    if (number && number <= vk->uploaded && !gpu->lost)
        k3_vk_wait_for(vk, vk->uploads, number, "waiting for an upload");
}

/* Through the next staging buffer; the copy runs on the transfer queue, and whatever is submitted from now on waits for it. */
void k3_vk_upload(k3_gpu *gpu, k3_gpu_buf *buf, const k3_gpu_piece_of *piece, uint64_t at, const char *src, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(gpu);
    k3_vk_stage *stage = &vk->stages[vk->next_stage];
    vk->next_stage = (vk->next_stage + 1) % K3_VK_STAGES;
    if (buf->last_use > gpu->completed && gpu->batch && gpu->batch->value <= buf->last_use)
        k3_gpu_submit_batch(gpu);
    k3_vk_wait_upload(gpu, stage->value);
    if (k3_gpu_failed(gpu))
        return;
    memcpy(stage->host, src, bytes);
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, NULL, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, NULL};
    VkBufferCopy region = {stage->buf->pieces[0].at, at, bytes};
    if (!k3_vk_ok(vk, vk->fn.vkResetCommandPool(vk->device, stage->pool, 0), "resetting an upload") ||
        !k3_vk_ok(vk, vk->fn.vkBeginCommandBuffer(stage->commands, &begin), "beginning an upload"))
        return;
    vk->fn.vkCmdCopyBuffer(stage->commands, slab_of(&stage->buf->pieces[0])->buffer, slab_of(piece)->buffer, 1, &region);
    if (!k3_vk_ok(vk, vk->fn.vkEndCommandBuffer(stage->commands), "ending an upload"))
        return;
    uint64_t value = vk->uploaded + 1, after = buf->last_use < gpu->submitted ? buf->last_use : gpu->submitted;
    VkSemaphore waits[2] = {vk->timeline, vk->uploads}, signal = vk->uploads;
    uint64_t wait_values[2] = {after, vk->uploaded};
    VkPipelineStageFlags stages[2] = {VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT};
    VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 2, wait_values, 1, &value};
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 2, waits, stages, 1, &stage->commands, 1, &signal};
    if (!k3_vk_ok(vk, vk->fn.vkQueueSubmit(vk->transfer_queue, 1, &info, VK_NULL_HANDLE), "submitting an upload"))
        return;
    vk->uploaded = vk->upload_wait = stage->value = buf->last_upload = value;
}

int k3_vk_open_transfer(k3_vk *vk)
{
    VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, NULL, VK_COMMAND_POOL_CREATE_TRANSIENT_BIT,
                                    vk->transfer_family};
    for (int i = 0; i < K3_VK_STAGES; i++) {
        k3_vk_stage *stage = &vk->stages[i];
        if (!k3_vk_ok(vk, vk->fn.vkCreateCommandPool(vk->device, &pool, NULL, &stage->pool), "making a command pool"))
            return 0;
        VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, stage->pool,
                                            VK_COMMAND_BUFFER_LEVEL_PRIMARY, 1};
        if (!k3_vk_ok(vk, vk->fn.vkAllocateCommandBuffers(vk->device, &info, &stage->commands), "making a command buffer"))
            return 0;
        stage->buf = k3_gpu_host_buf(&vk->gpu, STAGE_BYTES, K3_GPU_FOR_STAGING, &stage->host, "staging memory");
        if (!stage->buf)
            return 0;
    }
    return 1;
}

void k3_vk_close_transfer(k3_vk *vk)
{
    for (int i = 0; i < K3_VK_STAGES; i++)
        if (vk->stages[i].pool)
            vk->fn.vkDestroyCommandPool(vk->device, vk->stages[i].pool, NULL);
}
