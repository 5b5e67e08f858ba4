/* The op `sample`, where a backend has it, against the host's sampler with the same stream of draws. Both may differ where a draw falls
 * within rounding of the border between two ids; how many do is counted. */
#include "fixture.h"

#include "sample/sampler.h"
#include "support/metal_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 163840, MAX_ROWS = 70 };

/* temperature, top_p, top_k, min_p */
static const k3_sampling settings[] = {
    {.temperature = 1, .top_p = 1},
    {.temperature = 0.3f, .top_p = 1},
    {.temperature = 40, .top_p = 1},
    {.temperature = 1e30f, .top_p = 1},
    {.temperature = 1e-4f, .top_p = 1},
    {.temperature = 0, .top_p = 1},
    {.temperature = 1, .top_p = 0},
    {.temperature = 1, .top_p = 1, .top_k = 1},
    {.temperature = 1, .top_p = 1, .top_k = 2},
    {.temperature = 0.9f, .top_p = 1, .top_k = 50},
    {.temperature = 0.9f, .top_p = 1, .top_k = 1 << 30},
    {.temperature = 1, .top_p = 0.95f},
    {.temperature = 1, .top_p = 0.5f},
    {.temperature = 1, .top_p = 1e-30f},
    {.temperature = 1, .top_p = 1, .min_p = 0.05f},
    {.temperature = 1, .top_p = 1, .min_p = 1},
    {.temperature = 1.3f, .top_p = 0.8f, .top_k = 12, .min_p = 0.1f},
    {.temperature = 3, .top_p = 0.6f, .top_k = 10},
    {.temperature = 2, .top_p = 0.9f, .min_p = 0.2f},
    {.temperature = 0.7f, .top_p = 0.9f, .top_k = 2000, .min_p = 0.02f},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

typedef enum shape { NORMAL, FLAT, COARSE, EQUAL, MASKED, VAST, TINY, SIGNED_ZEROS, PEAKED, N_SHAPES } shape;

static void fill(float *x, int n, shape kind, random_stream *r)
{
    for (int i = 0; i < n; i++) {
        float z = random_float(r);
        switch (kind) {
        case FLAT:
            x[i] = 0.01f * z;
            break;
        case COARSE: /* many equal logits */
            x[i] = roundf(4 * z) / 2;
            break;
        case EQUAL:
            x[i] = -2.5f;
            break;
        case MASKED:
            x[i] = random_below(r, 3) ? -INFINITY : 2 * z;
            break;
        case VAST:
            x[i] = 3e30f * z;
            break;
        case TINY:
            x[i] = 1e-30f * z;
            break;
        case SIGNED_ZEROS:
            x[i] = random_below(r, 2) ? 0.0f : -0.0f;
            break;
        case PEAKED:
            x[i] = i == n / 2 ? 30 : -1e9f;
            break;
        default:
            x[i] = 3 * z;
        }
    }
    if (kind == MASKED)
        x[n - 1] = 0.5f;
}

static k3_draw draw_of(const k3_sampling *s, double u)
{
    return (k3_draw){s->temperature, s->top_p, s->min_p, s->top_k, u};
}

/* How far u lies outside of the stretch of [0, 1) that belongs to `id`. */
static double outside(const float *x, int n, const k3_sampling *s, double u, int32_t id)
{
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    double *p = malloc((size_t)n * sizeof *p), from = 0, far = 1;
    size_t kept;
    k3_error err;
    assert_true(ids && p);
    if (k3_sample_distribution(ids, p, &kept, x, (size_t)n, s, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < kept && ids[i] != id; i++)
        from += p[i];
    for (size_t i = 0; i < kept; i++)
        if (ids[i] == id)
            far = fmax(0, fmax(from - u, u - from - p[i]));
    free(ids);
    free(p);
    return far;
}

/* Compares T rows of one call, each with another setting and draw. Returns how many differ, all of them close to a border. */
static int compare(k3_backend *be, const float *x, int T, int V, uint64_t seed)
{
    k3_draw draws[MAX_ROWS];
    k3_sampling row[MAX_ROWS];
    int n_near = 0;
    for (int t = 0; t < T; t++) {
        row[t] = settings[((uint64_t)t + seed) % N_SETTINGS];
        row[t].seed = seed * 1000 + (uint64_t)t;
        draws[t] = draw_of(&row[t], k3_sample_uniform(row[t].seed, 0));
    }
    k3_ref ids = new_bytes(be, (size_t)T * sizeof(int32_t)), logits = put_floats(be, x, (size_t)T * (size_t)V);
    be->ops->sample(be, ids, logits, draws, T, V);
    int32_t *got = get_bytes(be, ids, (size_t)T * sizeof *got);
    for (int t = 0; t < T; t++) {
        const float *logits_t = x + (size_t)t * (size_t)V;
        k3_sampler *sampler;
        k3_error err;
        int32_t want = -1;
        if (k3_sampler_open(&sampler, &row[t], &err) != K3_OK || k3_sampler_pick(sampler, &want, logits_t, (size_t)V, &err) != K3_OK)
            fail_msg("%s", err.text);
        k3_sampler_close(sampler);
        if (got[t] == want)
            continue;
        double far = outside(logits_t, V, &row[t], draws[t].u, got[t]);
        if (!(far < 1e-7))
            fail_msg("row %d of %d x %d, seed %d, temperature %g top_k %d top_p %g min_p %g u %.17g: id %d, wanted %d; off by %g", t, T, V,
                     (int)seed, (double)row[t].temperature, row[t].top_k, (double)row[t].top_p, (double)row[t].min_p, draws[t].u, got[t],
                     want, far);
        n_near++;
    }
    free(got);
    be->memory->release(be, ids.buf);
    be->memory->release(be, logits.buf);
    return n_near;
}

static k3_backend *open_device_of(const char *level)
{
    k3_backend *be = open_level(level, 1);
    if (!be || !be->ops->sample) {
        if (be)
            be->close(be);
        print_message("skipped: no backend with draws\n");
        skip();
    }
    return be;
}

static k3_backend *open_device(void)
{
    return open_device_of("vulkan");
}

static void draw_rows(k3_backend *be, const int *sizes, size_t n_sizes, uint64_t n_seeds)
{
    int n = 0, n_near = 0;
    for (int kind = 0; kind < N_SHAPES; kind++)
        for (size_t i = 0; i < n_sizes; i++) {
            int V = sizes[i], T = V == 37 ? MAX_ROWS : N_SETTINGS; /* more rows than are drawn at once */
            random_stream r = {(uint64_t)(100 * kind) + i};
            float *x = malloc((size_t)T * (size_t)V * sizeof *x);
            assert_non_null(x);
            for (int t = 0; t < T; t++)
                fill(x + (size_t)t * (size_t)V, V, (shape)kind, &r);
            for (uint64_t seed = 0; seed < n_seeds; seed++, n += T)
                n_near += compare(be, x, T, V, (uint64_t)kind * 10 + seed);
            free(x);
        }
    be->close(be);
    print_message("%d of %d draws were within rounding of a border\n", n_near, n);
    assert_true(n_near <= n / 500);
}

static void draws_are_those_of_the_host(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 37, 256, 1000, 2048, 2049, 6001};
    draw_rows(open_device(), sizes, sizeof sizes / sizeof *sizes, 3);
}

/* The parallel top-k and top-p of Metal's kernels against the serial ones of the host. */
static void draws_on_metal_are_those_of_the_host(void **state)
{
    (void)state;
    static const int sizes[] = {3, 37, 1000, 2049};
    draw_rows(open_device_of("metal"), sizes, sizeof sizes / sizeof *sizes, 1);
    metal_was_used_well();
}

static void draws_from_a_full_vocabulary(void **state)
{
    (void)state;
    static const shape kinds[] = {NORMAL, FLAT, COARSE, MASKED};
    k3_backend *be = open_device();
    float *x = malloc((size_t)VOCAB * N_SETTINGS * sizeof *x);
    int n_near = 0;
    assert_non_null(x);
    for (int k = 0; k < 4; k++) {
        random_stream r = {(uint64_t)k};
        for (int t = 0; t < N_SETTINGS; t++)
            fill(x + (size_t)t * VOCAB, VOCAB, kinds[k], &r);
        n_near += compare(be, x, N_SETTINGS, VOCAB, (uint64_t)k);
    }
    free(x);
    be->close(be);
    assert_true(n_near <= 1);
}

/* The draw of u goes through all ids of a small row in the order and in the shares of the host. */
static void every_draw_has_its_share(void **state)
{
    (void)state;
    k3_backend *be = open_device();
    static const float x[4] = {1, 3, 3, -1};
    enum { N = 64 };
    float rows[N * 4];
    k3_draw draws[N];
    for (int t = 0; t < N; t++) {
        memcpy(rows + (size_t)4 * (size_t)t, x, sizeof x);
        draws[t] = (k3_draw){1, 1, 0, 0, t == N - 1 ? 1 - 0x1p-53 : (double)t / N};
    }
    k3_ref ids = new_bytes(be, sizeof(int32_t) * N);
    be->ops->sample(be, ids, put_floats(be, rows, (size_t)N * 4), draws, N, 4);
    int32_t *got = get_bytes(be, ids, sizeof(int32_t) * N);
    double e2 = exp(-2), e4 = exp(-4), total = 2 + e2 + e4;
    for (int t = 0; t < N; t++) {
        double u = draws[t].u * total;
        assert_int_equal(got[t], u < 1 ? 1 : u < 2 ? 2 : u < 2 + e2 ? 0 : 3);
    }
    free(got);
    be->close(be);
}

static void rows_without_a_distribution_give_no_id(void **state)
{
    (void)state;
    enum { V = 5000 };
    static const float bad[] = {NAN, -NAN, INFINITY};
    k3_backend *be = open_device();
    float *x = malloc(V * 5 * sizeof *x);
    k3_draw draws[5];
    random_stream r = {5};
    assert_non_null(x);
    for (int greedy = 0; greedy <= 1; greedy++) {
        for (int t = 0; t < 5; t++) {
            fill(x + (size_t)t * V, V, NORMAL, &r);
            draws[t] = (k3_draw){greedy ? 0 : 1, 0.9f, 0.01f, 40, 0.5};
        }
        for (int t = 0; t < 3; t++)
            x[(size_t)t * V + 4321] = bad[t];
        for (int i = 0; i < V; i++)
            x[3 * V + i] = -INFINITY;
        k3_ref ids = new_bytes(be, 5 * sizeof(int32_t));
        be->ops->sample(be, ids, put_floats(be, x, (size_t)V * 5), draws, 5, V);
        int32_t *got = get_bytes(be, ids, 5 * sizeof *got);
        for (int t = 0; t < 4; t++)
            assert_int_equal(got[t], -1);
        assert_in_range(got[4], 0, V - 1);
        free(got);
    }
    free(x);
    be->close(be);
}

static void too_wide_rows_are_refused_by_name(void **state)
{
    (void)state;
    k3_backend *be = open_device();
    k3_draw draw = {1, 1, 0, 0, 0.5};
    k3_error err;
    be->ops->sample(be, new_bytes(be, 4), new_bytes(be, 64), &draw, 1, 1 << 23);
    assert_int_equal(be->sync(be, &err), K3_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "8388608"));
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_on_metal_are_those_of_the_host),   cmocka_unit_test(draws_are_those_of_the_host),
        cmocka_unit_test(draws_from_a_full_vocabulary),           cmocka_unit_test(every_draw_has_its_share),
        cmocka_unit_test(rows_without_a_distribution_give_no_id), cmocka_unit_test(too_wide_rows_are_refused_by_name),
    };
    return cmocka_run_group_tests_name("draws on a device", tests, NULL, NULL);
}
