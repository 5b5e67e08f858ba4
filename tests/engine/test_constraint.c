/* A constraint on the bundled model: answers of the shape that a request asks for, by the public interface alone. */
#include "base/json.h"
#include "k3.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static k3_engine *engine;

typedef struct talk {
    char content[4000], name[100], arguments[2000];
    int n_calls;
} talk;

static void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    talk *t = user;
    char *out = kind == K3_CHAT_CONTENT ? t->content : kind == K3_CHAT_CALL ? t->name : kind == K3_CHAT_ARGUMENTS ? t->arguments : NULL;
    (void)index;
    if (out)
        strncat(out, text, n);
    t->n_calls += kind == K3_CHAT_CALL_END;
}

/* The greedy answer, held to the request or not. */
static const char *answer(talk *t, const char *request, int is_held)
{
    k3_tokens ids = {0};
    k3_error err = {0};
    int thinking, done = 0;
    k3_session *session;
    k3_constraint *constraint = NULL;
    k3_chat_parser *parser;
    k3_sampler *sampler;
    const size_t n = (size_t)k3_engine_info(engine)->vocab_size;
    float *logits = malloc(n * sizeof *logits);
    assert_non_null(logits);
    *t = (talk){0};
    assert_int_equal(k3_chat_render(engine, &ids, &thinking, request, &err), K3_OK);
    if (is_held)
        assert_int_equal(k3_constraint_open(&constraint, engine, request, thinking, &err), K3_OK);
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    assert_int_equal(k3_chat_parser_open(&parser, engine, thinking, collect, t, &err), K3_OK);
    assert_int_equal(k3_sampler_open(&sampler, &(k3_sampling){.top_p = 1}, &err), K3_OK);
    for (int i = 0; i < 300 && !done; i++) {
        int32_t id;
        const int32_t *next = i == 0 ? ids.ids : &id;
        assert_int_equal(k3_session_append(session, next, i == 0 ? ids.n : 1, &err), K3_OK);
        memcpy(logits, k3_session_logits(session), n * sizeof *logits);
        if (constraint)
            assert_int_equal(k3_constraint_narrow(constraint, logits, n, &err), K3_OK);
        assert_int_equal(k3_sampler_pick(sampler, &id, logits, n, &err), K3_OK);
        if (constraint)
            assert_int_equal(k3_constraint_push(constraint, id, &err), K3_OK);
        assert_int_equal(k3_chat_parser_push(parser, id, &done, &err), K3_OK);
        ids.ids[0] = id;
    }
    const char *finish = k3_chat_parser_finish(parser);
    k3_chat_parser_close(parser);
    k3_constraint_close(constraint);
    k3_sampler_close(sampler);
    k3_session_close(session);
    k3_tokens_free(&ids);
    free(logits);
    return finish;
}

static const k3_json *read(const char *text)
{
    const k3_json *value;
    if (k3_json_parse(&value, text, strlen(text), 0, NULL) != K3_OK)
        fail_msg("no JSON: %s", text);
    return value;
}

#define ADD                                                                                                                                \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"add\",\"parameters\":{\"type\":\"object\",\"properties\":{\"a\":{"         \
    "\"type\":"                                                                                                                            \
    "\"integer\",\"minimum\":0,\"maximum\":999},\"b\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":999},\"note\":{\"type\":\"string\"," \
    "\"maxLength\":12}},\"required\":[\"a\",\"b\",\"note\"]}}}]"

/* Case C33: a question that the model answers in words becomes a call when one is required, thinking on and off. */
static void c33_required_gives_a_typed_call(void **state)
{
    (void)state;
    for (int thinking = 0; thinking < 2; thinking++) {
        char request[1000];
        talk t;
        snprintf(request, sizeof request,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],\"thinking\":%s,"
                 "\"tool_choice\":\"required\",\"parallel_tool_calls\":false," ADD "}",
                 thinking ? "true" : "false");
        assert_string_equal(answer(&t, request, 1), "tool_calls");
        assert_int_equal(t.n_calls, 1);
        assert_string_equal(t.name, "add");
        assert_string_equal(t.content, "");
        const k3_json *arguments = read(t.arguments), *note = k3_json_get(arguments, "note");
        int64_t a, b;
        assert_true(k3_json_int(k3_json_get(arguments, "a"), &a) && k3_json_int(k3_json_get(arguments, "b"), &b));
        assert_true(a >= 0 && a <= 999 && b >= 0 && b <= 999);
        assert_int_equal(note->type, K3_JSON_STRING);
        k3_json_free(arguments);
    }
}

/* Case C43: JSON comes as content, behind the thinking. */
static void c43_a_schema_gives_json_as_content(void **state)
{
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"What is the capital of France?\"}],\"response_format\":{\"type\":\"json_schema\","
        "\"json_schema\":{\"name\":\"x\",\"schema\":{\"type\":\"object\",\"properties\":{\"answer\":{\"type\":\"string\",\"maxLength\":20},"
        "\"sure\":{\"type\":\"boolean\"}},\"required\":[\"answer\",\"sure\"]}}}}";
    talk t, open;
    (void)state;
    assert_string_equal(answer(&t, request, 1), "stop");
    const k3_json *value = read(t.content), *sure = k3_json_get(value, "sure");
    assert_int_equal(k3_json_get(value, "answer")->type, K3_JSON_STRING);
    assert_true(sure->type == K3_JSON_TRUE || sure->type == K3_JSON_FALSE);
    k3_json_free(value);
    (void)answer(&open, request, 0);
    assert_string_not_equal(open.content, t.content);
}

static int open_engine(void **state)
{
    k3_error err;
    (void)state;
    if (k3_engine_open(&engine, "models/k3-mini", &(k3_config){.backend = "cpu"}, &err) != K3_OK) {
        print_error("%s\n", err.text);
        return 1;
    }
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    k3_engine_close(engine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(c33_required_gives_a_typed_call),
                                       cmocka_unit_test(c43_a_schema_gives_json_as_content)};
    return cmocka_run_group_tests(tests, open_engine, close_engine);
}
