/* Attention of the CPU over caches of several spans (backend/cpu/mla_attend.c): who computes what, and what may not be seen of that. */
#include "fixture.h"

#include "backend/cpu/cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SPAN = 512, NOPE = 8, ROPE = 4, V = 6, KV = 10, WIDTH = KV + ROPE };

static const k3_mla_dims dims = {5, NOPE, ROPE, V, KV, K3_BF16};

static k3_ref random_cache(k3_backend *be, random_stream *r, int rows, int width)
{
    size_t n = (size_t)(rows * width);
    uint16_t *cache = malloc(n * sizeof *cache);
    assert_non_null(cache);
    for (size_t i = 0; i < n; i++)
        cache[i] = (uint16_t)(random_bits(r) & 0x807f) | 0x3f00;
    k3_ref ref = put_bytes(be, cache, n * sizeof *cache);
    free(cache);
    return ref;
}

/* ---- how the work is dealt out ----------------------------------------------------------------------------------------------------- */

/* Heads of each pass over a span, as they began. */
static atomic_int n_passes;
static int pass_heads[1024];
static k3_attend_row_fn *attend_row;
static k3_mix_fn *mix_bf16;

static void note_pass(int heads)
{
    int i = atomic_fetch_add(&n_passes, 1);
    if (i < 1024)
        pass_heads[i] = heads;
}

static void noting_row(const k3_attend_row *row)
{
    if (row->is_first)
        note_pass(row->n_heads);
    attend_row(row);
}

static void noting_mix(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                       int rows, int n, int cols)
{
    if (!keep)
        note_pass(rows);
    mix_bf16(y, y_stride, keep, p, p_stride, v, v_stride, rows, n, cols);
}

static int larger_first(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

/* Heads of the thread that has most, the longest passes going first and each to the thread with the least. */
static int heads_of_the_busiest(int threads)
{
    int busy[64] = {0}, most = 0;
    qsort(pass_heads, (size_t)n_passes, sizeof *pass_heads, larger_first);
    for (int i = 0; i < n_passes; i++) {
        int least = 0;
        for (int t = 1; t < threads; t++)
            least = busy[t] < busy[least] ? t : least;
        busy[least] += pass_heads[i];
        most = busy[least] > most ? busy[least] : most;
    }
    return most;
}

/* One row of 48 heads over `spans` spans. */
static void deal(const char *level, int threads, int spans)
{
    k3_backend *be = open_level(level, threads);
    if (!be)
        return;
    k3_cpu *cpu = k3_cpu_of(be);
    k3_mla_dims d = dims;
    random_stream r = {7};
    d.heads = 48;
    k3_mat kv_b = random_mat(be, &r, K3_F32, d.heads * (NOPE + V), KV, 0);
    k3_ref q = new_floats(be, (size_t)(d.heads * (NOPE + ROPE))), o = new_floats(be, (size_t)(d.heads * V));
    k3_run run = {0, 1, spans * SPAN - 1, random_cache(be, &r, spans * SPAN, WIDTH)};
    float *zero = calloc((size_t)(d.heads * (NOPE + ROPE)), sizeof *zero);
    be->memory->upload(be, q, zero, (size_t)(d.heads * (NOPE + ROPE)) * sizeof *zero);
    free(zero);
    attend_row = cpu->k.attend_row;
    mix_bf16 = cpu->k.mix_bf16;
    n_passes = 0;
    cpu->k.attend_row = attend_row ? noting_row : NULL;
    cpu->k.mix_bf16 = noting_mix;
    be->ops->mla_attend(be, o, q, &kv_b, &run, 1, &d, 0.3f);
    must_sync(be);
    int all = 0, even = (48 * spans + threads - 1) / threads;
    for (int i = 0; i < n_passes; i++)
        all += pass_heads[i];
    assert_int_equal(all, 48 * spans);
    if (n_passes > 3 * spans + 2 * threads)
        fail_msg("%s: %d passes over %d spans on %d threads", level, n_passes, spans, threads);
    int busiest = heads_of_the_busiest(threads);
    if (busiest > even + even / 4)
        fail_msg("%s: %d spans on %d threads: %d heads of a span for one thread, %d if all had the same", level, spans, threads, busiest,
                 even);
    be->close(be);
}

/* Spans that threads do not share evenly are no reason to wait for a round of all heads, nor to look at the whole cache once a thread:
 * three passes take 48 heads where 16 are the most that share one. */
static void no_thread_has_much_more_to_do_than_another(void **state)
{
    (void)state;
    static const int cases[][2] = {{1, 3}, {2, 1}, {2, 3}, {2, 9}, {4, 5}, {8, 9}, {16, 4}, {16, 17}, {16, 33}};
    for (int l = 0; l < N_CPU_LEVELS; l++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            deal(level_names[l], cases[i][0], cases[i][1]);
}

/* ---- what nobody may see ----------------------------------------------------------------------------------------------------------- */

/* Scratch as a call before this one may have left it. */
static void spoil_scratch(k3_backend *be)
{
    k3_cpu *cpu = k3_cpu_of(be);
    (void)k3_cpu_scratch(cpu, 4 << 20);
    memset(cpu->scratch, 0xff, cpu->scratch_bytes);
}

enum { N_RUNS = 4, ROWS = 1 + 20 + 3 + 2 };
static const k3_run shapes[N_RUNS] = {{.row = 0, .n = 1, .pos = 9 * SPAN},
                                      {.row = 1, .n = 20},
                                      {.row = 21, .n = 3, .pos = SPAN - 1},
                                      {.row = 24, .n = 2, .pos = 3 * SPAN - 9}};

/* All runs in one call, or each row in a call of its own. */
static float *attend(const char *level, int threads, int is_alone, int spoiled_row)
{
    enum { Q = 5 * (NOPE + ROPE), O = 5 * V };
    k3_backend *be = open_level(level, threads);
    if (!be)
        return NULL;
    static float values[ROWS * Q];
    random_stream r = {11};
    k3_run runs[N_RUNS];
    k3_mat kv_b = random_mat(be, &r, K3_F32, dims.heads * (NOPE + V), KV, 0);
    random_floats(&r, values, ROWS * Q, 0.5f);
    if (spoiled_row >= 0)
        values[spoiled_row * Q + 3] = NAN;
    k3_ref q = put_floats(be, values, ROWS * Q), o = new_floats(be, ROWS * O);
    for (int i = 0; i < N_RUNS; i++) {
        runs[i] = shapes[i];
        runs[i].state = random_cache(be, &r, (int)shapes[i].pos + shapes[i].n, WIDTH);
    }
    spoil_scratch(be);
    if (!is_alone)
        be->ops->mla_attend(be, o, q, &kv_b, runs, N_RUNS, &dims, 0.3f);
    for (int i = 0; is_alone && i < N_RUNS; i++)
        for (int t = 0; t < runs[i].n; t++) {
            k3_run one = {0, 1, runs[i].pos + t, runs[i].state};
            uint64_t row = (uint64_t)(runs[i].row + t) * sizeof(float);
            spoil_scratch(be);
            be->ops->mla_attend(be, k3_at(o, row * O), k3_at(q, row * Q), &kv_b, &one, 1, &dims, 0.3f);
        }
    float *out = get_floats(be, o, ROWS * O);
    be->close(be);
    return out;
}

/* Runs of very different lengths beside one another, with any number of threads, are each row alone with one; a row that is not a number
 * stays the only one, and what lay in the scratch before is seen in none. */
static void rows_do_not_see_threads_or_other_runs(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 16};
    size_t row = (size_t)(dims.heads * V);
    for (int l = 0; l < N_CPU_LEVELS; l++) {
        float *want = attend(level_names[l], 1, 1, -1);
        for (size_t i = 0; want && i < ROWS * row; i++)
            assert_true(isfinite(want[i]));
        for (size_t k = 0; want && k < sizeof threads / sizeof *threads; k++) {
            int spoiled = k % 2 ? 23 : -1;
            float *got = attend(level_names[l], threads[k], 0, spoiled);
            for (int t = 0; t < ROWS; t++)
                if (t != spoiled && memcmp(got + (size_t)t * row, want + (size_t)t * row, row * sizeof *got))
                    fail_msg("%s, %d threads: row %d differs from the one alone", level_names[l], threads[k], t);
            assert_true(spoiled < 0 || isnan(got[(size_t)spoiled * row]));
            free(got);
        }
        free(want);
    }
}

static void a_call_without_rows_does_nothing(void **state)
{
    (void)state;
    k3_backend *be = open_level("scalar", 2);
    random_stream r = {3};
    k3_mat kv_b = random_mat(be, &r, K3_F32, dims.heads * (NOPE + V), KV, 0);
    k3_ref none = new_floats(be, 1);
    be->ops->mla_attend(be, none, none, &kv_b, NULL, 0, &dims, 0.3f);
    must_sync(be);
    be->close(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_thread_has_much_more_to_do_than_another),
        cmocka_unit_test(rows_do_not_see_threads_or_other_runs),
        cmocka_unit_test(a_call_without_rows_does_nothing),
    };
    return cmocka_run_group_tests_name("attend", tests, NULL, NULL);
}
