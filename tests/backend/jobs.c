#include "jobs.h"

#include "base/bf16.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SEQUENCES = 3, MAX_ROWS = 256 };

typedef struct piece {
    int first, n;
} piece;

/* The next call's rows; 0 when all are done. */
static int next_piece(piece *p, const job *j, const int **pieces)
{
    p->first += p->n;
    if (p->first >= j->T)
        return 0;
    int left = j->T - p->first;
    p->n = **pieces && **pieces < left ? *(*pieces)++ : left;
    return 1;
}

/* A place for n floats, displaced if the job asks for odd places. */
static k3_ref output(k3_backend *be, const job *j, size_t n)
{
    return k3_at(new_floats(be, n + (size_t)j->odd), (uint64_t)j->odd * sizeof(float));
}

/* Such a place with random floats, each of which goes through `map` if there is one. */
static k3_ref mapped(k3_backend *be, const job *j, random_stream *r, size_t n, float scale, float (*map)(float))
{
    k3_ref ref = output(be, j, n);
    float *values = malloc((n + 1) * sizeof *values);
    assert_non_null(values);
    random_floats(r, values, n, scale);
    for (size_t i = 0; map && i < n; i++)
        values[i] = map(values[i]);
    be->memory->upload(be, ref, values, n * sizeof *values);
    free(values);
    return ref;
}

static k3_ref input(k3_backend *be, const job *j, random_stream *r, size_t n, float scale)
{
    return mapped(be, j, r, n, scale, NULL);
}

static float decay_of(float x)
{
    return expf(-fabsf(x));
}

static float strength_of(float x)
{
    return 1 / (1 + expf(x));
}

static k3_ref rows_from(k3_ref ref, int first, int width)
{
    return k3_at(ref, (uint64_t)first * (uint64_t)width * sizeof(float));
}

static void collect(k3_backend *be, job_result *out, k3_ref ref, size_t n)
{
    out->values = realloc(out->values, (out->n + n) * sizeof(float));
    be->memory->download(be, out->values + out->n, ref, n * sizeof(float));
    out->n += n;
}

/* The runs of a piece: sequence s has rows s T / n .. (s + 1) T / n - 1, from position `pos` of its own. */
static int runs_of(k3_run *runs, const job *j, const piece *p, const k3_ref *states, int pos)
{
    int n = 0;
    for (int s = 0; s < j->n_sequences; s++) {
        int from = s * j->T / j->n_sequences, to = (s + 1) * j->T / j->n_sequences;
        int first = from > p->first ? from : p->first, last = to < p->first + p->n ? to : p->first + p->n;
        if (first < last)
            runs[n++] = (k3_run){first - p->first, last - first, pos + first - from, states[s]};
    }
    return n;
}

static void run_embed(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    k3_mat table = random_mat(be, &r, j->type, 1 + j->b, j->a, j->odd);
    k3_ref y = output(be, j, (size_t)(j->T * j->a));
    int32_t list[MAX_ROWS];
    assert_true(j->T <= MAX_ROWS);
    for (int t = 0; t < j->T; t++)
        list[t] = random_below(&r, 1 + j->b);
    k3_ref ids = put_bytes(be, list, (size_t)j->T * sizeof *list);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->embed(be, rows_from(y, p.first, j->a), &table, rows_from(ids, p.first, 1), p.n);
    collect(be, out, y, (size_t)(j->T * j->a));
}

static void run_attnres_mix(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int n = 1 + j->b % 9;
    k3_ref s = input(be, j, &r, (size_t)j->a, 1.0f / sqrtf((float)j->a)), y = output(be, j, (size_t)(j->T * j->a)), src[9], at[9];
    for (int i = 0; i < n; i++)
        src[i] = input(be, j, &r, (size_t)(j->T * j->a), 1);
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        for (int i = 0; i < n; i++)
            at[i] = rows_from(src[i], p.first, j->a);
        be->ops->attnres_mix(be, rows_from(y, p.first, j->a), at, n, s, p.n, j->a, 1e-5f);
    }
    collect(be, out, y, (size_t)(j->T * j->a));
}

/* Strides larger than the row. */
static void run_rmsnorm(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int xs = j->a + j->b, ys = j->a + 3;
    k3_ref x = input(be, j, &r, (size_t)(j->T * xs), 1), w = input(be, j, &r, (size_t)j->a, 1), y = output(be, j, (size_t)(j->T * ys));
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->rmsnorm(be, rows_from(y, p.first, ys), rows_from(x, p.first, xs), w, p.n, j->a, ys, xs, 1e-5f);
    collect(be, out, y, (size_t)(j->T * ys));
}

/* Two projections of one input. */
static void multiply(k3_backend *be, const job *j, const int *pieces, job_result *out, k3_type type, float (*map)(float))
{
    random_stream r = {j->seed};
    k3_mat w[2] = {random_mat(be, &r, type, j->b, j->a, j->odd), random_mat(be, &r, type, 1 + j->b / 2, j->a, !j->odd)};
    k3_ref x = mapped(be, j, &r, (size_t)(j->T * j->a), 1, map), y[2];
    w[0].rounds_x = w[1].rounds_x = map != NULL;
    for (int i = 0; i < 2; i++)
        y[i] = output(be, j, (size_t)(j->T * w[i].rows));
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        k3_proj proj[2] = {{&w[0], rows_from(y[0], p.first, w[0].rows)}, {&w[1], rows_from(y[1], p.first, w[1].rows)}};
        be->ops->matmul(be, proj, 2, rows_from(x, p.first, j->a), p.n);
    }
    collect(be, out, y[0], (size_t)(j->T * w[0].rows));
    collect(be, out, y[1], (size_t)(j->T * w[1].rows));
}

static void run_matmul(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    multiply(be, j, pieces, out, j->type, NULL);
}

static float as_bf16(float x)
{
    return k3_bf16_value(k3_bf16_of(x));
}

/* bf16 weights that may see x rounded: x is bf16 already, so that rounding takes nothing away and only the sums differ. */
static void run_matmul_bf16(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    multiply(be, j, pieces, out, K3_BF16, as_bf16);
}

static void run_shortconv(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int width = 1 + j->b % 8;
    k3_ref u = input(be, j, &r, (size_t)(j->T * j->a), 1), w = input(be, j, &r, (size_t)(j->a * width), 0.5f);
    k3_ref y = output(be, j, (size_t)(j->T * j->a)), window[MAX_SEQUENCES];
    for (int s = 0; s < j->n_sequences; s++)
        window[s] = input(be, j, &r, (size_t)((width - 1) * j->a), 1);
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        k3_run runs[MAX_SEQUENCES];
        int n = runs_of(runs, j, &p, window, 0);
        be->ops->shortconv(be, rows_from(y, p.first, j->a), rows_from(u, p.first, j->a), w, runs, n, j->a, width);
    }
    collect(be, out, y, (size_t)(j->T * j->a));
    for (int s = 0; s < j->n_sequences; s++)
        collect(be, out, window[s], (size_t)((width - 1) * j->a));
}

static void run_l2norm(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int H = 1 + j->b % 5, width = H * j->a;
    k3_ref x = input(be, j, &r, (size_t)(j->T * width), 1), y = output(be, j, (size_t)(j->T * width));
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->l2norm(be, rows_from(y, p.first, width), rows_from(x, p.first, width), p.n, H, j->a, 1e-6f, 0.25f);
    collect(be, out, y, (size_t)(j->T * width));
}

static void run_kda_gate(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int H = 1 + j->b % 5, width = H * j->a;
    size_t n = (size_t)(j->T * width), n_beta = (size_t)(j->T * H);
    k3_ref z = input(be, j, &r, n, 2), b = input(be, j, &r, n_beta, 2), a_log = input(be, j, &r, (size_t)H, 0.7f);
    k3_ref bias = input(be, j, &r, (size_t)width, 0.5f), alpha = output(be, j, n), g = output(be, j, n), beta = output(be, j, n_beta);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->kda_gate(be, rows_from(alpha, p.first, width), rows_from(g, p.first, width), rows_from(beta, p.first, H),
                          rows_from(z, p.first, width), rows_from(b, p.first, H), a_log, bias, p.n, H, j->a, -5);
    collect(be, out, alpha, n);
    collect(be, out, g, n);
    collect(be, out, beta, n_beta);
}

static float log_decay_of(float x)
{
    return -fabsf(x);
}

/* The delta rule row by row, from the decay, or by chunks, from its logarithm. */
static void run_kda(k3_backend *be, const job *j, const int *pieces, job_result *out, int chunked)
{
    random_stream r = {j->seed};
    int H = 1 + j->b % 5, D = j->a, width = H * D;
    size_t n = (size_t)(j->T * width), n_state = (size_t)(width * D);
    float unit = 1.0f / sqrtf((float)D);
    k3_ref q = input(be, j, &r, n, unit), k = input(be, j, &r, n, unit), v = input(be, j, &r, n, 1);
    k3_ref decay = mapped(be, j, &r, n, 1, chunked ? log_decay_of : decay_of);
    k3_ref beta = mapped(be, j, &r, (size_t)(j->T * H), 1, strength_of), o = output(be, j, n), state[MAX_SEQUENCES];
    for (int s = 0; s < j->n_sequences; s++)
        state[s] = input(be, j, &r, n_state, 1);
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        k3_run runs[MAX_SEQUENCES];
        int n_runs = runs_of(runs, j, &p, state, 0);
        (chunked ? be->ops->kda_chunk : be->ops->kda_recur)(
            be, rows_from(o, p.first, width), rows_from(q, p.first, width), rows_from(k, p.first, width), rows_from(v, p.first, width),
            rows_from(decay, p.first, width), rows_from(beta, p.first, H), runs, n_runs, H, D);
    }
    collect(be, out, o, n);
    for (int s = 0; s < j->n_sequences; s++)
        collect(be, out, state[s], n_state);
}

static void run_kda_recur(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    run_kda(be, j, pieces, out, 0);
}

static void run_kda_chunk(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    run_kda(be, j, pieces, out, 1);
}

static void run_gate_rmsnorm(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int H = 1 + j->b % 5, width = H * j->a;
    size_t n = (size_t)(j->T * width);
    k3_ref o = input(be, j, &r, n, 1), w = input(be, j, &r, (size_t)j->a, 1), gate = input(be, j, &r, n, 4), y = output(be, j, n);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->gate_rmsnorm(be, rows_from(y, p.first, width), rows_from(o, p.first, width), w, rows_from(gate, p.first, width), p.n, H,
                              j->a, 1e-5f);
    collect(be, out, y, n);
}

/* A cache of `most` rows, NaN where no row has been written. A bf16 one comes filled up to `n` rows: appending would round the norms of
 * different levels to different neighbours. */
static k3_ref new_cache(k3_backend *be, random_stream *r, k3_type type, int width, int n, int most)
{
    size_t bytes = (size_t)(most * width) * 4;
    unsigned char *rows = malloc(bytes);
    assert_non_null(rows);
    memset(rows, 0xff, bytes);
    for (int i = 0; type == K3_BF16 && i < n * width; i++) {
        float x = random_float(r);
        memcpy(rows + 2 * i, (char *)&x + 2, 2);
    }
    k3_ref cache = put_bytes(be, rows, bytes);
    free(rows);
    return cache;
}

/* Attention over a cache of f32, which is appended to before each call, or bf16, by the seed. kv_b takes the job's weight type. Thousands
 * of b are spans of the cache, about, that were there before. */
static void run_mla(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int granule = k3_type_granule(j->type), kv = (j->a % 150 + granule) / granule * granule, before = j->b % 140 + j->b / 1000 * 500;
    k3_mla_dims d = {1 + j->b % 18, 5 + j->b % 20, 1 + j->a % 9, 3 + j->a % 30, kv, j->seed & 1 ? K3_BF16 : K3_F32};
    int width = kv + d.rope, q_width = d.heads * (d.nope + d.rope), o_width = d.heads * d.v;
    k3_mat kv_b = random_mat(be, &r, j->type, d.heads * (d.nope + d.v), kv, j->odd);
    k3_ref q = input(be, j, &r, (size_t)(j->T * q_width), 0.5f), ckv = input(be, j, &r, (size_t)(j->T * width), 1);
    k3_ref old = input(be, j, &r, (size_t)((before + 1) * width), 1), w = input(be, j, &r, (size_t)kv, 1), cache[MAX_SEQUENCES];
    k3_ref o = output(be, j, (size_t)(j->T * o_width));
    for (int s = 0; s < j->n_sequences; s++) {
        int n = (s + 1) * j->T / j->n_sequences - s * j->T / j->n_sequences;
        cache[s] = new_cache(be, &r, d.cache, width, before + n, before + j->T + 3);
        k3_run run = {0, before, 0, cache[s]};
        if (d.cache == K3_F32)
            be->ops->mla_append(be, old, w, &run, 1, &d, 1e-5f);
    }
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        k3_run runs[MAX_SEQUENCES];
        int n = runs_of(runs, j, &p, cache, before);
        if (d.cache == K3_F32)
            be->ops->mla_append(be, rows_from(ckv, p.first, width), w, runs, n, &d, 1e-5f);
        be->ops->mla_attend(be, rows_from(o, p.first, o_width), rows_from(q, p.first, q_width), &kv_b, runs, n, &d, 0.3f);
    }
    collect(be, out, o, (size_t)(j->T * o_width));
}

static void run_gate_mul(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    size_t n = (size_t)(j->T * j->a);
    k3_ref x = input(be, j, &r, n, 1), gate = input(be, j, &r, n, 6), y = output(be, j, n);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->gate_mul(be, rows_from(y, p.first, j->a), rows_from(x, p.first, j->a), rows_from(gate, p.first, j->a),
                          (int64_t)p.n * j->a);
    collect(be, out, y, n);
}

static void run_situ_glu(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    size_t n = (size_t)(j->T * j->a);
    k3_ref g = input(be, j, &r, n, 6), u = input(be, j, &r, n, 20), y = output(be, j, n);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->situ_glu(be, rows_from(y, p.first, j->a), rows_from(g, p.first, j->a), rows_from(u, p.first, j->a), (int64_t)p.n * j->a, 4,
                          j->b % 3 ? 25 : INFINITY);
    collect(be, out, y, n);
}

static void run_router_topk(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    int E = j->a + 1, K = 1 + j->b % (E < 20 ? E : 20);
    k3_ref logits = input(be, j, &r, (size_t)(j->T * E), 2), bias = input(be, j, &r, (size_t)E, 0.1f);
    k3_ref ids = new_bytes(be, (size_t)(j->T * K) * 4), weights = output(be, j, (size_t)(j->T * K));
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->router_topk(be, rows_from(ids, p.first, K), rows_from(weights, p.first, K), rows_from(logits, p.first, E), bias, p.n, E, K,
                             j->b % 2, 2.5f);
    collect(be, out, weights, (size_t)(j->T * K));
    size_t n_weights = out->n;
    collect(be, out, ids, (size_t)(j->T * K));
    for (size_t i = n_weights; i < out->n; i++) {
        int32_t id;
        memcpy(&id, &out->values[i], sizeof id);
        out->values[i] = (float)id;
    }
}

static void run_moe_experts(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    enum { E = 6, MAX_CHOICES = 4 };
    random_stream r = {j->seed};
    int L = 32 * (1 + j->a % 5), I = 32 * (1 + j->b % 4), K = 1 + j->b % MAX_CHOICES;
    int odd = j->odd && !be->is_device; /* slots of a device are aligned */
    k3_expert experts[E];
    const k3_expert *table[E];
    for (int e = 0; e < E; e++) {
        experts[e] = (k3_expert){random_mat(be, &r, K3_MXFP4, I, L, odd), random_mat(be, &r, K3_MXFP4, I, L, 0),
                                 random_mat(be, &r, K3_MXFP4, L, I, odd)};
        table[e] = &experts[e];
    }
    k3_ref z = input(be, j, &r, (size_t)(j->T * L), 1), weights = input(be, j, &r, (size_t)(j->T * K), 1);
    k3_ref y = output(be, j, (size_t)(j->T * L)), slots = output(be, j, (size_t)(j->T * K * L));
    int32_t ids[MAX_ROWS * MAX_CHOICES];
    assert_true(j->T <= MAX_ROWS);
    for (int t = 0; t < j->T; t++)
        for (int k = 0, first = random_below(&r, E); k < K; k++)
            ids[t * K + k] = (first + k * 5) % E;
    k3_ref device_ids = put_bytes(be, ids, (size_t)(j->T * K) * sizeof *ids);
    for (piece p = {0}; next_piece(&p, j, &pieces);) {
        k3_moe moe = {p.n, K, E, L, I, 4, 25, rows_from(device_ids, p.first, K), ids + p.first * K, table, {NULL, 0}};
        be->ops->moe_experts(be, rows_from(slots, p.first, K * L), rows_from(z, p.first, L), &moe);
        be->ops->moe_sum(be, rows_from(y, p.first, L), rows_from(slots, p.first, K * L), rows_from(weights, p.first, K), p.n, K, L);
    }
    collect(be, out, y, (size_t)(j->T * L));
}

static void run_add(k3_backend *be, const job *j, const int *pieces, job_result *out)
{
    random_stream r = {j->seed};
    size_t n = (size_t)(j->T * j->a);
    k3_ref a = input(be, j, &r, n, 1), b = input(be, j, &r, n, 1), y = output(be, j, n);
    for (piece p = {0}; next_piece(&p, j, &pieces);)
        be->ops->add(be, rows_from(y, p.first, j->a), rows_from(a, p.first, j->a), rows_from(b, p.first, j->a), (int64_t)p.n * j->a);
    collect(be, out, y, n);
}

const job_op job_ops[N_JOB_OPS] = {
    {"embed", run_embed, 0, 1, 0},
    {"attnres_mix", run_attnres_mix, 4e-6, 0, 0},
    {"rmsnorm", run_rmsnorm, 1e-6, 0, 0},
    {"matmul", run_matmul, 2e-6, 1, 0},
    {"shortconv", run_shortconv, 1e-6, 0, 0},
    {"l2norm", run_l2norm, 1e-6, 0, 0},
    {"kda_gate", run_kda_gate, 4e-6, 0, 0},
    {"kda_recur", run_kda_recur, 1e-5, 0, 0},
    {"kda_chunk", run_kda_chunk, 2e-5, 0, 1},
    {"gate_rmsnorm", run_gate_rmsnorm, 1e-6, 0, 0},
    {"mla", run_mla, 1e-5, 1, 0},
    {"gate_mul", run_gate_mul, 1e-6, 0, 0},
    {"situ_glu", run_situ_glu, 1e-6, 0, 0},
    {"router_topk", run_router_topk, 1e-6, 0, 0},
    {"moe_experts", run_moe_experts, 1e-5, 0, 0},
    {"add", run_add, 0, 0, 0},
    {"matmul_bf16", run_matmul_bf16, 2e-6, 0, 0},
};

double job_difference(const job_result *a, const job_result *b)
{
    double largest = 0, most = 0;
    assert_int_equal(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        if (!isfinite(a->values[i]) || !isfinite(b->values[i]))
            return INFINITY;
        largest = fmax(largest, fabs((double)a->values[i]));
        most = fmax(most, fabs((double)a->values[i] - (double)b->values[i]));
    }
    return most == 0 ? 0 : most / largest;
}
