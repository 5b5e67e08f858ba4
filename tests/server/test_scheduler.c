/* Many requests on one engine: a tiny checkpoint on the CPU, whose bits do not depend on what rows stand beside each other. */
#include "server/clients.h"
#include "support/tiny_checkpoint.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { V = TINY_VOCAB, LONG = 300 };

static const srv_limits plain = {.max_running = 8, .max_waiting = 64, .mark_interval = 64, .cache_bytes = 64 << 20};
static int32_t text[4 * LONG]; /* ids, no end of a message among them */

static k3_engine *open_engine(void)
{
    k3_engine *engine;
    k3_error err;
    must(k3_engine_open(&engine, tiny_model, &(k3_config){.backend = "cpu", .threads = 2, .chunk_rows = 64}, &err), &err);
    return engine;
}

/* ---- shared passes ----------------------------------------------------------------------------------------------------- */

enum { CLIENTS = 8 };

/* Prompts of 1 to 200 tokens, some that begin alike; greedy and seeded, with penalties and without. */
static client make_client(int i)
{
    static const size_t lengths[CLIENTS] = {1, 200, 17, 64, 65, 130, 3, 200};
    client c = client_new(text + (i % 4) * 7, lengths[i], 6 + i);
    if (i % 2)
        c.settings.sampling = (k3_sampling){.temperature = 1, .top_p = 0.95f, .top_k = 40, .seed = 100 + (uint64_t)i};
    if (i % 3 == 0)
        c.settings.adjust = (k3_adjustment){.repetition = 1.3f, .presence = 0.2f, .window = -1};
    c.settings.n_top = i == 5 ? 3 : -1;
    return c;
}

static void eight_requests_at_once_equal_their_solo_runs(void **state)
{
    (void)state;
    static client solo[CLIENTS], got[CLIENTS];
    static const int orders[3][CLIENTS] = {{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 7, 1, 6, 2, 5, 4}};
    k3_engine *engine = open_engine();
    for (int i = 0; i < CLIENTS; i++) {
        solo[i] = make_client(i);
        client_solo(&solo[i], engine);
    }
    for (int o = 0; o < 3; o++) {
        srv_limits limits = plain;
        limits.cache_bytes = o == 2 ? 0 : limits.cache_bytes;
        srv_scheduler *scheduler = scheduler_open(engine, &limits);
        uint64_t rows = 0;
        clients_hold();
        for (int k = 0; k < CLIENTS; k++) {
            client *c = &got[orders[o][k]];
            *c = make_client(orders[o][k]);
            c->holds = k == 0;
            client_submit(c, scheduler);
        }
        clients_go();
        for (int i = 0; i < CLIENTS; i++) {
            client_wait(&got[i]);
            client_equal(&got[i], &solo[i]);
            assert_int_equal(got[i].how, solo[i].ids[solo[i].n - 1] == 255 ? SRV_END_STOP : SRV_END_LENGTH);
            assert_int_equal(got[i].n_done, got[i].settings.n);
            rows += got[i].settings.n - (uint64_t)got[i].n_cached + (uint64_t)got[i].n - 1;
        }
        srv_counts counts;
        srv_count(scheduler, &counts);
        assert_int_equal(counts.rows, rows);
        assert_true(counts.passes * 6 < rows);
        assert_true(counts.requests == CLIENTS && !counts.failed && !counts.cancelled && !counts.running && !counts.waiting);
        srv_scheduler_close(scheduler);
    }
    k3_engine_close(engine);
}

/* A short prompt beside a long one is computed first; a long one beside a request that decodes stops it in no pass. */
static void prompts_share_passes_with_each_other_and_with_tokens(void **state)
{
    (void)state;
    static client first, rest, brief;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    clients_hold();
    rest = client_new(text, 2 * LONG, 2);
    brief = client_new(text + 1, 40, 2);
    rest.holds = 1;
    brief.other = &rest;
    client_submit(&rest, scheduler);
    client_submit(&brief, scheduler);
    clients_go();
    client_wait(&rest);
    client_wait(&brief);
    assert_true(brief.other_done <= 64);

    clients_hold();
    first = client_new(text + 1, 20, 100);
    first.settings.adjust = (k3_adjustment){.bias_ids = (int32_t[]){255}, .biases = (float[]){-100}, .n_biases = 1};
    rest = client_new(text + 2, 2 * LONG, 2);
    first.holds = 1;
    rest.other = &first;
    client_submit(&first, scheduler);
    client_submit(&rest, scheduler);
    clients_go();
    client_wait(&rest);
    srv_cancel(first.job);
    client_wait(&first);
    assert_true(rest.other_n >= 2 * LONG / 16 - 2); /* a quarter of 64 rows are for the prompt */
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* Case E30: prompts that come together and begin alike compute that beginning once, whichever comes first. */
static void e30_equal_beginnings_are_computed_once(void **state)
{
    (void)state;
    static int32_t ids[5][LONG];
    static client c[5], solo;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    clients_hold();
    for (int i = 0; i < 5; i++) {
        memcpy(ids[i], text, LONG * sizeof *text);
        ids[i][i < 3 ? 240 : LONG - 1] += (i + 1) / 2; /* 1 and 2 are equal, and so are 3 and 4 */
        c[i] = client_new(ids[i], LONG, 12);
        c[i].holds = i == 0;
        c[i].settings.sampling = (k3_sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)i};
        client_submit(&c[i], scheduler);
    }
    clients_go();
    for (int i = 0; i < 5; i++)
        client_wait(&c[i]);
    assert_int_equal(c[0].n_cached, 0);
    assert_int_equal(c[1].n_cached, 240);
    for (int i = 2; i < 5; i++) /* up to some tokens that are not worth waiting for */
        assert_true(c[i].n_cached > LONG - 33);
    srv_scheduler_close(scheduler);
    for (int i = 0; i < 5; i++) {
        solo = c[i];
        client_solo(&solo, engine);
        client_equal(&c[i], &solo);
    }
    k3_engine_close(engine);
}

/* ---- cancelling -------------------------------------------------------------------------------------------------------- */

/* Case E44: A runs, B waits and hangs up; A's answer is that of a solo run. So with B beside A. */
static void e44_the_end_of_one_request_is_no_end_of_another(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    static client solo, a, b;
    solo = client_new(text + 1, 40, 30);
    client_solo(&solo, engine);
    for (int beside = 0; beside < 2; beside++) {
        srv_limits limits = plain;
        limits.max_running = 1 + beside;
        srv_scheduler *scheduler = scheduler_open(engine, &limits);
        a = client_new(text + 1, 40, 30);
        b = client_new(text + 9, 80, 30);
        a.holds = 1;
        b.cancel_after = beside ? 5 : 0;
        clients_hold();
        client_submit(&a, scheduler);
        client_submit(&b, scheduler);
        if (!beside)
            srv_cancel(b.job);
        clients_go();
        client_wait(&b);
        client_wait(&a);
        client_equal(&a, &solo);
        assert_int_equal(a.how, SRV_END_LENGTH);
        assert_int_equal(b.how, SRV_END_CANCELLED);
        assert_int_equal(b.n_begins, beside);
        assert_int_equal(b.n, beside ? 5 : 0);
        srv_counts counts;
        srv_count(scheduler, &counts);
        assert_int_equal(counts.cancelled, 1);
        srv_scheduler_close(scheduler);
    }
    k3_engine_close(engine);
}

/* Case E04: the client leaves in the prefill; the retry begins with all chunks that were finished. */
static void e04_a_prompt_that_was_cancelled_keeps_its_finished_chunks(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    static client solo, cut, again;
    solo = client_new(text, LONG, 8);
    client_solo(&solo, engine);
    srv_limits limits = plain;
    limits.mark_interval = 1000; /* so that it is the chunk's end that is kept */
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    cut = client_new(text, LONG, 8);
    cut.cancel_done = 90;
    client_run(&cut, scheduler);
    assert_int_equal(cut.how, SRV_END_CANCELLED);
    assert_int_equal(cut.n, 0);
    assert_int_equal(cut.n_done, 128); /* two passes of 64 rows */
    again = client_new(text, LONG, 8);
    client_run(&again, scheduler);
    assert_int_equal(again.n_cached, 128);
    client_equal(&again, &solo);
    static int32_t ids[LONG]; /* of a prompt that was computed to its end the ends of chunks are not kept */
    memcpy(ids, text, sizeof ids);
    ids[280]++;
    cut = client_new(ids, LONG, 1);
    client_run(&cut, scheduler);
    assert_int_equal(cut.n_cached, 128);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* Case E54: idle means idle, after twenty clients that left. */
static void e54_nothing_runs_when_all_clients_have_left(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    static client c[20];
    for (int i = 0; i < 20; i++) {
        c[i] = client_new(text + i, 50, 200);
        if (i % 3 == 0)
            c[i].cancel_done = 1;
        else
            c[i].cancel_after = i;
        client_submit(&c[i], scheduler);
    }
    for (int i = 0; i < 20; i++) {
        client_wait(&c[i]);
        assert_true(c[i].how == SRV_END_CANCELLED || c[i].ids[c[i].n - 1] == 255);
    }
    srv_counts before, after;
    struct timespec cpu[2], nap = {0, 50000000};
    srv_count(scheduler, &before);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[0]);
    nanosleep(&nap, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu[1]);
    srv_count(scheduler, &after);
    assert_true(!after.running && !after.waiting);
    assert_int_equal(after.passes, before.passes);
    assert_true((cpu[1].tv_sec - cpu[0].tv_sec) * 1000000000 + cpu[1].tv_nsec - cpu[0].tv_nsec < 25000000);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

static void closing_ends_what_runs_and_waits(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    srv_limits limits = plain;
    limits.max_running = 2;
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    static client c[5];
    for (int i = 0; i < 5; i++) {
        c[i] = client_new(text + i, 200, 0);
        client_submit(&c[i], scheduler);
    }
    srv_scheduler_close(scheduler);
    for (int i = 0; i < 5; i++) {
        client_wait(&c[i]);
        assert_true(c[i].how == SRV_END_CANCELLED || c[i].ids[c[i].n - 1] == 255);
    }
    k3_engine_close(engine);
}

/* ---- prefixes ---------------------------------------------------------------------------------------------------------- */

/* The next turn of a conversation: the prompt, the answer, and `n_new` tokens more. */
static size_t next_turn(int32_t *out, const client *c, size_t n_new)
{
    size_t n = c->settings.n;
    memmove(out, c->settings.ids, n * sizeof *out);
    memcpy(out + n, c->ids, (size_t)c->n * sizeof *out);
    n += (size_t)c->n;
    for (size_t i = 0; i < n_new; i++)
        out[n + i] = text[2 * LONG + n + i];
    return n + n_new;
}

/* Cases C20, E53, I08: a second turn computes what is new; an edited last message computes that message; a branch of the conversation, or
 * one that only begins like it, computes what lies behind the last mark. Every answer is that of a solo run. */
static void c20_e53_i08_turns_edits_and_branches_reuse_what_is_equal(void **state)
{
    (void)state;
    enum { INTERVAL = 64 };
    static int32_t ids[4][2 * LONG];
    static client c[6], solo;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    c[0] = client_new(text, LONG, 20);
    client_run(&c[0], scheduler);
    assert_int_equal(c[0].n_cached, 0);

    size_t n = next_turn(ids[0], &c[0], 15);
    c[1] = client_new(ids[0], n, 20);
    client_run(&c[1], scheduler);
    assert_int_equal(c[1].n_cached, n - 15 - 1); /* the last token of an answer is in no session yet */
    assert_true(c[1].n_cached * 100 > 95 * (int64_t)(c[0].settings.n + (size_t)c[0].n));

    memcpy(ids[1], ids[0], sizeof ids[1]); /* the last message, edited */
    ids[1][n - 10] = (ids[1][n - 10] + 1) % 250;
    c[2] = client_new(ids[1], n, 20);
    client_run(&c[2], scheduler);
    assert_int_equal(c[2].n_cached, n - 15 - 1);

    c[3] = client_new(ids[0], n, 20); /* the same again: nothing is to be computed */
    client_run(&c[3], scheduler);
    assert_int_equal(c[3].n_cached, n);
    client_equal(&c[3], &c[1]);

    memcpy(ids[2], text, LONG * sizeof *text); /* alike for 250 tokens only */
    ids[2][250] = (ids[2][250] + 1) % 250;
    c[4] = client_new(ids[2], LONG, 20);
    client_run(&c[4], scheduler);
    assert_int_equal(c[4].n_cached, 250 / INTERVAL * INTERVAL);
    memcpy(ids[3], text, LONG * sizeof *text); /* and for these there is a mark since */
    ids[3][250] = (ids[3][250] + 2) % 250;
    c[5] = client_new(ids[3], LONG, 20);
    client_run(&c[5], scheduler);
    assert_int_equal(c[5].n_cached, 250);

    srv_counts counts;
    srv_count(scheduler, &counts);
    uint64_t cached = 0, computed = 0;
    for (int i = 0; i < 6; i++) {
        cached += (uint64_t)c[i].n_cached;
        computed += c[i].settings.n - (uint64_t)c[i].n_cached + (uint64_t)c[i].n - 1;
    }
    assert_int_equal(counts.cached_tokens, cached);
    assert_int_equal(counts.rows, computed);
    srv_scheduler_close(scheduler);
    for (int i = 0; i < 6; i++) {
        solo = c[i];
        client_solo(&solo, engine);
        client_equal(&c[i], &solo);
    }
    k3_engine_close(engine);
}

/* Case E30: clients at the same time share a long beginning with one that runs. */
static void e30_a_prompt_shares_what_a_running_request_has_computed(void **state)
{
    (void)state;
    static int32_t ids[3][LONG];
    static client c[3], solo;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    srv_counts counts = {0};
    for (int i = 0; i < 3; i++) {
        memcpy(ids[i], text, LONG * sizeof *text);
        ids[i][290] = i;
        c[i] = client_new(ids[i], LONG, i ? 20 : 350);
    }
    client_submit(&c[0], scheduler);
    while (!counts.new_tokens)
        srv_count(scheduler, &counts);
    client_run(&c[1], scheduler);
    assert_int_equal(c[1].n_cached, 256);
    client_run(&c[2], scheduler); /* there is a mark where the prompts part since */
    assert_int_equal(c[2].n_cached, 290);
    srv_cancel(c[0].job);
    client_wait(&c[0]);
    srv_scheduler_close(scheduler);
    for (int i = 0; i < 3; i++) {
        solo = c[i];
        solo.settings.max_tokens = c[i].n;
        client_solo(&solo, engine);
        client_equal(&c[i], &solo);
    }
    k3_engine_close(engine);
}

/* Case D16: penalties count the prompt, whatever of it was computed before, and for whom. */
static void d16_penalties_do_not_depend_on_what_was_kept(void **state)
{
    (void)state;
    static client c[3], other, solo;
    k3_engine *engine = open_engine();
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    for (int i = 0; i < 3; i++) {
        c[i] = client_new(text, 150, 40);
        c[i].settings.adjust = (k3_adjustment){.repetition = 1.5f, .presence = 0.5f, .frequency = 0.5f, .window = -1};
        client_run(&c[i], scheduler);
        assert_int_equal(c[i].n_cached, i ? 150 : 0);
        client_equal(&c[i], &c[0]);
        other = client_new(text + i, 150, 10);
        client_run(&other, scheduler);
    }
    srv_scheduler_close(scheduler);
    solo = c[0];
    client_solo(&solo, engine);
    client_equal(&c[0], &solo);
    other = client_new(text, 150, 40); /* they do something */
    client_solo(&other, engine);
    assert_true(other.n != solo.n || memcmp(other.ids, solo.ids, (size_t)solo.n * sizeof *solo.ids));
    k3_engine_close(engine);
}

static void kept_sessions_stay_within_their_bytes(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    k3_session *session;
    k3_error err;
    must(k3_session_open(&session, engine, &err), &err);
    must(k3_session_append(session, text, 250, &err), &err);
    must(k3_session_mark(session, &err), &err);
    must(k3_session_append(session, text + 250, 4, &err), &err);
    must(k3_session_mark(session, &err), &err);
    srv_limits limits = plain;
    limits.cache_bytes = k3_session_bytes(session) * 5 / 2; /* two of them, with no more than their last marks */
    k3_session_close(session);
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) { /* the third takes the place of the first, and so on */
            client c = client_new(text + 20 * i, 250, 4);
            client_run(&c, scheduler);
            assert_int_equal(c.n_cached, 0);
        }
    for (int i = 2; i >= 1; i--) {
        client c = client_new(text + 20 * i, 250, 4);
        client_run(&c, scheduler);
        assert_int_equal(c.n_cached, 250);
    }
    srv_scheduler_close(scheduler);
    limits.cache_bytes = 0;
    scheduler = scheduler_open(engine, &limits);
    for (int i = 0; i < 2; i++) {
        client c = client_new(text, 250, 4);
        client_run(&c, scheduler);
        assert_int_equal(c.n_cached, 0);
    }
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

/* ---- ends and refusals ------------------------------------------------------------------------------------------------- */

static void answers_end_where_they_should(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    srv_limits limits = plain;
    limits.context = 60;
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    client c = client_new(text, 50, 7);
    client_run(&c, scheduler);
    assert_true(c.how == SRV_END_LENGTH && c.n == 7);
    c = client_new(text, 50, 0);
    client_run(&c, scheduler);
    assert_true(c.how == SRV_END_LENGTH && c.n == 10);
    c = client_new(text, 50, 7);
    c.stop_after = 3;
    client_run(&c, scheduler);
    assert_true(c.how == SRV_END_STOP && c.n == 3);
    c = client_new(text, 50, 7); /* the end of the message, as likely as can be */
    c.settings.adjust = (k3_adjustment){.bias_ids = (int32_t[]){255}, .biases = (float[]){100}, .n_biases = 1};
    client_run(&c, scheduler);
    assert_true(c.how == SRV_END_STOP && c.n == 1 && c.ids[0] == 255);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

static void what_cannot_be_done_is_refused_at_once(void **state)
{
    (void)state;
    k3_engine *engine = open_engine();
    srv_limits limits = plain;
    limits.context = 60;
    limits.max_running = 1;
    limits.max_waiting = 2;
    srv_scheduler *scheduler = scheduler_open(engine, &limits), *none;
    srv_sink sink = {0};
    srv_job *job;
    k3_error err;
    int32_t bad[] = {1, V, -1};
    client c = client_new(text, 0, 1);
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "no tokens");
    c = client_new(text, 60, 1);
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "context of 60");
    for (size_t i = 0; i < 2; i++) {
        c = client_new(bad + i, 2, 1);
        refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "outside the vocabulary");
    }
    c = client_new(text, 4, 1);
    c.settings.n_top = 21;
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "21 alternatives");
    c.settings.n_top = -1;
    c.settings.sampling.temperature = -1;
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "temperature");
    c.settings.sampling.temperature = 0;
    c.settings.adjust.repetition = -1;
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_INVALID, &err, "repetition");
    assert_null(job);

    static client waits[3];
    clients_hold();
    for (int i = 0; i < 3; i++) {
        waits[i] = client_new(text, 4, 2);
        waits[i].holds = 1;
        client_submit(&waits[i], scheduler);
    }
    c.settings.adjust.repetition = 0;
    refused(srv_submit(&job, scheduler, &c.settings, &sink, &err), K3_E_NOMEM, &err, "3 requests run and wait");
    clients_go();
    for (int i = 0; i < 3; i++)
        client_wait(&waits[i]);
    srv_counts counts;
    srv_count(scheduler, &counts);
    assert_true(counts.refused == 1 && counts.requests == 3);
    srv_scheduler_close(scheduler);

    limits.max_running = 0;
    refused(srv_scheduler_open(&none, engine, &limits, &err), K3_E_INVALID, &err, "0 running");
    limits = plain;
    limits.cache_folder = "/dev/null/none";
    refused(srv_scheduler_open(&none, engine, &limits, &err), K3_E_IO, &err, "/dev/null/none");
    k3_engine_close(engine);
}

/* ---- trouble ----------------------------------------------------------------------------------------------------------- */

static void set_f32(tiny_checkpoint *tiny, const char *name, const float *values, int n)
{
    memcpy(tiny_find(tiny, name)->data, values, (size_t)n * sizeof *values);
}

/* A model with an expert of overflowing weights in its second layer, which token 251 alone is routed to: its embedding is large in the
 * first place, and so is the router's row of that expert; the others are 0 and chosen by the lowest id. */
static char *damaged_model(void)
{
    enum { LAST = TINY_EXPERTS - 1 };
    float bias[TINY_EXPERTS] = {0};
    bias[LAST] = -0.4999f; /* sigmoid(x0) less that is above the others' sigmoid(0) for x0 > 9.2; 11.3 is the most, which that token has */
    tiny_checkpoint *tiny = tiny_new(2);
    unsigned char *row = tiny_find(tiny, TINY_BODY "embed_tokens.weight")->data + 2 * 251 * TINY_HIDDEN;
    memset(row, 0, 2 * TINY_HIDDEN);
    row[1] = 0x47; /* 32768 */
    tiny_tensor *router = tiny_find(tiny, TINY_BODY "layers.1.block_sparse_moe.gate.weight");
    memset(router->data, 0, router->n_bytes);
    router->data[router->n_bytes - 2 * TINY_HIDDEN + 1] = 0x3f;
    router->data[router->n_bytes - 2 * TINY_HIDDEN] = 0x80; /* 1 */
    set_f32(tiny, TINY_BODY "layers.1.block_sparse_moe.gate.e_score_correction_bias", bias, TINY_EXPERTS);
    tiny_tensor *scale = tiny_find(tiny, TINY_BODY "layers.1.block_sparse_moe.experts.7.w2.weight_scale");
    memset(scale->data, 254, scale->n_bytes);
    return tiny_settle(tiny);
}

/* Does not say token 251. */
static client careful_client(const int32_t *ids)
{
    static const int32_t id = 251;
    static const float least = -100;
    client c = client_new(ids, 100, 25);
    c.settings.adjust = (k3_adjustment){.bias_ids = &id, .biases = &least, .n_biases = 1};
    return c;
}

/* Case D01: what is no number ends the request that has it, wherever in the prompt it is; those beside it answer as in a solo run, and so
 * does the next one with the same beginning. */
static void d01_what_is_no_number_ends_one_request(void **state)
{
    (void)state;
    static int32_t ids[3][150];
    static client good[2], solo[2], bad[3], next;
    char *damaged = damaged_model();
    k3_engine *engine;
    k3_error err;
    must(k3_engine_open(&engine, damaged, &(k3_config){.backend = "cpu", .threads = 2, .chunk_rows = 64}, &err), &err);
    for (int i = 0; i < 2; i++) {
        solo[i] = careful_client(text + 5 * i);
        client_solo(&solo[i], engine);
    }
    srv_scheduler *scheduler = scheduler_open(engine, &plain);
    static const int places[3] = {149, 20, 80};
    clients_hold();
    for (int i = 0; i < 2; i++) {
        good[i] = careful_client(text + 5 * i);
        good[i].holds = i == 0;
        client_submit(&good[i], scheduler);
    }
    for (int i = 0; i < 3; i++) {
        memcpy(ids[i], text, sizeof ids[i]);
        ids[i][places[i]] = 251;
        bad[i] = client_new(ids[i], 150, 10);
        client_submit(&bad[i], scheduler);
    }
    clients_go();
    for (int i = 0; i < 3; i++) {
        client_wait(&bad[i]);
        assert_int_equal(bad[i].how, SRV_END_ERROR);
        assert_int_equal(bad[i].err.status, K3_E_NUMERIC);
        assert_int_equal(bad[i].n, 0);
    }
    for (int i = 0; i < 2; i++) {
        client_wait(&good[i]);
        client_equal(&good[i], &solo[i]);
    }
    next = careful_client(text);
    client_run(&next, scheduler);
    assert_int_equal(next.n_cached, 100);
    client_equal(&next, &solo[0]);
    bad[0].n = bad[0].n_ends = bad[0].n_begins = 0;
    client_submit(&bad[0], scheduler);
    client_wait(&bad[0]);
    assert_int_equal(bad[0].how, SRV_END_ERROR);
    srv_counts counts;
    srv_count(scheduler, &counts);
    assert_int_equal(counts.failed, 4);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
    tiny_remove_folder(damaged);
}

/* ---- everything at once ------------------------------------------------------------------------------------------------ */

static uint64_t next_random(uint64_t *seed, uint64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % n;
}

/* Requests that come, are cancelled and are let go of in any order: each ends once, with a beginning of its solo run's answer. */
static void a_thousand_random_operations_mix_nothing_up(void **state)
{
    (void)state;
    enum { KINDS = 6, SLOTS = 12 };
    static client solo[KINDS], c[SLOTS];
    int kind[SLOTS];
    k3_engine *engine = open_engine();
    srv_limits limits = plain;
    uint64_t seed = 7, n_submitted = 0;
    for (int i = 0; i < KINDS; i++) {
        solo[i] = client_new(text + 3 * (i / 2), (size_t)(8 + 12 * i), 8);
        if (i % 2)
            solo[i].settings.sampling = (k3_sampling){.temperature = 1, .top_p = 1, .seed = (uint64_t)i};
        client_solo(&solo[i], engine);
    }
    limits.max_running = 4;
    limits.cache_bytes = 1 << 20;
    srv_scheduler *scheduler = scheduler_open(engine, &limits);
    for (int step = 0; step < 1000; step++) {
        int i = (int)next_random(&seed, SLOTS), what = (int)next_random(&seed, 3);
        if (!c[i].job && what == 0) {
            kind[i] = (int)next_random(&seed, KINDS);
            c[i] = client_new(solo[kind[i]].settings.ids, solo[kind[i]].settings.n, 8);
            c[i].settings.sampling = solo[kind[i]].settings.sampling;
            c[i].cancel_after = next_random(&seed, 4) ? 0 : 1 + (int)next_random(&seed, 8);
            client_submit(&c[i], scheduler);
            n_submitted++;
        } else if (c[i].job && what == 1) {
            srv_cancel(c[i].job);
        } else if (c[i].job && what == 2) {
            client_wait(&c[i]);
            assert_true(c[i].how != SRV_END_ERROR && (c[i].how == SRV_END_CANCELLED || c[i].n == solo[kind[i]].n));
            assert_memory_equal(c[i].ids, solo[kind[i]].ids, (size_t)c[i].n * sizeof *c[i].ids);
        }
    }
    for (int i = 0; i < SLOTS; i++)
        if (c[i].job)
            client_wait(&c[i]);
    srv_counts counts;
    srv_count(scheduler, &counts);
    assert_int_equal(counts.requests, n_submitted);
    assert_true(!counts.running && !counts.waiting && !counts.failed);
    srv_scheduler_close(scheduler);
    k3_engine_close(engine);
}

static int setup(void **state)
{
    client_text(text, 4 * LONG);
    return tiny_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_requests_at_once_equal_their_solo_runs),
        cmocka_unit_test(prompts_share_passes_with_each_other_and_with_tokens),
        cmocka_unit_test(e30_equal_beginnings_are_computed_once),
        cmocka_unit_test(e44_the_end_of_one_request_is_no_end_of_another),
        cmocka_unit_test(e04_a_prompt_that_was_cancelled_keeps_its_finished_chunks),
        cmocka_unit_test(e54_nothing_runs_when_all_clients_have_left),
        cmocka_unit_test(closing_ends_what_runs_and_waits),
        cmocka_unit_test(c20_e53_i08_turns_edits_and_branches_reuse_what_is_equal),
        cmocka_unit_test(e30_a_prompt_shares_what_a_running_request_has_computed),
        cmocka_unit_test(d16_penalties_do_not_depend_on_what_was_kept),
        cmocka_unit_test(kept_sessions_stay_within_their_bytes),
        cmocka_unit_test(answers_end_where_they_should),
        cmocka_unit_test(what_cannot_be_done_is_refused_at_once),
        cmocka_unit_test(d01_what_is_no_number_ends_one_request),
        cmocka_unit_test(a_thousand_random_operations_mix_nothing_up),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
