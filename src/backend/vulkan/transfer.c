/* Bytes between host and device. Small uploads travel inside the batch being recorded, in order. Large ones go through a ring of staging
 * memory on the transfer queue and overlap whatever is computed; where the host sees the device's memory they are written in place. */
#include "backend/args/copy.h"
#include "backend/vulkan/device.h"

#include <string.h>

enum { INLINE_BYTES = 16 << 10, STAGE_BYTES = 16 << 20, LANDING_BYTES = 4 << 20 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The piece at ref, and how many of `bytes` lie in it. */
static const k3_vk_piece_of *piece_of(k3_ref ref, uint64_t bytes, uint64_t *at, uint64_t *n)
{
    const k3_vk_buf *buf = (const k3_vk_buf *)ref.buf;
    uint64_t within;
    const k3_vk_piece_of *piece = k3_vk_piece_at(buf, ref.at, &within);
    *at = piece->at + within;
    *n = least(bytes, buf->piece_bytes - within);
    return piece;
}

/* Records one copy between two places of slabs. */
static void record_copy(k3_vk *vk, k3_vk_buf *dst_buf, const k3_vk_slab *dst, uint64_t dst_at, k3_vk_buf *src_buf, const k3_vk_slab *src,
                        uint64_t src_at, uint64_t bytes)
{
    k3_vk_batch *batch = k3_vk_recording(vk);
    if (!batch)
        return;
    k3_vk_access_range(vk, dst_buf, dst->address + dst_at, bytes, 1);
    k3_vk_access_range(vk, src_buf, src->address + src_at, bytes, 0);
    k3_vk_order(vk, batch);
    VkBufferCopy region = {src_at, dst_at, bytes};
    vk->fn.vkCmdCopyBuffer(batch->commands, src->buffer, dst->buffer, 1, &region);
}

void k3_vk_zero(k3_vk *vk, k3_vk_buf *buf)
{
    for (int i = 0; i < buf->n_pieces; i++) {
        const k3_vk_piece_of *piece = &buf->pieces[i];
        if (piece->slab->host) {
            memset(piece->slab->host + piece->at, 0, piece->bytes);
            continue;
        }
        k3_vk_batch *batch = k3_vk_recording(vk);
        if (!batch)
            return;
        k3_vk_access_range(vk, buf, piece->slab->address + piece->at, piece->bytes, 1);
        k3_vk_order(vk, batch);
        vk->fn.vkCmdFillBuffer(batch->commands, piece->slab->buffer, piece->at, piece->bytes, 0);
    }
}

/* ---- uploads ------------------------------------------------------------------------------------------------- */

static void upload_inline(k3_vk *vk, k3_ref dst, const void *src, uint64_t bytes)
{
    uint64_t at, n, table = k3_vk_put(vk, src, bytes);
    for (uint64_t done = 0; table && done < bytes; done += n) {
        const k3_vk_piece_of *piece = piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &at, &n);
        const k3_vk_piece_of *from = &vk->batch->tables->pieces[0];
        record_copy(vk, (k3_vk_buf *)dst.buf, piece->slab, at, vk->batch->tables, from->slab,
                    table - vk->batch->tables->base.address + from->at + done, n);
    }
}

/* One stretch through the next staging buffer; the copy runs on the transfer queue, and whatever is submitted from now on waits for it. */
static void upload_staged(k3_vk *vk, k3_vk_buf *buf, const k3_vk_piece_of *piece, uint64_t at, const char *src, uint64_t bytes)
{
    k3_vk_stage *stage = &vk->stages[vk->next_stage];
    vk->next_stage = (vk->next_stage + 1) % K3_VK_STAGES;
    if (buf->last_use > vk->completed && vk->batch && vk->batch->value <= buf->last_use)
        k3_vk_submit_batch(vk);
    k3_vk_wait_upload(vk, stage->value);
    if (k3_vk_failed(vk))
        return;
    memcpy(stage->host, src, bytes);
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, NULL, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, NULL};
    VkBufferCopy region = {stage->buf->pieces[0].at, at, bytes};
    if (!k3_vk_ok(vk, vk->fn.vkResetCommandPool(vk->device, stage->pool, 0), "resetting an upload") ||
        !k3_vk_ok(vk, vk->fn.vkBeginCommandBuffer(stage->commands, &begin), "beginning an upload"))
        return;
    vk->fn.vkCmdCopyBuffer(stage->commands, stage->buf->pieces[0].slab->buffer, piece->slab->buffer, 1, &region);
    if (!k3_vk_ok(vk, vk->fn.vkEndCommandBuffer(stage->commands), "ending an upload"))
        return;
    uint64_t value = vk->uploaded + 1, after = least(buf->last_use, vk->submitted);
    VkSemaphore waits[2] = {vk->timeline, vk->uploads}, signal = vk->uploads;
    uint64_t wait_values[2] = {after, vk->uploaded};
    VkPipelineStageFlags stages[2] = {VK_PIPELINE_STAGE_TRANSFER_BIT, VK_PIPELINE_STAGE_TRANSFER_BIT};
    VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 2, wait_values, 1, &value};
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 2, waits, stages, 1, &stage->commands, 1, &signal};
    if (!k3_vk_ok(vk, vk->fn.vkQueueSubmit(vk->transfer_queue, 1, &info, VK_NULL_HANDLE), "submitting an upload"))
        return;
    vk->uploaded = vk->upload_wait = stage->value = buf->last_upload = value;
}

void k3_vk_upload(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(be);
    if (!bytes || k3_vk_failed(vk) || !k3_vk_within(vk, dst, bytes, "upload"))
        return;
    k3_vk_buf *buf = (k3_vk_buf *)dst.buf;
    vk->n_pending = 0;
    int in_place = ((k3_vk_buf *)dst.buf)->pieces[0].slab->host != NULL && buf->last_use <= vk->completed;
    if (bytes <= INLINE_BYTES && !in_place) {
        upload_inline(vk, dst, src, bytes);
        return;
    }
    for (uint64_t done = 0, n; done < bytes && !k3_vk_failed(vk); done += n) {
        uint64_t at;
        const k3_vk_piece_of *piece = piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &at, &n);
        if (piece->slab->host) {
            if (buf->last_use > vk->completed)
                k3_vk_wait(vk, buf->last_use);
            memcpy(piece->slab->host + at, (const char *)src + done, n);
        } else {
            n = least(n, STAGE_BYTES);
            upload_staged(vk, buf, piece, at, (const char *)src + done, n);
        }
    }
}

/* ---- downloads and copies -------------------------------------------------------------------------------------- */

void k3_vk_download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(be);
    if (!bytes || k3_vk_failed(vk) || !k3_vk_within(vk, src, bytes, "download"))
        return;
    k3_vk_buf *buf = (k3_vk_buf *)src.buf;
    vk->n_pending = 0;
    if (buf->last_upload)
        k3_vk_wait_upload(vk, buf->last_upload);
    for (uint64_t done = 0, n; done < bytes && !k3_vk_failed(vk); done += n) {
        uint64_t at;
        const k3_vk_piece_of *piece = piece_of((k3_ref){src.buf, src.at + done}, bytes - done, &at, &n);
        const char *from = piece->slab->host ? piece->slab->host + at : vk->landing_host;
        if (!piece->slab->host) {
            n = least(n, LANDING_BYTES);
            record_copy(vk, vk->landing, vk->landing->pieces[0].slab, vk->landing->pieces[0].at, buf, piece->slab, at, n);
        }
        k3_vk_wait(vk, 0);
        if (!k3_vk_failed(vk))
            memcpy((char *)dst + done, from, n);
    }
}

/* One stretch inside the device's memory; large ones by a kernel, which is faster than the copy command. */
static void copy_stretch(k3_vk *vk, k3_ref dst, k3_ref src, uint64_t bytes)
{
    enum { WORTH_A_KERNEL = 64 << 10, GROUPS_A_CORE = 8 };
    uint64_t to, from, n;
    const k3_vk_piece_of *d = piece_of(dst, bytes, &to, &n), *s = piece_of(src, bytes, &from, &n);
    if (bytes < WORTH_A_KERNEL || (to | from) % 16) {
        record_copy(vk, (k3_vk_buf *)dst.buf, d->slab, to, (k3_vk_buf *)src.buf, s->slab, from, bytes);
        return;
    }
    uint64_t tail = bytes % 16, whole = bytes - tail;
    struct k3_copy_args args = {k3_vk_write(vk, dst, whole), k3_vk_read(vk, src, whole), (uint32_t)(whole / 16), 0};
    k3_vk_dispatch(vk, K3_VK_SHADER_copy, NULL, 0, &args, sizeof args, (uint64_t)GROUPS_A_CORE * vk->limits.cores, 1, 1);
    if (tail)
        record_copy(vk, (k3_vk_buf *)dst.buf, d->slab, to + whole, (k3_vk_buf *)src.buf, s->slab, from + whole, tail);
}

void k3_vk_copy(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes)
{
    k3_vk *vk = k3_vk_of(be);
    if (!bytes || k3_vk_failed(vk) || !k3_vk_within(vk, dst, bytes, "copy to") || !k3_vk_within(vk, src, bytes, "copy from"))
        return;
    k3_vk_begin(be, K3_VK_COPY);
    for (uint64_t done = 0, n; done < bytes; done += n) {
        uint64_t to, from;
        piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &to, &n);
        piece_of((k3_ref){src.buf, src.at + done}, n, &from, &n);
        copy_stretch(vk, k3_at(dst, done), k3_at(src, done), n);
    }
    k3_vk_end(vk, 0);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

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
        stage->buf = k3_vk_host_buf(vk, STAGE_BYTES, K3_VK_FOR_STAGING, &stage->host, "staging memory");
        if (!stage->buf)
            return 0;
    }
    vk->landing = k3_vk_host_buf(vk, LANDING_BYTES, K3_VK_FOR_READING, &vk->landing_host, "landing memory");
    return vk->landing != NULL;
}

void k3_vk_close_transfer(k3_vk *vk)
{
    for (int i = 0; i < K3_VK_STAGES; i++)
        if (vk->stages[i].pool)
            vk->fn.vkDestroyCommandPool(vk->device, vk->stages[i].pool, NULL);
}
