/* The operations that read weights, experts, states or caches: what a token's time is made of. */
#include "bench.h"

#include <math.h>
#include <stdio.h>

/* ---- matmul ------------------------------------------------------------------------------------------------ */

static void call_matmul(bench *b, const job *j, int i)
{
    const k3_mat *mat = j->mat[i % j->n_sets];
    k3_proj proj[4];
    k3_ref y = bench_out(b, j, i, 0);
    for (int p = 0; p < j->n_mats; p++) {
        proj[p] = (k3_proj){&mat[p], y};
        y = k3_at(y, 4 * (uint64_t)j->T * (uint64_t)mat[p].rows);
    }
    b->be->ops->matmul(b->be, proj, j->n_mats, j->x[0], j->T);
}

/* n_mats matrices of one shape that share their input. As many sets as make 640 MB of matrices: ten times the largest cache. */
static void matmul(bench *b, k3_type type, int rows, int cols, int T, int n_mats)
{
    job j = {.op = T == 1 ? "gemv" : "gemm", .call = call_matmul, .T = T, .n_mats = n_mats};
    if (T == 1)
        snprintf(j.shape, sizeof j.shape, "%s %s%dx%d", k3_type_name(type), n_mats > 1 ? "4 of " : "", rows, cols);
    else
        snprintf(j.shape, sizeof j.shape, "%s %dx%d, %d rows", k3_type_name(type), rows, cols, T);
    double weights = (double)rows * (double)(k3_type_row_bytes(type, cols) + k3_type_scale_bytes(type, cols)) * n_mats;
    int n_sets = (int)(640e6 / weights) + 1;
    j.n_sets = n_sets > MAX_SETS ? MAX_SETS : n_sets;
    for (int s = 0; s < j.n_sets; s++)
        for (int p = 0; p < n_mats; p++)
            j.mat[s][p] = bench_mat(b, type, rows, cols, NULL);
    j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)T * (uint64_t)cols);
    j.out[0] = 4 * (uint64_t)T * (uint64_t)rows * (uint64_t)n_mats;
    j.bytes = weights + 4.0 * T * ((double)rows * n_mats + cols);
    j.flops = 2.0 * T * rows * (double)cols * n_mats;
    bench_job(b, &j);
}

/* The head's matrix is larger than a block: memory for rows, filled from the pools. */
k3_mat bench_head_mat(bench *b, double *bytes)
{
    int rows = b->shape.vocab, cols = b->shape.hidden;
    uint64_t step = b->shape.block / 2 / (uint64_t)cols * (uint64_t)cols, all = (uint64_t)rows * (uint64_t)cols;
    k3_buf *buf = b->be->memory->alloc_rows(b->be, (uint64_t)rows, (uint64_t)cols, "head");
    for (uint64_t at = 0; buf && at < all; at += step) {
        uint64_t n = step < all - at ? step : all - at;
        b->be->memory->copy(b->be, (k3_ref){buf, at}, bench_take(b, POOL_CODES, n), n);
    }
    *bytes += (double)all + 4.0 * rows;
    return (k3_mat){K3_INT8, rows, cols, {buf, 0}, bench_take(b, POOL_F32, 4 * (uint64_t)rows), 0};
}

static void head(bench *b)
{
    int rows = b->shape.vocab, cols = b->shape.hidden;
    job j = {.op = "gemv", .call = call_matmul, .T = 1, .n_mats = 1, .n_sets = 1, .out = {4 * (uint64_t)rows}};
    snprintf(j.shape, sizeof j.shape, "int8 %dx%d (head)", rows, cols);
    j.mat[0][0] = bench_head_mat(b, &j.bytes);
    j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)cols);
    j.bytes += 4.0 * (rows + cols);
    j.flops = 2.0 * rows * cols;
    if (j.mat[0][0].data.buf) {
        bench_job(b, &j);
        b->be->memory->release(b->be, j.mat[0][0].data.buf);
    }
}

/* ---- KDA --------------------------------------------------------------------------------------------------- */

static void call_kda(bench *b, const job *j, int i)
{
    const shape *s = &b->shape;
    k3_run runs[MAX_RUNS];
    for (int r = 0; r < j->n_runs; r++)
        runs[r] = (k3_run){r * (j->T / j->n_runs), j->T / j->n_runs, 0, j->state[i % j->n_sets][r]};
    (j->variant ? b->be->ops->kda_chunk : b->be->ops->kda_recur)(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], j->x[2], j->x[3], j->x[4],
                                                                 runs, j->n_runs, s->heads, s->head);
}

/* n_runs sequences of `rows` rows each; by rows, or by chunks. States in turn make ten times the largest cache. */
static void kda(bench *b, int n_runs, int rows, int chunk)
{
    const shape *s = &b->shape;
    int T = n_runs * rows;
    uint64_t values = (uint64_t)T * (uint64_t)(s->heads * s->head), state = 4 * (uint64_t)s->heads * (uint64_t)(s->head * s->head);
    job j = {.op = chunk ? "kda_chunk" : "kda_recur", .call = call_kda, .T = T, .n_runs = n_runs, .variant = chunk};
    snprintf(j.shape, sizeof j.shape, "%d heads, %d sequence%s of %d row%s", s->heads, n_runs, n_runs > 1 ? "s" : "", rows,
             rows > 1 ? "s" : "");
    j.n_sets = n_runs > 1 ? 4 : MAX_SETS;
    for (int i = 0; i < j.n_sets; i++)
        for (int r = 0; r < n_runs; r++)
            j.state[i][r] = bench_take(b, POOL_STATE, state);
    for (int i = 0; i < 4; i++)
        j.x[i] = bench_take(b, POOL_F32, 4 * values);
    j.x[4] = bench_take(b, POOL_F32, 4 * (uint64_t)T * (uint64_t)s->heads);
    j.out[0] = 4 * values;
    j.bytes = 2.0 * n_runs * (double)state + 20.0 * (double)values + 4.0 * T * s->heads;
    j.flops = 7.0 * (double)values * s->head;
    bench_job(b, &j);
}

/* ---- MLA --------------------------------------------------------------------------------------------------- */

static void call_attend(bench *b, const job *j, int i)
{
    const shape *s = &b->shape;
    k3_mla_dims dims = {s->heads, s->nope, s->rope, s->v, s->kv_lora, K3_BF16};
    k3_run run = {0, j->T, j->pos, j->state[i % j->n_sets][0]};
    b->be->ops->mla_attend(b->be, bench_out(b, j, i, 0), j->x[0], &j->mat[i % j->n_sets][0], &run, 1, &dims,
                           1 / sqrtf((float)(s->nope + s->rope)));
}

/* T rows, the last of which sees `context` rows of the cache. */
static void attend(bench *b, int context, int T)
{
    const shape *s = &b->shape;
    job j = {.op = "mla_attend", .call = call_attend, .T = T, .pos = context - T};
    snprintf(j.shape, sizeof j.shape, "%d heads, context %d, %d row%s", s->heads, context, T, T > 1 ? "s" : "");
    uint64_t cache = 2 * (uint64_t)context * (uint64_t)(s->kv_lora + s->rope);
    j.n_sets = cache > 100000000 ? 4 : cache > 20000000 ? 12 : MAX_SETS;
    double weights = 0;
    for (int i = 0; i < j.n_sets; i++) {
        weights = 0;
        j.state[i][0] = bench_take(b, POOL_BF16, cache);
        j.mat[i][0] = bench_mat(b, K3_INT8, s->heads * (s->nope + s->v), s->kv_lora, &weights);
    }
    j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)T * (uint64_t)(s->heads * (s->nope + s->rope)));
    j.out[0] = 4 * (uint64_t)T * (uint64_t)(s->heads * s->v);
    j.bytes = (double)cache + weights + 4.0 * T * s->heads * (s->nope + s->rope + s->v);
    j.flops = 2.0 * T * s->heads * ((double)s->kv_lora * (s->nope + s->v) + (context - 0.5 * T) * (2.0 * s->kv_lora + s->rope));
    bench_job(b, &j);
}

void bench_large(bench *b)
{
    static const k3_type gemv[] = {K3_INT8, K3_MXFP4, K3_BF16, K3_INT4, K3_INT4_G64}, gemm[] = {K3_BF16, K3_INT8, K3_MXFP4, K3_INT4_G64};
    const shape *s = &b->shape;
    const int sizes[][2] = {{s->inner, s->hidden}, {s->hidden, s->inner}, {s->shared, s->hidden}};
    for (size_t t = 0; t < sizeof gemv / sizeof *gemv; t++)
        for (int i = 0; i < 3; i++)
            matmul(b, gemv[t], sizes[i][0], sizes[i][1], 1, 1);
    matmul(b, K3_INT8, s->inner, s->hidden, 1, 4);
    head(b);
    bench_moe(b, 1, 1);
    bench_moe(b, 1, 0);
    kda(b, 1, 1, 0);
    kda(b, s->sequences, 1, 0);
    for (int i = 0; i < 3; i++)
        attend(b, s->context[i], 1);
    attend(b, s->context[0], s->attend_rows);
    for (size_t t = 0; t < sizeof gemm / sizeof *gemm; t++)
        for (int i = 0; i < 3; i++)
            matmul(b, gemm[t], sizes[i][0], sizes[i][1], s->prefill, 1);
    bench_moe(b, s->prefill, 1);
    bench_moe(b, s->prefill, 0);
    kda(b, 1, s->prefill, 0);
    kda(b, 1, s->prefill, 1);
}

void bench_ceiling(bench *b)
{
    matmul(b, K3_F32, b->shape.inner, b->shape.hidden, b->shape.prefill, 1);
}
