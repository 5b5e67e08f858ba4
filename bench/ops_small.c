/* The operations between the products, one row each: their number counts more than their bytes. And the draw over the vocabulary. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { EMBED_ROWS = 4096, SOURCES = 9, WIDTH = 4 };
static const float eps = 1e-5f;

typedef void small_call(bench *b, const job *j, int i);

static void call_round_trip(bench *b, const job *j, int i)
{
    k3_error err;
    b->be->ops->add(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], b->shape.hidden);
    b->be->sync(b->be, &err);
}

static void call_add(bench *b, const job *j, int i)
{
    b->be->ops->add(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], b->shape.hidden);
}

static void call_embed(bench *b, const job *j, int i)
{
    b->be->ops->embed(b->be, bench_out(b, j, i, 0), &j->mat[0][0], j->x[5], 1);
}

static void call_attnres(bench *b, const job *j, int i)
{
    k3_ref src[SOURCES];
    for (int s = 0; s < SOURCES; s++)
        src[s] = k3_at(j->x[0], 4 * (uint64_t)s * (uint64_t)b->shape.hidden);
    b->be->ops->attnres_mix(b->be, bench_out(b, j, i, 0), src, SOURCES, j->x[1], 1, b->shape.hidden, eps);
}

static void call_rmsnorm(bench *b, const job *j, int i)
{
    int C = b->shape.hidden;
    b->be->ops->rmsnorm(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], 1, C, C, C, eps);
}

static void call_shortconv(bench *b, const job *j, int i)
{
    k3_run run = {0, 1, WIDTH, j->state[0][0]};
    b->be->ops->shortconv(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], &run, 1, b->shape.inner, WIDTH);
}

static void call_l2norm(bench *b, const job *j, int i)
{
    b->be->ops->l2norm(b->be, bench_out(b, j, i, 0), j->x[0], 1, b->shape.heads, b->shape.head, 1e-6f, 1);
}

static void call_kda_gate(bench *b, const job *j, int i)
{
    b->be->ops->kda_gate(b->be, bench_out(b, j, i, 0), (k3_ref){0}, bench_out(b, j, i, 1), j->x[0], j->x[1], j->x[2], j->x[3], 1,
                         b->shape.heads, b->shape.head, -5);
}

static void call_gate_rmsnorm(bench *b, const job *j, int i)
{
    b->be->ops->gate_rmsnorm(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], j->x[2], 1, b->shape.heads, b->shape.head, eps);
}

static void call_mla_append(bench *b, const job *j, int i)
{
    const shape *s = &b->shape;
    k3_mla_dims dims = {s->heads, s->nope, s->rope, s->v, s->kv_lora, K3_BF16};
    k3_run run = {0, 1, i % 64, j->state[0][0]};
    b->be->ops->mla_append(b->be, j->x[0], j->x[1], &run, 1, &dims, eps);
}

static void call_gate_mul(bench *b, const job *j, int i)
{
    b->be->ops->gate_mul(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], b->shape.inner);
}

static void call_situ(bench *b, const job *j, int i)
{
    b->be->ops->situ_glu(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], b->shape.shared, 4, 25);
}

static void call_router(bench *b, const job *j, int i)
{
    b->be->ops->router_topk(b->be, bench_out(b, j, i, 0), bench_out(b, j, i, 1), j->x[0], j->x[1], 1, b->shape.experts, b->shape.choices, 1,
                            1);
}

static void call_moe_sum(bench *b, const job *j, int i)
{
    b->be->ops->moe_sum(b->be, bench_out(b, j, i, 0), j->x[0], j->x[1], 1, b->shape.choices, b->shape.latent);
}

static void call_matmul(bench *b, const job *j, int i)
{
    k3_proj proj = {&j->mat[0][0], bench_out(b, j, i, 0)};
    b->be->ops->matmul(b->be, &proj, 1, j->x[0], 1);
}

static void call_sample(bench *b, const job *j, int i)
{
    b->be->ops->sample(b->be, bench_out(b, j, i, 0), j->x[0], &j->draw, 1, b->shape.vocab);
}

/* inputs: floats of each input; outputs: floats of each output. */
static void small(bench *b, const char *op, small_call *call, const int64_t *inputs, int n_inputs, int64_t out0, int64_t out1)
{
    job j = {.op = op, .call = call, .T = 1, .n_sets = 1, .out = {4 * (uint64_t)out0, 4 * (uint64_t)out1}};
    snprintf(j.shape, sizeof j.shape, "1 row of %lld", (long long)inputs[0]);
    j.bytes = 4.0 * (double)(out0 + out1);
    for (int i = 0; i < n_inputs; i++) {
        j.x[i] = bench_take(b, POOL_F32, 4 * (uint64_t)inputs[i]);
        j.bytes += 4.0 * (double)inputs[i];
    }
    j.state[0][0] = bench_take(b, POOL_STATE, 4 * WIDTH * (uint64_t)b->shape.inner);
    bench_job(b, &j);
}

/* A matrix of a few rows; stored as bf16, as the loader keeps those that steer. */
static void thin(bench *b, int rows, int cols)
{
    job j = {.op = "gemv", .call = call_matmul, .T = 1, .n_sets = 1, .out = {4 * (uint64_t)rows}};
    snprintf(j.shape, sizeof j.shape, "bf16 %dx%d (thin)", rows, cols);
    j.mat[0][0] = bench_mat(b, K3_BF16, rows, cols, &j.bytes);
    j.x[0] = bench_take(b, POOL_F32, 4 * (uint64_t)cols);
    j.flops = 2.0 * rows * cols;
    bench_job(b, &j);
}

static void embed(bench *b)
{
    int32_t id = EMBED_ROWS / 2;
    k3_buf *ids = b->be->memory->alloc(b->be, sizeof id, "ids");
    if (!ids)
        return;
    b->be->memory->upload(b->be, (k3_ref){ids, 0}, &id, sizeof id);
    job j = {.op = "embed", .call = call_embed, .T = 1, .n_sets = 1, .out = {4 * (uint64_t)b->shape.hidden}, .x = {[5] = {ids, 0}}};
    snprintf(j.shape, sizeof j.shape, "1 row of %d", b->shape.hidden);
    j.mat[0][0] = bench_mat(b, K3_BF16, EMBED_ROWS, b->shape.hidden, NULL);
    j.bytes = 6.0 * b->shape.hidden;
    bench_job(b, &j);
    b->be->memory->release(b->be, ids);
}

/* Logits as text has them: a bell of width 3, so that top-p keeps thousands. */
static void sample(bench *b)
{
    static const struct {
        const char *name;
        k3_draw draw;
    } draws[] = {{"the best", {.temperature = 0, .top_p = 1, .u = 0.5}},
                 {"temperature 1", {.temperature = 1, .top_p = 1, .u = 0.5}},
                 {"top-p 0.95", {.temperature = 1, .top_p = 0.95f, .u = 0.5}},
                 {"top-k 50, top-p 0.95", {.temperature = 1, .top_p = 0.95f, .top_k = 50, .u = 0.5}}};
    if (!b->be->ops->sample)
        return;
    size_t V = (size_t)b->shape.vocab;
    float *logits = malloc(V * sizeof *logits);
    k3_buf *buf = b->be->memory->alloc(b->be, V * sizeof *logits, "logits");
    if (logits && buf) {
        for (size_t i = 0; i < V; i++) {
            float sum = 0;
            for (int k = 0; k < 12; k++)
                sum += (float)(bench_random(b) >> 8) / 16777216.0f;
            logits[i] = 3 * (sum - 6);
        }
        b->be->memory->upload(b->be, (k3_ref){buf, 0}, logits, V * sizeof *logits);
        for (size_t i = 0; i < sizeof draws / sizeof *draws; i++) {
            job j = {.op = "sample", .call = call_sample, .T = 1, .n_sets = 1, .out = {4}, .x = {{buf, 0}}, .draw = draws[i].draw};
            snprintf(j.shape, sizeof j.shape, "%d logits, %s", b->shape.vocab, draws[i].name);
            j.bytes = 4.0 * (double)V;
            bench_job(b, &j);
        }
    }
    if (buf)
        b->be->memory->release(b->be, buf);
    free(logits);
}

void bench_small(bench *b)
{
    const shape *s = &b->shape;
    int64_t C = s->hidden, I = s->inner, HD = (int64_t)s->heads * s->head, H = s->heads, E = s->experts, L = s->latent, K = s->choices;
    small(b, "round_trip", call_round_trip, (int64_t[]){C, C}, 2, C, 0);
    small(b, "add", call_add, (int64_t[]){C, C}, 2, C, 0);
    embed(b);
    small(b, "attnres_mix", call_attnres, (int64_t[]){SOURCES * C, C}, 2, C, 0);
    small(b, "rmsnorm", call_rmsnorm, (int64_t[]){C, C}, 2, C, 0);
    small(b, "shortconv", call_shortconv, (int64_t[]){I, WIDTH * I}, 2, I, 0);
    small(b, "l2norm", call_l2norm, (int64_t[]){HD}, 1, HD, 0);
    small(b, "kda_gate", call_kda_gate, (int64_t[]){HD, H, H, HD}, 4, HD, H);
    small(b, "gate_rmsnorm", call_gate_rmsnorm, (int64_t[]){HD, s->head, HD}, 3, HD, 0);
    small(b, "mla_append", call_mla_append, (int64_t[]){s->kv_lora + s->rope, s->kv_lora}, 2, 0, 0);
    small(b, "gate_mul", call_gate_mul, (int64_t[]){I, I}, 2, I, 0);
    small(b, "situ_glu", call_situ, (int64_t[]){s->shared, s->shared}, 2, s->shared, 0);
    small(b, "router_topk", call_router, (int64_t[]){E, E}, 2, K, K);
    small(b, "moe_sum", call_moe_sum, (int64_t[]){K * L, K}, 2, L, 0);
    thin(b, s->heads, s->hidden);
    thin(b, s->head, s->hidden);
    thin(b, s->inner, s->head);
    thin(b, s->experts, s->hidden);
    sample(b);
}
