/* The two promises of a level: it agrees with the scalar kernels, and its bits depend on nothing but the inputs of a row. Random shapes,
 * odd places and all weight types; the seeds are fixed, so a failure repeats. */
#include "backend/cpu/kernels.h"
#include "base/bf16.h"
#include "jobs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_ROUNDS = 12 };

static const job_op *op_of(void **state)
{
    return *state;
}

/* Round i of an op. Columns reach beyond several vectors and, once, beyond two spans of the matrix product. */
static job make_job(const job_op *op, int round, k3_type type)
{
    random_stream r = {1000003u * (uint64_t)(op - job_ops) + 101u * (uint64_t)round + (uint64_t)type};
    job j = {.seed = (uint64_t)random_bits(&r) << 8 | (uint64_t)round, .T = 1 + random_below(&r, 9), .type = type};
    j.n_sequences = 1 + random_below(&r, j.T < 3 ? j.T : 3);
    j.a = 1 + random_below(&r, round % 4 == 3 ? 1300 : 150);
    j.b = 1 + random_below(&r, 45);
    j.odd = round % 2;
    if (op->by_type) {
        int granule = k3_type_granule(type);
        if (round % 3) /* whole blocks of 32: multiplied as integers where the type is */
            granule = granule < 32 ? 32 : granule;
        j.a = (j.a + granule - 1) / granule * granule;
    }
    if (strncmp(op->name, "kda_", 4) == 0 && strcmp(op->name, "kda_gate"))
        j.a = 1 + j.a % 150;
    if (strcmp(op->name, "matmul") == 0 && round == 5)
        j.T = 70; /* more rows than one tile of x holds, and more of the matrix than a block of tiles */
    if (strcmp(op->name, "matmul") == 0 && round == 5)
        j.b += 70;
    if (strcmp(op->name, "matmul") == 0 && round == 7)
        j.T = 10 + (int)type;                                         /* one pass of integer products, or two */
    if (strcmp(op->name, "mla") == 0 && (round == 5 || round == 7)) { /* over the end of a span of the cache; behind several */
        j.T = round == 5 ? 9 : 3;
        j.b = round == 5 ? 1128 : 3000 + j.b;
        j.a = 32 * (1 + j.a % 2);
    }
    if (strcmp(op->name, "matmul_bf16") == 0 && round % 4 == 3)
        j.T += 40;
    if (strcmp(op->name, "matmul_bf16") == 0 && round == 7) { /* beyond the blocks of the kernels, in every direction */
        j.T = 530;
        j.a = 1100;
        j.b = 150;
    }
    return j;
}

/* Levels above AVX-512 are its kernels but for products. */
static int is_same_as_avx512(const job_op *op, const char *level)
{
    return (strcmp(level, "avx512bf16") == 0 || strcmp(level, "amx") == 0) && strncmp(op->name, "matmul", 6) != 0 &&
           strcmp(op->name, "moe_experts") != 0;
}

static job_result compute(const char *level, int threads, const job_op *op, const job *j, const int *pieces)
{
    static const int whole[1] = {0};
    job_result out = {NULL, 0};
    k3_backend *be = is_same_as_avx512(op, level) ? NULL : open_level(level, threads);
    if (!be)
        return out;
    op->run(be, j, pieces ? pieces : whole, &out);
    must_sync(be);
    be->close(be);
    return out;
}

/* Integer products and what is rounded between them have the same bits at every level. Experts round what comes out of a nonlinearity,
 * which differs by some units in the last place: a few codes are one off. */
static double tolerance_of(const job_op *op, const char *level, const job *j)
{
    int is_exact = strchr(level, '+') != NULL;
    if (!is_exact && strcmp(op->name, "matmul") == 0 && k3_q8_takes(j->type, j->a))
        return 0;
    /* Attention rounds queries and weights to bf16 where the processor multiplies pairs of those: half a unit of 8 bits, and scores are
     * some units high. */
    k3_cpu_kernels k = {0};
    if (strcmp(level, "avx512") == 0 && k3_cpu_level_here(K3_CPU_AVX512))
        k3_cpu_kernels_get(&k, K3_CPU_AVX512, 0);
    if (strcmp(op->name, "mla") == 0 && k.attend_row)
        return 2e-2;
    return !is_exact && strcmp(op->name, "moe_experts") == 0 ? 4e-3 : op->tolerance;
}

static void agrees_with_scalar(void **state)
{
    const job_op *op = op_of(state);
    for (int l = 1; l < N_CPU_LEVELS; l++)
        for (int i = 0; i < N_ROUNDS; i++)
            for (int type = 0; type < (op->by_type ? K3_N_TYPES : 1); type++) {
                job j = make_job(op, i, (k3_type)type);
                job_result got = compute(level_names[l], 1, op, &j, NULL);
                if (!got.n)
                    continue;
                job_result want = compute(strchr(level_names[l], '+') ? "scalar+exact" : "scalar", 1, op, &j, NULL);
                double d = job_difference(&want, &got), tolerance = tolerance_of(op, level_names[l], &j);
                if (!(d <= tolerance))
                    fail_msg("%s on %s: differs from scalar by %.3g, allowed %.3g (round %d, %s, T %d, a %d, b %d)", op->name,
                             level_names[l], d, tolerance, i, k3_type_name((k3_type)type), j.T, j.a, j.b);
                free(got.values);
                free(want.values);
            }
}

static void same_bits(const job_op *op, const job *j, const char *level, int threads, const int *pieces, const job_result *want)
{
    job_result got = compute(level, threads, op, j, pieces);
    assert_int_equal(got.n, want->n);
    for (size_t i = 0; i < got.n; i++)
        if (memcmp(&got.values[i], &want->values[i], sizeof(float)))
            fail_msg("%s on %s: value %zu is %a with %d threads and pieces %d,%d,..; %a with one thread in one call (%s, T %d, a %d, b %d)",
                     op->name, level, i, (double)got.values[i], threads, pieces ? pieces[0] : 0, pieces ? pieces[1] : 0,
                     (double)want->values[i], k3_type_name(j->type), j->T, j->a, j->b);
    free(got.values);
}

static void bits_ignore_splits_and_threads(void **state)
{
    static const int ones[80] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, mixed[8] = {2, 1, 4, 3}, late[4] = {5, 1};
    const job_op *op = op_of(state);
    for (int l = 0; l < N_CPU_LEVELS; l++)
        for (int i = 0; i < N_ROUNDS; i++)
            for (int type = 0; type < (op->by_type ? K3_N_TYPES : 1); type++) {
                job j = make_job(op, i, (k3_type)type);
                job_result want = compute(level_names[l], 1, op, &j, NULL);
                if (!want.n)
                    continue;
                same_bits(op, &j, level_names[l], 2, NULL, &want);
                same_bits(op, &j, level_names[l], 3, mixed, &want);
                same_bits(op, &j, level_names[l], 1, ones, &want);
                same_bits(op, &j, level_names[l], 2, late, &want);
                if (j.b >= 1000)
                    same_bits(op, &j, level_names[l], 16, NULL, &want);
                free(want.values);
            }
}

/* y of T rows of x at a level, the weights of which may see x rounded. */
static float *bf16_product(const char *level, const float *x, int T, int rows, int cols)
{
    k3_backend *be = open_level(level, 2);
    if (!be)
        return NULL;
    random_stream r = {17};
    k3_mat w = random_mat(be, &r, K3_BF16, rows, cols, 1);
    k3_ref y = new_floats(be, (size_t)(T * rows));
    w.rounds_x = 1;
    be->ops->matmul(be, &(k3_proj){&w, y}, 1, put_floats(be, x, (size_t)(T * cols)), T);
    float *out = get_floats(be, y, (size_t)(T * rows));
    be->close(be);
    return out;
}

/* What enters a product is k3_bf16_of(x): the same bits as with x rounded before, and values that are not finite stay so, in their own row
 * of the result only. Against x in f32 the sums are off by what rounding takes: 2^-9 of each product at most. */
static void bf16_products_round_x_once(void **state)
{
    (void)state;
    enum { T = 21, ROWS = 37, COLS = 77 };
    static const char *const levels[] = {"avx512bf16", "amx"};
    static float x[T * COLS], rounded[T * COLS];
    random_stream r = {5};
    random_floats(&r, x, T * COLS, 1);
    float *exact = bf16_product("scalar", x, T, ROWS, COLS);
    for (size_t l = 0; l < 2; l++) {
        float *got = bf16_product(levels[l], x, T, ROWS, COLS);
        if (!got)
            continue;
        for (int i = 0; i < T * COLS; i++)
            rounded[i] = k3_bf16_value(k3_bf16_of(x[i]));
        float *want = bf16_product(levels[l], rounded, T, ROWS, COLS);
        assert_memory_equal(got, want, T * ROWS * sizeof *got);
        double d = job_difference(&(job_result){exact, T * ROWS}, &(job_result){got, T * ROWS});
        if (!(d > 1e-5 && d < 4e-3))
            fail_msg("%s: %.3g from x in f32, 1e-5 to 4e-3 wanted", levels[l], d);
        rounded[3 * COLS + COLS - 1] = NAN;
        rounded[18 * COLS] = INFINITY;
        float *spoiled = bf16_product(levels[l], rounded, T, ROWS, COLS);
        for (int t = 0; t < T; t++)
            for (int i = 0; i < ROWS; i++)
                if (t == 3 || t == 18)
                    assert_false(isfinite(spoiled[t * ROWS + i]));
                else
                    assert_memory_equal(&spoiled[t * ROWS + i], &want[t * ROWS + i], sizeof *want);
        free(got);
        free(want);
        free(spoiled);
    }
    free(exact);
}

/* Rows of x in any order, any number of them and some twice, as experts ask for them: the bits of the scalar kernel. */
static void integer_products_take_rows_in_any_order(void **state)
{
    (void)state;
    enum { N = 40, ROWS = 83, COLS = 1216 };
    static const k3_type types[] = {K3_INT8, K3_INT4, K3_INT4_G64, K3_INT2, K3_MXFP4};
    static float y[2][N][ROWS], x[N][COLS];
    static signed char codes[2][N * COLS];
    static float scale[N * COLS / K3_Q8_BLOCK];
    static int32_t sum[N * COLS / K3_Q8_BLOCK];
    const k3_q8 q = {COLS, codes[0], codes[1], scale, sum};
    float *rows[2][N];
    int32_t row_of[N];
    random_stream r = {23};
    k3_backend *be = open_level("scalar", 1);
    random_floats(&r, x[0], N * COLS, 1);
    for (int t = 0; t < N; t++) {
        k3_quantize_q8_scalar(&q, t, x[t], 0, COLS);
        row_of[t] = t < 17 ? t + 3 : random_below(&r, N); /* a run, then whatever comes */
        rows[0][t] = y[0][t];
        rows[1][t] = y[1][t];
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        k3_mat m = random_mat(be, &r, types[i], ROWS, COLS, 1);
        k3_cpu_mat w = {.type = m.type,
                        .cols = COLS,
                        .row_bytes = k3_type_row_bytes(m.type, COLS),
                        .scale_bytes = k3_type_scale_bytes(m.type, COLS),
                        .codes = k3_host(m.data),
                        .scale = k3_host(m.scale)};
        k3_matmul_q8_scalar(rows[0], &q, row_of, N, &w, 0, ROWS);
        for (int l = 1; l < K3_CPU_N_LEVELS; l++)
            for (int n = 1; n <= N && k3_cpu_level_here((k3_cpu_level)l); n += 1 + n / 3) {
                k3_cpu_kernels k;
                k3_cpu_kernels_get(&k, (k3_cpu_level)l, 0);
                memset(y[1], 0, sizeof y[1]);
                k.matmul_q8(rows[1], &q, row_of, n, &w, 0, ROWS);
                for (int t = 0; t < n; t++)
                    if (memcmp(y[0][t], y[1][t], sizeof y[0][t]))
                        fail_msg("%s: row %d of %d of %s differs from scalar", k3_cpu_level_name((k3_cpu_level)l), t, n,
                                 k3_type_name(m.type));
            }
    }
    be->close(be);
}

/* The scale of block b of a row in one of four matrices of mxfp4: from end to end of what needs no care, alike in a row so that no sum
 * hides what is added, and then, for one block of one row, what does need care. */
static unsigned char scale_near_the_ends(int matrix, int row, int b)
{
    static const unsigned char without_care[3][2] = {{2, 3}, {126, 127}, {253, 254}}, with_care[] = {0, 1, 255};
    return matrix && row == 21 && b == 19 + matrix ? with_care[matrix - 1] : without_care[row % 3][b % 2];
}

/* Scales of mxfp4 whose halves are powers of two without a mantissa are made in fewer steps, 16 blocks and a tile of rows at a time, than
 * the three others: 2^-127, 2^-126 and NaN. One such among the others, or none, is the scalar kernel's bits for few rows of x and many. */
static void scales_at_the_ends_keep_their_bits(void **state)
{
    (void)state;
    enum { N = 4, ROWS = 37, BLOCKS = 43, COLS = BLOCKS * K3_Q8_BLOCK, MATRICES = 4 };
    static float y[2][N][ROWS], x[N][COLS], scale[N * BLOCKS];
    static signed char by_nibble[N * COLS];
    static unsigned char codes[ROWS * COLS / 2], scales[ROWS * BLOCKS];
    static int32_t sum[N * BLOCKS];
    const k3_q8 q = {COLS, NULL, by_nibble, scale, sum};
    const k3_cpu_mat w = {.type = K3_MXFP4, .cols = COLS, .row_bytes = COLS / 2, .scale_bytes = BLOCKS, .codes = codes, .scale = scales};
    static const int32_t row_of[N] = {0, 1, 2, 3};
    float *rows[2][N];
    random_stream r = {29};
    random_floats(&r, x[0], N * COLS, 1e-4f);
    for (int t = 0; t < N; t++) {
        k3_quantize_q8_scalar(&q, t, x[t], 0, COLS);
        rows[0][t] = y[0][t];
        rows[1][t] = y[1][t];
    }
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (unsigned char)random_bits(&r);
    for (int m = 0; m < MATRICES; m++) {
        for (int i = 0; i < ROWS * BLOCKS; i++)
            scales[i] = scale_near_the_ends(m, i / BLOCKS, i % BLOCKS);
        k3_matmul_q8_scalar(rows[0], &q, row_of, N, &w, 0, ROWS);
        for (int l = 1; l < K3_CPU_N_LEVELS; l++)
            for (int n = 1; n <= N && k3_cpu_level_here((k3_cpu_level)l); n++) {
                k3_cpu_kernels k;
                k3_cpu_kernels_get(&k, (k3_cpu_level)l, 0);
                memset(y[1], 0, sizeof y[1]);
                k.matmul_q8(rows[1], &q, row_of, n, &w, 0, ROWS);
                for (int i = 0; i < n * ROWS; i++) {
                    const float *want = &y[0][i / ROWS][i % ROWS], *got = &y[1][i / ROWS][i % ROWS];
                    if (memcmp(got, want, sizeof *got) && !(isnan(*got) && isnan(*want)))
                        fail_msg("%s: matrix %d, row %d of %d, output %d: %a, scalar %a", k3_cpu_level_name((k3_cpu_level)l), m, i / ROWS,
                                 n, i % ROWS, (double)*got, (double)*want);
                }
            }
    }
}

int main(void)
{
    static char names[2 * N_JOB_OPS][64];
    struct CMUnitTest tests[2 * N_JOB_OPS + 3];
    int n = 0;
    for (int i = 0; i < N_JOB_OPS; i++) {
        void *op = (void *)(uintptr_t)&job_ops[i];
        snprintf(names[n], sizeof names[0], "%s_agrees_with_scalar", job_ops[i].name);
        tests[n] = (struct CMUnitTest){names[n], agrees_with_scalar, NULL, NULL, op};
        n++;
        if (job_ops[i].chunked)
            continue;
        snprintf(names[n], sizeof names[0], "%s_bits_ignore_splits_and_threads", job_ops[i].name);
        tests[n] = (struct CMUnitTest){names[n], bits_ignore_splits_and_threads, NULL, NULL, op};
        n++;
    }
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(bf16_products_round_x_once);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(integer_products_take_rows_in_any_order);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(scales_at_the_ends_keep_their_bits);
    for (int l = 0; l < N_CPU_LEVELS; l++) {
        k3_backend *be = open_level(level_names[l], 1);
        if (be)
            be->close(be);
        else
            print_message("skipped: %s, which this machine lacks\n", level_names[l]);
    }
    return _cmocka_run_group_tests("levels", tests, (size_t)n, NULL, NULL);
}
