/* Every kernel of every level against the scalar one, on memory that ends where the contract ends: odd shapes, places that are aligned no
 * better than promised, extreme values. What a kernel may assume of addresses: floats and integers lie at multiples of 4 bytes; codes and
 * scales of weights, rows of a cache and 8-bit codes of x lie anywhere. Integer paths and decoding give equal bits, float paths stay within
 * bounds that any order of summation keeps. The seeds are fixed, so a failure repeats. */
#include "guarded.h"
#include "kernel_inputs.h"

#include "backend/cpu/decode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 120 };

static k3_cpu_kernels scalar, level;

static void near(const char *what, float got, float want, double allowed)
{
    if (isnan(want) ? !isnan(got) : !(got == want || fabs((double)got - (double)want) <= allowed))
        fail_msg("%s: %s is %a, scalar %a, allowed %g", round_text, what, (double)got, (double)want, allowed);
}

/* Each within `part` of its own size, or of the largest of all if `of_largest`. What is subnormal, or made of something subnormal times
 * factors of that order, within that many units of 2^-149. */
static void all_near(const char *what, const float *got, const float *want, size_t n, double part, int of_largest, int units)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = isfinite(want[i]) ? fmax(largest, fabs((double)want[i])) : largest;
    for (size_t i = 0; i < n; i++)
        near(what, got[i], want[i], part * (of_largest ? largest : fabs((double)want[i])) + units * 0x1p-149);
}

/* Runs a check for every level above scalar that is here, every round, with the kernels of exact mode too where it wants them. */
static void on_levels(const char *kernel, int exact_too, void (*check)(flavour f, int exact))
{
    k3_cpu_kernels_get(&scalar, K3_CPU_SCALAR, 0);
    for (int l = K3_CPU_SCALAR + 1; l < K3_CPU_N_LEVELS; l++)
        for (int exact = 0; exact <= exact_too; exact++) {
            if (!k3_cpu_level_here((k3_cpu_level)l))
                continue;
            k3_cpu_kernels_get(&level, (k3_cpu_level)l, exact);
            for (int round = 0; round < ROUNDS; round++) {
                flavour f = begin_round(k3_cpu_level_name((k3_cpu_level)l), kernel, round);
                check(f, exact);
                guarded_check(round_text);
            }
        }
}

/* ---- weights --------------------------------------------------------------------------------------------------------------- */

static int random_cols(k3_type type, int most)
{
    int granule = k3_type_granule(type), n = 1 + below(most);
    return (n + granule - 1) / granule * granule;
}

static void check_decode(flavour f, int exact)
{
    (void)exact;
    for (int type = 0; type < K3_N_TYPES; type++) {
        int cols = random_cols((k3_type)type, 300);
        k3_cpu_mat w = matrix((k3_type)type, 1, cols, f);
        float *got = empty((size_t)cols), *want = empty((size_t)cols);
        level.decode(got, w.codes, w.scale, w.type, cols);
        scalar.decode(want, w.codes, w.scale, w.type, cols);
        same_bits(k3_type_name(w.type), got, want, (size_t)cols);
    }
}

static void decode(void **state)
{
    (void)state;
    on_levels("decode", 0, check_decode);
}

enum { MAX_T = 9 };

typedef struct product {
    int rows, first, last, T;
    float *got[MAX_T], *want[MAX_T];
} product;

static product new_product(int most_rows)
{
    product p = {.rows = 1 + below(most_rows), .T = 1 + below(MAX_T)};
    p.first = below(p.rows);
    p.last = p.first + 1 + below(p.rows - p.first);
    if (below(2))
        p.last = p.rows;
    for (int t = 0; t < p.T; t++) {
        p.got[t] = empty((size_t)p.rows);
        p.want[t] = empty((size_t)p.rows);
    }
    return p;
}

/* Rows that were not asked for are as they were. */
static void others_untouched(const product *p)
{
    for (int t = 0; t < p->T; t++)
        for (int i = 0; i < p->rows; i++)
            if ((i < p->first || i >= p->last) && !isnan(p->got[t][i]))
                fail_msg("%s: row %d of %d was written, %d to %d were asked for", round_text, i, p->rows, p->first, p->last - 1);
}

/* Any order of a sum of n products keeps within n roundings of the sum of magnitudes; a sum in double is rounded twice. */
static void check_product(const product *p, const k3_cpu_mat *w, float *const *x, int exact)
{
    float *weights = malloc((size_t)w->cols * sizeof *weights);
    assert_non_null(weights);
    for (int i = p->first; i < p->last; i++) {
        const unsigned char *scale = w->scale + (size_t)i * w->scale_bytes;
        float row_scale = k3_type_scales_rows(w->type) ? k3_load_f32(scale, 0) : 1;
        scalar.decode(weights, w->codes + (size_t)i * w->row_bytes, scale, w->type, w->cols);
        for (int t = 0; t < p->T; t++) {
            double all = 0, unit = exact ? 0x1p-40 : 0x1p-24 * (w->cols + 2);
            for (int c = 0; c < w->cols; c++)
                all += fabs((double)weights[c] * x[t][c]);
            double small = 0x1p-149 * (exact ? 2 : w->cols + 2) * fmax(1, fabs((double)row_scale));
            if (all < 1e37)
                near(k3_type_name(w->type), p->got[t][i], p->want[t][i],
                     unit * all + small + (exact ? 0x1p-23 * fabs((double)p->want[t][i]) : 0));
        }
    }
    free(weights);
    others_untouched(p);
}

static void check_matmul(flavour f, int exact)
{
    k3_type type = (k3_type)below(K3_N_TYPES);
    product p = new_product(40);
    int cols = random_cols(type, below(4) ? 150 : 1300);
    flavour of_x = f == LARGE || f == MIXED ? SUBNORMAL : f == SUBNORMAL ? LARGE : f;
    k3_cpu_mat w = matrix(type, p.rows, cols, f);
    float *x[MAX_T];
    for (int t = 0; t < p.T; t++)
        x[t] = floats((size_t)cols, of_x);
    level.matmul(p.got, (const float *const *)x, p.T, &w, p.first, p.last);
    scalar.matmul(p.want, (const float *const *)x, p.T, &w, p.first, p.last);
    check_product(&p, &w, x, exact);
}

static void matmul(void **state)
{
    (void)state;
    on_levels("matmul", 1, check_matmul);
}

/* ---- products of integers -------------------------------------------------------------------------------------------------- */

static void check_quantize(flavour f, int exact)
{
    (void)exact;
    int n = 1 + below(3), cols = K3_Q8_BLOCK * (1 + below(20)), orders = 1 + below(3);
    int first = K3_Q8_BLOCK * below(cols / K3_Q8_BLOCK), row = below(n);
    int last = below(2) ? cols : first + K3_Q8_BLOCK;
    k3_q8 got = new_q8(n, cols, orders & 1, orders & 2), want = new_q8(n, cols, orders & 1, orders & 2);
    float *x = floats((size_t)cols, f);
    spoil(x, cols, f);
    if (f == LARGE) /* the halves between two codes */
        for (int c = 0; c < cols; c++)
            x[c] = c % K3_Q8_BLOCK ? (float)(below(254) - 127) + 0.5f : 127;
    level.quantize_q8(&got, row, x, first, last);
    scalar.quantize_q8(&want, row, x, first, last);
    size_t all = (size_t)n * (size_t)cols;
    if ((got.codes && memcmp(got.codes, want.codes, all)) || (got.by_nibble && memcmp(got.by_nibble, want.by_nibble, all)))
        fail_msg("%s: codes differ (row %d, columns %d to %d)", round_text, row, first, last - 1);
    same_bits("scale", got.scale, want.scale, all / K3_Q8_BLOCK);
    for (int c = 0; c < cols; c += K3_Q8_BLOCK) {
        size_t block = ((size_t)row * (size_t)cols + (size_t)c) / K3_Q8_BLOCK;
        /* The sum of a block that has NaN as its scale says nothing. */
        if (!isnan(want.scale[block]) && got.sum[block] != want.sum[block])
            fail_msg("%s: the sum of block %zu is %d, scalar %d", round_text, block, got.sum[block], want.sum[block]);
    }
}

static void quantize_q8(void **state)
{
    (void)state;
    on_levels("quantize_q8", 0, check_quantize);
}

static void check_matmul_q8(flavour f, int exact)
{
    (void)exact;
    enum { X_ROWS = 5 };
    static const int takes = K3_N_TYPES;
    k3_type type;
    int cols;
    do {
        type = (k3_type)below(takes);
        cols = K3_Q8_BLOCK * (1 + below(below(4) ? 8 : 40));
    } while (!k3_q8_takes(type, cols));
    product p = new_product(70);
    k3_cpu_mat w = matrix(type, p.rows, cols, f);
    k3_q8 q = new_q8(X_ROWS, cols, 1, 1);
    int32_t *row_of = guarded_room((size_t)p.T * sizeof *row_of);
    for (int t = 0; t < p.T; t++)
        row_of[t] = below(X_ROWS);
    for (int i = 0; i < X_ROWS; i++) {
        float *x = floats((size_t)cols, f == LARGE ? SUBNORMAL : f == SUBNORMAL ? LARGE : f);
        spoil(x, cols, f);
        scalar.quantize_q8(&q, i, x, 0, cols);
    }
    level.matmul_q8(p.got, &q, row_of, p.T, &w, p.first, p.last);
    scalar.matmul_q8(p.want, &q, row_of, p.T, &w, p.first, p.last);
    for (int t = 0; t < p.T; t++)
        same_bits(k3_type_name(type), p.got[t], p.want[t], (size_t)p.rows);
    others_untouched(&p);
}

static void matmul_q8(void **state)
{
    (void)state;
    on_levels("matmul_q8", 0, check_matmul_q8);
}

/* ---- attention ------------------------------------------------------------------------------------------------------------- */

/* Each output within the roundings of its own chain. Rows of v lie at any address; y is not read where there is no `keep`. */
static void check_mix(flavour f, int exact)
{
    int rows = 1 + below(9), n = 1 + below(K3_ATTEND_ROWS), cols = 1 + below(150);
    int kind = below(exact ? 2 : 3), v_stride = cols + below(20), p_stride = n + below(5);
    int y_stride = cols + below(9), has_keep = below(2);
    static const k3_type types[] = {K3_F32, K3_BF16, K3_INT8};
    k3_mix_fn *const mixes[][3] = {{level.mix_f32, level.mix_bf16, level.mix_int8}, {scalar.mix_f32, scalar.mix_bf16, scalar.mix_int8}};
    k3_cpu_mat v = matrix(types[kind], 1, (n - 1) * v_stride + cols, f);
    float *p = floats((size_t)((rows - 1) * p_stride + n), f == PLAIN ? PLAIN : f == LARGE ? SUBNORMAL : ZEROS);
    float *keep = has_keep ? floats((size_t)rows, PLAIN) : NULL, *values = malloc((size_t)v.cols * sizeof *values);
    size_t n_y = (size_t)((rows - 1) * y_stride + cols);
    float *before = has_keep ? floats(n_y, PLAIN) : empty(n_y), *got = copy_of(before, n_y * 4), *want = copy_of(before, n_y * 4);
    mixes[0][kind](got, y_stride, keep, p, p_stride, v.codes, v_stride, rows, n, cols);
    mixes[1][kind](want, y_stride, keep, p, p_stride, v.codes, v_stride, rows, n, cols);
    assert_non_null(values);
    scalar.decode(values, v.codes, v.scale, v.type, v.cols);
    for (int i = 0; i < v.cols && v.type == K3_INT8; i++) /* without their scale */
        values[i] = ((const signed char *)v.codes)[i];
    for (size_t i = 0; i < n_y; i++) {
        int row = (int)i / y_stride, c = (int)i % y_stride;
        double all = has_keep ? fabs((double)keep[row] * before[i]) : 0;
        if (c >= cols) {
            assert_memory_equal(&got[i], &before[i], 4);
            continue;
        }
        for (int s = 0; s < n; s++)
            all += fabs((double)p[row * p_stride + s] * values[s * v_stride + c]);
        near("mix", got[i], want[i], all * (exact ? 0x1p-23 : 0x1p-24 * (n + 2)) + 0x1p-149 * (n + 2));
    }
    free(values);
}

static void mix(void **state)
{
    (void)state;
    on_levels("mix", 1, check_mix);
}

/* Steps of one running softmax, the first of them from nothing. Arguments of exp are the same at every level, its errors 1 ulp. */
static void check_softmax(flavour f, int exact)
{
    (void)exact;
    float max[2] = {-INFINITY, -INFINITY};
    double sum[2] = {0, 0};
    for (int step = 0; step < 3; step++) {
        size_t n = (size_t)(1 + below(K3_ATTEND_ROWS));
        float *want = floats(n, f == LARGE || f == MIXED ? PLAIN : f), *got, scale = f == LARGE ? 1e4f : f == MIXED ? 1e-40f : 3.0f;
        got = copy_of(want, n * sizeof *want);
        float keep = level.softmax(got, (int)n, scale, &max[0], &sum[0]);
        near("keep", keep, scalar.softmax(want, (int)n, scale, &max[1], &sum[1]), 0);
        all_near("p", got, want, n, 4 * 0x1p-23, 0, 2);
        assert_true(max[0] == max[1]);
        assert_true(fabs(sum[0] - sum[1]) <= 1e-5 * sum[1]);
    }
}

static void softmax(void **state)
{
    (void)state;
    on_levels("softmax", 0, check_softmax);
}

/* ---- norms and what stands between them ------------------------------------------------------------------------------------ */

static void check_attnres_mix(flavour f, int exact)
{
    (void)exact;
    int n = 1 + below(9), C = 1 + below(300), T = 1 + below(3);
    const float *src[9];
    float *s = floats((size_t)C, PLAIN), *got = empty((size_t)(T * C)), *want = empty((size_t)(T * C));
    for (int i = 0; i < n; i++)
        src[i] = floats((size_t)(T * C), f == MIXED ? PLAIN : f);
    level.attnres_mix(got, src, n, s, C, 1e-5f, T - 1, T);
    scalar.attnres_mix(want, src, n, s, C, 1e-5f, T - 1, T);
    all_near("mixture", got, want, (size_t)(T * C), 2e-6, 1, 16);
}

static void attnres_mix(void **state)
{
    (void)state;
    on_levels("attnres_mix", 0, check_attnres_mix);
}

static void check_norms(flavour f, int exact)
{
    (void)exact;
    int C = 1 + below(300), T = 1 + below(3), stride = C + below(7);
    size_t n = (size_t)(T * C), n_strided = (size_t)((T - 1) * stride + C);
    float *x = floats(n_strided, f), *w = floats((size_t)C, PLAIN), *gate = floats(n, f), *got = empty(n_strided), *want = empty(n_strided);
    level.rmsnorm(got, x, w, C, stride, stride, 1e-5f, 0, T);
    scalar.rmsnorm(want, x, w, C, stride, stride, 1e-5f, 0, T);
    all_near("rmsnorm", got, want, n_strided, 4e-7, 0, 16);
    got = empty(n), want = empty(n);
    level.l2norm(got, x, C, 1e-6f, 0.25f, 0, T);
    scalar.l2norm(want, x, C, 1e-6f, 0.25f, 0, T);
    all_near("l2norm", got, want, n, 4e-7, 0, 16);
    got = empty(n), want = empty(n);
    level.gate_rmsnorm(got, x, w, gate, C, 1e-5f, 0, T);
    scalar.gate_rmsnorm(want, x, w, gate, C, 1e-5f, 0, T);
    all_near("gate_rmsnorm", got, want, n, 1e-6, 0, 32);
}

static void norms(void **state)
{
    (void)state;
    on_levels("norms", 0, check_norms);
}

static void check_gates(flavour f, int exact)
{
    (void)exact;
    size_t n = (size_t)(1 + below(300)), bad = (size_t)below((int)n);
    float *x = floats(n, PLAIN), *gate = floats(n, f), *got = empty(n), *want = empty(n), b2 = below(2) ? 25.0f : INFINITY;
    if (f == ZEROS)
        gate[bad] = NAN; /* its own output is NaN and no other */
    level.gate_mul(got, x, gate, (int64_t)n);
    scalar.gate_mul(want, x, gate, (int64_t)n);
    all_near("gate_mul", got, want, n, 4 * 0x1p-23, 0, 16);
    level.situ_glu(got, gate, x, (int64_t)n, 4, b2);
    scalar.situ_glu(want, gate, x, (int64_t)n, 4, b2);
    all_near("situ_glu", got, want, n, 16 * 0x1p-23, 0, 1024);
}

static void gates(void **state)
{
    (void)state;
    on_levels("gates", 0, check_gates);
}

/* ---- KDA ------------------------------------------------------------------------------------------------------------------- */

static void check_shortconv(flavour f, int exact)
{
    (void)exact;
    int C = 1 + below(80), width = below(2) ? 4 : 1 + below(K3_MAX_CONV), n = 1 + below(6);
    int first = below(C), last = below(2) ? C : first + 1;
    size_t n_y = (size_t)(n * C), n_window = (size_t)((width - 1) * C);
    float *u = floats(n_y, f), *w = floats((size_t)(C * width), PLAIN), *before = floats(n_window, f), *got = empty(n_y),
          *want = empty(n_y);
    float *windows[2] = {copy_of(before, n_window * 4), copy_of(before, n_window * 4)};
    level.shortconv(got, u, w, windows[0], n, C, width, first, last);
    scalar.shortconv(want, u, w, windows[1], n, C, width, first, last);
    for (size_t i = 0; i < n_y; i++) {
        double all = 0; /* of the largest input, since a sum of eight may cancel */
        for (size_t j = 0; j < n_y; j++)
            all = fmax(all, fabs((double)u[j]));
        for (size_t j = 0; j < n_window; j++)
            all = fmax(all, fabs((double)before[j]));
        near("y", got[i], want[i], all * 4e-5 + 0x1p-148);
    }
    same_bits("window", windows[0], windows[1], n_window);
}

static void shortconv(void **state)
{
    (void)state;
    on_levels("shortconv", 0, check_shortconv);
}

static void check_kda_gate(flavour f, int exact)
{
    (void)exact;
    int H = 1 + below(3), D = 1 + below(70), T = 1 + below(3), outputs = below(3);
    size_t n = (size_t)(T * H * D), n_beta = (size_t)(T * H);
    float *z = floats(n, f), *b = floats(n_beta, f), *a_log = floats((size_t)H, PLAIN), *bias = floats((size_t)(H * D), PLAIN);
    float *alpha[2] = {NULL, NULL}, *g[2] = {NULL, NULL}, *beta[2];
    for (int i = 0; i < 2; i++) {
        alpha[i] = outputs != 1 ? empty(n) : NULL;
        g[i] = outputs != 0 ? empty(n) : NULL;
        beta[i] = empty(n_beta);
        (i ? scalar : level).kda_gate(alpha[i], g[i], beta[i], z, b, a_log, bias, H, D, -5, 0, T * H);
    }
    /* The sigmoid's argument is rounded three times and reaches -104 before g is 0; that of the exp behind it reaches -5. */
    for (size_t i = 0; alpha[0] && i < n; i++)
        near("alpha", alpha[0][i], alpha[1][i], 4e-6 * (double)alpha[1][i]);
    if (g[0])
        all_near("g", g[0], g[1], n, 2e-5, 0, 16);
    all_near("beta", beta[0], beta[1], n_beta, 1e-6, 0, 2);
}

static void kda_gate(void **state)
{
    (void)state;
    on_levels("kda_gate", 0, check_kda_gate);
}

static void check_kda_recur(flavour f, int exact)
{
    (void)exact;
    int D = 1 + below(140), n = 1 + below(4), stride = D + below(9);
    size_t n_x = (size_t)((n - 1) * stride + D), n_state = (size_t)(D * D);
    flavour of_q = f == MIXED ? PLAIN : f;
    float *q = floats(n_x, PLAIN), *k = floats(n_x, PLAIN), *v = floats(n_x, of_q), *decay = floats(n_x, PLAIN),
          *beta = floats((size_t)n, PLAIN);
    for (size_t i = 0; i < n_x; i++) {
        decay[i] = expf(-fabsf(decay[i]));
        k[i] /= sqrtf((float)D);
    }
    for (int i = 0; i < n; i++)
        beta[i] = 1 / (1 + expf(beta[i]));
    float *before = floats(n_state, of_q), *o[2], *states[2];
    for (int i = 0; i < 2; i++) {
        o[i] = empty(n_x);
        states[i] = copy_of(before, n_state * sizeof *before);
        (i ? scalar : level).kda_recur(&(k3_kda_head){o[i], q, k, v, decay, beta, states[i], n, D, stride, 1});
    }
    all_near("state", states[0], states[1], n_state, 1e-5, 1, 64);
    all_near("o", o[0], o[1], n_x, 3e-5, 1, 64);
}

static void kda_recur(void **state)
{
    (void)state;
    on_levels("kda_recur", 0, check_kda_recur);
}

/* ---- the router, and reading memory ---------------------------------------------------------------------------------------- */

/* A row with a NaN among its logits is marked, whatever came before it. */
static void check_router(flavour f, int exact)
{
    (void)exact;
    int E = 1 + below(150), K = 1 + below(E < 20 ? E : 20), T = 1 + below(4);
    float *logits = floats((size_t)(T * E), f == MIXED ? PLAIN : f), *bias = floats((size_t)E, PLAIN), *weights[2];
    int32_t *ids[2];
    int bad = f == PLAIN ? below(T) : -1;
    if (bad >= 0)
        logits[bad * E + below(E)] = NAN;
    for (int i = 0; i < 2; i++) {
        ids[i] = guarded_room((size_t)(T * K) * sizeof(int32_t));
        weights[i] = empty((size_t)(T * K));
        (i ? scalar : level).router_topk(ids[i], weights[i], logits, bias, E, K, 1, 2.5f, 0, T);
    }
    for (int t = 0; t < T; t++) {
        assert_int_equal(ids[0][t * K] == -1, t == bad);
        if (t == bad)
            continue;
        assert_memory_equal(ids[0] + t * K, ids[1] + t * K, (size_t)K * sizeof(int32_t));
        all_near("weights", weights[0] + t * K, weights[1] + t * K, (size_t)K, 1e-6, 0, 16);
    }
}

static void router_topk(void **state)
{
    (void)state;
    on_levels("router_topk", 0, check_router);
}

static void check_memory_read(flavour f, int exact)
{
    (void)f;
    (void)exact;
    size_t n = 512 * (size_t)(1 + below(20));
    level.memory_read(memset(bytes_room(n), 1, n), (int64_t)n);
}

static void memory_read(void **state)
{
    (void)state;
    on_levels("memory_read", 0, check_memory_read);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decode),      cmocka_unit_test(matmul),      cmocka_unit_test(quantize_q8), cmocka_unit_test(matmul_q8),
        cmocka_unit_test(mix),         cmocka_unit_test(softmax),     cmocka_unit_test(attnres_mix), cmocka_unit_test(norms),
        cmocka_unit_test(gates),       cmocka_unit_test(shortconv),   cmocka_unit_test(kda_gate),    cmocka_unit_test(kda_recur),
        cmocka_unit_test(router_topk), cmocka_unit_test(memory_read),
    };
    return cmocka_run_group_tests_name("kernel fuzz", tests, NULL, close_rooms);
}
