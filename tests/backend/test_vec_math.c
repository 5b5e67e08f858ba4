/* exp, sigmoid and tanh of the vector levels against the C library in double, reached through kernels that expose them: softmax with a
 * maximum of 0 is exp, gate_mul of 1 is sigmoid, situ_glu with a saturated gate and b1 = b2 = 1 is tanh. */
#include "fixture.h"

#include "backend/cpu/kernels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 16 };

static k3_cpu_kernels kernels;

static void vector_exp(float *y, const float *x)
{
    float max = 0;
    double sum = 0;
    memcpy(y, x, N * sizeof *y);
    kernels.softmax(y, N, 1, &max, &sum);
}

static void vector_sigmoid(float *y, const float *x)
{
    float one[N];
    for (int i = 0; i < N; i++)
        one[i] = 1;
    kernels.gate_mul(y, one, x, N);
}

static void vector_tanh(float *y, const float *x)
{
    float full[N];
    for (int i = 0; i < N; i++)
        full[i] = 1000;
    kernels.situ_glu(y, full, x, N, 1, 1);
}

static double exact_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

/* Distance in units in the last place of the exact value; below the smallest normal number in units of 2^-149. */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
}

/* Every float of the range whose bits are a multiple of a stride, both signs unless only the negative side is defined. */
static double worst(void (*f)(float *, const float *), double (*exact)(double), float from, float to)
{
    double most = 0;
    uint32_t first, last, stride = 1009;
    memcpy(&first, &from, 4);
    memcpy(&last, &to, 4);
    for (uint32_t bits = first; bits < last; bits += N * stride) {
        float x[N], y[N];
        for (uint32_t i = 0; i < N; i++) {
            uint32_t b = bits + i * stride < last ? bits + i * stride : last;
            memcpy(&x[i], &b, 4);
        }
        f(y, x);
        for (int i = 0; i < N; i++) {
            double u = ulps(y[i], exact((double)x[i]));
            if (!(u <= most))
                most = u;
        }
    }
    return most;
}

static void stated_errors_hold(void **state)
{
    (void)state;
    for (int l = K3_CPU_AVX2; l < K3_CPU_N_LEVELS; l++) {
        if (!k3_cpu_level_here((k3_cpu_level)l)) {
            print_message("skipped: %s, which this machine lacks\n", k3_cpu_level_name((k3_cpu_level)l));
            continue;
        }
        k3_cpu_kernels_get(&kernels, (k3_cpu_level)l, 0);
        double e = worst(vector_exp, exp, -1e-30f, -200.0f);
        double s = fmax(worst(vector_sigmoid, exact_sigmoid, 1e-30f, 200), worst(vector_sigmoid, exact_sigmoid, -1e-30f, -200));
        double t = fmax(worst(vector_tanh, tanh, 1e-36f, 1000), worst(vector_tanh, tanh, -1e-36f, -1000));
        print_message("%s: exp %.3f, sigmoid %.3f, tanh %.3f ulp\n", k3_cpu_level_name((k3_cpu_level)l), e, s, t);
        assert_true(e <= 1.0);
        assert_true(s <= 3.0);
        assert_true(t <= 4.0);
    }
}

static void ends_of_the_range(void **state)
{
    (void)state;
    for (int l = 0; l < K3_CPU_N_LEVELS; l++) {
        if (!k3_cpu_level_here((k3_cpu_level)l))
            continue;
        k3_cpu_kernels_get(&kernels, (k3_cpu_level)l, 0);
        float x[N] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e38f, -1e38f}, y[N];
        vector_sigmoid(y, x);
        assert_true(y[0] == 0.5f && y[1] == 0.5f && y[2] == 1.0f && y[3] == 0.0f && isnan(y[4]) && y[5] == 1.0f && y[6] == 0.0f);
        vector_tanh(y, x);
        assert_true(y[0] == 0.0f && y[2] == 1.0f && y[3] == -1.0f && isnan(y[4]) && y[5] == 1.0f && y[6] == -1.0f);
        assert_true(signbit(y[1]));
        float z[N] = {-INFINITY, -1000.0f, -0.0f}, bad[N] = {NAN};
        vector_exp(y, z);
        assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1.0f);
        vector_exp(y, bad);
        assert_true(isnan(y[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stated_errors_hold), cmocka_unit_test(ends_of_the_range)};
    return cmocka_run_group_tests_name("vector functions", tests, NULL, NULL);
}
