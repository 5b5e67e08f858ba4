/* Reading the next layer's experts ahead: the same tokens with and without it, and guesses as good as docs/performance.md says. */
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { NEW = 24 };

static const char *const model = "models/k3-mini";
static const char *const request = "{\"messages\":[{\"role\":\"user\",\"content\":\"What is 58 plus 67?\"}]}";
static int is_off;

int __real_k3_experts_may_guess(const k3_experts *experts, int layer);
int __wrap_k3_experts_may_guess(const k3_experts *experts, int layer);
int __wrap_k3_experts_may_guess(const k3_experts *experts, int layer)
{
    return !is_off && __real_k3_experts_may_guess(experts, layer);
}

typedef struct answer {
    int32_t ids[NEW];
    float logits[NEW][8]; /* the first of each token's: equal bits tell of equal arithmetic */
    k3_stream_stat stat;
} answer;

static void must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("%s", err->text);
}

static void ask(answer *out, uint64_t ram, int chunk_rows)
{
    k3_engine *engine;
    k3_session *session;
    k3_sampler *sampler;
    k3_tokens prompt = {0};
    k3_error err;
    int thinking;
    must(k3_engine_open(&engine, model, &(k3_config){.backend = "cpu", .threads = 2, .ram = ram, .chunk_rows = chunk_rows}, &err), &err);
    must(k3_session_open(&session, engine, &err), &err);
    must(k3_sampler_open(&sampler, &(k3_sampling){.top_p = 1}, &err), &err);
    must(k3_chat_render(engine, &prompt, &thinking, request, &err), &err);
    must(k3_session_append(session, prompt.ids, prompt.n, &err), &err);
    for (int i = 0; i < NEW; i++) {
        const float *logits = k3_session_logits(session);
        memcpy(out->logits[i], logits, sizeof out->logits[i]);
        must(k3_sampler_pick(sampler, &out->ids[i], logits, (size_t)k3_engine_info(engine)->vocab_size, &err), &err);
        must(k3_session_append(session, &out->ids[i], 1, &err), &err);
    }
    k3_experts_stream_stats(engine->experts, &out->stat);
    k3_tokens_free(&prompt);
    k3_sampler_close(sampler);
    k3_session_close(session);
    k3_engine_close(engine);
}

static answer with, without, all;

static void check_same(const answer *got, const answer *want)
{
    assert_memory_equal(got->ids, want->ids, sizeof got->ids);
    assert_memory_equal(got->logits, want->logits, sizeof got->logits);
}

/* Case G18: a simulated gain may not hold, so the real model is asked, and what is read ahead changes no token. */
static void read_ahead_or_not_the_tokens_are_the_same(void **state)
{
    (void)state;
    static const uint64_t rams[] = {20000000, 26000000};
    ask(&all, 0, 0);
    for (size_t i = 0; i < sizeof rams / sizeof *rams; i++)
        for (int chunk_rows = 5; chunk_rows <= 64; chunk_rows += 59) { /* of a prompt of some thirty tokens */
            is_off = 0;
            ask(&with, rams[i], chunk_rows);
            is_off = 1;
            ask(&without, rams[i], chunk_rows);
            is_off = 0;
            check_same(&with, &all);
            check_same(&without, &all);
            assert_int_equal(with.stat.wanted, without.stat.wanted);
            assert_int_equal(without.stat.guess_named, 0);
            assert_int_equal(without.stat.io.guess_bytes, 0);
        }
}

/* Recall does not depend on the drive, nor on how much was read in time. */
static void most_choices_are_foretold(void **state)
{
    (void)state;
    ask(&with, 26000000, 0);
    assert_true(with.stat.guess_wanted > 500);
    assert_true(with.stat.guess_right * 100 >= with.stat.guess_wanted * 75);
    assert_true(with.stat.ahead > 0 && with.stat.ahead_used * 100 >= with.stat.ahead * 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_ahead_or_not_the_tokens_are_the_same),
        cmocka_unit_test(most_choices_are_foretold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
