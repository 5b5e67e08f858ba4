/* Bytes between host and device. Where the host sees the device's memory they are written in place. Else small uploads travel inside the
 * batch being recorded, in order, and large ones overlap whatever is computed, as the driver brings them. */
#include "backend/args/copy.h"
#include "backend/gpu/driver.h"

#include <string.h>

enum { INLINE_BYTES = 16 << 10, UPLOAD_BYTES = 16 << 20, LANDING_BYTES = 4 << 20 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The piece at ref, and how many of `bytes` lie in it. */
static const k3_gpu_piece_of *piece_of(k3_ref ref, uint64_t bytes, uint64_t *at, uint64_t *n)
{
    const k3_gpu_buf *buf = (const k3_gpu_buf *)ref.buf;
    uint64_t within;
    const k3_gpu_piece_of *piece = k3_gpu_piece_at(buf, ref.at, &within);
    *at = piece->at + within;
    *n = least(bytes, buf->piece_bytes - within);
    return piece;
}

/* Records one copy between two places of slabs. */
static void record_copy(k3_gpu *gpu, k3_gpu_buf *dst_buf, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_buf *src_buf, k3_gpu_slab *src,
                        uint64_t src_at, uint64_t bytes)
{
    k3_gpu_batch *batch = k3_gpu_recording(gpu);
    if (!batch)
        return;
    k3_gpu_access_range(gpu, dst_buf, dst->address + dst_at, bytes, 1);
    k3_gpu_access_range(gpu, src_buf, src->address + src_at, bytes, 0);
    k3_gpu_order(gpu, batch);
    gpu->driver->copy(gpu, k3_gpu_number(gpu, batch), dst, dst_at, src, src_at, bytes);
}

void k3_gpu_zero(k3_gpu *gpu, k3_gpu_buf *buf)
{
    for (int i = 0; i < buf->n_pieces; i++) {
        const k3_gpu_piece_of *piece = &buf->pieces[i];
        if (piece->slab->host) {
            memset(piece->slab->host + piece->at, 0, piece->bytes);
            continue;
        }
        k3_gpu_batch *batch = k3_gpu_recording(gpu);
        if (!batch)
            return;
        k3_gpu_access_range(gpu, buf, piece->slab->address + piece->at, piece->bytes, 1);
        k3_gpu_order(gpu, batch);
        gpu->driver->zero(gpu, k3_gpu_number(gpu, batch), piece->slab, piece->at, piece->bytes);
    }
}

/* ---- uploads ------------------------------------------------------------------------------------------------- */

static void upload_inline(k3_gpu *gpu, k3_ref dst, const void *src, uint64_t bytes)
{
    uint64_t at, n, table = k3_gpu_put(gpu, src, bytes);
    for (uint64_t done = 0; table && done < bytes; done += n) {
        const k3_gpu_piece_of *piece = piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &at, &n);
        const k3_gpu_piece_of *from = &gpu->batch->tables->pieces[0];
        record_copy(gpu, (k3_gpu_buf *)dst.buf, piece->slab, at, gpu->batch->tables, from->slab,
                    table - gpu->batch->tables->base.address + from->at + done, n);
    }
}

void k3_gpu_upload(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (!bytes || k3_gpu_failed(gpu) || !k3_gpu_within(gpu, dst, bytes, "upload"))
        return;
    k3_gpu_buf *buf = (k3_gpu_buf *)dst.buf;
    gpu->n_pending = 0;
    int in_place = ((k3_gpu_buf *)dst.buf)->pieces[0].slab->host != NULL && buf->last_use <= gpu->completed;
    if (bytes <= INLINE_BYTES && !in_place) {
        upload_inline(gpu, dst, src, bytes);
        return;
    }
    for (uint64_t done = 0, n; done < bytes && !k3_gpu_failed(gpu); done += n) {
        uint64_t at;
        const k3_gpu_piece_of *piece = piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &at, &n);
        if (piece->slab->host) {
            if (buf->last_use > gpu->completed)
                k3_gpu_wait(gpu, buf->last_use);
            memcpy(piece->slab->host + at, (const char *)src + done, n);
        } else {
            n = least(n, UPLOAD_BYTES);
            gpu->driver->upload(gpu, buf, piece, at, (const char *)src + done, n);
        }
    }
}

void *k3_gpu_host(k3_backend *be, k3_ref dst, uint64_t bytes)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (k3_gpu_failed(gpu) || !k3_gpu_within(gpu, dst, bytes, "host"))
        return NULL;
    k3_gpu_buf *buf = (k3_gpu_buf *)dst.buf;
    uint64_t at, n;
    const k3_gpu_piece_of *piece = piece_of(dst, bytes, &at, &n);
    if (!piece->slab->host || n < bytes)
        return NULL;
    if (buf->last_use > gpu->completed)
        k3_gpu_wait(gpu, buf->last_use);
    return k3_gpu_failed(gpu) ? NULL : piece->slab->host + at;
}

/* ---- downloads and copies -------------------------------------------------------------------------------------- */

void k3_gpu_download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (!bytes || k3_gpu_failed(gpu) || !k3_gpu_within(gpu, src, bytes, "download"))
        return;
    k3_gpu_buf *buf = (k3_gpu_buf *)src.buf;
    gpu->n_pending = 0;
    if (buf->last_upload)
        gpu->driver->wait_upload(gpu, buf->last_upload);
    for (uint64_t done = 0, n; done < bytes && !k3_gpu_failed(gpu); done += n) {
        uint64_t at;
        const k3_gpu_piece_of *piece = piece_of((k3_ref){src.buf, src.at + done}, bytes - done, &at, &n);
        const char *from = piece->slab->host ? piece->slab->host + at : gpu->landing_host;
        if (!piece->slab->host) {
            n = least(n, LANDING_BYTES);
            record_copy(gpu, gpu->landing, gpu->landing->pieces[0].slab, gpu->landing->pieces[0].at, buf, piece->slab, at, n);
        }
        k3_gpu_wait(gpu, 0);
        if (!k3_gpu_failed(gpu))
            memcpy((char *)dst + done, from, n);
    }
}

/* One stretch inside the device's memory; large ones by a kernel, which is faster than the copy command. */
static void copy_stretch(k3_gpu *gpu, k3_ref dst, k3_ref src, uint64_t bytes)
{
    enum { WORTH_A_KERNEL = 64 << 10, GROUPS_A_CORE = 8 };
    uint64_t to, from, n;
    const k3_gpu_piece_of *d = piece_of(dst, bytes, &to, &n), *s = piece_of(src, bytes, &from, &n);
    if (bytes < WORTH_A_KERNEL || (to | from) % 16) {
        record_copy(gpu, (k3_gpu_buf *)dst.buf, d->slab, to, (k3_gpu_buf *)src.buf, s->slab, from, bytes);
        return;
    }
    uint64_t tail = bytes % 16, whole = bytes - tail;
    struct k3_copy_args args = {k3_gpu_write(gpu, dst, whole), k3_gpu_read(gpu, src, whole), (uint32_t)(whole / 16), 0};
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_copy, NULL, 0, &args, sizeof args, (uint64_t)GROUPS_A_CORE * gpu->limits.cores, 1, 1);
    if (tail)
        record_copy(gpu, (k3_gpu_buf *)dst.buf, d->slab, to + whole, (k3_gpu_buf *)src.buf, s->slab, from + whole, tail);
}

void k3_gpu_copy(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (!bytes || k3_gpu_failed(gpu) || !k3_gpu_within(gpu, dst, bytes, "copy to") || !k3_gpu_within(gpu, src, bytes, "copy from"))
        return;
    k3_gpu_begin(be, K3_GPU_COPY);
    for (uint64_t done = 0, n; done < bytes; done += n) {
        uint64_t to, from;
        piece_of((k3_ref){dst.buf, dst.at + done}, bytes - done, &to, &n);
        piece_of((k3_ref){src.buf, src.at + done}, n, &from, &n);
        copy_stretch(gpu, k3_at(dst, done), k3_at(src, done), n);
    }
    k3_gpu_end(gpu, 0);
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

int k3_gpu_open_transfer(k3_gpu *gpu)
{
    if (!gpu->driver->upload)
        return 1;
    gpu->landing = k3_gpu_host_buf(gpu, LANDING_BYTES, K3_GPU_FOR_READING, &gpu->landing_host, "landing memory");
    return gpu->landing != NULL;
}
