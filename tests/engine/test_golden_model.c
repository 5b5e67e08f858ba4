/* The whole model against the float64 reference: the tiny checkpoint in tests/golden/tiny and five random configurations whose checkpoints
 * are written here by tools/reference/make_random.py (numpy). */
#include "k3.h"
#include "support/golden.h"
#include "support/tiny_checkpoint.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const levels[] = {"cpu:scalar", "cpu:avx2", "cpu:avx512", "cpu:neon"};

static k3_engine *open_exact(const char *folder, const char *level, int threads, int chunk)
{
    k3_engine *engine;
    k3_error err;
    k3_config config = {.backend = level, .exact = 1, .threads = threads, .chunk_rows = chunk};
    k3_status status = k3_engine_open(&engine, folder, &config, &err);
    if (status == K3_E_UNSUPPORTED)
        return NULL; /* a level that this machine lacks */
    if (status != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

static int32_t largest(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best])
            best = i;
    return best;
}

static float *score(k3_engine *engine, const golden *g, const char *name, int T)
{
    int vocab = k3_engine_info(engine)->vocab_size;
    float *logits = malloc(sizeof *logits * (size_t)T * (size_t)vocab);
    k3_session *session;
    k3_error err;
    if (k3_session_open(&session, engine, &err) != K3_OK ||
        k3_session_score(session, logits, golden_ints(g, name, "ids"), (size_t)T, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_session_close(session);
    return logits;
}

static void check_logits(k3_engine *engine, const golden *g, const char *name, const char *level)
{
    const golden_tensor *want = golden_get(g, name, "logits");
    int T = (int)want->shape[0], vocab = (int)want->shape[1];
    assert_int_equal(vocab, k3_engine_info(engine)->vocab_size);
    float *got = score(engine, g, name, T);
    double tolerance = golden_number(g, name, "tol"), worst = 0;
    for (int t = 0; t < T; t++) {
        const float *w = golden_floats(g, name, "logits") + (size_t)t * (size_t)vocab;
        double e = golden_error(got + (size_t)t * (size_t)vocab, w, (size_t)vocab);
        worst = fmax(worst, e);
        if (e > tolerance)
            fail_msg("%s, %s, position %d: error %.3g, at most %.3g", name, level, t, e, tolerance);
    }
    print_message("           %s, %s: error %.2g\n", name, level, worst);
    free(got);
}

static void check_greedy(k3_engine *engine, const golden *g, const char *name)
{
    const golden_tensor *want = golden_get(g, name, "greedy");
    int vocab = k3_engine_info(engine)->vocab_size;
    k3_session *session;
    k3_error err;
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    const golden_tensor *ids = golden_get(g, name, "ids");
    if (k3_session_append(session, ids->data, ids->n, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < want->n; i++) {
        int32_t id = largest(k3_session_logits(session), vocab);
        assert_int_equal(id, ((const int32_t *)want->data)[i]);
        assert_int_equal(k3_session_append(session, &id, 1, &err), K3_OK);
    }
    k3_session_close(session);
}

static void check_model(const char *folder, const golden *g, const char *name)
{
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        k3_engine *engine = open_exact(folder, levels[l], 0, 0);
        if (!engine)
            continue;
        check_logits(engine, g, name, levels[l]);
        check_greedy(engine, g, name);
        int T = (int)golden_get(g, name, "ids")->n, vocab = k3_engine_info(engine)->vocab_size;
        float *want = score(engine, g, name, T);
        k3_engine_close(engine);
        for (int threads = 1; threads <= 3; threads++)
            for (int chunk = 1; chunk <= 64; chunk = chunk == 1 ? 7 : chunk == 7 ? 64 : 65) {
                engine = open_exact(folder, levels[l], threads, chunk);
                float *got = score(engine, g, name, T);
                assert_memory_equal(got, want, sizeof *got * (size_t)T * (size_t)vocab);
                free(got);
                k3_engine_close(engine);
            }
        free(want);
    }
}

static void tiny_checkpoint_equals_the_float64_reference(void **state)
{
    (void)state;
    golden *g = golden_open("tests/golden/tiny.safetensors");
    for (int i = 0; i < golden_n_cases(g); i++)
        check_model("tests/golden/tiny", g, golden_case(g, i));
    golden_close(g);
}

static void five_random_configurations_equal_the_float64_reference(void **state)
{
    (void)state;
    const char *python = access(".venv/bin/python", X_OK) == 0 ? ".venv/bin/python" : "python3";
    char command[1024];
    snprintf(command, sizeof command, "%s -c 'import numpy' 2>/dev/null", python);
    if (system(command) != 0) {
        print_message("SKIP: needs python3 with numpy to write the checkpoints\n");
        skip();
    }
    golden *g = golden_open("tests/golden/random.safetensors");
    char *folder = tiny_folder();
    snprintf(command, sizeof command, "%s tools/reference/make_random.py '%s' --list tests/golden/random_configs.json >/dev/null", python,
             folder);
    assert_int_equal(system(command), 0);
    assert_int_equal(golden_n_cases(g), 5);
    for (int i = 0; i < golden_n_cases(g); i++) {
        char model[600];
        snprintf(model, sizeof model, "%s/%s", folder, golden_case(g, i));
        check_model(model, g, golden_case(g, i));
    }
    tiny_remove_folder(folder);
    golden_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_checkpoint_equals_the_float64_reference),
        cmocka_unit_test(five_random_configurations_equal_the_float64_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
