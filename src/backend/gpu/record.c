/* Recording: operations become commands of a batch (one command buffer with the tables that its commands read). Batches are submitted when
 * somebody waits, when somebody says so, or when their estimated time would make a submission long enough for a watchdog; a few are in
 * flight at once. Submissions are numbered from 1. */
#include "backend/gpu/driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TABLES_BYTES = 4 << 20 };

/* A submission is cut at this estimate; with the estimate off by a few times it still ends well before the two seconds at which the
 * strictest system kills it. */
static const double submission_seconds = 0.1;
/* The first guess of what a device does; corrected by what submissions really took. */
static const double guessed_bytes_a_second = 50e9, guessed_flops_a_second = 1e12, dispatch_seconds = 2e-6;
/* Until something is measured the guess is taken to be so many times too good. The time stamps of a software device measure nothing. */
static const double doubt = 16, doubt_in_software = 1000;

/* ---- failures ---------------------------------------------------------------------------------------------- */

void k3_gpu_fail(k3_gpu *gpu, k3_status status, const char *format, ...)
{
    if (gpu->failure.status != K3_OK)
        return;
    va_list args;
    va_start(args, format);
    gpu->failure.status = status;
    vsnprintf(gpu->failure.text, sizeof gpu->failure.text, format, args);
    va_end(args);
}

int k3_gpu_failed(const k3_gpu *gpu)
{
    return gpu->failure.status != K3_OK;
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

/* Adds what the time stamps of a finished batch say to the statistics and corrects the estimate of the next. */
static void read_stamps(k3_gpu *gpu, k3_gpu_batch *batch)
{
    uint64_t at[K3_GPU_STAMPS], whole, before = 0;
    if (!gpu->driver->times(gpu, k3_gpu_number(gpu, batch), at, &whole))
        return;
    for (int i = 0; i < batch->n_stamps; i++) {
        gpu->stats[batch->stamps[i]].nanoseconds += at[i] > before ? at[i] - before : 0;
        before = at[i];
    }
    if (batch->work > submission_seconds / 50 && !gpu->is_software) {
        double scale = gpu->work_scale * ((double)whole * 1e-9) / batch->work;
        gpu->work_scale = scale < 1e-4 ? 1e-4 : scale > 1e4 ? 1e4 : scale;
    }
}

static void finish(k3_gpu *gpu, uint64_t value)
{
    for (int i = 0; i < K3_GPU_BATCHES; i++) {
        k3_gpu_batch *batch = &gpu->batches[i];
        if (batch->value > gpu->completed && batch->value <= value && !batch->recording)
            read_stamps(gpu, batch);
    }
    gpu->completed = value > gpu->completed ? value : gpu->completed;
}

void k3_gpu_wait(k3_gpu *gpu, uint64_t value)
{
    if (gpu->batch && (!value || value > gpu->submitted))
        k3_gpu_submit_batch(gpu);
    if (!value || value > gpu->submitted)
        value = gpu->submitted;
    if (value > gpu->completed && gpu->driver->wait(gpu, value))
        finish(gpu, value);
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

int k3_gpu_number(const k3_gpu *gpu, const k3_gpu_batch *batch)
{
    return (int)(batch - gpu->batches);
}

static int begin_batch(k3_gpu *gpu, k3_gpu_batch *batch)
{
    if (batch->value)
        k3_gpu_wait(gpu, batch->needed > batch->value ? batch->needed : batch->value);
    if (k3_gpu_failed(gpu) || !gpu->driver->begin(gpu, k3_gpu_number(gpu, batch)))
        return 0;
    batch->tables_used = 0;
    batch->n_stamps = 0;
    batch->work = 0;
    batch->recording = 1;
    batch->value = gpu->submitted + 1;
    gpu->n_active = 0;
    return 1;
}

/* The free batch that has waited longest; one whose tables the current operation still uses is not free. */
static k3_gpu_batch *free_batch(k3_gpu *gpu)
{
    k3_gpu_batch *best = NULL;
    for (int i = 0; i < K3_GPU_BATCHES; i++)
        if (!gpu->batches[i].held && !gpu->batches[i].recording && (!best || gpu->batches[i].value < best->value))
            best = &gpu->batches[i];
    return best;
}

k3_gpu_batch *k3_gpu_recording(k3_gpu *gpu)
{
    if (k3_gpu_failed(gpu))
        return NULL;
    if (!gpu->batch) {
        k3_gpu_batch *batch = free_batch(gpu);
        if (batch && begin_batch(gpu, batch))
            gpu->batch = batch;
    }
    return gpu->batch;
}

void k3_gpu_submit_batch(k3_gpu *gpu)
{
    k3_gpu_batch *batch = gpu->batch;
    if (!batch)
        return;
    gpu->batch = NULL;
    batch->recording = 0;
    if (gpu->driver->submit(gpu, k3_gpu_number(gpu, batch)))
        gpu->submitted = batch->value;
    else
        batch->value = 0;
}

void k3_gpu_submit(k3_backend *be)
{
    k3_gpu_submit_batch(k3_gpu_of(be));
}

/* ---- order ------------------------------------------------------------------------------------------------- */

/* Makes room among the pending ranges: those of a buffer that are all read, or all written, become one range that covers them. A wider
 * range may cost a barrier more, never one less. */
static void merge_pending(k3_gpu *gpu)
{
    int n = 0;
    for (int i = 0; i < gpu->n_pending; i++) {
        k3_gpu_access *p = &gpu->pending[i], *q = gpu->pending;
        while (q < gpu->pending + n && (q->buf != p->buf || q->write != p->write))
            q++;
        if (q == gpu->pending + n) {
            gpu->pending[n++] = *p;
            continue;
        }
        q->first = p->first < q->first ? p->first : q->first;
        q->end = p->end > q->end ? p->end : q->end;
        q->bytes += p->bytes;
    }
    gpu->n_pending = n;
}

void k3_gpu_access_range(k3_gpu *gpu, k3_gpu_buf *buf, uint64_t address, uint64_t bytes, int write)
{
    if (!bytes)
        return;
    k3_gpu_access *last = gpu->n_pending ? &gpu->pending[gpu->n_pending - 1] : NULL;
    if (last && last->buf == buf && last->write == write && last->end <= address && address <= last->end + K3_GPU_ALIGN) {
        last->end = address + bytes; /* neighbours, such as an expert's tensors, are one range */
        last->bytes += bytes;
        return;
    }
    if (gpu->n_pending == K3_GPU_ACCESSES)
        merge_pending(gpu);
    if (gpu->n_pending == K3_GPU_ACCESSES)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: ranges of more than %d buffers in one dispatch", k3_gpu_op_now(gpu), (int)K3_GPU_ACCESSES);
    else
        gpu->pending[gpu->n_pending++] = (k3_gpu_access){address, address + bytes, bytes, buf, write};
}

static int meet(const k3_gpu_access *a, const k3_gpu_access *b)
{
    return a->first < b->end && b->first < a->end;
}

/* Writes are few among many reads: only they are compared with all of the others. */
static int meets_earlier(const k3_gpu *gpu)
{
    const k3_gpu_access *pending_end = gpu->pending + gpu->n_pending, *active_end = gpu->active + gpu->n_active;
    for (const k3_gpu_access *a = gpu->active; a < active_end; a++)
        for (const k3_gpu_access *p = gpu->pending; a->write && p < pending_end; p++)
            if (meet(a, p))
                return 1;
    for (const k3_gpu_access *p = gpu->pending; p < pending_end; p++)
        for (const k3_gpu_access *a = gpu->active; p->write && a < active_end; a++)
            if (meet(a, p))
                return 1;
    return 0;
}

void k3_gpu_order(k3_gpu *gpu, k3_gpu_batch *batch)
{
    if (gpu->n_active + gpu->n_pending > K3_GPU_ACCESSES || meets_earlier(gpu)) {
        gpu->driver->barrier(gpu, k3_gpu_number(gpu, batch));
        gpu->n_active = 0;
    }
    for (int i = 0; i < gpu->n_pending; i++)
        gpu->pending[i].buf->last_use = batch->value;
    memcpy(gpu->active + gpu->n_active, gpu->pending, (size_t)gpu->n_pending * sizeof *gpu->pending);
    gpu->n_active += gpu->n_pending;
    gpu->n_pending = 0;
}

/* ---- what the operations call -------------------------------------------------------------------------------- */

const k3_gpu_limits *k3_gpu_limits_of(const k3_gpu *gpu)
{
    return &gpu->limits;
}

k3_gpu *k3_gpu_begin(k3_backend *be, k3_gpu_op op)
{
    k3_gpu *gpu = k3_gpu_of(be);
    gpu->op = op;
    gpu->n_pending = 0;
    gpu->flops = 0;
    if (!k3_gpu_failed(gpu))
        gpu->stats[op].calls++;
    return gpu;
}

void k3_gpu_end(k3_gpu *gpu, uint64_t weight_bytes)
{
    k3_gpu_batch *batch = gpu->batch;
    if (!k3_gpu_failed(gpu))
        gpu->stats[gpu->op].bytes += weight_bytes;
    if (batch && gpu->timing && batch->n_stamps < K3_GPU_STAMPS) {
        if (gpu->driver->stamp)
            gpu->driver->stamp(gpu, k3_gpu_number(gpu, batch), batch->n_stamps);
        batch->stamps[batch->n_stamps++] = gpu->op;
    }
    for (int i = 0; i < K3_GPU_BATCHES; i++) {
        if (gpu->batches[i].held)
            gpu->batches[i].needed = batch ? batch->value : gpu->submitted;
        gpu->batches[i].held = 0;
    }
    if (batch && batch->n_stamps == (gpu->driver->stamp ? K3_GPU_STAMPS : 1))
        k3_gpu_submit_batch(gpu);
}

static uint64_t declare(k3_gpu *gpu, k3_ref ref, uint64_t bytes, int write)
{
    uint64_t left;
    if (!ref.buf || k3_gpu_failed(gpu) || !k3_gpu_within(gpu, ref, bytes, k3_gpu_op_now(gpu)))
        return 0;
    k3_gpu_buf *buf = (k3_gpu_buf *)ref.buf;
    uint64_t address = k3_gpu_piece(ref, &left);
    if (bytes > left) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: %llu bytes wanted in one piece, %llu lie together", k3_gpu_op_now(gpu),
                    (unsigned long long)bytes, (unsigned long long)left);
        return 0;
    }
    k3_gpu_access_range(gpu, buf, address, bytes, write);
    return address;
}

uint64_t k3_gpu_read(k3_gpu *gpu, k3_ref ref, uint64_t bytes)
{
    return declare(gpu, ref, bytes, 0);
}

uint64_t k3_gpu_write(k3_gpu *gpu, k3_ref ref, uint64_t bytes)
{
    return declare(gpu, ref, bytes, 1);
}

void *k3_gpu_table(k3_gpu *gpu, size_t bytes, uint64_t *address)
{
    k3_gpu_batch *batch = k3_gpu_recording(gpu);
    uint64_t room = (bytes + 15) / 16 * 16;
    if (batch && batch->tables_used + room > TABLES_BYTES && room <= TABLES_BYTES) {
        /* The tables already put for this operation stay where they are: their batch is not reused before its end. */
        batch->held = 1;
        k3_gpu_submit_batch(gpu);
        batch = k3_gpu_recording(gpu);
    }
    if (!batch || batch->tables_used + room > TABLES_BYTES) {
        k3_gpu_fail(gpu, K3_E_NOMEM, "%s: a table of %zu bytes wanted, %d are there; compute fewer rows at once", k3_gpu_op_now(gpu), bytes,
                    (int)TABLES_BYTES);
        *address = 0;
        return NULL;
    }
    char *host = batch->tables_host + batch->tables_used;
    *address = batch->tables->base.address + batch->tables_used;
    batch->tables_used += room;
    return host;
}

uint64_t k3_gpu_put(k3_gpu *gpu, const void *data, size_t bytes)
{
    uint64_t address;
    void *host = k3_gpu_table(gpu, bytes, &address);
    if (host)
        memcpy(host, data, bytes);
    return address;
}

uint64_t k3_gpu_runs(k3_gpu *gpu, const k3_run *runs, int n_runs, uint64_t state_bytes, int write)
{
    enum { AT_ONCE = 64 };
    struct k3_run_args table[AT_ONCE];
    uint64_t address = 0;
    if (n_runs > AT_ONCE) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: %d sequences in one pass, at most %d wanted", k3_gpu_op_now(gpu), n_runs, (int)AT_ONCE);
        return 0;
    }
    for (int i = 0; i < n_runs; i++) {
        uint64_t state = declare(gpu, runs[i].state, state_bytes, write);
        table[i] = (struct k3_run_args){state, (uint64_t)runs[i].pos, (uint32_t)runs[i].row, (uint32_t)runs[i].n};
    }
    if (n_runs > 0)
        address = k3_gpu_put(gpu, table, (size_t)n_runs * sizeof table[0]);
    return address;
}

k3_ref k3_gpu_scratch(k3_gpu *gpu, uint64_t bytes)
{
    if (!gpu->scratch || gpu->scratch->base.bytes < bytes) {
        if (gpu->scratch)
            gpu->base.memory->release(&gpu->base, &gpu->scratch->base);
        gpu->scratch = (k3_gpu_buf *)gpu->base.memory->alloc(&gpu->base, bytes + bytes / 4, "scratch of an operation");
        gpu->n_pending = 0;
    }
    return gpu->scratch ? (k3_ref){&gpu->scratch->base, 0} : (k3_ref){NULL, 0};
}

uint64_t k3_gpu_fault(const k3_gpu *gpu)
{
    return gpu->fault->base.address;
}

void k3_gpu_work(k3_gpu *gpu, double flops)
{
    gpu->flops += flops;
}

/* Estimated seconds of the dispatch that the pending ranges belong to. */
static double estimate(const k3_gpu *gpu)
{
    double bytes = 0;
    for (int i = 0; i < gpu->n_pending; i++)
        bytes += (double)gpu->pending[i].bytes;
    return (bytes / guessed_bytes_a_second + gpu->flops / guessed_flops_a_second) * gpu->work_scale + dispatch_seconds;
}

static void dispatch(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, int full, const void *args, size_t args_bytes,
                     uint64_t gx, uint32_t gy, uint32_t gz)
{
    double seconds = estimate(gpu);
    k3_gpu_batch *batch = k3_gpu_recording(gpu);
    if (batch && gx && gy && gz && (gx > gpu->limits.groups_x || gy > gpu->limits.groups_yz || gz > gpu->limits.groups_yz))
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: %llu x %u x %u workgroups wanted, %s allows %u x %u; compute fewer rows at once",
                    k3_gpu_op_now(gpu), (unsigned long long)gx, gy, gz, gpu->base.name, gpu->limits.groups_x, gpu->limits.groups_yz);
    void *pipeline = batch && !k3_gpu_failed(gpu) ? k3_gpu_pipeline_for(gpu, shader, spec, n_spec, full) : NULL;
    if (!pipeline || !gx || !gy || !gz) {
        gpu->n_pending = 0;
        return;
    }
    /* Cutting in the middle of an operation needs a batch to go on in, and keeps the tables already put for it. */
    if (batch->work > 0 && batch->work + seconds > submission_seconds) {
        batch->held = 1;
        if (free_batch(gpu)) {
            k3_gpu_submit_batch(gpu);
            if (!(batch = k3_gpu_recording(gpu)))
                return;
        }
    }
    k3_gpu_order(gpu, batch);
    uint32_t groups[3] = {(uint32_t)gx, gy, gz};
    gpu->driver->dispatch(gpu, k3_gpu_number(gpu, batch), pipeline, args, args_bytes, groups);
    batch->work += seconds;
    gpu->flops = 0;
    gpu->stats[gpu->op].dispatches++;
}

void k3_gpu_dispatch(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                     uint32_t gy, uint32_t gz)
{
    dispatch(gpu, shader, spec, n_spec, 0, args, args_bytes, gx, gy, gz);
}

void k3_gpu_dispatch_full(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes,
                          uint64_t gx, uint32_t gy, uint32_t gz)
{
    dispatch(gpu, shader, spec, n_spec, 1, args, args_bytes, gx, gy, gz);
}

/* ---- sync -------------------------------------------------------------------------------------------------- */

static void check_fault(k3_gpu *gpu)
{
    uint32_t word = *gpu->fault_host;
    *gpu->fault_host = 0;
    if (word == K3_GPU_FAULT_EMBED_ID)
        k3_gpu_fail(gpu, K3_E_INVALID, "embed: an id is outside the table");
    else if (word == K3_GPU_FAULT_EXPERT_ID)
        k3_gpu_fail(gpu, K3_E_INVALID, "moe_experts: an expert is asked for that is not there");
    else if (word == K3_GPU_FAULT_ROUTER_NAN)
        k3_gpu_fail(gpu, K3_E_NUMERIC, "router_topk: the logits hold a NaN; the weights or an earlier layer are damaged");
    else if (word)
        k3_gpu_fail(gpu, K3_E_INVALID, "%s: a kernel reported %u", gpu->base.name, word);
}

k3_status k3_gpu_sync(k3_backend *be, k3_error *err)
{
    k3_gpu *gpu = k3_gpu_of(be);
    k3_error kept = gpu->failure;
    /* Commands recorded before a failure still run: nothing that they touch may go away under them. */
    gpu->failure.status = K3_OK;
    k3_gpu_wait(gpu, 0);
    if (!gpu->lost && gpu->fault)
        check_fault(gpu);
    k3_error failure = kept.status != K3_OK ? kept : gpu->failure;
    gpu->failure.status = K3_OK;
    if (gpu->lost)
        failure.status = K3_E_DEVICE;
    return failure.status == K3_OK ? K3_OK : k3_fail(err, failure.status, "%s", failure.text);
}

/* ---- opening ------------------------------------------------------------------------------------------------- */

int k3_gpu_open_recorder(k3_gpu *gpu)
{
    gpu->work_scale = gpu->is_software ? doubt_in_software : doubt;
    for (int i = 0; i < K3_GPU_BATCHES; i++) {
        k3_gpu_batch *batch = &gpu->batches[i];
        batch->tables = k3_gpu_host_buf(gpu, TABLES_BYTES, K3_GPU_FOR_TABLES, &batch->tables_host, "tables of a command buffer");
        if (!batch->tables)
            return 0;
    }
    char *host;
    gpu->fault = k3_gpu_host_buf(gpu, K3_GPU_ALIGN, K3_GPU_FOR_READING, &host, "fault word");
    if (!gpu->fault)
        return 0;
    gpu->fault_host = (uint32_t *)(void *)host;
    *gpu->fault_host = 0;
    return 1;
}
