/* Recording: operations become commands of a batch (one command buffer with the tables that its commands read). Batches are submitted when
 * somebody waits, when somebody says so, or when their estimated time would make a submission long enough for a watchdog; a few are in
 * flight at once. A timeline semaphore counts submissions. */
#include "backend/vulkan/device.h"

#include "base/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TABLES_BYTES = 4 << 20, WAIT_SECONDS = 60 };

/* A submission is cut at this estimate; with the estimate off by a few times it still ends well before the two seconds at which the
 * strictest system kills it. */
static const double submission_seconds = 0.1;
/* The first guess of what a device does; corrected by what submissions really took. */
static const double guessed_bytes_a_second = 50e9, guessed_flops_a_second = 1e12, dispatch_seconds = 2e-6;
/* Until something is measured the guess is taken to be so many times too good. The time stamps of a software device measure nothing. */
static const double doubt = 16, doubt_in_software = 1000;

/* ---- failures ---------------------------------------------------------------------------------------------- */

void k3_vk_fail(k3_vk *vk, k3_status status, const char *format, ...)
{
    if (vk->failure.status != K3_OK)
        return;
    va_list args;
    va_start(args, format);
    vk->failure.status = status;
    vsnprintf(vk->failure.text, sizeof vk->failure.text, format, args);
    va_end(args);
}

int k3_vk_failed(const k3_vk *vk)
{
    return vk->failure.status != K3_OK;
}

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
        vk->lost = 1;
    k3_vk_fail(vk, memory ? K3_E_NOMEM : K3_E_DEVICE, "%s: %s: %s (%d)", vk->base.name, what, k3_vk_result_name(result), (int)result);
    return 0;
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

static int wait_for(k3_vk *vk, VkSemaphore semaphore, uint64_t value, const char *what)
{
    VkSemaphoreWaitInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, NULL, 0, 1, &semaphore, &value};
    if (vk->lost)
        return k3_vk_ok(vk, VK_ERROR_DEVICE_LOST, what);
    return k3_vk_ok(vk, vk->fn.vkWaitSemaphores(vk->device, &info, (uint64_t)WAIT_SECONDS * 1000000000u), what);
}

/* Adds what the time stamps of a finished batch say to the statistics and corrects the estimate of the next. */
static void read_stamps(k3_vk *vk, k3_vk_batch *batch)
{
    static const VkQueryResultFlags flags = VK_QUERY_RESULT_64_BIT;
    uint64_t first, at[K3_VK_STAMPS + 2];
    int n = batch->n_stamps;
    if (!batch->queries ||
        vk->fn.vkGetQueryPoolResults(vk->device, batch->queries, 0, (uint32_t)n + 2, sizeof at, at, sizeof at[0], flags) != VK_SUCCESS)
        return;
    first = at[0];
    for (int i = 0; i < n; i++) {
        uint64_t before = at[i + 1] < at[i] ? at[i + 1] : at[i];
        vk->stats[batch->stamps[i].op].nanoseconds += (uint64_t)((double)(at[i + 1] - before) * vk->stamp_ns);
    }
    uint64_t took = at[n + 1] > first ? (uint64_t)((double)(at[n + 1] - first) * vk->stamp_ns) : 0;
    if (batch->work > submission_seconds / 50 && vk->properties.deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU) {
        double scale = vk->work_scale * ((double)took * 1e-9) / batch->work;
        vk->work_scale = scale < 1e-4 ? 1e-4 : scale > 1e4 ? 1e4 : scale;
    }
}

static void finish(k3_vk *vk, uint64_t value)
{
    for (int i = 0; i < K3_VK_BATCHES; i++) {
        k3_vk_batch *batch = &vk->batches[i];
        if (batch->value > vk->completed && batch->value <= value && !batch->recording)
            read_stamps(vk, batch);
    }
    vk->completed = value > vk->completed ? value : vk->completed;
}

void k3_vk_wait(k3_vk *vk, uint64_t value)
{
    if (vk->batch && (!value || value > vk->submitted))
        k3_vk_submit_batch(vk);
    if (!value || value > vk->submitted)
        value = vk->submitted;
    if (value > vk->completed && wait_for(vk, vk->timeline, value, "waiting for a submission"))
        finish(vk, value);
}

void k3_vk_wait_upload(k3_vk *vk, uint64_t value)
{
    if (value && value <= vk->uploaded && !vk->lost)
        wait_for(vk, vk->uploads, value, "waiting for an upload");
}

/* ---- batches ----------------------------------------------------------------------------------------------- */

/* What was written before is visible from here on, and what was read may be written. */
static void place_barrier(k3_vk *vk, k3_vk_batch *batch)
{
    VkMemoryBarrier barrier = {VK_STRUCTURE_TYPE_MEMORY_BARRIER, NULL, VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
                               VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_READ_BIT |
                                   VK_ACCESS_TRANSFER_WRITE_BIT};
    VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    vk->fn.vkCmdPipelineBarrier(batch->commands, stages, stages, 0, 1, &barrier, 0, NULL, 0, NULL);
}

static int begin_batch(k3_vk *vk, k3_vk_batch *batch)
{
    VkCommandBufferBeginInfo begin = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, NULL, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT, NULL};
    if (batch->value)
        k3_vk_wait(vk, batch->value);
    if (k3_vk_failed(vk) || !k3_vk_ok(vk, vk->fn.vkResetCommandPool(vk->device, batch->pool, 0), "resetting commands") ||
        !k3_vk_ok(vk, vk->fn.vkBeginCommandBuffer(batch->commands, &begin), "beginning commands"))
        return 0;
    batch->tables_used = 0;
    batch->n_stamps = 0;
    batch->work = 0;
    batch->recording = 1;
    batch->value = vk->submitted + 1;
    vk->bound = VK_NULL_HANDLE;
    vk->n_active = 0;
    if (batch->queries) {
        vk->fn.vkCmdResetQueryPool(batch->commands, batch->queries, 0, K3_VK_STAMPS + 2);
        vk->fn.vkCmdWriteTimestamp(batch->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, batch->queries, 0);
    }
    place_barrier(vk, batch); /* between this submission and earlier ones */
    return 1;
}

/* The free batch that has waited longest; one whose tables the current operation still uses is not free. */
static k3_vk_batch *free_batch(k3_vk *vk)
{
    k3_vk_batch *best = NULL;
    for (int i = 0; i < K3_VK_BATCHES; i++)
        if (!vk->batches[i].held && !vk->batches[i].recording && (!best || vk->batches[i].value < best->value))
            best = &vk->batches[i];
    return best;
}

k3_vk_batch *k3_vk_recording(k3_vk *vk)
{
    if (k3_vk_failed(vk))
        return NULL;
    if (!vk->batch) {
        k3_vk_batch *batch = free_batch(vk);
        if (batch && begin_batch(vk, batch))
            vk->batch = batch;
    }
    return vk->batch;
}

void k3_vk_submit_batch(k3_vk *vk)
{
    k3_vk_batch *batch = vk->batch;
    if (!batch)
        return;
    vk->batch = NULL;
    batch->recording = 0;
    if (batch->queries)
        vk->fn.vkCmdWriteTimestamp(batch->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, batch->queries, (uint32_t)batch->n_stamps + 1);
    if (!k3_vk_ok(vk, vk->fn.vkEndCommandBuffer(batch->commands), "ending commands")) {
        batch->value = 0;
        return;
    }
    VkPipelineStageFlags stages = VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT;
    VkTimelineSemaphoreSubmitInfo values = {VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO, NULL, 1, &vk->upload_wait, 1, &batch->value};
    VkSubmitInfo info = {VK_STRUCTURE_TYPE_SUBMIT_INFO, &values, 1, &vk->uploads, &stages, 1, &batch->commands, 1, &vk->timeline};
    if (k3_vk_ok(vk, vk->lost ? VK_ERROR_DEVICE_LOST : vk->fn.vkQueueSubmit(vk->queue, 1, &info, VK_NULL_HANDLE), "submitting commands"))
        vk->submitted = batch->value;
    else
        batch->value = 0;
}

void k3_vk_submit(k3_backend *be)
{
    k3_vk_submit_batch(k3_vk_of(be));
}

/* ---- order ------------------------------------------------------------------------------------------------- */

/* Makes room among the pending ranges: those of a buffer that are all read, or all written, become one range that covers them. A wider
 * range may cost a barrier more, never one less. */
static void merge_pending(k3_vk *vk)
{
    int n = 0;
    for (int i = 0; i < vk->n_pending; i++) {
        k3_vk_access *p = &vk->pending[i], *q = vk->pending;
        while (q < vk->pending + n && (q->buf != p->buf || q->write != p->write))
            q++;
        if (q == vk->pending + n) {
            vk->pending[n++] = *p;
            continue;
        }
        q->first = p->first < q->first ? p->first : q->first;
        q->end = p->end > q->end ? p->end : q->end;
        q->bytes += p->bytes;
    }
    vk->n_pending = n;
}

void k3_vk_access_range(k3_vk *vk, k3_vk_buf *buf, uint64_t address, uint64_t bytes, int write)
{
    if (!bytes)
        return;
    k3_vk_access *last = vk->n_pending ? &vk->pending[vk->n_pending - 1] : NULL;
    if (last && last->buf == buf && last->write == write && last->end <= address && address <= last->end + K3_VK_ALIGN) {
        last->end = address + bytes; /* neighbours, such as an expert's tensors, are one range */
        last->bytes += bytes;
        return;
    }
    if (vk->n_pending == K3_VK_ACCESSES)
        merge_pending(vk);
    if (vk->n_pending == K3_VK_ACCESSES)
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "%s: ranges of more than %d buffers in one dispatch", k3_vk_op_name(vk->op), (int)K3_VK_ACCESSES);
    else
        vk->pending[vk->n_pending++] = (k3_vk_access){address, address + bytes, bytes, buf, write};
}

static int meet(const k3_vk_access *a, const k3_vk_access *b)
{
    return a->first < b->end && b->first < a->end;
}

/* Writes are few among many reads: only they are compared with all of the others. */
static int meets_earlier(const k3_vk *vk)
{
    const k3_vk_access *pending_end = vk->pending + vk->n_pending, *active_end = vk->active + vk->n_active;
    for (const k3_vk_access *a = vk->active; a < active_end; a++)
        for (const k3_vk_access *p = vk->pending; a->write && p < pending_end; p++)
            if (meet(a, p))
                return 1;
    for (const k3_vk_access *p = vk->pending; p < pending_end; p++)
        for (const k3_vk_access *a = vk->active; p->write && a < active_end; a++)
            if (meet(a, p))
                return 1;
    return 0;
}

void k3_vk_order(k3_vk *vk, k3_vk_batch *batch)
{
    if (vk->n_active + vk->n_pending > K3_VK_ACCESSES || meets_earlier(vk)) {
        place_barrier(vk, batch);
        vk->n_active = 0;
    }
    for (int i = 0; i < vk->n_pending; i++)
        vk->pending[i].buf->last_use = batch->value;
    memcpy(vk->active + vk->n_active, vk->pending, (size_t)vk->n_pending * sizeof *vk->pending);
    vk->n_active += vk->n_pending;
    vk->n_pending = 0;
}

/* ---- what the operations call -------------------------------------------------------------------------------- */

const k3_vk_limits *k3_vk_limits_of(const k3_vk *vk)
{
    return &vk->limits;
}

k3_vk *k3_vk_begin(k3_backend *be, k3_vk_op op)
{
    k3_vk *vk = k3_vk_of(be);
    vk->op = op;
    vk->n_pending = 0;
    vk->flops = 0;
    if (!k3_vk_failed(vk))
        vk->stats[op].calls++;
    return vk;
}

void k3_vk_end(k3_vk *vk, uint64_t weight_bytes)
{
    k3_vk_batch *batch = vk->batch;
    if (!k3_vk_failed(vk))
        vk->stats[vk->op].bytes += weight_bytes;
    if (batch && vk->timing && batch->n_stamps < K3_VK_STAMPS) {
        batch->stamps[batch->n_stamps++].op = vk->op;
        vk->fn.vkCmdWriteTimestamp(batch->commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, batch->queries, (uint32_t)batch->n_stamps);
    }
    for (int i = 0; i < K3_VK_BATCHES; i++)
        vk->batches[i].held = 0;
    if (batch && batch->n_stamps == K3_VK_STAMPS)
        k3_vk_submit_batch(vk);
}

static uint64_t declare(k3_vk *vk, k3_ref ref, uint64_t bytes, int write)
{
    uint64_t left;
    if (!ref.buf || k3_vk_failed(vk) || !k3_vk_within(vk, ref, bytes, k3_vk_op_name(vk->op)))
        return 0;
    k3_vk_buf *buf = (k3_vk_buf *)ref.buf;
    uint64_t address = k3_vk_piece(vk, ref, &left);
    if (bytes > left) {
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "%s: %llu bytes wanted in one piece, %llu lie together", k3_vk_op_name(vk->op),
                   (unsigned long long)bytes, (unsigned long long)left);
        return 0;
    }
    k3_vk_access_range(vk, buf, address, bytes, write);
    return address;
}

uint64_t k3_vk_read(k3_vk *vk, k3_ref ref, uint64_t bytes)
{
    return declare(vk, ref, bytes, 0);
}

uint64_t k3_vk_write(k3_vk *vk, k3_ref ref, uint64_t bytes)
{
    return declare(vk, ref, bytes, 1);
}

void *k3_vk_table(k3_vk *vk, size_t bytes, uint64_t *address)
{
    k3_vk_batch *batch = k3_vk_recording(vk);
    uint64_t room = (bytes + 15) / 16 * 16;
    if (batch && batch->tables_used + room > TABLES_BYTES && room <= TABLES_BYTES) {
        /* The tables already put for this operation stay where they are: their batch is not reused before its end. */
        batch->held = 1;
        k3_vk_submit_batch(vk);
        batch = k3_vk_recording(vk);
    }
    if (!batch || batch->tables_used + room > TABLES_BYTES) {
        k3_vk_fail(vk, K3_E_NOMEM, "%s: a table of %zu bytes wanted, %d are there; compute fewer rows at once", k3_vk_op_name(vk->op),
                   bytes, (int)TABLES_BYTES);
        *address = 0;
        return NULL;
    }
    char *host = batch->tables_host + batch->tables_used;
    *address = batch->tables->base.address + batch->tables_used;
    batch->tables_used += room;
    return host;
}

uint64_t k3_vk_put(k3_vk *vk, const void *data, size_t bytes)
{
    uint64_t address;
    void *host = k3_vk_table(vk, bytes, &address);
    if (host)
        memcpy(host, data, bytes);
    return address;
}

uint64_t k3_vk_runs(k3_vk *vk, const k3_run *runs, int n_runs, uint64_t state_bytes, int write)
{
    enum { AT_ONCE = 64 };
    struct k3_run_args table[AT_ONCE];
    uint64_t address = 0;
    if (n_runs > AT_ONCE) {
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "%s: %d sequences in one pass, at most %d wanted", k3_vk_op_name(vk->op), n_runs, (int)AT_ONCE);
        return 0;
    }
    for (int i = 0; i < n_runs; i++) {
        uint64_t state = declare(vk, runs[i].state, state_bytes, write);
        table[i] = (struct k3_run_args){state, (uint64_t)runs[i].pos, (uint32_t)runs[i].row, (uint32_t)runs[i].n};
    }
    if (n_runs > 0)
        address = k3_vk_put(vk, table, (size_t)n_runs * sizeof table[0]);
    return address;
}

k3_ref k3_vk_scratch(k3_vk *vk, uint64_t bytes)
{
    if (!vk->scratch || vk->scratch->base.bytes < bytes) {
        if (vk->scratch)
            vk->base.memory->release(&vk->base, &vk->scratch->base);
        vk->scratch = (k3_vk_buf *)vk->base.memory->alloc(&vk->base, bytes + bytes / 4, "scratch of an operation");
        vk->n_pending = 0;
    }
    return vk->scratch ? (k3_ref){&vk->scratch->base, 0} : (k3_ref){NULL, 0};
}

uint64_t k3_vk_fault(const k3_vk *vk)
{
    return vk->fault->base.address;
}

void k3_vk_work(k3_vk *vk, double flops)
{
    vk->flops += flops;
}

/* Estimated seconds of the dispatch that the pending ranges belong to. */
static double estimate(const k3_vk *vk)
{
    double bytes = 0;
    for (int i = 0; i < vk->n_pending; i++)
        bytes += (double)vk->pending[i].bytes;
    return (bytes / guessed_bytes_a_second + vk->flops / guessed_flops_a_second) * vk->work_scale + dispatch_seconds;
}

static void dispatch(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, int full, const void *args, size_t args_bytes,
                     uint64_t gx, uint32_t gy, uint32_t gz)
{
    double seconds = estimate(vk);
    k3_vk_batch *batch = k3_vk_recording(vk);
    if (batch && gx && gy && gz && (gx > vk->limits.groups_x || gy > vk->limits.groups_yz || gz > vk->limits.groups_yz))
        k3_vk_fail(vk, K3_E_UNSUPPORTED, "%s: %llu x %u x %u workgroups wanted, %s allows %u x %u; compute fewer rows at once",
                   k3_vk_op_name(vk->op), (unsigned long long)gx, gy, gz, vk->base.name, vk->limits.groups_x, vk->limits.groups_yz);
    VkPipeline pipeline = batch && !k3_vk_failed(vk) ? k3_vk_pipeline_of(vk, shader, spec, n_spec, full) : VK_NULL_HANDLE;
    if (!pipeline || !gx || !gy || !gz) {
        vk->n_pending = 0;
        return;
    }
    /* Cutting in the middle of an operation needs a batch to go on in, and keeps the tables already put for it. */
    if (batch->work > 0 && batch->work + seconds > submission_seconds) {
        batch->held = 1;
        if (free_batch(vk)) {
            k3_vk_submit_batch(vk);
            if (!(batch = k3_vk_recording(vk)))
                return;
        }
    }
    k3_vk_order(vk, batch);
    if (vk->bound != pipeline) {
        vk->fn.vkCmdBindPipeline(batch->commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipeline);
        vk->bound = pipeline;
    }
    vk->fn.vkCmdPushConstants(batch->commands, vk->layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, (uint32_t)args_bytes, args);
    vk->fn.vkCmdDispatch(batch->commands, (uint32_t)gx, gy, gz);
    batch->work += seconds;
    vk->flops = 0;
    vk->stats[vk->op].dispatches++;
}

void k3_vk_dispatch(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                    uint32_t gy, uint32_t gz)
{
    dispatch(vk, shader, spec, n_spec, 0, args, args_bytes, gx, gy, gz);
}

void k3_vk_dispatch_full(k3_vk *vk, k3_vk_shader shader, const uint32_t *spec, int n_spec, const void *args, size_t args_bytes, uint64_t gx,
                         uint32_t gy, uint32_t gz)
{
    dispatch(vk, shader, spec, n_spec, 1, args, args_bytes, gx, gy, gz);
}

/* ---- sync -------------------------------------------------------------------------------------------------- */

static void check_fault(k3_vk *vk)
{
    uint32_t word = *vk->fault_host;
    *vk->fault_host = 0;
    if (word == K3_VK_FAULT_EMBED_ID)
        k3_vk_fail(vk, K3_E_INVALID, "embed: an id is outside the table");
    else if (word == K3_VK_FAULT_EXPERT_ID)
        k3_vk_fail(vk, K3_E_INVALID, "moe_experts: an expert is asked for that is not there");
    else if (word == K3_VK_FAULT_ROUTER_NAN)
        k3_vk_fail(vk, K3_E_NUMERIC, "router_topk: the logits hold a NaN; the weights or an earlier layer are damaged");
    else if (word)
        k3_vk_fail(vk, K3_E_INVALID, "%s: a kernel reported %u", vk->base.name, word);
}

k3_status k3_vk_sync(k3_backend *be, k3_error *err)
{
    k3_vk *vk = k3_vk_of(be);
    k3_error kept = vk->failure;
    /* Commands recorded before a failure still run: nothing that they touch may go away under them. */
    vk->failure.status = K3_OK;
    k3_vk_wait(vk, 0);
    if (!vk->lost && vk->fault)
        check_fault(vk);
    k3_error failure = kept.status != K3_OK ? kept : vk->failure;
    vk->failure.status = K3_OK;
    if (vk->lost)
        failure.status = K3_E_DEVICE;
    return failure.status == K3_OK ? K3_OK : k3_fail(err, failure.status, "%s", failure.text);
}

/* ---- open and close ------------------------------------------------------------------------------------------ */

static int open_batch(k3_vk *vk, k3_vk_batch *batch)
{
    VkCommandPoolCreateInfo pool = {VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO, NULL, VK_COMMAND_POOL_CREATE_TRANSIENT_BIT, vk->family};
    if (!k3_vk_ok(vk, vk->fn.vkCreateCommandPool(vk->device, &pool, NULL, &batch->pool), "making a command pool"))
        return 0;
    VkCommandBufferAllocateInfo info = {VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO, NULL, batch->pool, VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                        1};
    if (!k3_vk_ok(vk, vk->fn.vkAllocateCommandBuffers(vk->device, &info, &batch->commands), "making a command buffer"))
        return 0;
    VkQueryPoolCreateInfo queries = {VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO, NULL, 0, VK_QUERY_TYPE_TIMESTAMP, K3_VK_STAMPS + 2, 0};
    if (vk->stamp_ns > 0 && !k3_vk_ok(vk, vk->fn.vkCreateQueryPool(vk->device, &queries, NULL, &batch->queries), "making time stamps"))
        return 0;
    batch->tables = k3_vk_host_buf(vk, TABLES_BYTES, K3_VK_FOR_TABLES, &batch->tables_host, "tables of a command buffer");
    return batch->tables != NULL;
}

int k3_vk_open_recorder(k3_vk *vk)
{
    VkSemaphoreTypeCreateInfo type = {VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO, NULL, VK_SEMAPHORE_TYPE_TIMELINE, 0};
    VkSemaphoreCreateInfo info = {VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type, 0};
    vk->work_scale = vk->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU ? doubt_in_software : doubt;
    if (!k3_vk_ok(vk, vk->fn.vkCreateSemaphore(vk->device, &info, NULL, &vk->timeline), "making a semaphore") ||
        !k3_vk_ok(vk, vk->fn.vkCreateSemaphore(vk->device, &info, NULL, &vk->uploads), "making a semaphore"))
        return 0;
    for (int i = 0; i < K3_VK_BATCHES; i++)
        if (!open_batch(vk, &vk->batches[i]))
            return 0;
    char *host;
    vk->fault = k3_vk_host_buf(vk, K3_VK_ALIGN, K3_VK_FOR_READING, &host, "fault word");
    if (!vk->fault)
        return 0;
    vk->fault_host = (uint32_t *)(void *)host;
    *vk->fault_host = 0;
    return 1;
}

void k3_vk_close_recorder(k3_vk *vk)
{
    for (int i = 0; i < K3_VK_BATCHES; i++) {
        if (vk->batches[i].queries)
            vk->fn.vkDestroyQueryPool(vk->device, vk->batches[i].queries, NULL);
        if (vk->batches[i].pool)
            vk->fn.vkDestroyCommandPool(vk->device, vk->batches[i].pool, NULL);
    }
    if (vk->timeline)
        vk->fn.vkDestroySemaphore(vk->device, vk->timeline, NULL);
    if (vk->uploads)
        vk->fn.vkDestroySemaphore(vk->device, vk->uploads, NULL);
}
