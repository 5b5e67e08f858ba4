/* The two promises of a level: it agrees with the scalar kernels, and its bits depend on nothing but the inputs of a row. Random shapes,
 * odd places and all weight types; the seeds are fixed, so a failure repeats. */
#include "backend/cpu/kernels.h"
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
        j.a = (j.a + granule - 1) / granule * granule;
    }
    if (strncmp(op->name, "kda_", 4) == 0 && strcmp(op->name, "kda_gate"))
        j.a = 1 + j.a % 150;
    if (strcmp(op->name, "matmul") == 0 && round == 5)
        j.T = 70; /* more rows than one tile of x holds */
    return j;
}

static job_result compute(const char *level, int threads, const job_op *op, const job *j, const int *pieces)
{
    static const int whole[1] = {0};
    job_result out = {NULL, 0};
    k3_backend *be = open_level(level, threads);
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
                free(want.values);
            }
}

int main(void)
{
    static char names[2 * N_JOB_OPS][64];
    struct CMUnitTest tests[2 * N_JOB_OPS];
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
    for (int l = 0; l < N_CPU_LEVELS; l++) {
        k3_backend *be = open_level(level_names[l], 1);
        if (be)
            be->close(be);
        else
            print_message("skipped: %s, which this machine lacks\n", level_names[l]);
    }
    return _cmocka_run_group_tests("levels", tests, (size_t)n, NULL, NULL);
}
