/* The operations that read weights, experts, states or caches: what a token's time is made of. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/args/moe.h"

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
static void head(bench *b)
{
    int rows = b->shape.vocab, cols = b->shape.hidden;
    job j = {.op = "gemv", .call = call_matmul, .T = 1, .n_mats = 1, .n_sets = 1};
    snprintf(j.shape, sizeof j.shape, "int8 %dx%d (head)", rows, cols);
    k3_buf *buf = b->be->memory->alloc_rows(b->be, (uint64_t)rows, (uint64_t)cols, "head");
    if (!buf)
        return;
    uint64_t step = b->shape.block / 2 / (uint64_t)cols * (uint64_t)cols, bytes = (uint64_t)rows * (uint64_t)cols;
    for (uint64_t at = 0; at < bytes; at += step) {
        uint64_t n = step < bytes - at ? step : bytes - at;
        b->be->memory->copy(b->be, (k3_ref){buf, at}, bench_take(b, POOL_CODES, n), n);
    }
    j.mat[0][0] = (k3_mat){K3_INT8, rows, cols, {buf, 0}, bench_take(b, POOL_F32, 4 * (uint64_t)rows)};
    j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)cols);
    j.out[0] = 4 * (uint64_t)rows;
    j.bytes = (double)bytes + 8.0 * rows + 4.0 * cols;
    j.flops = 2.0 * (double)bytes;
    bench_job(b, &j);
    b->be->memory->release(b->be, buf);
}

/* ---- moe_experts ------------------------------------------------------------------------------------------- */

typedef struct layer {
    k3_expert *experts;
    const k3_expert **list;
    struct k3_expert_address *addresses;
    k3_buf *table, *ids;
    int32_t *host_ids; /* [sets, T, K] */
} layer;

static void call_moe(bench *b, const job *j, int i)
{
    b->be->ops->moe_experts(b->be, bench_out(b, j, i, 0), j->x[0], &j->moe[i % j->n_sets]);
}

static uint64_t address(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

/* K different experts for each row. */
static void choose(bench *b, int32_t *ids, int rows)
{
    int E = b->shape.experts, K = b->shape.choices;
    for (int t = 0; t < rows; t++)
        for (int k = 0; k < K; k++) {
            int seen = 1;
            while (seen) {
                ids[t * K + k] = (int32_t)(bench_random(b) % (uint32_t)E);
                seen = 0;
                for (int i = 0; i < k; i++)
                    seen |= ids[t * K + i] == ids[t * K + k];
            }
        }
}

static int make_layer(bench *b, layer *l, int rows)
{
    const shape *s = &b->shape;
    size_t E = (size_t)s->experts, n_ids = (size_t)rows * (size_t)s->choices;
    *l = (layer){calloc(E, sizeof *l->experts),     calloc(E, sizeof *l->list), calloc(E, sizeof *l->addresses), NULL, NULL,
                 calloc(n_ids, sizeof *l->host_ids)};
    l->table = b->be->memory->alloc(b->be, E * sizeof *l->addresses, "experts");
    l->ids = b->be->memory->alloc(b->be, n_ids * sizeof *l->host_ids, "ids");
    if (!l->experts || !l->list || !l->addresses || !l->host_ids || !l->table || !l->ids)
        return 0;
    for (size_t e = 0; e < E; e++) {
        k3_expert *x = &l->experts[e];
        *x = (k3_expert){bench_mat(b, K3_MXFP4, s->expert_inner, s->latent, NULL), bench_mat(b, K3_MXFP4, s->expert_inner, s->latent, NULL),
                         bench_mat(b, K3_MXFP4, s->latent, s->expert_inner, NULL)};
        l->addresses[e] = (struct k3_expert_address){address(x->w1.data),  address(x->w1.scale), address(x->w3.data),
                                                     address(x->w3.scale), address(x->w2.data),  address(x->w2.scale)};
        l->list[e] = x;
    }
    choose(b, l->host_ids, rows);
    b->be->memory->upload(b->be, (k3_ref){l->table, 0}, l->addresses, E * sizeof *l->addresses);
    b->be->memory->upload(b->be, (k3_ref){l->ids, 0}, l->host_ids, n_ids * sizeof *l->host_ids);
    return 1;
}

static void free_layer(bench *b, layer *l)
{
    if (l->table)
        b->be->memory->release(b->be, l->table);
    if (l->ids)
        b->be->memory->release(b->be, l->ids);
    free(l->experts);
    free(l->list);
    free(l->addresses);
    free(l->host_ids);
}

/* Weight bytes of the experts that rows of set 0 want, each once. */
static double wanted_bytes(const bench *b, const layer *l, int T)
{
    const shape *s = &b->shape;
    const k3_mat *w1 = &l->experts[0].w1, *w2 = &l->experts[0].w2;
    double each = 2.0 * w1->rows * (double)(k3_type_row_bytes(K3_MXFP4, w1->cols) + k3_type_scale_bytes(K3_MXFP4, w1->cols)) +
                  w2->rows * (double)(k3_type_row_bytes(K3_MXFP4, w2->cols) + k3_type_scale_bytes(K3_MXFP4, w2->cols));
    int n = 0;
    for (int e = 0; e < s->experts; e++) {
        int wanted = 0;
        for (int i = 0; i < T * s->choices; i++)
            wanted |= l->host_ids[i] == e;
        n += wanted;
    }
    return n * each;
}

/* The choice is on the device only and experts are found by the table of addresses, or the host has it and names them. */
static void moe(bench *b, int T, int on_device)
{
    const shape *s = &b->shape;
    layer l;
    job j = {.op = T == 1 ? "moe_decode" : "moe_prefill", .call = call_moe, .T = T, .n_sets = T == 1 ? MAX_SETS : 1};
    snprintf(j.shape, sizeof j.shape, "%d of %d, %d row%s, ids on the %s", s->choices, s->experts, T, T == 1 ? "" : "s",
             on_device ? "device" : "host");
    if (make_layer(b, &l, j.n_sets * T) && (!on_device || l.table->address)) {
        uint64_t n_ids = (uint64_t)T * (uint64_t)s->choices;
        for (int i = 0; i < j.n_sets; i++)
            j.moe[i] = (k3_moe){.T = T,
                                .K = s->choices,
                                .E = s->experts,
                                .L = s->latent,
                                .I = s->expert_inner,
                                .b1 = 4,
                                .b2 = 25,
                                .ids = {l.ids, 4 * n_ids * (uint64_t)i},
                                .host_ids = on_device ? NULL : l.host_ids + n_ids * (uint64_t)i,
                                .experts = l.list,
                                .table = {on_device ? l.table : NULL, 0}};
        j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)T * (uint64_t)s->latent);
        j.out[0] = 4 * n_ids * (uint64_t)s->latent;
        j.bytes = wanted_bytes(b, &l, T) + 4.0 * (double)T * s->latent * (1 + s->choices);
        j.flops = 6.0 * T * s->choices * (double)s->latent * s->expert_inner;
        bench_job(b, &j);
    }
    free_layer(b, &l);
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
    moe(b, 1, 1);
    moe(b, 1, 0);
    kda(b, 1, 1, 0);
    kda(b, s->sequences, 1, 0);
    for (int i = 0; i < 3; i++)
        attend(b, s->context[i], 1);
    attend(b, s->context[0], s->attend_rows);
    for (size_t t = 0; t < sizeof gemm / sizeof *gemm; t++)
        for (int i = 0; i < 3; i++)
            matmul(b, gemm[t], sizes[i][0], sizes[i][1], s->prefill, 1);
    moe(b, s->prefill, 1);
    moe(b, s->prefill, 0);
    kda(b, 1, s->prefill, 1);
}

void bench_ceiling(bench *b)
{
    matmul(b, K3_F32, b->shape.inner, b->shape.hidden, b->shape.prefill, 1);
}
