#include "kernel_jobs.h"

#if K3_METAL_HARNESS
#include "backend/args/moe.h"
#include "backend/gpu/driver.h"
#include "backend/metal/kernels.h"
#include "metal/fake.h"
#include "metal/msl.h"
#include "support/metal_harness.h"

#include <stdlib.h>
#include <string.h>

/* Shapes are as small as makes the loops of the kernels go round twice: what a barrier at the end of a round protects is only touched in
 * the next one. */
const kernel_job kernel_jobs[] = {
    {"embed", {.T = 3, .a = 64, .b = 9, .type = K3_MXFP4}, 0, {0}},
    {"attnres_mix", {.T = 2, .a = 600, .b = 4}, 0, {0}},
    {"rmsnorm", {.T = 2, .a = 600, .b = 2}, 0, {0}},
    {"shortconv", {.T = 5, .a = 150, .b = 3, .n_sequences = 2}, 0, {2}},
    {"l2norm", {.T = 2, .a = 70, .b = 2}, 0, {0}},
    {"kda_gate", {.T = 2, .a = 70, .b = 2}, 0, {0}},
    {"kda_recur", {.T = 4, .a = 36, .b = 1, .n_sequences = 2}, 0, {3}},
    {"kda_chunk", {.T = 40, .a = 40, .b = 1}, 0, {0}},
    {"gate_rmsnorm", {.T = 2, .a = 70, .b = 2}, 0, {0}},
    {"mla", {.T = 2, .a = 39, .b = 70, .type = K3_BF16, .seed = 1}, 0, {0}},
    {"mla", {.T = 9, .a = 140, .b = 139, .n_sequences = 2}, 0, {0}},
    {"gate_mul", {.T = 1, .a = 300}, 0, {0}},
    {"situ_glu", {.T = 1, .a = 300, .b = 1}, 0, {0}},
    {"router_topk", {.T = 2, .a = 300, .b = 6}, 0, {0}},
    {"moe_experts", {.T = 8, .a = 0, .b = 1}, 1, {0}},
    {"moe_experts", {.T = 8, .a = 1, .b = 2}, 0, {0}},
    {"moe_experts", {.T = 10, .a = 2, .b = 2}, 0, {0}},
    {"moe_half", {.T = 2, .a = 64}, 0, {0}},
    {"add", {.T = 1, .a = 300}, 0, {0}},
    {"matmul", {.T = 8, .a = 960, .b = 6, .type = K3_INT8}, 0, {0}},
    {"matmul", {.T = 9, .a = 128, .b = 66, .type = K3_INT4}, 0, {0}},
    {"matmul", {.T = 9, .a = 1088, .b = 40, .type = K3_BF16}, 0, {0}},
    {"matmul", {.T = 1, .a = 1024, .b = 70, .type = K3_MXFP4}, 0, {0}},
    {"matmul", {.T = 1, .a = 8192, .b = 20, .type = K3_MXFP4}, 0, {0}},
    {"matmul", {.T = 2, .a = 1024, .b = 70, .type = K3_MXFP4}, 0, {0}},
    {"sample", {.T = 4, .a = 2100}, 0, {0}},
    {"copy", {.T = 1, .a = 32779}, 0, {0}},
};
const int n_kernel_jobs = sizeof kernel_jobs / sizeof *kernel_jobs;

/* Rows with draws of every kind: none, with top_k, with top_p, with both and min_p. Many logits are equal. */
static void run_sample(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    enum { ROWS = 4 };
    static const k3_draw draws[ROWS] = {{0, 1, 0, 0, 0.5}, {1, 1, 0, 7, 0.6}, {0.9f, 0.8f, 0, 0, 0.3}, {2, 0.9f, 0.01f, 1000, 0.99}};
    (void)pieces;
    assert_int_equal(j->T, ROWS);
    random_stream r = {j->seed};
    size_t n = (size_t)j->T * (size_t)j->a;
    float *x = malloc(n * sizeof *x);
    int32_t ids[ROWS] = {0};
    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_below(&r, 40) / 4;
    k3_ref logits = put_floats(be, x, n), at = new_bytes(be, sizeof ids);
    free(x);
    be->ops->sample(be, at, logits, draws, j->T, j->a);
    be->memory->download(be, ids, at, sizeof ids);
    out->n = ROWS;
    out->values = malloc(sizeof ids);
    assert_non_null(out->values);
    for (int t = 0; t < ROWS; t++)
        out->values[t] = (float)ids[t];
}

/* Large enough for a kernel of its own, and a tail that is not. */
static void run_copy(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    (void)pieces;
    random_stream r = {j->seed};
    size_t n = (size_t)j->T * (size_t)j->a;
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    random_floats(&r, x, n, 1);
    k3_ref from = put_floats(be, x, n), to = new_floats(be, n);
    be->memory->copy(be, to, from, n * sizeof *x);
    be->memory->download(be, x, to, n * sizeof *x);
    *out = (job_result){x, n};
}

/* What moe_experts does first where there are matrix units for it. */
static void run_moe_half(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    (void)pieces;
    random_stream r = {j->seed};
    size_t n = (size_t)j->T * (size_t)j->a, y_bytes = 2 * n, unit_bytes = 4 * (size_t)j->T;
    float *x = malloc(n * sizeof *x);
    uint32_t pairs[16];
    assert_true(x && j->T <= 16);
    random_floats(&r, x, n, 1);
    for (int t = 0; t < j->T; t++)
        pairs[t] = (uint32_t)(j->T - 1 - t);
    k3_ref from = put_floats(be, x, n), pair_at = put_bytes(be, pairs, unit_bytes), y = new_bytes(be, y_bytes),
           unit = new_bytes(be, unit_bytes);
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_MOE_EXPERTS);
    struct k3_moe_half_args args = {k3_gpu_write(gpu, y, y_bytes),
                                    k3_gpu_write(gpu, unit, unit_bytes),
                                    k3_gpu_read(gpu, from, 4 * n),
                                    k3_gpu_read(gpu, pair_at, unit_bytes),
                                    (uint32_t)j->a,
                                    1,
                                    (uint32_t)j->T,
                                    (uint32_t)j->T};
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_moe_experts_half, NULL, 0, &args, sizeof args, (uint64_t)j->T, 1, 1);
    k3_gpu_end(gpu, 0);
    *out = (job_result){x, (y_bytes + unit_bytes) / sizeof *x};
    be->memory->download(be, x, y, y_bytes);
    be->memory->download(be, x + y_bytes / sizeof *x, unit, unit_bytes);
}

static const job_op own_ops[] = {{"sample", run_sample, 0, 0, 0}, {"copy", run_copy, 0, 0, 0}, {"moe_half", run_moe_half, 0, 0, 0}};

static const job_op *op_of(const kernel_job *j)
{
    for (int i = 0; i < N_JOB_OPS; i++)
        if (strcmp(job_ops[i].name, j->op) == 0)
            return &job_ops[i];
    for (size_t i = 0; i < sizeof own_ops / sizeof *own_ops; i++)
        if (strcmp(own_ops[i].name, j->op) == 0)
            return &own_ops[i];
    fail_msg("there is no job %s", j->op);
    return NULL;
}

static job_result compute(const kernel_job *j, k3_backend *be)
{
    job_result out = {NULL, 0};
    job shape = j->shape;
    if (shape.n_sequences == 0)
        shape.n_sequences = 1;
    op_of(j)->run(be, &shape, j->pieces, &out);
    return out;
}

/* How many times the rounding of the CPU's levels a device may be off, as everywhere; products in f16 where there are any. */
static double tolerance_of(const kernel_job *j, k3_backend *be)
{
    static const double device_slack = 4, half_tolerance = 4e-3;
    const job_op *op = op_of(j);
    const char *kernels = be->describe(be);
    int experts = strcmp(j->op, "moe_experts") == 0 && strstr(kernels, "f16");
    int mxfp4 = strcmp(op->name, "matmul") == 0 && j->shape.type == K3_MXFP4 && strstr(kernels, "f16");
    int matrices = (op->by_type || op->chunked) && strcmp(j->op, "embed") != 0 && strstr(kernels, "f16 matrix");
    return experts || mxfp4 || matrices ? half_tolerance : device_slack * op->tolerance;
}

job_result cpu_result_of(const kernel_job *j)
{
    job_result out = {NULL, 0};
    if (op_of(j) < job_ops || op_of(j) >= job_ops + N_JOB_OPS)
        return out;
    k3_backend *be = open_level("scalar+exact", 1);
    out = compute(j, be);
    must_sync(be);
    be->close(be);
    return out;
}

static void note_use(k3_gpu *gpu, const k3_gpu_buf *buf, kernel_run *run)
{
    for (int i = 0; i < buf->n_pieces; i++)
        for (int s = 0; s < gpu->n_slabs; s++)
            run->touched[s] |= gpu->slabs[s] == buf->pieces[i].slab;
}

/* What the recorder knows of a run: pipelines, and the slabs of buffers that were read or written. */
static void take_notes(k3_backend *be, kernel_run *run)
{
    k3_gpu *gpu = k3_gpu_of(be);
    if (gpu->notice[0])
        fail_msg("%s", gpu->notice);
    for (int i = 0; i < gpu->max_pipelines; i++)
        if (gpu->pipelines[i].native)
            run->kernels[gpu->pipelines[i].shader] = 1;
    run->n_slabs = gpu->n_slabs;
    assert_true(gpu->n_slabs <= KERNEL_SLABS);
    for (const k3_gpu_buf *buf = gpu->buffers; buf; buf = buf->next)
        if (buf->last_use)
            note_use(gpu, buf, run);
    for (int i = 0; i < K3_GPU_BATCHES; i++)
        if (gpu->batches[i].tables_used)
            note_use(gpu, gpu->batches[i].tables, run);
}

kernel_run run_kernel_job(const kernel_job *j, const char *kernels_dir)
{
    kernel_run run = {.status = K3_OK};
    k3_backend_config config = {.name = "metal", .exact = j->exact, .kernels_dir = kernels_dir};
    k3_backend *be;
    k3_error err;
    assert_true(metal_harness());
    k3_fake_metal_set()->max_buffer_length = 4 << 20;
    if (k3_backend_open(&be, &config, NULL, 0, &err) != K3_OK)
        fail_msg("%s", err.text);
    (void)msl_races();
    allow_failures(1);
    run.result = compute(j, be);
    allow_failures(0);
    take_notes(be, &run);
    run.tolerance = tolerance_of(j, be);
    run.status = be->sync(be, &err);
    run.races = msl_races();
    run.violations = k3_fake_metal_violations();
    be->close(be);
    k3_fake_metal_forgive();
    if (run.status == K3_OK)
        return run;
    free(run.result.values);
    run.result = (job_result){NULL, 0};
    return run;
}

int same_run(const kernel_run *a, const kernel_run *b)
{
    return a->status == b->status && a->races + a->violations == 0 && a->result.n == b->result.n &&
           memcmp(a->result.values, b->result.values, a->result.n * sizeof(float)) == 0;
}

const char *kernel_name(int shader)
{
    return k3_mt_kernels[shader].name;
}

const char *kernel_text(int shader)
{
    return k3_mt_kernels[shader].text;
}
#endif
