#include "engine/greedy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const int32_t *prompt_of(int vocab)
{
    static int32_t ids[PROMPT];
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (5 + 73 * i) % (vocab < 250 ? vocab : 250);
    return ids;
}

static int32_t largest(const float *logits, int n)
{
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

k3_status generate(run *out, k3_engine *engine, int n_prompt, int n_new, k3_error *err)
{
    k3_session *session;
    int vocab = k3_engine_info(engine)->vocab_size;
    out->vocab = vocab;
    out->n_new = n_new;
    k3_status status = k3_session_open(&session, engine, err);
    if (status != K3_OK)
        return status;
    if (out->scores)
        status = k3_session_score(session, out->scores, prompt_of(vocab), (size_t)n_prompt, err);
    else
        status = k3_session_append(session, prompt_of(vocab), (size_t)n_prompt, err);
    for (int i = 0; status == K3_OK && i < n_new; i++) {
        const float *logits = i || !out->scores ? k3_session_logits(session) : out->scores + (size_t)(n_prompt - 1) * (size_t)vocab;
        out->ids[i] = largest(logits, vocab);
        if (i + 1 < n_new)
            status = k3_session_append(session, &out->ids[i], 1, err);
    }
    k3_session_close(session);
    return status;
}

float *room_for_scores(const k3_engine *engine)
{
    float *room = malloc(PROMPT * (size_t)k3_engine_info(engine)->vocab_size * sizeof *room);
    assert_non_null(room);
    return room;
}

double difference(const run *got, const run *want)
{
    double worst = 0;
    for (int t = 0; t < PROMPT; t++) {
        const float *g = got->scores + (size_t)t * (size_t)got->vocab, *w = want->scores + (size_t)t * (size_t)got->vocab;
        double most = 0, error = 0;
        for (int i = 0; i < got->vocab; i++) {
            most = fmax(most, fabs((double)w[i]));
            error = fmax(error, isfinite(g[i]) ? fabs((double)g[i] - (double)w[i]) : INFINITY);
        }
        worst = fmax(worst, error / most);
    }
    return worst;
}

void must_generate(run *out, k3_engine *engine, int n_prompt, int n_new)
{
    k3_error err;
    if (generate(out, engine, n_prompt, n_new, &err) != K3_OK)
        fail_msg("%s", err.text);
}

void same_ids(const run *got, const run *want, const char *what)
{
    for (int i = 0; i < got->n_new; i++)
        if (got->ids[i] != want->ids[i])
            fail_msg("%s: id %d is %d, the CPU's is %d", what, i, got->ids[i], want->ids[i]);
}

const run *cpu_run(const char *model)
{
    static run runs[2];
    run *r = &runs[strcmp(model, MINI) == 0];
    if (!r->n_new) {
        k3_engine *cpu;
        k3_error err;
        if (k3_engine_open(&cpu, model, &(k3_config){.backend = "cpu", .exact = 1}, &err) != K3_OK)
            fail_msg("%s", err.text);
        r->scores = room_for_scores(cpu);
        must_generate(r, cpu, PROMPT, NEW);
        k3_engine_close(cpu);
    }
    return r;
}

static k3_status open_exact(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    k3_backend_config exact = *config;
    exact.exact = 1;
    return k3_backend_open(out, &exact, note, note_size, err);
}

k3_engine *open_wide(const char *model, const char *trunk)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open_on(&engine, model, &(k3_config){.backend = "cpu", .trunk = trunk}, open_exact, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}
