/* mla_attend at K3's head shape on a Vulkan device, against the CPU: the kernel on matrix units takes this shape only. */
#include "fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NOPE = 128, ROPE = 64, V = 128, KV = 512, WIDTH = KV + ROPE, MOST_RUNS = 3 };

/* A run is `n` rows after `before` positions. */
typedef struct shape {
    int heads, n_runs;
    int before[MOST_RUNS], n[MOST_RUNS];
    k3_type type;
    float score; /* the size of most */
} shape;

/* One part of the cache and several; tiles of 48 pairs that are full, cut by the end of a run, and across rows; scores flat and sharp. */
static const shape shapes[] = {
    {16, 1, {0}, {1}, K3_BF16, 5},           {96, 1, {150}, {1}, K3_INT8, 5},
    {48, 1, {399}, {2}, K3_BF16, 10},        {32, 3, {40, 0, 203}, {5, 2, 1}, K3_INT8, 0.1f},
    {16, 2, {15, 100}, {33, 3}, K3_BF16, 5}, {16, 1, {70}, {90}, K3_INT8, 5},
};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

static int rows_of(const shape *s)
{
    int rows = 0;
    for (int i = 0; i < s->n_runs; i++)
        rows += s->n[i];
    return rows;
}

/* A cache of values about as large as normalised latents, a few of them far off. Rows that no run has written are NaN. */
static k3_ref new_cache(k3_backend *be, random_stream *r, int rows)
{
    size_t n = (size_t)rows * WIDTH, bytes = 2 * n + 2 * WIDTH;
    uint16_t *values = malloc(bytes);
    assert_non_null(values);
    memset(values, 0xff, bytes);
    for (size_t i = 0; i < n; i++) {
        float x = random_float(r) * (i % 7919 == 7 ? 30 : i % 5003 == 9 ? 1e-6f : 1);
        memcpy(&values[i], (char *)&x + 2, 2);
    }
    k3_ref cache = put_bytes(be, values, bytes);
    free(values);
    return cache;
}

/* A score is a sum of 128 x 512 products and of 64, which are made about as large. Heads differ in the size of their queries, which is what
 * the matrix kernel scales. */
static float *compute(k3_backend *be, const shape *s)
{
    random_stream r = {(uint64_t)(s->heads * 100 + s->n_runs)};
    k3_mla_dims d = {s->heads, NOPE, ROPE, V, KV, K3_BF16};
    int T = rows_of(s);
    size_t n_q = (size_t)(T * s->heads) * (NOPE + ROPE);
    k3_mat kv_b = random_mat(be, &r, s->type, s->heads * (NOPE + V), KV, 0);
    float *q = malloc(n_q * sizeof *q);
    assert_non_null(q);
    random_floats(&r, q, n_q, s->score / sqrtf(NOPE * KV));
    for (size_t i = 0; i < n_q; i++)
        q[i] = ldexpf(q[i], (i % (NOPE + ROPE) < NOPE ? 0 : 4) - (int)(i / (NOPE + ROPE) % 5));
    k3_run runs[MOST_RUNS];
    for (int i = 0, row = 0; i < s->n_runs; row += s->n[i++])
        runs[i] = (k3_run){row, s->n[i], s->before[i], new_cache(be, &r, s->before[i] + s->n[i])};
    k3_ref o = new_floats(be, (size_t)(T * s->heads * V));
    be->ops->mla_attend(be, o, put_floats(be, q, n_q), &kv_b, runs, s->n_runs, &d, 1);
    free(q);
    return get_floats(be, o, (size_t)(T * s->heads * V));
}

/* The largest difference within a head's output, relative to its largest value. */
static double worst_head(const float *got, const float *want, int pairs)
{
    double worst = 0;
    for (int p = 0; p < pairs; p++, got += V, want += V) {
        double most = 0, largest = 0;
        for (int i = 0; i < V; i++) {
            if (!isfinite(got[i]))
                return INFINITY;
            most = fmax(most, fabs((double)got[i] - (double)want[i]));
            largest = fmax(largest, fabs((double)want[i]));
        }
        worst = fmax(worst, most / largest);
    }
    return worst;
}

static void compare(const char *level)
{
    k3_backend *device = open_level(level, 1), *cpu = open_level("scalar+exact", 2);
    if (!device) {
        print_message("no Vulkan device\n");
        skip();
    }
    double allowed = strstr(device->describe(device), "f16 matrix") ? 1e-2 : 3e-5;
    for (int i = 0; i < N_SHAPES; i++) {
        const shape *s = &shapes[i];
        int pairs = rows_of(s) * s->heads;
        float *got = compute(device, s), *again = compute(device, s), *want = compute(cpu, s);
        double d = worst_head(got, want, pairs);
        if (!(d <= allowed))
            fail_msg("%s, %d heads, %d rows: a head differs by %.3g, allowed %.3g", device->name, s->heads, rows_of(s), d, allowed);
        assert_memory_equal(again, got, (size_t)(pairs * V) * sizeof *got);
        free(got);
        free(again);
        free(want);
    }
    cpu->close(cpu);
    device->close(device);
}

static void k3_heads_agree_with_the_cpu(void **state)
{
    (void)state;
    compare("vulkan");
}

static void k3_heads_agree_with_the_cpu_in_exact_mode(void **state)
{
    (void)state;
    compare("vulkan+exact");
}

/* What no kernel takes is refused by name. */
static void other_shapes_are_refused(void **state)
{
    (void)state;
    k3_backend *be = open_level("vulkan", 1);
    if (!be) {
        print_message("no Vulkan device\n");
        skip();
    }
    k3_error err;
    random_stream r = {1};
    k3_mat kv_b = random_mat(be, &r, K3_F32, 64, 33, 0);
    k3_ref x = new_floats(be, 4096);
    k3_run run = {0, 1, 0, x};
    k3_mla_dims odd = {1, 32, 8, 32, 33, K3_BF16}, whole = {1, 32, 8, 32, 33, K3_INT8}, other = {2, 32, 8, 32, 33, K3_F32};
    be->ops->mla_append(be, x, x, &run, 1, &odd, 1e-5f);
    assert_int_equal(be->sync(be, &err), K3_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "mla_append: bf16 cache rows of 41 channels, an even number wanted"));
    be->ops->mla_append(be, x, x, &run, 1, &whole, 1e-5f);
    assert_int_equal(be->sync(be, &err), K3_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "mla_append: a cache of int8, f32 or bf16 wanted"));
    be->ops->mla_attend(be, x, x, &kv_b, &run, 1, &whole, 1);
    assert_int_equal(be->sync(be, &err), K3_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "mla_attend: a cache of int8, f32 or bf16 wanted"));
    be->ops->mla_attend(be, x, x, &kv_b, &run, 1, &other, 1);
    assert_int_equal(be->sync(be, &err), K3_E_INVALID);
    assert_non_null(strstr(err.text, "mla_attend: kv_b is [64, 33], [128, 33] wanted"));
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(k3_heads_agree_with_the_cpu),
        cmocka_unit_test(k3_heads_agree_with_the_cpu_in_exact_mode),
        cmocka_unit_test(other_shapes_are_refused),
    };
    return cmocka_run_group_tests_name("MLA on Vulkan", tests, NULL, NULL);
}
