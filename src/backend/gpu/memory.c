/* Device memory: slabs, each one allocation under the device's limits, handed out in ranges of 256 bytes. A buffer is one range, or
 * several where alloc_rows had to cut it. */
#include "backend/gpu/driver.h"

#include <stdlib.h>
#include <string.h>

/* Small requests share slabs of this size; from half of it up a request gets a slab of its own. */
static uint64_t slab_bytes(const k3_gpu *gpu)
{
    static const uint64_t most = (uint64_t)256 << 20;
    return gpu->max_allocation < most ? gpu->max_allocation : most;
}

static uint64_t small_bytes(const k3_gpu *gpu)
{
    return slab_bytes(gpu) / 2;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + K3_GPU_ALIGN - 1) / K3_GPU_ALIGN * K3_GPU_ALIGN;
}

/* ---- slabs ------------------------------------------------------------------------------------------------- */

static int keep_slab(k3_gpu *gpu, k3_gpu_slab *slab)
{
    if (gpu->n_slabs == gpu->max_slabs) {
        int max = gpu->max_slabs ? 2 * gpu->max_slabs : 64;
        k3_gpu_slab **grown = realloc(gpu->slabs, (size_t)max * sizeof *grown);
        if (!grown)
            return 0;
        gpu->slabs = grown;
        gpu->max_slabs = max;
    }
    slab->gaps = malloc(8 * sizeof *slab->gaps);
    if (!slab->gaps)
        return 0;
    slab->max_gaps = 8;
    slab->gaps[slab->n_gaps++] = (k3_gpu_range){0, slab->bytes};
    gpu->slabs[gpu->n_slabs++] = slab;
    return 1;
}

static void free_slab(k3_gpu *gpu, k3_gpu_slab *slab)
{
    free(slab->gaps);
    gpu->driver->free_slab(gpu, slab);
}

/* A slab of the driver's, kept; NULL and the reason. */
static k3_gpu_slab *new_slab(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, void *pages, k3_status *status, const char **why)
{
    k3_gpu_slab *slab = gpu->driver->new_slab(gpu, bytes, purpose, pages, status, why);
    if (!slab)
        return NULL;
    slab->bytes = bytes;
    slab->wrapped = pages != NULL;
    if (keep_slab(gpu, slab))
        return slab;
    *status = K3_E_NOMEM;
    *why = "out of host memory";
    free_slab(gpu, slab);
    return NULL;
}

/* First gap that fits; UINT64_MAX if there is none. */
static uint64_t take_gap(k3_gpu_slab *slab, uint64_t bytes)
{
    for (int i = 0; i < slab->n_gaps; i++) {
        k3_gpu_range *gap = &slab->gaps[i];
        if (gap->bytes < bytes)
            continue;
        uint64_t at = gap->at;
        gap->at += bytes;
        gap->bytes -= bytes;
        if (!gap->bytes)
            memmove(gap, gap + 1, (size_t)(--slab->n_gaps - i) * sizeof *gap);
        return at;
    }
    return UINT64_MAX;
}

/* Gives a range back and joins it with its neighbours. If there is no memory to note it, the range is lost until the slab goes. */
static void give_gap(k3_gpu_slab *slab, uint64_t at, uint64_t bytes)
{
    int i = 0;
    while (i < slab->n_gaps && slab->gaps[i].at < at)
        i++;
    k3_gpu_range *before = i ? &slab->gaps[i - 1] : NULL, *after = i < slab->n_gaps ? &slab->gaps[i] : NULL;
    int joins_before = before && before->at + before->bytes == at, joins_after = after && at + bytes == after->at;
    if (joins_before && joins_after) {
        before->bytes += bytes + after->bytes;
        memmove(after, after + 1, (size_t)(--slab->n_gaps - i) * sizeof *after);
    } else if (joins_before) {
        before->bytes += bytes;
    } else if (joins_after) {
        after->at = at;
        after->bytes += bytes;
    } else {
        if (slab->n_gaps == slab->max_gaps) {
            k3_gpu_range *grown = realloc(slab->gaps, (size_t)(2 * slab->max_gaps) * sizeof *grown);
            if (!grown)
                return;
            slab->gaps = grown;
            slab->max_gaps *= 2;
        }
        memmove(slab->gaps + i + 1, slab->gaps + i, (size_t)(slab->n_gaps++ - i) * sizeof *slab->gaps);
        slab->gaps[i] = (k3_gpu_range){at, bytes};
    }
}

static void drop_empty_slab(k3_gpu *gpu, k3_gpu_slab *slab)
{
    if (slab->n_gaps != 1 || slab->gaps[0].bytes != slab->bytes)
        return;
    for (int i = 0; i < gpu->n_slabs; i++)
        if (gpu->slabs[i] == slab)
            gpu->slabs[i] = gpu->slabs[--gpu->n_slabs];
    free_slab(gpu, slab);
}

/* Whether slabs of small requests serve a purpose: the kinds of memory are not mixed in one. */
static int serves(const k3_gpu *gpu, const k3_gpu_slab *slab, k3_gpu_purpose purpose)
{
    return purpose == K3_GPU_FOR_DEVICE && !slab->wrapped && slab->bytes == slab_bytes(gpu);
}

static k3_status take(k3_gpu *gpu, k3_gpu_piece_of *piece, uint64_t bytes, k3_gpu_purpose purpose, const char **why)
{
    piece->bytes = bytes;
    for (int i = 0; bytes < small_bytes(gpu) && i < gpu->n_slabs; i++)
        if (serves(gpu, gpu->slabs[i], purpose)) {
            piece->at = take_gap(gpu->slabs[i], bytes);
            piece->slab = gpu->slabs[i];
            if (piece->at != UINT64_MAX)
                return K3_OK;
        }
    k3_status status = K3_OK;
    uint64_t wanted = purpose == K3_GPU_FOR_DEVICE && bytes < small_bytes(gpu) ? slab_bytes(gpu) : bytes;
    piece->slab = new_slab(gpu, wanted, purpose, NULL, &status, why);
    if (!piece->slab && wanted > bytes) /* little is left: exactly what is needed, then */
        piece->slab = new_slab(gpu, bytes, purpose, NULL, &status, why);
    piece->at = piece->slab ? take_gap(piece->slab, bytes) : 0;
    return piece->slab ? K3_OK : status;
}

/* ---- buffers ----------------------------------------------------------------------------------------------- */

static void give_back(k3_gpu *gpu, k3_gpu_buf *buf)
{
    for (int i = 0; i < buf->n_pieces; i++) {
        k3_gpu_slab *slab = buf->pieces[i].slab;
        if (!slab)
            continue;
        give_gap(slab, buf->pieces[i].at, buf->pieces[i].bytes);
        drop_empty_slab(gpu, slab);
    }
    free(buf->pieces);
    free(buf);
}

static k3_gpu_buf *keep(k3_gpu *gpu, k3_gpu_buf *buf)
{
    buf->base.address = buf->pieces[0].slab->address + buf->pieces[0].at;
    buf->next = gpu->buffers;
    if (gpu->buffers)
        gpu->buffers->previous = buf;
    gpu->buffers = buf;
    gpu->n_buffers++;
    gpu->used += buf->counted;
    return buf;
}

/* A buffer of pieces of piece_bytes (the last may be shorter). */
static k3_gpu_buf *new_buf(k3_gpu *gpu, uint64_t bytes, uint64_t piece_bytes, k3_gpu_purpose purpose, const char *what)
{
    uint64_t n = bytes ? (bytes + piece_bytes - 1) / piece_bytes : 1;
    k3_gpu_buf *buf = calloc(1, sizeof *buf);
    if (buf)
        buf->pieces = calloc(n, sizeof *buf->pieces);
    if (!buf || !buf->pieces) {
        free(buf);
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: the system has no memory left", what);
        return NULL;
    }
    buf->base.bytes = bytes;
    buf->piece_bytes = piece_bytes;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t left = bytes - i * piece_bytes;
        const char *why = "";
        k3_status status = take(gpu, &buf->pieces[i], round_up(left < piece_bytes ? (left ? left : 1) : piece_bytes), purpose, &why);
        buf->n_pieces = (int)i + 1;
        if (status == K3_OK) {
            buf->counted += purpose == K3_GPU_FOR_DEVICE ? buf->pieces[i].bytes : 0;
            continue;
        }
        buf->n_pieces = (int)i;
        const char *more = gpu->base.more_memory;
        uint64_t total, room = gpu->driver->free_bytes(gpu, &total);
        k3_gpu_fail(gpu, status,
                    "%s: %llu bytes wanted of %s, which has %llu of %llu free and answered %s; lower --vram or use smaller types%s%s", what,
                    (unsigned long long)bytes, gpu->base.name, (unsigned long long)room, (unsigned long long)total, why, more ? "; " : "",
                    more ? more : "");
        give_back(gpu, buf);
        return NULL;
    }
    return keep(gpu, buf);
}

k3_gpu_buf *k3_gpu_host_buf(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, char **host, const char *what)
{
    k3_gpu_buf *buf = new_buf(gpu, bytes, round_up(bytes), purpose, what);
    *host = buf ? buf->pieces[0].slab->host + buf->pieces[0].at : NULL;
    return buf;
}

static int fits_budget(k3_gpu *gpu, uint64_t bytes, const char *what)
{
    if (!gpu->budget || (gpu->used <= gpu->budget && bytes <= gpu->budget - gpu->used))
        return 1;
    k3_gpu_fail(gpu, K3_E_NOMEM, "%s: %llu bytes wanted, %llu of the budget of %llu are in use; raise --vram or ask for less", what,
                (unsigned long long)bytes, (unsigned long long)gpu->used, (unsigned long long)gpu->budget);
    return 0;
}

static k3_buf *memory_alloc(k3_backend *be, uint64_t bytes, const char *what)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (k3_gpu_failed(gpu) || !fits_budget(gpu, bytes, what))
        return NULL;
    if (round_up(bytes) > gpu->max_allocation || bytes > UINT64_MAX - K3_GPU_ALIGN) {
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: %llu bytes in one piece wanted, %s allows %llu an allocation", what, (unsigned long long)bytes,
                    gpu->base.name, (unsigned long long)gpu->max_allocation);
        return NULL;
    }
    k3_gpu_buf *buf = new_buf(gpu, bytes, round_up(bytes ? bytes : 1), K3_GPU_FOR_DEVICE, what);
    if (buf)
        k3_gpu_zero(gpu, buf);
    return buf ? &buf->base : NULL;
}

static k3_buf *memory_alloc_rows(k3_backend *be, uint64_t rows, uint64_t row_bytes, const char *what)
{
    k3_gpu *gpu = k3_gpu_of(be);
    uint64_t bytes = rows * row_bytes;
    if (round_up(bytes) <= gpu->max_allocation)
        return memory_alloc(be, bytes, what);
    if (k3_gpu_failed(gpu) || !fits_budget(gpu, bytes, what))
        return NULL;
    /* Rows are kept whole, and each piece but the last is a multiple of 16 bytes for vector loads of what follows. */
    uint64_t group = row_bytes % 16 ? 16 : 1, n = gpu->max_allocation / K3_GPU_ALIGN * K3_GPU_ALIGN / row_bytes / group * group;
    if (!n) {
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: a row of %llu bytes wanted in one piece, %s allows %llu an allocation", what,
                    (unsigned long long)row_bytes, gpu->base.name, (unsigned long long)gpu->max_allocation);
        return NULL;
    }
    k3_gpu_buf *buf = new_buf(gpu, bytes, n * row_bytes, K3_GPU_FOR_DEVICE, what);
    if (buf)
        k3_gpu_zero(gpu, buf);
    return buf ? &buf->base : NULL;
}

/* A buffer over the host's own pages; NULL if the device does not take them. */
static k3_gpu_buf *import_pages(k3_gpu *gpu, void *host, uint64_t bytes)
{
    k3_status status;
    const char *why;
    k3_gpu_slab *slab = bytes <= gpu->max_allocation ? new_slab(gpu, bytes, K3_GPU_FOR_DEVICE, host, &status, &why) : NULL;
    k3_gpu_buf *buf = calloc(1, sizeof *buf);
    k3_gpu_piece_of *piece = calloc(1, sizeof *piece);
    if (!slab || !buf || !piece) {
        free(buf);
        free(piece);
        if (slab)
            drop_empty_slab(gpu, slab);
        return NULL;
    }
    *piece = (k3_gpu_piece_of){slab, take_gap(slab, bytes), bytes};
    *buf = (k3_gpu_buf){.base = {bytes, host, 0}, .pieces = piece, .n_pieces = 1, .piece_bytes = bytes};
    buf->counted = gpu->base.shares_memory ? bytes : 0; /* one budget for both */
    return keep(gpu, buf);
}

static k3_buf *memory_view(k3_backend *be, void *host, uint64_t bytes)
{
    k3_gpu *gpu = k3_gpu_of(be);
    k3_gpu_buf *buf = k3_gpu_failed(gpu) ? NULL : import_pages(gpu, host, bytes);
    return buf ? &buf->base : NULL;
}

static k3_buf *memory_wrap(k3_backend *be, void *host, uint64_t bytes, const char *what)
{
    k3_buf *view = memory_view(be, host, bytes);
    if (view || k3_gpu_failed(k3_gpu_of(be)))
        return view;
    k3_buf *copy = memory_alloc(be, bytes, what);
    if (copy)
        k3_gpu_upload(be, (k3_ref){copy, 0}, host, bytes);
    return copy;
}

void k3_gpu_release_buf(k3_gpu *gpu, k3_gpu_buf *buf)
{
    if (!buf)
        return;
    if (buf->last_use > gpu->completed)
        k3_gpu_wait(gpu, buf->last_use);
    if (buf->last_upload)
        gpu->driver->wait_upload(gpu, buf->last_upload);
    if (buf->previous)
        buf->previous->next = buf->next;
    else
        gpu->buffers = buf->next;
    if (buf->next)
        buf->next->previous = buf->previous;
    gpu->n_buffers--;
    gpu->used -= buf->counted;
    give_back(gpu, buf);
}

static void memory_release(k3_backend *be, k3_buf *buf)
{
    k3_gpu_release_buf(k3_gpu_of(be), (k3_gpu_buf *)buf);
}

static void memory_info(k3_backend *be, k3_memory_info *info)
{
    k3_gpu *gpu = k3_gpu_of(be);
    *info = (k3_memory_info){
        .used = gpu->used, .budget = gpu->budget, .n_buffers = gpu->n_buffers, .n_slabs = gpu->n_slabs, .largest = gpu->max_allocation};
    info->free = gpu->driver->free_bytes(gpu, &info->total);
}

static void memory_set_budget(k3_backend *be, uint64_t bytes)
{
    k3_gpu_of(be)->budget = bytes;
}

static void memory_set_priority(k3_backend *be, float priority)
{
    k3_gpu_of(be)->priority = priority < 0 ? 0 : priority > 1 ? 1 : priority;
}

const k3_memory_ops k3_gpu_memory_ops = {
    .alloc = memory_alloc,
    .alloc_rows = memory_alloc_rows,
    .wrap = memory_wrap,
    .view = memory_view,
    .release = memory_release,
    .upload = k3_gpu_upload,
    .download = k3_gpu_download,
    .copy = k3_gpu_copy,
    .host = k3_gpu_host,
    .info = memory_info,
    .set_budget = memory_set_budget,
    .set_priority = memory_set_priority,
};

void k3_gpu_close_memory(k3_gpu *gpu)
{
    while (gpu->buffers)
        k3_gpu_release_buf(gpu, gpu->buffers);
    while (gpu->n_slabs)
        free_slab(gpu, gpu->slabs[--gpu->n_slabs]);
    free(gpu->slabs);
}

/* ---- places ------------------------------------------------------------------------------------------------ */

const k3_gpu_piece_of *k3_gpu_piece_at(const k3_gpu_buf *buf, uint64_t at, uint64_t *within)
{
    uint64_t i = at / buf->piece_bytes;
    if (i >= (uint64_t)buf->n_pieces)
        i = (uint64_t)buf->n_pieces - 1;
    *within = at - i * buf->piece_bytes;
    return &buf->pieces[i];
}

uint64_t k3_gpu_piece(k3_ref ref, uint64_t *bytes_left)
{
    const k3_gpu_buf *buf = (const k3_gpu_buf *)ref.buf;
    uint64_t within, all = ref.at < ref.buf->bytes ? ref.buf->bytes - ref.at : 0;
    const k3_gpu_piece_of *piece = k3_gpu_piece_at(buf, ref.at, &within);
    uint64_t here = within < buf->piece_bytes ? buf->piece_bytes - within : 0;
    *bytes_left = all < here ? all : here;
    return piece->slab->address + piece->at + within;
}

int k3_gpu_within(k3_gpu *gpu, k3_ref ref, uint64_t bytes, const char *call)
{
    if (ref.buf && ref.at <= ref.buf->bytes && bytes <= ref.buf->bytes - ref.at)
        return 1;
    k3_gpu_fail(gpu, K3_E_INVALID, "%s: bytes %llu to %llu asked for, the buffer has %llu", call, (unsigned long long)ref.at,
                (unsigned long long)(ref.at + bytes), (unsigned long long)(ref.buf ? ref.buf->bytes : 0));
    return 0;
}
