/* Streams and whole answers are made of the same events: the model's ids are fed straight into an answer under way, and the stream is taken
 * at random moments. */
#include "fixture.h"
#include "merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/api.h"

static const srv_api *const apis[] = {&srv_api_chat, &srv_api_completions, &srv_api_messages, &srv_api_responses};

#define TOOLS_CHAT "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"get\"}}],"
#define TOOLS_MESSAGES "\"tools\":[{\"name\":\"get\",\"input_schema\":{}}],"
#define TOOLS_RESPONSES "\"tools\":[{\"type\":\"function\",\"name\":\"get\"},{\"type\":\"custom\",\"name\":\"patch\"}],"

static const char *const requests[] = {
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]," TOOLS_CHAT "\"stop\":[\"STOP\",\"\xe4\xb8\x96\xe7\x95\x8c!\"],"
    "\"logprobs\":true,\"top_logprobs\":2,\"stream_options\":{\"include_usage\":true,\"include_internal_content\":true}}",
    "{\"prompt\":\"x\",\"max_tokens\":-1,\"stop\":\"STOP\",\"stream_options\":{\"include_usage\":true}}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":-1," TOOLS_MESSAGES
    "\"thinking\":{\"type\":\"enabled\"},\"stop_sequences\":[\"STOP\"]}",
    "{\"input\":\"x\"," TOOLS_RESPONSES "\"stop\":\"STOP\",\"include\":[\"reasoning.encrypted_content\"]}",
};

/* What the model writes, and what of it is what. */
static const struct scenario {
    const char *text, *reasoning, *content;
    size_t n_calls;
    const char *names, *arguments; /* of all calls, one after the other */
    int is_cut;                    /* the output ends before the message does */
} scenarios[] = {
    {"Let me see." RESPONSE("Hello \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x98\x80.") END, "Let me see.",
     "Hello \xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x98\x80.", 0, "", "", 0},
    {RESPONSE("") END, "", "", 0, "", "", 0},
    {"only thoughts \xc3\xa9", "only thoughts \xc3\xa9", "", 0, "", "", 1},
    {"a" RESPONSE("one STO two STOP three") END, "a", "one STO two ", 0, "", "", 0},
    {RESPONSE("ST") END, "", "ST", 0, "", "", 0},
    {"call" CLOSE("think") CALLS(CALL("get", ARGUMENT("city", "string", "Z\xc3\xbcrich \"x\"") ARGUMENT("n", "number", "1e400"))) END,
     "call", "", 1, "get", "{\"city\": \"Z\xc3\xbcrich \\\"x\\\"\", \"n\": 1e400}", 0},
    {RESPONSE("Two.") CALLS(CALL("get", "") CALL("get", ARGUMENT("a", "boolean", "true"))) END, "", "Two.", 2, "getget", "{}{\"a\": true}",
     0},
    {"x" CLOSE("think") CALLS(CALL("get", "") "<|open|>call tool=\"get\" index=\"2\"<|sep|>"), "x", "", 1, "get", "{}", 1},
    {"text" CLOSE("message") "<|end_of_msg|>", "text", "", 0, "", "", 0},
    {RESPONSE("a\n\tb\"\\\x01") END, "", "a\n\tb\"\\\x01", 0, "", "", 0},
};
static const struct scenario plain[] = {
    {"plain \xe4\xb8\x96\xe7\x95\x8c\xf0\x9f\x98\x80 text", "", "plain \xe4\xb8\x96\xe7\x95\x8c\xf0\x9f\x98\x80 text", 0, "", "", 1},
    {"before STOP after", "", "before ", 0, "", "", 0},
    {"the end[EOS]nothing", "", "the end", 0, "", "", 0},
};

typedef struct running {
    srv_fields fields;
    srv_problem problem;
    srv_ask ask;
    srv_turn *turn;
    srv_reply reply;
    srv_batch batch;
    app_buffer out;
} running;

static void open_running(running *r, const fixture *f, int api)
{
    srv_rules rules = {.engine = f->engine, .context = 8192, .model = "k3-mini"};
    k3_error err;
    *r = (running){0};
    srv_ask_open(&r->ask);
    assert_true(srv_fields_read(&r->fields, requests[api], strlen(requests[api]), &r->problem));
    if (!apis[api]->read(&r->ask, &r->fields, &rules))
        fail_msg("%s", r->problem.text);
    assert_int_equal(srv_turn_open(&r->turn, f->engine, &r->ask, &err), K3_OK);
    srv_reply_open(&r->reply, apis[api], &r->ask, f->engine, "k3-mini");
}

static void close_running(running *r)
{
    srv_turn_close(r->turn);
    srv_reply_free(&r->reply);
    srv_batch_free(&r->batch);
    srv_ask_free(&r->ask);
    srv_fields_free(&r->fields);
    app_buffer_free(&r->out);
}

/* Plays ids; a stream is taken at random moments, a whole answer at the end. */
static void play(running *r, const k3_tokens *ids, int is_stream, int is_cut, unsigned *seed)
{
    srv_sink sink = srv_turn_sink(r->turn);
    int ends = 0;
    sink.begin(sink.user, 1);
    for (size_t i = 0; i < ids->n && !ends; i++) {
        int32_t top_ids[2] = {ids->ids[i], 65};
        float top[2] = {-0.25f, -2.5f};
        srv_token token = {.id = ids->ids[i], .logprob = -0.25f, .top_ids = top_ids, .top_logprobs = top, .n_top = 2};
        ends = sink.token(sink.user, &token);
        if (is_stream && rand_r(seed) % 3 == 0)
            assert_int_equal(srv_reply_pump(&r->reply, r->turn, &r->batch, &r->out), 0);
    }
    assert_true(ends || is_cut);
    sink.end(sink.user, ends ? SRV_END_STOP : SRV_END_LENGTH, NULL);
    assert_int_equal(srv_reply_pump(&r->reply, r->turn, &r->batch, is_stream ? &r->out : NULL), 1);
    if (!is_stream)
        r->reply.api->whole(&r->reply, &r->out);
}

static void check_scenario(const merged *m, const struct scenario *s, int api)
{
    app_buffer names = {0}, arguments = {0};
    assert_string_equal(m->reasoning.n ? m->reasoning.text : "", s->reasoning);
    assert_string_equal(m->content.n ? m->content.text : "", s->content);
    assert_int_equal(m->n_calls, s->n_calls);
    app_buffer_text(&names, "");
    for (size_t i = 0; i < m->n_calls; i++) {
        char id[16];
        snprintf(id, sizeof id, "get_%zu", i);
        assert_string_equal(m->calls[i].id.text, id);
        app_buffer_text(&names, m->calls[i].name.text);
        app_buffer_text(&arguments, m->calls[i].arguments.text);
    }
    assert_string_equal(names.text, s->names);
    assert_string_equal(arguments.n ? arguments.text : "", s->arguments);
    int is_stopped = strstr(s->text, "STOP") != NULL;
    const char *const finishes[MERGE_APIS][4] = {{"\"stop\"", "\"length\"", "\"tool_calls\"", "\"stop\""},
                                                 {"\"stop\"", "\"length\"", "", "\"stop\""},
                                                 {"\"end_turn\"", "\"max_tokens\"", "\"tool_use\"", "\"stop_sequence\"STOP"},
                                                 {"\"completed\"", "\"incomplete\"", "\"completed\"", "\"completed\""}};
    assert_string_equal(m->finish.text, finishes[api][s->n_calls ? 2 : is_stopped ? 3 : s->is_cut]);
    app_buffer_free(&names);
    app_buffer_free(&arguments);
}

/* The ids that come with the pieces are those of the model, none twice and none missing, up to the last piece. */
static void check_internal(const merged *m, const k3_tokens *ids)
{
    app_buffer all = {0};
    for (size_t i = 0; i < ids->n; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d,", ids->ids[i]);
        app_buffer_text(&all, id);
    }
    assert_true(m->internal.n > 0 || (!m->content.n && !m->reasoning.n && !m->n_calls));
    if (m->internal.n)
        assert_memory_equal(m->internal.text, all.text, m->internal.n);
    app_buffer_free(&all);
}

/* Case C02: one state machine: 1,000 streams that were cut at random, tokens and moments, equal the whole answers of the same tokens. C01,
 * C08, C12, C13, C25, C28, C33, E29, E34, E35 and E36 are among the scenarios; the stream's own rules are checked by merge_stream. B07: no
 * piece holds a part of a character. */
static void c02_a_thousand_random_cuts(void **state)
{
    fixture *f = *state;
    unsigned seed = 7;
    for (int i = 0; i < 1000; i++) {
        int api = i % MERGE_APIS;
        const struct scenario *s = api == MERGE_COMPLETIONS ? &plain[i / 4 % (sizeof plain / sizeof *plain)]
                                                            : &scenarios[i / 4 % (sizeof scenarios / sizeof *scenarios)];
        k3_tokens ids = {0};
        running streamed, whole;
        merged a = {0}, b = {0};
        fixture_ids(f, &ids, s->text, &seed);
        open_running(&streamed, f, api);
        open_running(&whole, f, api);
        play(&streamed, &ids, 1, s->is_cut, &seed);
        play(&whole, &ids, 0, s->is_cut, &seed);
        merge_stream(&a, (merge_api)api, streamed.out.text);
        merge_whole(&b, (merge_api)api, whole.out.text);
        assert_merged_equal(&a, &b);
        check_scenario(&a, s, api);
        if (api == MERGE_CHAT)
            check_internal(&a, &ids);
        close_running(&streamed);
        close_running(&whole);
        merged_free(&a);
        merged_free(&b);
        k3_tokens_free(&ids);
    }
}

/* Case D21: one entry for each token of the content, with its bytes and as many alternatives as were asked for. */
static void d21_log_probabilities_belong_to_the_tokens_of_the_content(void **state)
{
    fixture *f = *state;
    for (unsigned seed = 1; seed < 20; seed++) {
        static const char text[] = "a \xf0\x9f\x98\x80 b";
        unsigned cuts = seed;
        k3_tokens ids = {0};
        running r;
        merged m = {0};
        app_buffer bytes = {0};
        fixture_ids(f, &ids, "thoughts" RESPONSE("a \xf0\x9f\x98\x80 b") END, &cuts);
        open_running(&r, f, MERGE_CHAT);
        play(&r, &ids, 1, 0, &cuts);
        merge_stream(&m, MERGE_CHAT, r.out.text);
        app_buffer list = {0};
        app_buffer_text(&list, "[");
        app_buffer_add(&list, m.logprobs.text, m.logprobs.n);
        app_buffer_text(&list, "]");
        app_json entry, byte;
        for (size_t at = 0; app_json_next(NULL, &entry, &at, merge_json(list.text));) {
            assert_non_null(merge_at(entry, "top_logprobs.1").text);
            assert_null(merge_at(entry, "top_logprobs.2").text);
            for (size_t i = 0; app_json_next(NULL, &byte, &i, app_json_get(entry, "bytes"));) {
                int64_t value;
                assert_true(app_json_int(byte, &value));
                app_buffer_add(&bytes, (char[1]){(char)value}, 1);
            }
        }
        assert_string_equal(bytes.text, text);
        app_buffer_free(&bytes);
        app_buffer_free(&list);
        merged_free(&m);
        close_running(&r);
        k3_tokens_free(&ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c02_a_thousand_random_cuts),
        cmocka_unit_test(d21_log_probabilities_belong_to_the_tokens_of_the_content),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
