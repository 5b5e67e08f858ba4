#include "k3.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { V = 163840 };

static void refused(k3_status status, k3_status wanted, const k3_error *err, const char *part)
{
    if (status != wanted || !strstr(err->text, part))
        fail_msg("status %d, \"%s\"; wanted %d and \"%s\"", (int)status, status ? err->text : "", (int)wanted, part);
}

static void d14_a_bias_outside_the_vocabulary_or_its_range_is_refused(void **state)
{
    (void)state;
    float *x = calloc(V, sizeof *x);
    const int32_t bad_ids[] = {V, -1, INT32_MAX};
    k3_error err;
    for (size_t i = 0; i < 3; i++) {
        k3_adjustment a = {.bias_ids = &bad_ids[i], .biases = (float[]){1}, .n_biases = 1};
        refused(k3_logits_adjust(x, V, &a, NULL, 0, &err), K3_E_INVALID, &err, "outside the vocabulary");
    }
    const float bad[] = {1e9f, -101, NAN, INFINITY};
    for (size_t i = 0; i < 4; i++) {
        k3_adjustment a = {.bias_ids = (int32_t[]){7}, .biases = &bad[i], .n_biases = 1};
        refused(k3_logits_adjust(x, V, &a, NULL, 0, &err), K3_E_INVALID, &err, "logit bias");
    }
    k3_adjustment nothing = {0}, good = {.bias_ids = (int32_t[]){0, V - 1}, .biases = (float[]){-100, 100}, .n_biases = 2};
    assert_int_equal(k3_logits_adjust(x, V, &nothing, NULL, 0, &err), K3_OK);
    for (int i = 0; i < V; i++)
        assert_true(x[i] == 0);
    assert_int_equal(k3_logits_adjust(x, V, &good, NULL, 0, &err), K3_OK);
    assert_true(x[0] == -100 && x[V - 1] == 100 && x[1] == 0);
    free(x);
}

/* The history is given whole, so the same ids give the same logits whatever part of them a cache held. */
static void d16_penalties_depend_on_the_ids_alone(void **state)
{
    (void)state;
    float first[8] = {0}, second[8] = {0};
    const int32_t history[] = {1, 2, 2, 3, -1, 2};
    k3_adjustment a = {.presence = 0.5f, .frequency = 0.25f, .window = -1};
    assert_int_equal(k3_logits_adjust(first, 8, &a, history, 6, NULL), K3_OK);
    assert_int_equal(k3_logits_adjust(second, 8, &a, history, 6, NULL), K3_OK);
    assert_memory_equal(first, second, sizeof first);
    assert_true(first[0] == 0 && first[1] == -0.75f && first[2] == -1.25f && first[3] == -0.75f);
}

/* Positive logits are divided, others multiplied, once however often the id was there; then presence and frequency are subtracted. */
static void the_repetition_penalty_shrinks_what_was_said(void **state)
{
    (void)state;
    const float start[6] = {4, -4, 4, 0, 3, -2};
    float x[6];
    const int32_t history[] = {4, 0, 1, 0, 3, -1};
    k3_adjustment a = {.repetition = 2, .window = -1}, all = {.repetition = 2, .presence = 1, .frequency = 0.5f, .window = 4};
    k3_adjustment one = {.repetition = 1, .window = -1}, none = {.repetition = 2, .window = 0};
    memcpy(x, start, sizeof x);
    assert_int_equal(k3_logits_adjust(x, 6, &a, history, 6, NULL), K3_OK);
    assert_true(x[0] == 2 && x[1] == -8 && x[2] == 4 && x[3] == 0 && x[4] == 1.5f && x[5] == -2);
    memcpy(x, start, sizeof x);
    assert_int_equal(k3_logits_adjust(x, 6, &all, history, 6, NULL), K3_OK);
    assert_true(x[0] == 0.5f && x[1] == -9.5f && x[3] == -1.5f && x[4] == 3);
    memcpy(x, start, sizeof x);
    assert_int_equal(k3_logits_adjust(x, 6, &one, history, 6, NULL), K3_OK);
    assert_int_equal(k3_logits_adjust(x, 6, &none, history, 6, NULL), K3_OK);
    assert_memory_equal(x, start, sizeof x);
    a.repetition = 1e-45f; /* a smallest number makes no infinity */
    assert_int_equal(k3_logits_adjust(x, 6, &a, history, 6, NULL), K3_OK);
    for (int i = 0; i < 6; i++)
        assert_true(isfinite(x[i]));
    memcpy(x, start, sizeof x);
    const float bad[] = {-0.5f, 101, NAN, INFINITY};
    k3_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        a.repetition = bad[i];
        refused(k3_logits_adjust(x, 6, &a, history, 6, &err), K3_E_INVALID, &err, "repetition penalty");
    }
}

/* A greedy model that repeats a loop of ids for ever: a frequency penalty over the last n ends it when the loop fits in n. */
static int loop_ends(int length, int64_t window)
{
    int32_t history[400];
    int n = 0;
    for (; n < 3 * length; n++)
        history[n] = n % length;
    for (; n < 400; n++) {
        float x[200] = {0};
        int32_t id, next = (history[n - 1] + 1) % length;
        k3_sampler *sampler;
        k3_sampling greedy = {.top_p = 1};
        k3_adjustment a = {.frequency = 0.5f, .window = window};
        x[next] = 1.2f;
        x[199] = 0.1f;
        assert_int_equal(k3_logits_adjust(x, 200, &a, history, (size_t)n, NULL), K3_OK);
        assert_int_equal(k3_sampler_open(&sampler, &greedy, NULL), K3_OK);
        assert_int_equal(k3_sampler_pick(sampler, &id, x, 200, NULL), K3_OK);
        k3_sampler_close(sampler);
        history[n] = id;
        if (id != next)
            return 1;
    }
    return 0;
}

static void d18_penalties_look_at_the_last_n(void **state)
{
    (void)state;
    const int lengths[] = {10, 45, 70};
    for (int i = 0; i < 3; i++) {
        assert_true(loop_ends(lengths[i], -1));
        assert_true(loop_ends(lengths[i], 3 * lengths[i]));
        assert_false(loop_ends(lengths[i], lengths[i] - 1));
        assert_false(loop_ends(lengths[i], 0));
    }
    float x[4] = {0};
    const int32_t history[] = {0, 1, 2, 3};
    k3_adjustment last_two = {.presence = 1, .window = 2}, wrong = {.window = -2}, nan = {.presence = NAN};
    k3_error err;
    assert_int_equal(k3_logits_adjust(x, 4, &last_two, history, 4, &err), K3_OK);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == -1 && x[3] == -1);
    refused(k3_logits_adjust(x, 4, &wrong, history, 4, &err), K3_E_INVALID, &err, "-2");
    refused(k3_logits_adjust(x, 4, &nan, history, 4, &err), K3_E_INVALID, &err, "presence");
    refused(k3_logits_adjust(x, 3, &last_two, history, 4, &err), K3_E_INVALID, &err, "id 3");
}

static void d21_logprobs_come_from_raw_logits_sorted_and_in_the_length_asked_for(void **state)
{
    (void)state;
    float *x = malloc(V * sizeof *x), of_id, top[20];
    int32_t ids[20];
    k3_error err;
    for (int i = 0; i < V; i++)
        x[i] = (float)((i * 7919) % 1000) * 0.01f;
    double total = 0;
    for (int i = 0; i < V; i++)
        total += exp((double)x[i]);
    for (size_t n_top = 0; n_top <= 20; n_top += n_top ? 18 : 2) {
        assert_int_equal(k3_logprobs(&of_id, ids, top, n_top, 12345, x, V, &err), K3_OK);
        assert_true(fabs((double)of_id - ((double)x[12345] - log(total))) < 1e-5);
        for (size_t i = 0; i < n_top; i++) {
            assert_true(fabs((double)top[i] - ((double)x[ids[i]] - log(total))) < 1e-5);
            if (i)
                assert_true(top[i] < top[i - 1] || (top[i] == top[i - 1] && ids[i] > ids[i - 1]));
        }
        if (n_top)
            assert_true(x[ids[0]] == 9.99f);
    }
    refused(k3_logprobs(&of_id, ids, top, 2, V, x, V, &err), K3_E_INVALID, &err, "163840");
    refused(k3_logprobs(&of_id, ids, top, V + 1, 0, x, V, &err), K3_E_INVALID, &err, "163841");
    x[5] = NAN;
    refused(k3_logprobs(&of_id, ids, top, 2, 0, x, V, &err), K3_E_NUMERIC, &err, "id 5");
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d14_a_bias_outside_the_vocabulary_or_its_range_is_refused),
        cmocka_unit_test(d16_penalties_depend_on_the_ids_alone),
        cmocka_unit_test(the_repetition_penalty_shrinks_what_was_said),
        cmocka_unit_test(d18_penalties_look_at_the_last_n),
        cmocka_unit_test(d21_logprobs_come_from_raw_logits_sorted_and_in_the_length_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
