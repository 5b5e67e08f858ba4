#include "golden_ops.h"

#include "backend/args/moe.h"
#include "base/bf16.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 16 };

static k3_ref put(k3_backend *be, const golden *g, const char *c, const char *tensor)
{
    const golden_tensor *t = golden_get(g, c, tensor);
    return put_bytes(be, t->data, t->n_bytes);
}

static int dim(const golden *g, const char *c, const char *tensor, int i)
{
    return (int)golden_get(g, c, tensor)->shape[i];
}

static k3_ref like(k3_backend *be, const golden *g, const char *c, const char *tensor)
{
    return new_floats(be, golden_get(g, c, tensor)->n);
}

/* Error of an output against the tensor of that name. */
static double error_of(k3_backend *be, const golden *g, const char *c, const char *tensor, k3_ref got)
{
    size_t n = golden_get(g, c, tensor)->n;
    float *values = get_floats(be, got, n);
    double error = golden_error(values, golden_floats(g, c, tensor), n);
    free(values);
    return error;
}

static float number(const golden *g, const char *c, const char *name)
{
    return (float)golden_number(g, c, name);
}

static k3_type type_named(const char *name)
{
    for (int i = 0; i < K3_N_TYPES; i++)
        if (strcmp(name, k3_type_name((k3_type)i)) == 0)
            return (k3_type)i;
    fail_msg("the golden file names a type %s", name);
    return K3_N_TYPES;
}

static k3_mat stored(k3_backend *be, const golden *g, const char *c, const char *tensor, int cols)
{
    k3_type type = type_named(golden_text(g, c, "type"));
    k3_mat mat = {type, dim(g, c, tensor, 0), cols, put(be, g, c, tensor), {NULL, 0}, 0};
    if (golden_maybe(g, c, "scale"))
        mat.scale = put(be, g, c, "scale");
    return mat;
}

/* How many of n rows go in a call. */
static int rows_a_call(int *T, int n)
{
    if (*T != 1)
        *T = n;
    return *T;
}

static k3_ref row_of(k3_ref ref, int t, int width)
{
    return k3_at(ref, (uint64_t)t * (uint64_t)width * sizeof(float));
}

static double run_embed(k3_backend *be, const golden *g, const char *c, int *T)
{
    int n = dim(g, c, "ids", 0), C = dim(g, c, "y", 1), rows = rows_a_call(T, n);
    k3_mat table = stored(be, g, c, "table", C);
    k3_ref y = like(be, g, c, "y"), ids = put(be, g, c, "ids");
    for (int t = 0; t < n; t += rows)
        be->ops->embed(be, row_of(y, t, C), &table, row_of(ids, t, 1), rows);
    return error_of(be, g, c, "y", y);
}

/* The output goes where the last source lies, which the contract allows. */
static double run_attnres_mix(k3_backend *be, const golden *g, const char *c, int *T)
{
    int n_src = dim(g, c, "src", 0), n = dim(g, c, "src", 1), C = dim(g, c, "src", 2), rows = rows_a_call(T, n);
    k3_ref all = put(be, g, c, "src"), s = put(be, g, c, "s"), src[32];
    for (int t = 0; t < n; t += rows) {
        for (int j = 0; j < n_src; j++)
            src[j] = row_of(all, j * n + t, C);
        be->ops->attnres_mix(be, src[n_src - 1], src, n_src, s, rows, C, number(g, c, "eps"));
    }
    return error_of(be, g, c, "y", row_of(all, (n_src - 1) * n, C));
}

static double run_rmsnorm(k3_backend *be, const golden *g, const char *c, int *T)
{
    int C = dim(g, c, "x", 1);
    *T = dim(g, c, "x", 0);
    k3_ref x = put(be, g, c, "x");
    be->ops->rmsnorm(be, x, x, put(be, g, c, "w"), *T, C, C, C, number(g, c, "eps"));
    return error_of(be, g, c, "y", x);
}

/* An output of one number has no larger neighbour to be measured by, and its terms may cancel to almost nothing (f32_t1_1x64 does,
 * 200-fold). Its error is taken relative to the size that such a sum has without cancelling, sqrt(sum_c (w_c x_c)^2), if that is larger. */
static double scale_of_one(k3_backend *be, const k3_mat *w, const float *x, double want)
{
    k3_ref row = new_floats(be, (size_t)w->cols), zero = put_bytes(be, &(int32_t){0}, sizeof(int32_t));
    be->ops->embed(be, row, w, zero, 1);
    float *values = get_floats(be, row, (size_t)w->cols);
    double square = 0;
    for (int c = 0; c < w->cols; c++)
        square += pow((double)values[c] * x[c], 2);
    free(values);
    return fmax(1, sqrt(square) / fabs(want));
}

static double run_matmul(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = dim(g, c, "x", 0);
    k3_mat w = stored(be, g, c, "w", dim(g, c, "x", 1));
    k3_proj proj = {&w, like(be, g, c, "y")};
    be->ops->matmul(be, &proj, 1, put(be, g, c, "x"), *T);
    double error = error_of(be, g, c, "y", proj.y);
    if (*T * w.rows == 1)
        error /= scale_of_one(be, &w, golden_floats(g, c, "x"), (double)golden_floats(g, c, "y")[0]);
    return error;
}

static double run_shortconv(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = dim(g, c, "u", 0);
    k3_run run = {0, *T, 0, put(be, g, c, "window_in")};
    k3_ref y = like(be, g, c, "y");
    be->ops->shortconv(be, y, put(be, g, c, "u"), put(be, g, c, "w"), &run, 1, dim(g, c, "u", 1), dim(g, c, "w", 1));
    return fmax(error_of(be, g, c, "y", y), error_of(be, g, c, "window_out", run.state));
}

static double run_l2norm(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = dim(g, c, "x", 0);
    k3_ref x = put(be, g, c, "x");
    be->ops->l2norm(be, x, x, *T, dim(g, c, "x", 1), dim(g, c, "x", 2), number(g, c, "eps"), number(g, c, "scale"));
    return error_of(be, g, c, "y", x);
}

/* alpha goes where z lies. */
static double run_kda_gate(k3_backend *be, const golden *g, const char *c, int *T)
{
    int H = dim(g, c, "g", 1), D = dim(g, c, "g", 2);
    *T = dim(g, c, "g", 0);
    k3_ref z = put(be, g, c, "z"), decay = like(be, g, c, "g"), beta = like(be, g, c, "beta");
    be->ops->kda_gate(be, z, decay, beta, z, put(be, g, c, "b"), put(be, g, c, "a_log"), put(be, g, c, "dt_bias"), *T, H, D,
                      number(g, c, "lower_bound"));
    return fmax(fmax(error_of(be, g, c, "g", decay), error_of(be, g, c, "alpha", z)), error_of(be, g, c, "beta", beta));
}

/* o goes where v lies. */
static double run_kda(k3_backend *be, const golden *g, const char *c, int *T, int chunked)
{
    int H = dim(g, c, "q", 1), D = dim(g, c, "q", 2);
    *T = dim(g, c, "q", 0);
    k3_run run = {0, *T, 0, put(be, g, c, "S_in")};
    k3_ref v = put(be, g, c, "v");
    if (chunked)
        be->ops->kda_chunk(be, v, put(be, g, c, "q"), put(be, g, c, "k"), v, put(be, g, c, "g"), put(be, g, c, "beta"), &run, 1, H, D);
    else
        be->ops->kda_recur(be, v, put(be, g, c, "q"), put(be, g, c, "k"), v, put(be, g, c, "alpha"), put(be, g, c, "beta"), &run, 1, H, D);
    return fmax(error_of(be, g, c, "o", v), error_of(be, g, c, "S_out", run.state));
}

static double run_kda_recur(k3_backend *be, const golden *g, const char *c, int *T)
{
    return run_kda(be, g, c, T, 0);
}

static double run_kda_chunk(k3_backend *be, const golden *g, const char *c, int *T)
{
    return run_kda(be, g, c, T, 1);
}

static double run_gate_rmsnorm(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = dim(g, c, "o", 0);
    k3_ref o = put(be, g, c, "o");
    be->ops->gate_rmsnorm(be, o, o, put(be, g, c, "w"), put(be, g, c, "gate"), *T, dim(g, c, "o", 1), dim(g, c, "o", 2),
                          number(g, c, "eps"));
    return error_of(be, g, c, "y", o);
}

static float bf16_rounded(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u = (u + 0x7fff + ((u >> 16) & 1)) & 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Both cache types: f32 rows meet the vectors; bf16 rows are within half a step (2^-9) of them and land at the same place. */
static double run_mla_append(k3_backend *be, const golden *g, const char *c, int *T)
{
    int width = dim(g, c, "ckv", 1);
    size_t pos = (size_t)golden_number(g, c, "pos"), n = golden_get(g, c, "rows")->n;
    *T = dim(g, c, "ckv", 0);
    k3_mla_dims dims = {1, 1, (int)golden_number(g, c, "rope"), 1, (int)golden_number(g, c, "kv_lora"), K3_F32};
    k3_run run = {0, *T, (int64_t)pos, new_floats(be, n + pos * (size_t)width)};
    k3_ref ckv = put(be, g, c, "ckv"), w = put(be, g, c, "w");
    be->ops->mla_append(be, ckv, w, &run, 1, &dims, number(g, c, "eps"));
    double error = error_of(be, g, c, "rows", k3_at(run.state, pos * (uint64_t)width * sizeof(float)));

    k3_run half = {0, *T, (int64_t)pos, new_bytes(be, 2 * (n + pos * (size_t)width))};
    dims.cache = K3_BF16;
    be->ops->mla_append(be, ckv, w, &half, 1, &dims, number(g, c, "eps"));
    size_t all = n + pos * (size_t)width;
    float *full = get_floats(be, run.state, all);
    uint16_t *rounded = get_bytes(be, half.state, 2 * all);
    for (size_t i = 0; i < all; i++) {
        uint32_t bits = (uint32_t)rounded[i] << 16;
        float x;
        memcpy(&x, &bits, sizeof x);
        if (x != bf16_rounded(full[i]))
            fail_msg("%s %s: bf16 cache holds %g at %zu, %g is the rounded value", be->name, c, (double)x, i, (double)full[i]);
    }
    free(full);
    free(rounded);
    return error;
}

static double run_mla_attend(k3_backend *be, const golden *g, const char *c, int *T)
{
    int H = dim(g, c, "q", 1);
    *T = dim(g, c, "q", 0);
    k3_mla_dims dims = {H,
                        (int)golden_number(g, c, "nope"),
                        (int)golden_number(g, c, "rope"),
                        (int)golden_number(g, c, "v"),
                        (int)golden_number(g, c, "kv_lora"),
                        K3_F32};
    k3_mat kv_b = {K3_F32, dim(g, c, "kv_b", 0), dim(g, c, "kv_b", 1), put(be, g, c, "kv_b"), {NULL, 0}, 0};
    k3_run run = {0, *T, (int64_t)golden_number(g, c, "pos0"), put(be, g, c, "cache")};
    k3_ref o = like(be, g, c, "o");
    be->ops->mla_attend(be, o, put(be, g, c, "q"), &kv_b, &run, 1, &dims, number(g, c, "scale"));
    return error_of(be, g, c, "o", o);
}

static double run_gate_mul(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = 1;
    k3_ref x = put(be, g, c, "x");
    be->ops->gate_mul(be, x, x, put(be, g, c, "gate"), (int64_t)golden_get(g, c, "x")->n);
    return error_of(be, g, c, "y", x);
}

static double run_situ_glu(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = 1;
    k3_ref gate = put(be, g, c, "g");
    be->ops->situ_glu(be, gate, gate, put(be, g, c, "u"), (int64_t)golden_get(g, c, "g")->n, number(g, c, "b1"), number(g, c, "b2"));
    return error_of(be, g, c, "y", gate);
}

static double run_router_topk(k3_backend *be, const golden *g, const char *c, int *T)
{
    int E = dim(g, c, "logits", 1), K = dim(g, c, "ids", 1), n = dim(g, c, "logits", 0), rows = rows_a_call(T, n);
    k3_ref ids = new_bytes(be, (size_t)n * (size_t)K * sizeof(int32_t)), weights = like(be, g, c, "weights");
    k3_ref logits = put(be, g, c, "logits"), bias = put(be, g, c, "bias");
    for (int t = 0; t < n; t += rows)
        be->ops->router_topk(be, row_of(ids, t, K), row_of(weights, t, K), row_of(logits, t, E), bias, rows, E, K,
                             (int)golden_number(g, c, "renormalize"), number(g, c, "scale"));
    const int32_t *want = golden_ints(g, c, "ids");
    int32_t *got = get_bytes(be, ids, (size_t)n * (size_t)K * sizeof *got);
    for (int i = 0; i < n * K; i++)
        if (got[i] != want[i])
            fail_msg("%s router_topk %s: row %d rank %d is expert %d, wanted %d", be->name, c, i / K, i % K, got[i], want[i]);
    free(got);
    return error_of(be, g, c, "weights", weights);
}

static k3_mat expert_mat(k3_backend *be, const golden *g, const char *c, const char *name, int e)
{
    char scale_name[32];
    snprintf(scale_name, sizeof scale_name, "%s_scale", name);
    const golden_tensor *codes = golden_get(g, c, name), *scale = golden_get(g, c, scale_name);
    size_t n = codes->n / (size_t)codes->shape[0], n_scale = scale->n / (size_t)scale->shape[0];
    return (k3_mat){K3_MXFP4,
                    (int)codes->shape[1],
                    (int)codes->shape[2] * 2,
                    put_bytes(be, (const char *)codes->data + (size_t)e * n, n),
                    put_bytes(be, (const char *)scale->data + (size_t)e * n_scale, n_scale),
                    0};
}

static uint64_t address_of(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

/* The table as a device has it when every expert is resident; entries that no row asks for stay 0. */
static k3_ref put_addresses(k3_backend *be, const k3_expert *const *table, int E)
{
    struct k3_expert_address addresses[MOST_EXPERTS] = {{0}};
    for (int e = 0; e < E; e++)
        if (table[e])
            addresses[e] =
                (struct k3_expert_address){address_of(table[e]->w1.data),  address_of(table[e]->w1.scale), address_of(table[e]->w3.data),
                                           address_of(table[e]->w3.scale), address_of(table[e]->w2.data),  address_of(table[e]->w2.scale)};
    return put_bytes(be, addresses, (size_t)E * sizeof *addresses);
}

/* What comes out is the weighted sum of the slots, so moe_sum is judged too. */
static double moe_error(k3_backend *be, const golden *g, const char *c, const k3_moe *moe)
{
    k3_ref y = like(be, g, c, "y"), slots = new_floats(be, (size_t)moe->T * (size_t)moe->K * (size_t)moe->L);
    be->ops->moe_experts(be, slots, put(be, g, c, "z"), moe);
    be->ops->moe_sum(be, y, slots, put(be, g, c, "weights"), moe->T, moe->K, moe->L);
    return error_of(be, g, c, "y", y);
}

/* Only experts that a row asks for are in the table. A device also finds them by address, with ids that the host has not seen. */
static double run_moe_experts(k3_backend *be, const golden *g, const char *c, int *T)
{
    int K = dim(g, c, "ids", 1), E = dim(g, c, "w1", 0);
    *T = dim(g, c, "ids", 0);
    const int32_t *ids = golden_ints(g, c, "ids");
    k3_expert experts[MOST_EXPERTS];
    const k3_expert *table[MOST_EXPERTS] = {NULL};
    assert_true(E <= MOST_EXPERTS);
    for (int i = 0; i < *T * K; i++) {
        int e = ids[i];
        if (table[e])
            continue;
        experts[e] = (k3_expert){expert_mat(be, g, c, "w1", e), expert_mat(be, g, c, "w3", e), expert_mat(be, g, c, "w2", e)};
        table[e] = &experts[e];
    }
    k3_moe moe = {.T = *T, .K = K, .E = E, .L = dim(g, c, "z", 1), .I = dim(g, c, "w1", 1), .host_ids = ids, .experts = table};
    moe.b1 = number(g, c, "b1");
    moe.b2 = number(g, c, "b2");
    moe.ids = put(be, g, c, "ids");
    double error = moe_error(be, g, c, &moe);
    if (!be->is_device)
        return error;
    moe.host_ids = NULL;
    moe.table = put_addresses(be, table, E);
    return fmax(error, moe_error(be, g, c, &moe));
}

static double run_moe_sum(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = dim(g, c, "slots", 0);
    k3_ref y = like(be, g, c, "y");
    be->ops->moe_sum(be, y, put(be, g, c, "slots"), put(be, g, c, "weights"), *T, dim(g, c, "slots", 1), dim(g, c, "slots", 2));
    return error_of(be, g, c, "y", y);
}

static double run_add(k3_backend *be, const golden *g, const char *c, int *T)
{
    *T = 1;
    k3_ref a = put(be, g, c, "a");
    be->ops->add(be, a, a, put(be, g, c, "b"), (int64_t)golden_get(g, c, "a")->n);
    return error_of(be, g, c, "y", a);
}

/* How far u is from the stretch of [0, 1) that belongs to `id`: ids [n] by falling probability p take it one after the other. */
static double distance(double u, int32_t id, const int32_t *ids, const float *p, size_t n)
{
    double from = 0;
    for (size_t i = 0; i < n; i++) {
        double to = i + 1 < n ? from + (double)p[i] : 1;
        if (ids[i] == id)
            return u < from ? from - u : u > to ? u - to : 0;
        from = to;
    }
    return 1;
}

/* One row for each of some draws spread over [0, 1), the last one near its end, all of the same logits (f32 or bf16). */
static double run_sample(k3_backend *be, const golden *g, const char *c, int *T)
{
    enum { ROWS = 9 };
    const golden_tensor *t_logits = golden_get(g, c, "logits");
    int V = (int)t_logits->n, rows = rows_a_call(T, ROWS);
    size_t row = (size_t)V * sizeof(float);
    float *x = malloc(row);
    assert_non_null(x);
    for (int i = 0; i < V; i++)
        x[i] = strcmp(t_logits->dtype, "BF16") ? golden_floats(g, c, "logits")[i] : k3_bf16_value(((const uint16_t *)t_logits->data)[i]);
    k3_ref logits = new_bytes(be, ROWS * row), ids = new_bytes(be, ROWS * sizeof(int32_t));
    k3_draw draws[ROWS];
    for (int t = 0; t < ROWS; t++) {
        be->memory->upload(be, row_of(logits, t, V), x, row);
        draws[t] = (k3_draw){number(g, c, "temperature"), number(g, c, "top_p"), number(g, c, "min_p"), (int)golden_number(g, c, "top_k"),
                             fmin(0.12 * t, 1 - 0x1p-53)};
    }
    free(x);
    for (int t = 0; t < ROWS; t += rows)
        be->ops->sample(be, row_of(ids, t, 1), row_of(logits, t, V), draws + t, rows, V);
    int32_t *got = get_bytes(be, ids, ROWS * sizeof *got);
    double error = 0;
    for (int t = 0; t < ROWS; t++)
        error = fmax(error, distance(draws[t].u, got[t], golden_ints(g, c, "ids"), golden_floats(g, c, "p"), golden_get(g, c, "ids")->n));
    free(got);
    return error;
}

const golden_op golden_ops[N_GOLDEN_OPS] = {
    {"embed", run_embed, 0, 1},
    {"attnres_mix", run_attnres_mix, 0, 1},
    {"rmsnorm", run_rmsnorm, 0, 0},
    {"matmul", run_matmul, 0, 0},
    {"shortconv", run_shortconv, 0, 0},
    {"l2norm", run_l2norm, 0, 0},
    {"kda_gate", run_kda_gate, 0, 0},
    {"kda_recur", run_kda_recur, 0, 0},
    {"kda_chunk", run_kda_chunk, 0, 0},
    {"gate_rmsnorm", run_gate_rmsnorm, 0, 0},
    {"mla_append", run_mla_append, 0, 0},
    {"mla_attend", run_mla_attend, 0, 0},
    {"gate_mul", run_gate_mul, 0, 0},
    {"situ_glu", run_situ_glu, 0, 0},
    {"router_topk", run_router_topk, 0, 1},
    {"moe_experts", run_moe_experts, 0, 0},
    {"moe_sum", run_moe_sum, 0, 0},
    {"add", run_add, 0, 0},
    {"sample", run_sample, 1, 1},
};
