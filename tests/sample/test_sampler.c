#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "sample/sampler.h"
#include "support/golden.h"

enum { VOCAB = 163840 };

static const k3_sampling plain = {.temperature = 1, .top_p = 1};

static k3_sampler *open_sampler(k3_sampling sampling)
{
    k3_sampler *sampler = NULL;
    k3_error err = {0};
    if (k3_sampler_open(&sampler, &sampling, &err) != K3_OK)
        fail_msg("%s", err.text);
    return sampler;
}

static int32_t pick(k3_sampler *sampler, const float *logits, size_t n)
{
    int32_t id = -1;
    k3_error err = {0};
    if (k3_sampler_pick(sampler, &id, logits, n, &err) != K3_OK)
        fail_msg("%s", err.text);
    return id;
}

static size_t distribution(int32_t *ids, double *p, const float *logits, size_t n, k3_sampling sampling)
{
    size_t kept = 0;
    k3_error err = {0};
    if (k3_sample_distribution(ids, p, &kept, logits, n, &sampling, &err) != K3_OK)
        fail_msg("%s", err.text);
    return kept;
}

/* Uneven logits for a full vocabulary, the same in every run. */
static float *vocabulary_logits(void)
{
    float *x = malloc(VOCAB * sizeof *x);
    assert_non_null(x);
    for (int i = 0; i < VOCAB; i++)
        x[i] = (float)(6.0 * (k3_sample_uniform(77, (uint64_t)i) + k3_sample_uniform(78, (uint64_t)i)));
    return x;
}

static void refuse(k3_sampler *sampler, const float *logits, size_t n, const char *message)
{
    int32_t id = -7;
    k3_error err = {0};
    assert_int_equal(k3_sampler_pick(sampler, &id, logits, n, &err), K3_E_NUMERIC);
    assert_string_equal(err.text, message);
    assert_int_equal(id, -7);
}

static void d01_logits_without_distribution_are_refused_and_the_next_pick_is_untouched(void **state)
{
    (void)state;
    float good[] = {0.5f, 1, 0.2f, 0.9f};
    float nan_one[] = {0, NAN, 1, 2}, nan_all[] = {NAN, NAN, NAN}, plus[] = {0, 1, INFINITY, 3}, none[] = {-INFINITY, -INFINITY};
    for (int greedy = 0; greedy < 2; greedy++) {
        k3_sampling sampling = plain;
        sampling.temperature = greedy ? 0 : 1;
        k3_sampler *a = open_sampler(sampling), *b = open_sampler(sampling);
        for (int i = 0; i < 50; i++) {
            refuse(a, nan_one, 4, "logits: 1 of 4 are NaN, the first is id 1; finite numbers wanted");
            refuse(a, nan_all, 3, "logits: 3 of 3 are NaN, the first is id 0; finite numbers wanted");
            refuse(a, plus, 4, "logits: 1 of 4 are +inf, the first is id 2; finite numbers wanted");
            refuse(a, none, 2, "logits: all 2 are -inf, id 0 too; at least one finite number wanted");
            assert_int_equal(pick(a, good, 4), pick(b, good, 4));
        }
        k3_sampler_close(a);
        k3_sampler_close(b);
    }
}

static void d01_minus_infinity_is_a_ban(void **state)
{
    (void)state;
    float x[] = {-INFINITY, 0, -INFINITY, 0.1f, -INFINITY};
    k3_sampler *sampler = open_sampler(plain);
    for (int i = 0; i < 500; i++) {
        int32_t id = pick(sampler, x, 5);
        assert_true(id == 1 || id == 3);
    }
    k3_sampler_close(sampler);
}

static void d02_tiny_temperatures_are_greedy_and_negative_ones_are_refused(void **state)
{
    (void)state;
    float x[] = {1, 3, 3, 2};
    static const float greedy[] = {0, 1e-9f, 1e-6f, -0.0f};
    for (size_t i = 0; i < sizeof greedy / sizeof *greedy; i++) {
        k3_sampling sampling = plain;
        sampling.temperature = greedy[i];
        k3_sampler *sampler = open_sampler(sampling);
        for (int k = 0; k < 20; k++)
            assert_int_equal(pick(sampler, x, 4), 1);
        k3_sampler_close(sampler);
    }
    k3_sampling cold = plain;
    cold.temperature = 1e-4f; /* no longer greedy, but nothing overflows */
    k3_sampler *sampler = open_sampler(cold);
    int seen[4] = {0};
    for (int k = 0; k < 200; k++)
        seen[pick(sampler, x, 4)]++;
    k3_sampler_close(sampler);
    assert_int_equal(seen[1] + seen[2], 200);
    assert_true(seen[1] > 60 && seen[2] > 60);
}

static void d02_parameters_out_of_range_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        k3_sampling sampling;
        const char *message;
    } cases[] = {
        {{.temperature = -1, .top_p = 1}, "temperature: -1 found, a number from 0 (greedy) up wanted"},
        {{.temperature = NAN, .top_p = 1}, "temperature: nan found, a number from 0 (greedy) up wanted"},
        {{.temperature = INFINITY, .top_p = 1}, "temperature: inf found, a number from 0 (greedy) up wanted"},
        {{.temperature = 1, .top_p = 1.5f}, "top_p: 1.5 found, 0 (the best token only) to 1 (off) wanted"},
        {{.temperature = 1, .top_p = -0.5f}, "top_p: -0.5 found, 0 (the best token only) to 1 (off) wanted"},
        {{.temperature = 1, .top_p = NAN}, "top_p: nan found, 0 (the best token only) to 1 (off) wanted"},
        {{.temperature = 1, .top_p = 1, .top_k = -1}, "top_k: -1 found, 0 (off) or a count wanted"},
        {{.temperature = 1, .top_p = 1, .min_p = 2}, "min_p: 2 found, 0 (off) to 1 wanted"},
        {{.temperature = 1, .top_p = 1, .min_p = NAN}, "min_p: nan found, 0 (off) to 1 wanted"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        k3_sampler *sampler = NULL;
        k3_error err = {0};
        assert_int_equal(k3_sampler_open(&sampler, &cases[i].sampling, &err), K3_E_INVALID);
        assert_string_equal(err.text, cases[i].message);
        assert_null(sampler);
    }
}

static void d04_zero_and_one_mean_off_or_the_best_token(void **state)
{
    (void)state;
    float x[6] = {0.1f, 0.7f, 0.3f, 0.6f, 0.2f, 0.5f};
    int32_t ids[6];
    double p[6];
    assert_int_equal(distribution(ids, p, x, 6, plain), 6);
    k3_sampling s = plain;
    s.top_k = 1;
    assert_int_equal(distribution(ids, p, x, 6, s), 1);
    assert_int_equal(ids[0], 1);
    s = plain;
    s.top_p = 0;
    assert_int_equal(distribution(ids, p, x, 6, s), 1);
    assert_int_equal(ids[0], 1);
    s = plain;
    s.min_p = 1;
    assert_int_equal(distribution(ids, p, x, 6, s), 1);
    s = plain;
    s.top_k = 7;
    assert_int_equal(distribution(ids, p, x, 6, s), 6);
}

/* Sum of (seen - expected)^2 / expected; with 7 degrees of freedom 24.3 is passed once in 1000 seeds, and the seeds here are fixed. */
static double chi_square(const int *seen, const int32_t *ids, const double *p, size_t n, int n_draws)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double expected = p[i] * n_draws, d = seen[ids[i]] - expected;
        sum += d * d / expected;
    }
    return sum;
}

static void d04_draws_follow_the_distribution(void **state)
{
    (void)state;
    enum { N = 40, DRAWS = 20000 };
    float x[N];
    for (int i = 0; i < N; i++)
        x[i] = (float)(4 * k3_sample_uniform(5, (uint64_t)i));
    static const k3_sampling settings[] = {
        {.temperature = 1.3f, .top_p = 1, .top_k = 8, .seed = 1},
        {.temperature = 1, .top_p = 0.5f, .seed = 2},
        {.temperature = 0.8f, .top_p = 1, .min_p = 0.2f, .seed = 3},
        {.temperature = 2, .top_p = 0.9f, .top_k = 9, .min_p = 0.1f, .seed = 4},
    };
    for (size_t k = 0; k < sizeof settings / sizeof *settings; k++) {
        int32_t ids[N];
        double p[N];
        size_t kept = distribution(ids, p, x, N, settings[k]);
        assert_in_range(kept, 5, 16);
        int seen[N] = {0}, sum = 0;
        k3_sampler *sampler = open_sampler(settings[k]);
        for (int i = 0; i < DRAWS; i++)
            seen[pick(sampler, x, N)]++;
        k3_sampler_close(sampler);
        for (size_t i = 0; i < kept; i++)
            sum += seen[ids[i]];
        assert_int_equal(sum, DRAWS); /* nothing outside the kept ids */
        double chi = chi_square(seen, ids, p, kept, DRAWS);
        if (!(chi < 38)) /* 15 degrees of freedom, one in 1000 */
            fail_msg("setting %zu: chi-square %g over %zu ids", k, chi, kept);
    }
    int32_t ids[N];
    double p[N];
    int seen[N] = {0};
    assert_int_equal(distribution(ids, p, x, N, plain), N);
    k3_sampler *sampler = open_sampler(plain);
    for (int i = 0; i < DRAWS; i++)
        seen[pick(sampler, x, N)]++;
    k3_sampler_close(sampler);
    assert_true(chi_square(seen, ids, p, N, DRAWS) < 72); /* 39 degrees of freedom, one in 1000 */
}

static void equal_seeds_draw_equal_ids(void **state)
{
    (void)state;
    float x[50];
    for (int i = 0; i < 50; i++)
        x[i] = (float)k3_sample_uniform(9, (uint64_t)i);
    k3_sampling s = plain;
    s.seed = 1234567890123456789u;
    k3_sampler *a = open_sampler(s), *b = open_sampler(s);
    s.seed++;
    k3_sampler *c = open_sampler(s);
    int n_equal = 0;
    for (int i = 0; i < 400; i++) {
        int32_t id = pick(a, x, 50);
        assert_int_equal(id, pick(b, x, 50));
        n_equal += id == pick(c, x, 50);
    }
    assert_true(n_equal < 60);
    k3_sampler_close(a);
    k3_sampler_close(b);
    k3_sampler_close(c);
}

/* The published first outputs of SplitMix64 for seed 0 and for 1234567. */
static void the_generator_is_splitmix64(void **state)
{
    (void)state;
    assert_true(k3_sample_uniform(0, 0) == (double)(0xe220a8397b1dcdafu >> 11) * 0x1p-53);
    assert_true(k3_sample_uniform(1234567, 0) == (double)(6457827717110365317u >> 11) * 0x1p-53);
    assert_true(k3_sample_uniform(1234567, 1) == (double)(3203168211198807973u >> 11) * 0x1p-53);
}

static void d19_temperature_comes_before_the_filters(void **state)
{
    (void)state;
    float x[] = {3, 2, 1};
    int32_t ids[3];
    double p[3];
    k3_sampling s = plain;
    s.top_p = 0.8f;
    assert_int_equal(distribution(ids, p, x, 3, s), 2);
    s.temperature = 0.5f; /* after the temperature the best has 0.867 of the mass */
    assert_int_equal(distribution(ids, p, x, 3, s), 1);
    s = plain;
    s.min_p = 0.2f; /* e^-2 = 0.135 is below it at temperature 1, e^-1 above at temperature 2 */
    assert_int_equal(distribution(ids, p, x, 3, s), 2);
    s.temperature = 2;
    assert_int_equal(distribution(ids, p, x, 3, s), 3);
}

static void d19_top_p_counts_what_top_k_left(void **state)
{
    (void)state;
    float x[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    int32_t ids[8];
    double p[8];
    k3_sampling s = {.temperature = 1, .top_k = 4, .top_p = 0.6f}; /* 3 of 4; 0.6 of all eight would be 5, so all 4 */
    assert_int_equal(distribution(ids, p, x, 8, s), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ids[i], i);
}

static void d19_min_p_works_at_the_full_vocabulary(void **state)
{
    (void)state;
    float *x = vocabulary_logits();
    x[VOCAB - 1] = 14; /* the best is the very last id */
    int32_t *ids = malloc(VOCAB * sizeof *ids);
    double *p = malloc(VOCAB * sizeof *p);
    k3_sampling s = plain;
    s.min_p = 0.1f;
    size_t kept = distribution(ids, p, x, VOCAB, s), expected = 0;
    for (int i = 0; i < VOCAB; i++)
        expected += exp((double)x[i] - 14) >= (double)s.min_p;
    assert_int_equal(kept, expected);
    assert_true(kept > 1 && kept < VOCAB / 8);
    assert_int_equal(ids[0], VOCAB - 1);
    k3_sampler *sampler = open_sampler(s);
    for (int i = 0; i < 30; i++)
        assert_true(x[pick(sampler, x, VOCAB)] >= 14 + logf(0.1f) - 1e-5f);
    k3_sampler_close(sampler);
    free(x);
    free(ids);
    free(p);
}

static void ties_go_to_the_lowest_id(void **state)
{
    (void)state;
    float *x = malloc(VOCAB * sizeof *x);
    int32_t *ids = malloc(VOCAB * sizeof *ids);
    double *p = malloc(VOCAB * sizeof *p);
    for (int i = 0; i < VOCAB; i++)
        x[i] = i % 3 ? 2.0f : 1.0f;
    k3_sampling s = plain;
    s.top_k = 1001;
    assert_int_equal(distribution(ids, p, x, VOCAB, s), 1001);
    for (int i = 0, id = 1; i < 1001; i++, id += id % 3 == 1 ? 1 : 2)
        assert_int_equal(ids[i], id);
    k3_sampling greedy = {.top_p = 1};
    k3_sampler *sampler = open_sampler(greedy);
    assert_int_equal(pick(sampler, x, VOCAB), 1);
    k3_sampler_close(sampler);
    free(x);
    free(ids);
    free(p);
}

static int falling(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The best of 10 rounds each, in one process: a yardstick that holds on slow machines and under sanitizers. */
static void a_pick_from_the_full_vocabulary_is_faster_than_one_sort(void **state)
{
    (void)state;
    float *x = vocabulary_logits(), *sorted = malloc(VOCAB * sizeof *sorted);
    assert_non_null(sorted);
    k3_sampling s = {.temperature = 1, .top_p = 0.95f, .top_k = 50, .min_p = 0.01f};
    k3_sampler *sampler = open_sampler(s);
    uint64_t pick_ns = UINT64_MAX, sort_ns = UINT64_MAX;
    for (int i = 0; i < 10; i++) {
        uint64_t start = k3_os_nanoseconds();
        pick(sampler, x, VOCAB);
        uint64_t took = k3_os_nanoseconds() - start;
        pick_ns = took < pick_ns ? took : pick_ns;
        memcpy(sorted, x, VOCAB * sizeof *x);
        start = k3_os_nanoseconds();
        qsort(sorted, VOCAB, sizeof *sorted, falling);
        took = k3_os_nanoseconds() - start;
        sort_ns = took < sort_ns ? took : sort_ns;
    }
    k3_sampler_close(sampler);
    free(x);
    free(sorted);
    print_message("pick %.2f ms, sort %.2f ms\n", (double)pick_ns * 1e-6, (double)sort_ns * 1e-6);
    assert_true(pick_ns < sort_ns);
}

static void one_sampler_serves_any_number_of_logits(void **state)
{
    (void)state;
    float *x = vocabulary_logits();
    k3_sampler *sampler = open_sampler(plain);
    static const size_t sizes[] = {1, 7, 1000, 3, VOCAB, 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_in_range(pick(sampler, x, sizes[i]), 0, sizes[i] - 1);
    int32_t id = 0;
    assert_int_equal(k3_sampler_pick(sampler, &id, x, 0, NULL), K3_E_INVALID);
    k3_sampler_close(sampler);
    free(x);
}

/* ---- golden ------------------------------------------------------------------------------------------------ */

static void compare_with(const golden *g, const char *name)
{
    const golden_tensor *logits = golden_get(g, name, "logits"), *want = golden_get(g, name, "ids");
    const int32_t *want_ids = golden_ints(g, name, "ids");
    const float *want_p = golden_floats(g, name, "p");
    float *x = malloc(logits->n * sizeof *x), *got_p = malloc(logits->n * sizeof *got_p);
    int32_t *ids = malloc(logits->n * sizeof *ids);
    double *p = malloc(logits->n * sizeof *p);
    for (size_t i = 0; i < logits->n; i++) {
        uint32_t bits =
            strcmp(logits->dtype, "BF16") == 0 ? (uint32_t)((const uint16_t *)logits->data)[i] << 16 : ((const uint32_t *)logits->data)[i];
        memcpy(&x[i], &bits, sizeof bits);
    }
    k3_sampling s = {.temperature = (float)golden_number(g, name, "temperature"),
                     .top_p = (float)golden_number(g, name, "top_p"),
                     .top_k = (int)golden_number(g, name, "top_k"),
                     .min_p = (float)golden_number(g, name, "min_p")};
    size_t kept = distribution(ids, p, x, logits->n, s);
    if (kept != want->n)
        fail_msg("%s: %zu ids kept, %zu wanted", name, kept, want->n);
    for (size_t i = 0; i < kept; i++) {
        if (ids[i] != want_ids[i])
            fail_msg("%s: place %zu has id %d, %d wanted", name, i, ids[i], want_ids[i]);
        got_p[i] = (float)p[i];
    }
    double error = golden_error(got_p, want_p, kept);
    if (!(error <= golden_number(g, name, "tol")))
        fail_msg("%s: probabilities are off by %g", name, error);
    free(x);
    free(got_p);
    free(ids);
    free(p);
}

static void distributions_equal_the_reference(void **state)
{
    (void)state;
    golden *g = golden_open("tests/golden/sample.safetensors");
    assert_true(golden_n_cases(g) >= 16);
    for (int i = 0; i < golden_n_cases(g); i++)
        compare_with(g, golden_case(g, i));
    golden_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d01_logits_without_distribution_are_refused_and_the_next_pick_is_untouched),
        cmocka_unit_test(d01_minus_infinity_is_a_ban),
        cmocka_unit_test(d02_tiny_temperatures_are_greedy_and_negative_ones_are_refused),
        cmocka_unit_test(d02_parameters_out_of_range_are_refused_by_name),
        cmocka_unit_test(d04_zero_and_one_mean_off_or_the_best_token),
        cmocka_unit_test(d04_draws_follow_the_distribution),
        cmocka_unit_test(equal_seeds_draw_equal_ids),
        cmocka_unit_test(the_generator_is_splitmix64),
        cmocka_unit_test(d19_temperature_comes_before_the_filters),
        cmocka_unit_test(d19_top_p_counts_what_top_k_left),
        cmocka_unit_test(d19_min_p_works_at_the_full_vocabulary),
        cmocka_unit_test(ties_go_to_the_lowest_id),
        cmocka_unit_test(a_pick_from_the_full_vocabulary_is_faster_than_one_sort),
        cmocka_unit_test(one_sampler_serves_any_number_of_logits),
        cmocka_unit_test(distributions_equal_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
