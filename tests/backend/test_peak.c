/* The ceilings of arithmetic, and a floor below the kernels. */
#include "backend/backend.h"
#include "backend/cpu/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

/* Each multiply-add adds `a_mac` to the result. A loop that left some out, or made them once, would have another sum. */
static void check(k3_peak_fn *peak, float a_mac)
{
    for (int64_t rounds = 0; rounds < 3 && peak; rounds++) {
        float sum = -1;
        uint64_t macs = peak(&sum, rounds);
        assert_true((macs > 0) == (rounds > 0));
        assert_float_equal(sum, a_mac * (float)macs, 0);
    }
}

static void every_multiply_add_is_made(void **state)
{
    (void)state;
    for (int level = 0; level < K3_CPU_N_LEVELS; level++) {
        if (!k3_cpu_level_here((k3_cpu_level)level))
            continue;
        k3_cpu_peak_kernels k = k3_cpu_peak_kernels_get((k3_cpu_level)level);
        assert_true((level != K3_CPU_SCALAR) == (k.int8 && k.f32));
        check(k.int8, 7.5f);
        check(k.bf16, 0.125f);
        check(k.f32, 0.125f);
    }
}

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { ROWS = 64, COLS = 1024, T = 32, TRIES = 5 };

/* Seconds of int8 products of T rows, on one thread. */
static double product_seconds(const k3_cpu_kernels *k, const k3_cpu_mat *w, const k3_q8 *x)
{
    static float y[T][ROWS];
    float *places[T];
    int32_t rows[T];
    for (int t = 0; t < T; t++) {
        places[t] = y[t];
        rows[t] = t;
    }
    double started = thread_seconds();
    k->matmul_q8(places, x, rows, T, w, 0, ROWS);
    return thread_seconds() - started;
}

/* Case I12: a level that lost its way of multiplying integers is slower than a compiler's; in fact it is tens of times as fast. Both are
 * timed in turn, in time of the thread, so that other work on the machine changes nothing. */
static void integer_products_are_faster_than_scalar_ones(void **state)
{
    (void)state;
    static signed char codes[ROWS * COLS], x_codes[T * COLS];
    static float scale[ROWS], x_scale[T * COLS / K3_Q8_BLOCK];
    static int32_t sums[T * COLS / K3_Q8_BLOCK];
    k3_cpu_kernels best, scalar;
    int level = K3_CPU_N_LEVELS - 1;
    while (!k3_cpu_level_here((k3_cpu_level)level))
        level--;
    if (level == K3_CPU_SCALAR || level == K3_CPU_NEON) /* which runs in an emulator, where vectors are slow */
        skip();
    k3_cpu_kernels_get(&best, (k3_cpu_level)level, 0);
    k3_cpu_kernels_get(&scalar, K3_CPU_SCALAR, 0);
    for (int i = 0; i < ROWS * COLS; i++)
        codes[i] = (signed char)(i * 37 % 255 - 127);
    for (int i = 0; i < T * COLS; i++) {
        x_codes[i] = (signed char)(i * 53 % 255 - 127);
        sums[i / K3_Q8_BLOCK] += x_codes[i];
        x_scale[i / K3_Q8_BLOCK] = 0.01f;
    }
    for (int r = 0; r < ROWS; r++)
        scale[r] = 0.5f;
    k3_cpu_mat w = {.type = K3_INT8,
                    .cols = COLS,
                    .row_bytes = COLS,
                    .scale_bytes = sizeof *scale,
                    .codes = (const unsigned char *)codes,
                    .scale = (const unsigned char *)scale};
    k3_q8 x = {COLS, x_codes, NULL, x_scale, sums};
    double ours = 1e9, theirs = 1e9;
    for (int i = 0; i < TRIES; i++) {
        double a = product_seconds(&best, &w, &x), b = product_seconds(&scalar, &w, &x);
        ours = a < ours ? a : ours;
        theirs = b < theirs ? b : theirs;
    }
    if (theirs < 2 * ours)
        fail_msg("level %s takes %g s, scalar %g s", k3_cpu_level_name((k3_cpu_level)level), ours, theirs);
    print_message("scalar kernels take %.1f times as long\n", theirs / ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_multiply_add_is_made),
        cmocka_unit_test(integer_products_are_faster_than_scalar_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
