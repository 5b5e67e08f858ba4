/* A short self-test at start: each operation on a small input, against the CPU. Drivers have shipped with one instruction kind broken, and
 * a model then talks nonsense without any message. */
#include "backend/gpu/driver.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BUFFERS = 32, MAX_OUT = 64 * 256, MAX_PARTS = 16 };

/* What a check works with: a backend, the buffers it made, what came out. */
typedef struct k3_check {
    k3_backend *be;
    k3_buf *buffers[MAX_BUFFERS];
    int n_buffers;
    uint32_t state;
    float out[MAX_OUT];
    int ends[MAX_PARTS]; /* of the results in out, one after another */
    int n_out, n_parts;
} k3_check;

/* Numerical Recipes' 32-bit linear congruential generator: the same numbers for both backends. */
static uint32_t next_bits(k3_check *c)
{
    c->state = c->state * 1664525u + 1013904223u;
    return c->state;
}

static k3_ref place(k3_check *c, uint64_t bytes)
{
    k3_buf *buf = c->n_buffers < MAX_BUFFERS ? c->be->memory->alloc(c->be, bytes, "self-test") : NULL;
    if (buf)
        c->buffers[c->n_buffers++] = buf;
    return (k3_ref){buf, 0};
}

/* n floats in -scale..scale. */
static k3_ref floats(k3_check *c, int n, float scale)
{
    k3_ref ref = place(c, 4 * (uint64_t)n);
    float *values = malloc(4 * (size_t)n);
    for (int i = 0; values && i < n; i++)
        values[i] = scale * ((float)(next_bits(c) >> 8) / 8388608.0f - 1.0f);
    if (values && ref.buf)
        c->be->memory->upload(c->be, ref, values, 4 * (uint64_t)n);
    free(values);
    return ref;
}

/* A matrix of random codes; scales near 1/64, or for mxfp4 2^-6 to 2^-3. */
static k3_mat matrix(k3_check *c, k3_type type, int rows, int cols)
{
    uint64_t codes = (uint64_t)rows * k3_type_row_bytes(type, cols), scales = (uint64_t)rows * k3_type_scale_bytes(type, cols);
    k3_mat mat = {type, rows, cols, place(c, codes), {NULL, 0}, 0};
    unsigned char *bytes = malloc(codes + scales + 4);
    for (uint64_t i = 0; bytes && i < codes; i++) /* an odd byte of bf16 is sign and exponent: 0.03 to 2 */
        bytes[i] = type == K3_BF16 && i % 2 ? (unsigned char)(0x3d + (next_bits(c) >> 24) % 3 + (next_bits(c) >> 31) * 128)
                                            : (unsigned char)(next_bits(c) >> 24);
    if (bytes && mat.data.buf)
        c->be->memory->upload(c->be, mat.data, bytes, codes);
    if (scales && type == K3_MXFP4) {
        for (uint64_t i = 0; bytes && i < scales; i++)
            bytes[i] = (unsigned char)(121 + (next_bits(c) >> 24) % 4);
        mat.scale = place(c, scales);
        if (bytes && mat.scale.buf)
            c->be->memory->upload(c->be, mat.scale, bytes, scales);
    } else if (scales) {
        mat.scale = floats(c, (int)(scales / 4), 1.0f / 64);
    }
    free(bytes);
    return mat;
}

static void take(k3_check *c, k3_ref y, int n)
{
    c->be->memory->download(c->be, c->out + c->n_out, y, 4 * (uint64_t)n);
    c->n_out += n;
    c->ends[c->n_parts++] = c->n_out;
}

/* ---- the checks ------------------------------------------------------------------------------------------------ */

static void products(k3_check *c, int T, int rows)
{
    static const k3_type types[] = {K3_BF16, K3_INT8, K3_INT4_G64, K3_MXFP4};
    enum { COLS = 1024 }; /* 32 units of 32, which the kernel for few rows in f16 asks for */
    for (int i = 0; i < 4; i++) {
        k3_mat w = matrix(c, types[i], rows, COLS);
        k3_ref y = place(c, 4 * (uint64_t)(T * rows));
        c->be->ops->matmul(c->be, &(k3_proj){&w, y}, 1, floats(c, T * COLS, 1), T);
        take(c, y, T * rows);
    }
}

static void check_matmul_one(k3_check *c)
{
    products(c, 1, 64);
}

static void check_matmul_two(k3_check *c)
{
    products(c, 2, 64);
}

/* Rows of x for which the f16 kernel has larger places. */
static void check_matmul_wide(k3_check *c)
{
    enum { ROWS = 64, COLS = 8192 };
    k3_mat w = matrix(c, K3_MXFP4, ROWS, COLS);
    k3_ref y = place(c, 4 * ROWS);
    c->be->ops->matmul(c->be, &(k3_proj){&w, y}, 1, floats(c, COLS, 1), 1);
    take(c, y, ROWS);
}

static void check_matmul_few(k3_check *c)
{
    products(c, 5, 64);
}

static void check_matmul_many(k3_check *c)
{
    products(c, 48, 64);
}

static void check_embed(k3_check *c)
{
    k3_mat w = matrix(c, K3_INT8, 16, 64);
    k3_ref ids = place(c, 12), y = place(c, 4 * 3 * 64);
    if (ids.buf)
        c->be->memory->upload(c->be, ids, (int32_t[3]){3, 15, 0}, 12);
    c->be->ops->embed(c->be, y, &w, ids, 3);
    take(c, y, 3 * 64);
}

static void check_rows(k3_check *c)
{
    enum { T = 3, C = 256, N = T * C };
    k3_ref src[3] = {floats(c, N, 1), floats(c, N, 2), floats(c, N, 3)}, y = place(c, 4 * N), s = floats(c, C, 0.2f);
    c->be->ops->attnres_mix(c->be, y, src, 3, s, T, C, 1e-5f);
    take(c, y, N);
    c->be->ops->rmsnorm(c->be, y, src[0], s, T, C, C, C, 1e-5f);
    take(c, y, N);
    c->be->ops->l2norm(c->be, y, src[0], T, 4, C / 4, 1e-6f, 0.5f);
    take(c, y, N);
    c->be->ops->gate_rmsnorm(c->be, y, src[0], s, src[1], T, 4, C / 4, 1e-5f);
    take(c, y, N);
    c->be->ops->gate_mul(c->be, y, src[0], src[1], N);
    take(c, y, N);
    c->be->ops->situ_glu(c->be, y, src[2], src[1], N, 4, 25);
    take(c, y, N);
    c->be->ops->add(c->be, y, src[0], src[2], N);
    take(c, y, N);
}

static void kda(k3_check *c, int T, int chunked)
{
    enum { H = 2, D = 32, C = H * D };
    int n = T * C;
    k3_ref u = floats(c, n, 1), window = floats(c, 3 * C, 1), w = floats(c, 4 * C, 0.5f), q = place(c, 4 * (uint64_t)n), k = q, z = q,
           b = q;
    c->be->ops->shortconv(c->be, q, u, w, &(k3_run){0, T, 7, window}, 1, C, 4);
    take(c, q, n);
    q = floats(c, n, 0.2f);
    k = floats(c, n, 0.2f);
    z = floats(c, n, 1);
    b = floats(c, T * H, 1);
    k3_run run = {0, T, 7, floats(c, H * D * D, 1)};
    k3_ref gate = {0};
    c->be->ops->kda_gate(c->be, chunked ? gate : z, chunked ? z : gate, b, z, b, floats(c, H, 0.5f), floats(c, C, 0.5f), T, H, D, -5);
    k3_ref o = place(c, 4 * (uint64_t)n);
    (chunked ? c->be->ops->kda_chunk : c->be->ops->kda_recur)(c->be, o, q, k, u, z, b, &run, 1, H, D);
    take(c, o, n);
    take(c, run.state, H * D * D);
}

static void check_kda_recur(k3_check *c)
{
    kda(c, 2, 0);
}

static void check_kda_chunk(k3_check *c)
{
    kda(c, 40, 1);
}

static void mla(k3_check *c, int T, int context, int rope, int kv_lora)
{
    k3_mla_dims dims = {16, 32, rope, 32, kv_lora, K3_BF16};
    int width = dims.kv_lora + dims.rope, n = T * dims.heads * dims.v;
    k3_mat kv_b = matrix(c, K3_INT8, dims.heads * (dims.nope + dims.v), dims.kv_lora);
    k3_run run = {0, context, 0, place(c, 2 * (uint64_t)(context * width))};
    c->be->ops->mla_append(c->be, floats(c, context * width, 1), floats(c, dims.kv_lora, 1), &run, 1, &dims, 1e-5f);
    run = (k3_run){0, T, context - T, run.state};
    k3_ref o = place(c, 4 * (uint64_t)n);
    c->be->ops->mla_attend(c->be, o, floats(c, T * dims.heads * (dims.nope + dims.rope), 1), &kv_b, &run, 1, &dims, 0.15f);
    take(c, o, n);
}

static void check_mla_one(k3_check *c)
{
    mla(c, 1, 600, 16, 64); /* long enough to be cut into parts */
}

static void check_mla_many(k3_check *c)
{
    mla(c, 24, 40, 16, 64);
}

/* K3's own cache row, which has kernels of its own on matrix units. */
static void check_mla_wide(k3_check *c)
{
    mla(c, 1, 50, 64, 512);
    mla(c, 20, 20, 64, 512);
}

static void check_copy(k3_check *c)
{
    enum { N = 20000 };
    k3_ref from = floats(c, N, 1), to = place(c, 4 * N);
    c->be->memory->copy(c->be, to, from, 4 * N);
    take(c, k3_at(to, 4 * (N - MAX_OUT)), MAX_OUT);
}

static void moe(k3_check *c, int T)
{
    enum { E = 8, K = 2, L = 128, I = 128 }; /* whole tiles of the matrix kernel */
    k3_expert experts[E];
    const k3_expert *table[E];
    int32_t ids[64 * K];
    k3_ref z = floats(c, T * L, 1), logits = floats(c, T * E, 2), ids_ref = place(c, 4 * (uint64_t)(T * K)), weights = floats(c, T * K, 1);
    c->be->ops->router_topk(c->be, ids_ref, weights, logits, floats(c, E, 0.1f), T, E, K, 1, 2.5f);
    c->be->memory->download(c->be, ids, ids_ref, 4 * (uint64_t)(T * K));
    for (int i = 0; i < T * K; i++)
        c->out[c->n_out++] = (float)ids[i];
    c->ends[c->n_parts++] = c->n_out;
    take(c, weights, T * K);
    k3_mat shared[3] = {matrix(c, K3_MXFP4, E * I, L), matrix(c, K3_MXFP4, E * I, L), matrix(c, K3_MXFP4, E * L, I)};
    for (int e = 0; e < E; e++) {
        k3_mat *mats[3] = {&experts[e].w1, &experts[e].w3, &experts[e].w2};
        for (int m = 0; m < 3; m++) {
            *mats[m] = shared[m];
            mats[m]->rows /= E;
            mats[m]->data = k3_at(shared[m].data, (uint64_t)(e * mats[m]->rows) * k3_type_row_bytes(K3_MXFP4, shared[m].cols));
            mats[m]->scale = k3_at(shared[m].scale, (uint64_t)(e * mats[m]->rows) * k3_type_scale_bytes(K3_MXFP4, shared[m].cols));
        }
        table[e] = &experts[e];
    }
    k3_ref slots = place(c, 4 * (uint64_t)(T * K * L)), y = place(c, 4 * (uint64_t)(T * L));
    k3_moe job = {T, K, E, L, I, 4, 25, ids_ref, ids, table, {NULL, 0}};
    c->be->ops->moe_experts(c->be, slots, z, &job);
    c->be->ops->moe_sum(c->be, y, slots, weights, T, K, L);
    take(c, y, T * L);
}

static void check_moe_one(k3_check *c)
{
    moe(c, 1);
}

static void check_moe_many(k3_check *c)
{
    moe(c, 60);
}

/* Four ids share the largest logit and two of them are kept: by the lower id. The CPU has no such operation; its answer is written here. */
static void check_sample(k3_check *c)
{
    enum { V = 4096 };
    static const int tied[4] = {5, 77, 900, 3000};
    static const k3_draw draws[2] = {{1, 1, 0, 2, 0.75}, {1, 0.9f, 0.1f, 0, 0.3}};
    int32_t got[2] = {77, 77};
    if (c->be->ops->sample) {
        k3_ref logits = floats(c, 2 * V, 1), ids = place(c, sizeof got);
        for (int i = 0; logits.buf && i < 8; i++)
            c->be->memory->upload(c->be, k3_at(logits, 4 * (uint64_t)(i / 4 * V + tied[i % 4])), &(float){30}, 4);
        c->be->ops->sample(c->be, ids, logits, draws, 2, V);
        c->be->memory->download(c->be, got, ids, sizeof got);
    }
    for (int i = 0; i < 2; i++)
        c->out[c->n_out++] = (float)got[i];
    c->ends[c->n_parts++] = c->n_out;
}

/* ---- the verdict --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*run)(k3_check *c);
} checks[] = {
    {"matmul of one row", check_matmul_one},
    {"matmul of two rows", check_matmul_two},
    {"matmul of one long row", check_matmul_wide},
    {"matmul of few rows", check_matmul_few},
    {"matmul of many rows", check_matmul_many},
    {"embed", check_embed},
    {"row operations", check_rows},
    {"kda_recur", check_kda_recur},
    {"kda_chunk", check_kda_chunk},
    {"mla_attend of one row", check_mla_one},
    {"mla_attend of many rows", check_mla_many},
    {"mla_attend of K3's heads", check_mla_wide},
    {"moe_experts of one row", check_moe_one},
    {"moe_experts of many rows", check_moe_many},
    {"copy", check_copy},
    {"sample", check_sample},
};
enum { N_CHECKS = sizeof checks / sizeof checks[0] };

static k3_status run_on(k3_check *c, k3_backend *be, int which, k3_error *err)
{
    *c = (k3_check){.be = be, .state = 12345u + (uint32_t)which};
    checks[which].run(c);
    k3_status status = be->sync(be, err);
    for (int i = 0; i < c->n_buffers; i++)
        be->memory->release(be, c->buffers[i]);
    return status;
}

/* Each result relative to its largest value; f16 products are good to a part in a few hundred of it. */
static int agree(const k3_check *a, const k3_check *b)
{
    static const double tolerance = 0.02;
    for (int i = 0, part = 0; part < b->n_parts; part++) {
        double most = 0, error = 0;
        for (; i < b->ends[part]; i++) {
            double difference = fabs((double)a->out[i] - (double)b->out[i]);
            most = fmax(most, fabs((double)b->out[i]));
            error = difference > error || isnan(difference) ? difference : error;
        }
        if (!(error <= tolerance * most))
            return 0;
    }
    return a->n_out == b->n_out;
}

k3_status k3_gpu_selftest(k3_gpu *gpu, k3_error *err)
{
    k3_check *here = malloc(sizeof *here), *there = malloc(sizeof *there);
    k3_backend *cpu = NULL;
    k3_status status = here && there ? k3_cpu_open(&cpu, "", &(k3_backend_config){.threads = 1}, err)
                                     : k3_fail(err, K3_E_NOMEM, "%s: out of memory", gpu->base.name);
    for (int i = 0; status == K3_OK && i < N_CHECKS; i++) {
        status = run_on(there, cpu, i, err);
        if (status == K3_OK)
            status = run_on(here, &gpu->base, i, err);
        if (status != K3_OK || agree(here, there))
            continue;
        int had_halves = gpu->limits.f16;
        gpu->limits.matrix = 0;
        gpu->limits.f16 = 0;
        if (had_halves && run_on(here, &gpu->base, i, err) == K3_OK && agree(here, there))
            snprintf(gpu->notice, sizeof gpu->notice, "f16 kernels are off: %s came out wrong in the self-test", checks[i].name);
        else
            status = k3_fail(err, K3_E_DEVICE, "%s: %s came out wrong in the self-test; use another driver or the CPU", gpu->base.name,
                             checks[i].name);
    }
    gpu->base.stats(&gpu->base, NULL, 0, 1);
    if (cpu)
        cpu->close(cpu);
    free(here);
    free(there);
    return status;
}
