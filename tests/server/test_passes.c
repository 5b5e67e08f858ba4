/* What happens inside a pass of several requests. The program is linked so that each pass, the choice of experts, once a layer, and
 * the logits of a session come by here. */
#include "engine/engine.h"
#include "server/clients.h"
#include "support/tiny_checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MINI_PROMPT = 30, LAYERS = TINY_LAYERS - 1 }; /* of experts, a pass */

static int32_t text[400];

/* ---- what comes by ----------------------------------------------------------------------------------------------------- */

static int n_layers, cancel_at; /* layers of experts so far; the one in which `to_cancel` is cancelled, 0: none */
static client *to_cancel;
static uint64_t n_distinct; /* experts that a layer wants, each once */

k3_status __real_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err);
k3_status __wrap_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err);
const float *__real_k3_session_logits(const k3_session *session);
const float *__wrap_k3_session_logits(const k3_session *session);

k3_status __wrap_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err)
{
    for (int i = 0; i < T * K; i++) {
        int is_first = 1;
        for (int j = 0; j < i; j++)
            is_first &= ids[j] != ids[i];
        n_distinct += (uint64_t)is_first;
    }
    if (++n_layers == cancel_at)
        srv_cancel(to_cancel->job);
    return __real_k3_experts_assign(experts, layer, ids, T, K, err);
}

static float *fake;        /* [vocab], NULL: none */
static int32_t faked = -1; /* of sessions that begin with it */

const float *__wrap_k3_session_logits(const k3_session *session)
{
    const float *logits = __real_k3_session_logits(session);
    return logits && fake && k3_session_ids(session)[0] == faked ? fake : logits;
}

static int fail_shared; /* so many passes of several sessions fail, and every pass of a session that begins with `failing` */
static int32_t failing = -1;
static k3_status fail_with;

k3_status __real_k3_sessions_append(k3_session **s, const int32_t *const *ids, const size_t *n, size_t n_sessions, k3_error *err);
k3_status __wrap_k3_sessions_append(k3_session **s, const int32_t *const *ids, const size_t *n, size_t n_sessions, k3_error *err);

/* As the engine's own failures: sessions are at their last marks afterwards. */
k3_status __wrap_k3_sessions_append(k3_session **s, const int32_t *const *ids, const size_t *n, size_t n_sessions, k3_error *err)
{
    int fails = n_sessions > 1 && fail_shared > 0;
    fail_shared -= fails;
    for (size_t i = 0; i < n_sessions; i++)
        fails |= (k3_session_length(s[i]) ? k3_session_ids(s[i])[0] : ids[i][0]) == failing;
    if (!fails)
        return __real_k3_sessions_append(s, ids, n, n_sessions, err);
    for (size_t i = 0; i < n_sessions && fail_with != K3_E_NOMEM; i++)
        must(k3_session_rewind(s[i], k3_session_length(s[i]), err), err);
    *err = (k3_error){fail_with, "made to fail"};
    return fail_with;
}

static k3_engine *open_engine(const char *model, uint64_t ram)
{
    k3_engine *engine;
    k3_error err;
    k3_config config = {.backend = "cpu", .threads = 2, .chunk_rows = 64, .ram = ram};
    must(k3_engine_open(&engine, model, &config, &err), &err);
    return engine;
}

static const srv_limits plain = {.max_running = 4, .max_waiting = 8, .mark_interval = 64, .cache_bytes = 64 << 20};

/* ---- cancelling -------------------------------------------------------------------------------------------------------- */

/* Of a model in memory, and of one whose layers and experts are read as they are wanted. */
static void a_pass_that_nobody_wants_ends_with_the_layer(void **state)
{
    (void)state;
    static client solo, cut, again;
    static const char *const models[] = {NULL, "models/k3-mini"};
    for (int m = 0; m < 2; m++) {
        k3_engine *engine = open_engine(m ? models[m] : tiny_model, m ? 20000000 : 0);
        int all = m ? 8 : LAYERS, in_second_pass = all + all / 2;
        solo = client_new(text, 150, 8);
        client_solo(&solo, engine);
        srv_scheduler *scheduler = scheduler_open(engine, &plain);
        cut = client_new(text, 150, 8);
        to_cancel = &cut;
        n_layers = 0;
        cancel_at = in_second_pass;
        client_run(&cut, scheduler);
        assert_int_equal(cut.how, SRV_END_CANCELLED);
        assert_int_equal(n_layers, in_second_pass);
        cancel_at = 0;
        again = client_new(text, 150, 8);
        client_run(&again, scheduler);
        assert_int_equal(again.n_cached, 64); /* the first pass */
        client_equal(&again, &solo);
        srv_scheduler_close(scheduler);
        k3_engine_close(engine);
    }
}

static void a_pass_that_somebody_wants_goes_on(void **state)
{
    (void)state;
    static client solo, a, b;
    k3_engine *engine = open_engine(tiny_model, 0);
    solo = client_new(text + 1, 50, 10);
    client_solo(&solo, engine);
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    a = client_new(text + 1, 50, 10);
    b = client_new(text + 2, 120, 10);
    a.holds = 1;
    clients_hold();
    client_submit(&a, scheduler);
    client_submit(&b, scheduler);
    to_cancel = &b;
    n_layers = 0;
    cancel_at = 5;
    clients_go();
    client_wait(&b);
    client_wait(&a);
    cancel_at = 0;
    srv_counts counts;
    srv_count(scheduler, &counts);
    assert_int_equal(n_layers, (int)counts.passes * LAYERS);
    assert_int_equal(b.how, SRV_END_CANCELLED);
    client_equal(&a, &solo);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* ---- trouble ----------------------------------------------------------------------------------------------------------- */

/* Case D01: logits that have no distribution end their request, and the next one works. */
static void d01_logits_without_distribution_end_their_request(void **state)
{
    (void)state;
    static client solo[2], good, bad;
    float logits[TINY_VOCAB];
    k3_engine *engine = open_engine(tiny_model, 0);
    for (int i = 0; i < 2; i++) {
        solo[i] = client_new(text + 1 + i, 50, 10);
        client_solo(&solo[i], engine);
    }
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    for (int kind = 0; kind < 4; kind++) {
        for (int i = 0; i < TINY_VOCAB; i++)
            logits[i] = kind == 0 ? -INFINITY : kind == 1 ? NAN : 0;
        logits[77] = kind == 0 ? -INFINITY : kind == 3 ? INFINITY : NAN;
        good = client_new(text + 1, 50, 10);
        bad = client_new(text + 2, 50, 10);
        good.holds = 1;
        clients_hold();
        client_submit(&good, scheduler);
        client_submit(&bad, scheduler);
        fake = logits;
        faked = text[2];
        clients_go();
        client_wait(&good);
        client_wait(&bad);
        fake = NULL;
        assert_int_equal(bad.how, SRV_END_ERROR);
        assert_int_equal(bad.err.status, K3_E_NUMERIC);
        assert_int_equal(bad.n, 0);
        client_equal(&good, &solo[0]);
    }
    bad = client_new(text + 2, 50, 10);
    client_run(&bad, scheduler);
    assert_int_equal(bad.n_cached, 0); /* nothing of it was kept */
    client_equal(&bad, &solo[1]);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* What fails for all is tried for each; what fails for one alone ends that one. */
static void a_pass_that_breaks_ends_only_what_breaks_it(void **state)
{
    (void)state;
    static client solo[3], c[3], bad;
    k3_engine *engine = open_engine(tiny_model, 0);
    for (int i = 0; i < 3; i++) {
        solo[i] = client_new(text + 1 + i, (size_t)(20 + 60 * i), 30);
        client_solo(&solo[i], engine);
    }
    for (int times = 0; times < 4; times++) {
        srv_scheduler *scheduler = scheduler_open(engine, &plain);
        clients_hold();
        for (int i = 0; i < 3; i++) {
            c[i] = solo[i];
            c[i].n = 0;
            c[i].holds = i == 0;
            client_submit(&c[i], scheduler);
        }
        bad = client_new(text + 9, 90, 10);
        client_submit(&bad, scheduler);
        fail_with = times == 3 ? K3_E_NUMERIC : K3_E_IO;
        fail_shared = times; /* in the prompts, and again */
        failing = text[9];
        clients_go();
        for (int i = 0; i < 3; i++) {
            client_wait(&c[i]);
            client_equal(&c[i], &solo[i]);
        }
        client_wait(&bad);
        failing = -1;
        assert_int_equal(bad.how, SRV_END_ERROR);
        assert_int_equal(bad.err.status, fail_with);
        assert_string_equal(bad.err.text, "made to fail");
        srv_scheduler_close(scheduler);
    }
    k3_engine_close(engine);
}

/* Memory that is short is taken from what is kept, before a request fails. */
static void kept_sessions_make_room(void **state)
{
    (void)state;
    static client c[2], solo;
    k3_engine *engine = open_engine(tiny_model, 0);
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    solo = client_new(text + 2, 50, 10);
    for (int i = 0; i < 2; i++) {
        c[i] = client_new(text + 7 * i, 50, 5);
        client_run(&c[i], scheduler);
    }
    client_run(&solo, scheduler);
    fail_with = K3_E_NOMEM;
    fail_shared = 1;
    clients_hold();
    for (int i = 0; i < 2; i++) {
        c[i] = client_new(text + 2 + 12 * i, 70, 10);
        c[i].holds = i == 0;
        client_submit(&c[i], scheduler);
    }
    clients_go();
    for (int i = 0; i < 2; i++) {
        client_wait(&c[i]);
        assert_int_not_equal(c[i].how, SRV_END_ERROR);
    }
    assert_int_equal(fail_shared, 0);
    c[0] = client_new(text, 50, 5); /* that which was used longest ago has gone */
    client_run(&c[0], scheduler);
    assert_int_equal(c[0].n_cached, 0);
    c[1] = client_new(text + 7, 50, 5);
    client_run(&c[1], scheduler);
    assert_int_equal(c[1].n_cached, 50);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* ---- expert reads ------------------------------------------------------------------------------------------------------ */

static k3_stream_stat run_clients(k3_engine *engine, int at_once, uint64_t *n_tokens)
{
    static client c[4];
    char none[1];
    k3_stream_stat stat;
    srv_limits limits = plain;
    limits.max_running = at_once;
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    k3_engine_stats(engine, none, 0, 1);
    n_distinct = 0;
    *n_tokens = 0;
    clients_hold();
    for (int i = 0; i < 4; i++) {
        c[i] = client_new(text + i, MINI_PROMPT, 40);
        c[i].settings.sampling = (k3_sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)i};
        c[i].holds = i == 0;
        client_submit(&c[i], scheduler);
    }
    clients_go();
    for (int i = 0; i < 4; i++) {
        client_wait(&c[i]);
        *n_tokens += (uint64_t)c[i].n;
    }
    srv_scheduler_close(scheduler);
    k3_experts_stream_stats(engine->experts, &stat);
    return stat;
}

/* An expert is read once for all rows of a pass that want it. */
static void four_clients_read_fewer_expert_bytes_a_token_than_four_alone(void **state)
{
    (void)state;
    k3_engine *engine = open_engine("models/k3-mini", 20000000);
    uint64_t alone_tokens, tokens;
    k3_stream_stat alone = run_clients(engine, 1, &alone_tokens);
    uint64_t alone_distinct = n_distinct;
    k3_stream_stat shared = run_clients(engine, 4, &tokens);
    assert_int_equal(tokens, alone_tokens);
    assert_int_equal(shared.wanted, n_distinct);
    assert_int_equal(alone.wanted, alone_distinct);
    assert_true(shared.wanted * 10 < alone.wanted * 9);
    assert_true((shared.io.bytes + shared.io.guess_bytes) * 10 < (alone.io.bytes + alone.io.guess_bytes) * 9);
    k3_engine_close(engine);
}

static int setup(void **state)
{
    client_text(text, 400);
    return tiny_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pass_that_nobody_wants_ends_with_the_layer),
        cmocka_unit_test(a_pass_that_somebody_wants_goes_on),
        cmocka_unit_test(d01_logits_without_distribution_end_their_request),
        cmocka_unit_test(a_pass_that_breaks_ends_only_what_breaks_it),
        cmocka_unit_test(kept_sessions_make_room),
        cmocka_unit_test(four_clients_read_fewer_expert_bytes_a_token_than_four_alone),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
