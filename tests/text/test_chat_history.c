/* Parsing and rendering are inverses: what the model wrote, sent back as history, is the ids that it wrote. */
#include "chat_answer.h"

#include <stdio.h>
#include <string.h>

#include "text/chat_parse.h"
#include "text/chat_render.h"
#include "text/json_write.h"
#include "text/tokenize.h"
#include "text/tokens.h"

static void add_member(k3_buffer *json, const char *key, const k3_buffer *value)
{
    k3_buffer_add_text(json, ", \"");
    k3_buffer_add_text(json, key);
    k3_buffer_add_text(json, "\": ");
    k3_json_write_string(json, value->bytes ? value->bytes : "", value->n);
}

/* The answer as a client sends it back. */
static void add_history(k3_buffer *json, const answer *a)
{
    k3_buffer_add_text(json, ", {\"role\": \"assistant\"");
    add_member(json, "reasoning_content", &a->reasoning);
    add_member(json, "content", &a->content);
    k3_buffer_add_text(json, ", \"tool_calls\": [");
    for (int i = 0; i < a->n_calls; i++) {
        char id[48];
        snprintf(id, sizeof id, "%s{\"id\": \"call_%d\", \"function\": {\"x\": 0", i > 0 ? ", " : "", i);
        k3_buffer_add_text(json, id);
        add_member(json, "name", &a->names[i]);
        add_member(json, "arguments", &a->arguments[i]);
        k3_buffer_add_text(json, "}}");
    }
    k3_buffer_add_text(json, "]}");
    for (int i = 0; i < a->n_calls; i++) {
        char result[96];
        snprintf(result, sizeof result, ", {\"role\": \"tool\", \"tool_call_id\": \"call_%d\", \"content\": \"result %d\"}", i, i);
        k3_buffer_add_text(json, result);
    }
}

static void render_history(const k3_vocab *vocab, k3_tokens *ids, const k3_buffer *messages, int thinking)
{
    k3_buffer request = {0};
    k3_error err = {0};
    k3_buffer_add_text(&request, thinking ? "{\"thinking\": true, \"messages\": [" : "{\"thinking\": false, \"messages\": [");
    k3_buffer_add(&request, messages->bytes, messages->n);
    k3_buffer_add_text(&request, "]}");
    if (k3_chat_render_request(vocab, ids, NULL, NULL, request.bytes, request.n, &err) != K3_OK)
        fail_msg("%s", err.text);
    k3_buffer_free(&request);
}

/* Adds words of a header one by one, as the renderer encodes them and the model was trained to write them. */
static void add_output(const k3_vocab *vocab, k3_tokens *ids, const char *const *pieces)
{
    k3_error err;
    for (; *pieces; pieces++)
        assert_int_equal(k3_text_encode(vocab, ids, *pieces, strlen(*pieces), strncmp(*pieces, "<|", 2) == 0, &err), K3_OK);
}

/* Three answers, piece by piece: two calls with typed arguments, one call, the end. */
#define O "<|open|>"
#define C "<|close|>"
#define S "<|sep|>"
#define A(key, type, value) O, "argument", " key", "=\"", key, "\"", " type", "=\"", type, "\"", S, value, C, "argument", S
static const char *const turns[3][120] = {
    {"I need two\nfacts.",
     C,
     "think",
     S,
     O,
     "response",
     S,
     "Let me look.",
     C,
     "response",
     S,
     O,
     "tools",
     S,
     O,
     "call",
     " tool",
     "=\"",
     "a&quot;b",
     "\"",
     " index",
     "=\"",
     "1",
     "\"",
     S,
     A("s", "string", "raw \"q\" \\n"),
     A("n", "number", "12"),
     A("o", "object", "{\"k\": [1, {\"z\": \"\xc3\xa9\"}], \"a\": null}"),
     C,
     "call",
     S,
     O,
     "call",
     " tool",
     "=\"",
     "g",
     "\"",
     " index",
     "=\"",
     "2",
     "\"",
     S,
     C,
     "call",
     S,
     C,
     "tools",
     S,
     C,
     "message",
     S,
     "<|end_of_msg|>",
     NULL},
    {"More.",    C,       "think",   S,          O,
     "response", S,       C,         "response", S,
     O,          "tools", S,         O,          "call",
     " tool",    "=\"",   "g",       "\"",       " index",
     "=\"",      "1",     "\"",      S,          A("x", "boolean", "true"),
     C,          "call",  S,         C,          "tools",
     S,          C,       "message", S,          "<|end_of_msg|>",
     NULL},
    {"Done.", C, "think", S, O, "response", S, "It is \xe4\xb8\xad.", C, "response", S, C, "message", S, "<|end_of_msg|>", NULL},
};

static void c18_c37_history_renders_to_the_ids_that_were_generated(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    k3_buffer messages = {0};
    k3_buffer_add_text(&messages, "{\"role\": \"user\", \"content\": \"go\"}");
    k3_tokens timeline = {0};
    render_history(vocab, &timeline, &messages, 1);
    for (size_t turn = 0; turn < 3; turn++) {
        k3_tokens output = {0}, next = {0};
        k3_error err;
        add_output(vocab, &output, turns[turn]);
        answer a = parse_ids(vocab, 1, output.ids, output.n);
        assert_string_equal(a.finish, turn < 2 ? "tool_calls" : "stop");
        for (size_t i = 0; i < output.n; i++)
            assert_int_equal(k3_tokens_add(&timeline, output.ids[i], &err), K3_OK);
        add_history(&messages, &a);
        render_history(vocab, &next, &messages, 1);
        assert_true(next.n > timeline.n);
        for (size_t i = 0; i < timeline.n; i++)
            assert_int_equal(next.ids[i], timeline.ids[i]);
        k3_tokens_free(&timeline);
        k3_tokens_free(&output);
        timeline = next;
        free_answer(&a);
    }
    k3_tokens_free(&timeline);
    k3_buffer_free(&messages);
    k3_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c18_c37_history_renders_to_the_ids_that_were_generated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
