/* What each arithmetic costs on the bundled model: logits of three held-out texts against those of the float64 reference, beside what
 * PyTorch reaches in bfloat16 on the same texts (tools/reference/precision.py wrote both). */
#include "k3.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static golden *g;

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ||got - want|| / ||want|| over the logits that the golden file keeps: every (vocab / n)-th. */
static double error_of(const float *got, const float *want, int n, int vocab)
{
    double off = 0, all = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)got[i * (vocab / n)] - (double)want[i];
        off += d * d;
        all += (double)want[i] * (double)want[i];
    }
    return sqrt(off / all);
}

static void score(k3_engine *engine, float *logits, const int32_t *ids, size_t n)
{
    k3_session *session;
    k3_error err;
    if (k3_session_open(&session, engine, &err) != K3_OK || k3_session_score(session, logits, ids, n, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_session_close(session);
}

/* Median over all positions of the texts. */
static double median_error(const k3_config *config)
{
    const golden_tensor *want = golden_get(g, "texts", "logits"), *lengths = golden_get(g, "texts", "lengths");
    const int32_t *ids = golden_ints(g, "texts", "ids"), *length = lengths->data;
    int n_positions = (int)want->shape[0], n = (int)want->shape[1], at = 0;
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, "models/k3-mini", config, &err) != K3_OK)
        fail_msg("%s", err.text);
    int vocab = k3_engine_info(engine)->vocab_size;
    double *errors = malloc((size_t)n_positions * sizeof *errors);
    assert_non_null(errors);
    for (size_t i = 0; i < lengths->n; at += length[i++]) {
        float *logits = malloc((size_t)length[i] * (size_t)vocab * sizeof *logits);
        assert_non_null(logits);
        score(engine, logits, ids + at, (size_t)length[i]);
        for (int t = 0; t < length[i]; t++)
            errors[at + t] =
                error_of(logits + (size_t)t * (size_t)vocab, golden_floats(g, "texts", "logits") + (size_t)(at + t) * (size_t)n, n, vocab);
        free(logits);
    }
    k3_engine_close(engine);
    qsort(errors, (size_t)n_positions, sizeof *errors, by_size);
    double median = errors[n_positions / 2];
    free(errors);
    return median;
}

/* The bounds of docs/numerics.md on these texts. PyTorch's two runs are bf16 throughout, and bf16 products between float32 values. */
static void the_default_is_closer_to_float64_than_pytorch_in_bf16(void **state)
{
    (void)state;
    double exact = median_error(&(k3_config){.backend = "cpu", .exact = 1});
    double by_default = median_error(&(k3_config){.backend = "cpu"}); /* the trunk as stored, since all of this model fits */
    double int8 = median_error(&(k3_config){.backend = "cpu", .trunk = "int8"});
    double int4 = median_error(&(k3_config){.backend = "cpu", .trunk = "int4"});
    double torch = golden_number(g, "texts", "bf16_torch"), autocast = golden_number(g, "texts", "autocast_torch");
    print_message("           median error: exact %.1e, default %.2e, int8 %.2e, int4 %.2e; PyTorch bf16 %.2e, autocast %.2e\n", exact,
                  by_default, int8, int4, torch, autocast);
    assert_true(exact < 2e-6);
    assert_true(by_default < autocast && autocast < torch);
    assert_true(int8 < 0.025);
    assert_true(int4 < 0.2);
}

static int open_golden(void **state)
{
    (void)state;
    g = golden_open("tests/golden/mini/precision.safetensors");
    return 0;
}

static int close_golden(void **state)
{
    (void)state;
    golden_close(g);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_default_is_closer_to_float64_than_pytorch_in_bf16)};
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
