#include "text_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/chat_render.h"
#include "text/tokenize.h"

static const char *const kinds[] = {"control", "text", "trusted"};

typedef struct rendering {
    k3_tokens ids;
    k3_chat_segments segments;
    int thinking;
    k3_status status;
    k3_error err;
} rendering;

static rendering render(const k3_vocab *vocab, const char *request)
{
    rendering r = {0};
    r.status = k3_chat_render_request(vocab, &r.ids, &r.segments, &r.thinking, request, strlen(request), &r.err);
    return r;
}

static void free_rendering(rendering *r)
{
    k3_tokens_free(&r->ids);
    k3_chat_segments_free(&r->segments);
}

/* The segments as one string, which is how people write the format down. */
static char *joined(const k3_chat_segments *segments)
{
    size_t n = 1;
    for (size_t i = 0; i < segments->n; i++)
        n += segments->items[i].n_bytes;
    char *text = calloc(n, 1), *at = text;
    assert_non_null(text);
    for (size_t i = 0; i < segments->n; i++) {
        memcpy(at, segments->items[i].text, segments->items[i].n_bytes);
        at += segments->items[i].n_bytes;
    }
    return text;
}

static char *render_text(const char *request)
{
    k3_vocab *vocab = open_small_vocab();
    rendering r = render(vocab, request);
    if (r.status != K3_OK)
        fail_msg("%s: %s", request, r.err.text);
    char *text = joined(&r.segments);
    free_rendering(&r);
    k3_vocab_close(vocab);
    return text;
}

static void assert_renders(const char *request, const char *expected)
{
    char *text = render_text(request);
    if (strcmp(text, expected) != 0)
        fail_msg("%s\ngave   %s\nwanted %s", request, text, expected);
    free(text);
}

static void assert_refused(const char *request, const char *message)
{
    k3_vocab *vocab = open_small_vocab();
    rendering r = render(vocab, request);
    assert_int_equal(r.status, K3_E_INVALID);
    assert_string_equal(r.err.text, message);
    assert_int_equal(r.ids.n, 0);
    assert_int_equal(r.segments.n, 0);
    free_rendering(&r);
    k3_vocab_close(vocab);
}

/* ---- golden cases -------------------------------------------------------------------------------------- */

/* The text of a value in the case file, written back so that it can be a request. */
static void put(char **at, const char *text, size_t n)
{
    memcpy(*at, text, n);
    *at += n;
}

static void put_string(char **at, const char *text, size_t n)
{
    put(at, "\"", 1);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == '"' || c == '\\')
            *at += sprintf(*at, "\\u%04x", c);
        else
            put(at, text + i, 1);
    }
    put(at, "\"", 1);
}

static void put_json(char **at, const k3_json *value)
{
    static const char *const words[] = {"null", "false", "true"};
    if (value->type <= K3_JSON_TRUE)
        put(at, words[value->type], strlen(words[value->type]));
    else if (value->type == K3_JSON_NUMBER)
        put(at, value->text, value->text_bytes);
    else if (value->type == K3_JSON_STRING)
        put_string(at, value->text, value->text_bytes);
    else {
        put(at, value->type == K3_JSON_ARRAY ? "[" : "{", 1);
        for (const k3_json *child = value->first; child; child = child->next) {
            if (child != value->first)
                put(at, ",", 1);
            if (value->type == K3_JSON_OBJECT) {
                put_string(at, child->key, child->key_bytes);
                put(at, ":", 1);
            }
            put_json(at, child);
        }
        put(at, value->type == K3_JSON_ARRAY ? "]" : "}", 1);
    }
}

/* The request of a case; a `server` variant is what a server asks for. */
static char *request_text(const k3_json *request, int server)
{
    char *text = malloc(1 << 16), *at = text;
    assert_non_null(text);
    put_json(&at, request);
    if (server)
        at += sprintf(at - 1, ",\"map_developer\":true}") - 1;
    *at = 0;
    return text;
}

static void check_segments(const char *id, const rendering *r, const k3_json *expected)
{
    size_t i = 0;
    for (const k3_json *s = expected->first; s; s = s->next, i++) {
        if (i >= r->segments.n)
            fail_msg("%s: %zu segments, wanted %zu", id, r->segments.n, expected->n_children);
        const k3_chat_segment *segment = &r->segments.items[i];
        const k3_json *text = s->first->next;
        if (!k3_json_text_is(s->first, kinds[segment->kind]) || text->text_bytes != segment->n_bytes ||
            memcmp(text->text, segment->text, segment->n_bytes) != 0)
            fail_msg("%s: segment %zu is %s \"%s\", wanted %s \"%s\"", id, i, kinds[segment->kind], segment->text, s->first->text,
                     text->text);
    }
    if (i != r->segments.n)
        fail_msg("%s: %zu segments, wanted %zu", id, r->segments.n, i);
}

static void check_ids(const char *id, const rendering *r, const k3_json *expected)
{
    int32_t *ids = malloc(expected->n_children * sizeof *ids + 1);
    size_t n = 0;
    for (const k3_json *value = expected->first; value; value = value->next) {
        int64_t x;
        assert_true(k3_json_int(value, &x));
        ids[n++] = (int32_t)x;
    }
    assert_ids(&r->ids, ids, n, id);
    free(ids);
}

static void check_case(const k3_vocab *vocab, const k3_json *test, const k3_json *expected, int server, int with_ids)
{
    const char *id = k3_json_get(test, "id")->text;
    char *request = request_text(k3_json_get(test, "request"), server);
    rendering r = render(vocab, request);
    if (k3_json_get(test, "error")) {
        if (r.status != K3_E_INVALID)
            fail_msg("%s: status %d, wanted a refusal", id, r.status);
    } else {
        if (r.status != K3_OK)
            fail_msg("%s: %s", id, r.err.text);
        check_segments(id, &r, k3_json_get(expected, "segments"));
        if (with_ids)
            check_ids(id, &r, k3_json_get(expected, "ids"));
    }
    free_rendering(&r);
    free(request);
}

static size_t check_all_cases(const k3_vocab *vocab, int with_ids)
{
    const k3_json *cases = read_json("tests/golden/chat/chat-golden.json");
    size_t n = 0;
    for (const k3_json *test = cases->first; test; test = test->next) {
        check_case(vocab, test, test, 0, with_ids);
        n++;
        if (k3_json_get(test, "server")) {
            check_case(vocab, test, k3_json_get(test, "server"), 1, with_ids);
            n++;
        }
    }
    k3_json_free(cases);
    return n;
}

static void every_golden_case_has_its_segments(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    assert_int_equal(check_all_cases(vocab, 0), 76);
    k3_vocab_close(vocab);
}

static void every_golden_case_has_its_ids(void **state)
{
    (void)state;
    k3_vocab *vocab = open_real_vocab();
    if (!vocab) {
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model\n");
        skip();
    }
    assert_int_equal(check_all_cases(vocab, 1), 76);
    k3_vocab_close(vocab);
}

/* ---- rules, one test each ------------------------------------------------------------------------------ */

#define USER(text) "<|open|>message role=\"user\"<|sep|>" text "<|close|>message<|sep|><|end_of_msg|>"
#define SYSTEM(text) "<|open|>message role=\"system\"<|sep|>" text "<|close|>message<|sep|><|end_of_msg|>"
#define THINK "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>"
#define RESPOND "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>"
#define CALL(name, number) "<|open|>call tool=\"" name "\" index=\"" number "\"<|sep|>"
#define ARGUMENT(key, type, value) "<|open|>argument key=\"" key "\" type=\"" type "\"<|sep|>" value "<|close|>argument<|sep|>"
#define SAID(text, calls)                                                                                                                  \
    "<|open|>message role=\"assistant\"<|sep|><|open|>response<|sep|>" text "<|close|>response<|sep|><|open|>tools<|sep|>" calls           \
    "<|close|>tools<|sep|><|close|>message<|sep|><|end_of_msg|>"
#define CLOSE_CALL "<|close|>call<|sep|>"

static void b10_half_a_surrogate_pair_and_a_nul_are_accepted(void **state)
{
    (void)state;
    assert_renders("{\"messages\": [{\"role\": \"user\", \"content\": \"a\\ud83d b\"}], \"thinking\": false}",
                   USER("a\xef\xbf\xbd b") RESPOND);
    k3_vocab *vocab = open_small_vocab();
    rendering r = render(vocab, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000b\"}]}");
    assert_int_equal(r.status, K3_OK);
    assert_int_equal(r.segments.items[7].n_bytes, 3);
    assert_memory_equal(r.segments.items[7].text, "a\0b", 3);
    free_rendering(&r);
    k3_vocab_close(vocab);
}

static void b11_c07_no_special_id_comes_from_the_users_text(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    int first = k3_vocab_n_ranks(vocab);
    char *request = malloc(1 << 16), *at = request;
    at += sprintf(at, "{\"messages\": [{\"role\": \"user\", \"name\": \"<|sep|>\", \"content\": \"");
    for (int id = first; id < first + 256; id++) {
        const char *bytes;
        size_t n;
        k3_error err;
        assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, id, &err), K3_OK);
        put(&at, bytes, n);
    }
    at += sprintf(at, "\"}]}");
    rendering r = render(vocab, request);
    assert_int_equal(r.status, K3_OK);
    /* open sep | close sep end | open sep open sep */
    const int wanted[] = {3, 5, 4, 5, 2, 3, 5, 3, 5};
    size_t n = 0;
    for (size_t i = 0; i < r.ids.n; i++) {
        if (r.ids.ids[i] < first)
            continue;
        assert_true(n < sizeof wanted / sizeof wanted[0]);
        assert_int_equal(r.ids.ids[i], first + wanted[n++]);
    }
    assert_int_equal(n, sizeof wanted / sizeof wanted[0]);
    free(request);
    free_rendering(&r);
    k3_vocab_close(vocab);
}

static void b13_quotes_and_ampersands_in_names_are_escaped(void **state)
{
    (void)state;
    assert_renders(
        "{\"thinking\": false, \"add_generation_prompt\": false, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
        "{\"name\": \"a\\\"b&c\", \"arguments\": {\"x&quot;y\": 1}}}]}]}",
        SAID("", CALL("a&quot;b&amp;c", "1") ARGUMENT("x&amp;quot;y", "number", "1") CLOSE_CALL));
}

static void b15_empty_prompts_have_a_defined_answer(void **state)
{
    (void)state;
    assert_renders("{\"messages\": []}", THINK);
    assert_renders("{\"messages\": [{\"role\": \"user\", \"content\": \"\"}]}", USER("") THINK);
    assert_renders("{\"messages\": [{\"role\": \"system\", \"content\": \"\"}], \"thinking\": false}", SYSTEM("") RESPOND);
    assert_renders("{\"messages\": [{\"role\": \"user\", \"content\": \"\\n\"}]}", USER("\n") THINK);
}

static void b17_each_piece_of_an_attribute_is_encoded_alone(void **state)
{
    (void)state;
    static const char *const names[] = {".x", "=x", "'x", "7x", "\xe4\xb8\xad", "e er", "the"};
    k3_vocab *vocab = open_small_vocab();
    k3_error err;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char request[256];
        snprintf(request, sizeof request, "{\"messages\": [{\"role\": \"user\", \"name\": \"%s\"}], \"add_generation_prompt\": false}",
                 names[i]);
        rendering r = render(vocab, request);
        assert_int_equal(r.status, K3_OK);
        const char *const pieces[] = {"<|open|>", "message", " role",   "=\"",       "user",    "\"",      " name",         "=\"",
                                      names[i],   "\"",      "<|sep|>", "<|close|>", "message", "<|sep|>", "<|end_of_msg|>"};
        k3_tokens wanted = {0};
        for (size_t j = 0; j < sizeof pieces / sizeof pieces[0]; j++)
            assert_int_equal(k3_text_encode(vocab, &wanted, pieces[j], strlen(pieces[j]), pieces[j][0] == '<', &err), K3_OK);
        assert_ids(&r.ids, wanted.ids, wanted.n, names[i]);
        k3_tokens_free(&wanted);
        free_rendering(&r);
    }
    k3_vocab_close(vocab);
}

static void c13_calls_and_results_are_numbered_from_1(void **state)
{
    (void)state;
#define RESULT(name, number, text)                                                                                                         \
    "<|open|>message role=\"tool\" tool=\"" name "\" index=\"" number "\"<|sep|>" text "<|close|>message<|sep|><|end_of_msg|>"
    assert_renders("{\"thinking\": false, \"messages\": [{\"role\": \"assistant\", \"content\": \"x\", \"tool_calls\": ["
                   "{\"id\": \"call_1\", \"function\": {\"name\": \"f\"}}, {\"id\": \"functions.g:1\", \"function\": {\"name\": \"g\"}},"
                   "{\"id\": 7, \"function\": {\"name\": \"h\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"7\", \"content\": \"c\"},"
                   "{\"role\": \"tool\", \"tool_call_id\": \"functions.g:1\", \"content\": \"b\"},"
                   "{\"role\": \"tool\", \"tool_call_id\": \"call_1\", \"content\": \"a\"}]}",
                   SAID("x", CALL("f", "1") CLOSE_CALL CALL("g", "2") CLOSE_CALL CALL("h", "3") CLOSE_CALL) RESULT("f", "1", "a")
                       RESULT("g", "2", "b") RESULT("h", "3", "c") RESPOND);
}

static void c15_results_match_by_id_and_a_wrong_id_without_a_call_is_refused(void **state)
{
    (void)state;
    assert_refused(
        "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"tool\", \"tool_call_id\": \"\", \"content\": \"x\"}]}",
        "chat request: messages[1]: a tool result whose tool_call_id matches no call of the assistant message before it, and without "
        "a name");
    assert_renders(
        "{\"thinking\": false, \"messages\": [{\"role\": \"tool\", \"tool_call_id\": \"wrong\", \"name\": \"f\", \"content\": \"x\"}]}",
        RESULT("f", "1", "x") RESPOND);
    assert_renders("{\"thinking\": false, \"add_generation_prompt\": false, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": ["
                   "{\"id\": \"\", \"function\": {\"name\": \"f\"}}]}, {\"role\": \"tool\", \"tool_call_id\": \"\", \"content\": \"x\"}]}",
                   SAID("", CALL("f", "1") CLOSE_CALL) RESULT("f", "1", "x"));
}

static void c18_old_reasoning_is_rendered_from_either_field(void **state)
{
    (void)state;
    static const char wanted[] =
        "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|> why <|close|>think<|sep|><|open|>response<|sep|>4"
        "<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>" THINK;
    assert_renders("{\"messages\": [{\"role\": \"assistant\", \"content\": \"4\", \"reasoning_content\": \" why \"}]}", wanted);
    assert_renders("{\"messages\": [{\"role\": \"assistant\", \"content\": \"4\", \"reasoning\": \" why \"}]}", wanted);
    assert_renders("{\"messages\": [{\"role\": \"assistant\", \"content\": \"4\", \"reasoning_content\": null, \"reasoning\": \" why \"}]}",
                   wanted);
}

static void c24_choices_and_formats_are_rendered_or_refused(void **state)
{
    (void)state;
    assert_renders("{\"messages\": [], \"thinking\": false, \"tool_choice\": \"auto\"}", RESPOND);
    assert_renders("{\"messages\": [], \"thinking\": false, \"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"f\"}}}",
                   RESPOND);
    assert_refused("{\"messages\": [], \"tool_choice\": \"any\"}",
                   "chat request: tool_choice is \"any\", wanted \"auto\", \"none\", \"required\" or an object that names a tool");
    assert_refused("{\"messages\": [], \"thinking_effort\": \"medium\"}",
                   "chat request: thinking_effort is \"medium\", wanted \"low\", \"high\", \"max\" or null");
    assert_refused("{\"messages\": [], \"response_format\": {\"type\": \"grammar\"}}",
                   "chat request: response_format has the type \"grammar\", wanted text, json_object or json_schema");
    assert_refused("{\"messages\": [], \"response_format\": {}}",
                   "chat request: response_format has the type \"not a string\", wanted text, json_object or json_schema");
}

static void c32_schemas_are_rendered_as_given(void **state)
{
    (void)state;
    assert_renders(
        "{\"messages\": [], \"thinking\": false, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"3d\", \"parameters\": "
        "{\"anyOf\": [{\"$ref\": \"#/$defs/a\", \"description\": \"d\"}], \"$defs\": {}}}}]}",
        "<|open|>message role=\"system\" type=\"tool-declare\"<|sep|># Tools\nHere are the available tools, described in "
        "JSONSchema.\n\n```json\n[{\"function\":{\"name\":\"3d\",\"parameters\":{\"$defs\":{},\"anyOf\":[{\"$ref\":\"#/$defs/"
        "a\",\"description\":\"d\"}]}},\"type\":\"function\"}]\n```<|close|>message<|sep|><|end_of_msg|>" RESPOND);
}

static void keys_sort_by_code_point_and_the_last_of_a_repeated_key_counts(void **state)
{
    (void)state;
    /* U+FFFD before U+1F600: by UTF-16 units it would be the other way round. */
    assert_renders(
        "{\"messages\": [], \"thinking\": false, \"tools\": [{\"\\ud83d\\ude00\": 1, \"\\ufffd\": 2, \"b\": 3, \"a\": [2, 1], \"b\": 4}]}",
        "<|open|>message role=\"system\" type=\"tool-declare\"<|sep|># Tools\nHere are the available tools, described in "
        "JSONSchema.\n\n```json\n[{\"a\":[2,1],\"b\":4,\"\xef\xbf\xbd\":2,\"\xf0\x9f\x98\x80\":1}]\n```"
        "<|close|>message<|sep|><|end_of_msg|>" RESPOND);
    assert_renders(
        "{\"thinking\": false, \"add_generation_prompt\": false, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"function\": "
        "{\"name\": \"f\", \"arguments\": \"{\\\"z\\\": 1, \\\"a\\\": 2, \\\"z\\\": 3}\"}}]}]}",
        SAID("", CALL("f", "1") ARGUMENT("z", "number", "3") ARGUMENT("a", "number", "2") CLOSE_CALL));
}

static void c37_four_forms_of_no_arguments_and_the_object_form_are_equal(void **state)
{
    (void)state;
    static const char *const forms[] = {"\"{}\"", "{}", "\"\"", "null", "\" \\n\\t\""};
    char request[512];
    static const char before[] =
        "{\"thinking\": false, \"add_generation_prompt\": false, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": %s}}]}]}";
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        snprintf(request, sizeof request, before, forms[i]);
        assert_renders(request, SAID("", CALL("f", "1") CLOSE_CALL));
    }
    snprintf(request, sizeof request, before, "{\"a\": \"x\"}");
    assert_renders(request, SAID("", CALL("f", "1") ARGUMENT("a", "string", "x") CLOSE_CALL));
    snprintf(request, sizeof request, before, "\"{\\\"a\\\": \\\"x\\\"}\"");
    assert_renders(request, SAID("", CALL("f", "1") ARGUMENT("a", "string", "x") CLOSE_CALL));
    snprintf(request, sizeof request, before, "[1]");
    assert_refused(request, "chat request: messages[0]: tool_calls[0]: function.arguments is JSON of type array, wanted an object");
}

static void numbers_are_written_as_python_writes_them(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"1e2", "100.0"},
        {"1e16", "1e+16"},
        {"1e-7", "1e-07"},
        {"1e15", "1000000000000000.0"},
        {"2.50", "2.5"},
        {"-0", "0"},
        {"-0.0", "-0.0"},
        {"1e400", "Infinity"},
        {"-1e400", "-Infinity"},
        {"NaN", "NaN"},
        {"-Infinity", "-Infinity"},
        {"12345678901234567890123", "12345678901234567890123"},
        {"0.1", "0.1"},
        {"5e-324", "5e-324"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"5.684341886080801486968994140625e-14", "5.684341886080802e-14"},
        {"1.7976931348623157e308", "1.7976931348623157e+308"},
        {"123456.789e3", "123456789.0"},
        {"9007199254740993.0", "9007199254740992.0"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char request[512], wanted[512];
        snprintf(request, sizeof request,
                 "{\"thinking\": false, \"add_generation_prompt\": false, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": "
                 "[{\"function\": "
                 "{\"name\": \"f\", \"arguments\": \"{\\\"a\\\": %s}\"}}]}]}",
                 pairs[i][0]);
        snprintf(wanted, sizeof wanted, SAID("", CALL("f", "1") ARGUMENT("a", "number", "%s") CLOSE_CALL), pairs[i][1]);
        assert_renders(request, wanted);
    }
}

static void c38_system_messages_stand_where_they_are(void **state)
{
    (void)state;
    assert_renders(
        "{\"thinking\": false, \"map_developer\": true, \"messages\": [{\"role\": \"system\", \"content\": \"a\"}, {\"role\": \"user\", "
        "\"content\": \"b\"}, {\"role\": \"developer\", \"content\": \"c\"}, {\"role\": \"user\", \"content\": \"d\"}, {\"role\": "
        "\"system\", "
        "\"content\": \"e\"}]}",
        SYSTEM("a") USER("b") SYSTEM("c") USER("d") SYSTEM("e") RESPOND);
    assert_renders(
        "{\"thinking\": false, \"messages\": [{\"role\": \"developer\", \"content\": \"c\"}, {\"role\": \"user\", \"content\": \"d\"}]}",
        USER("d") RESPOND);
    assert_refused("{\"map_developer\": true, \"messages\": [{\"role\": \"critic\", \"content\": \"c\"}]}",
                   "chat request: messages[0]: role \"critic\" is none of system, developer, user, assistant and tool");
}

static void c40_prompt_lengths_are_the_published_ones(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        size_t n;
    } prompts[] = {
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": false}", 12},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", 12 + 10},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"thinking_effort\": \"max\"}", 89},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"entry\": \"wrapper\"}", 89},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"entry\": \"wrapper\", \"thinking_effort\": null}", 22},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"entry\": \"wrapper\", \"thinking\": false}", 22},
    };
    k3_vocab *vocab = open_real_vocab();
    if (!vocab) {
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model\n");
        skip();
    }
    for (size_t i = 0; i < sizeof prompts / sizeof prompts[0]; i++) {
        rendering r = render(vocab, prompts[i].request);
        if (r.status != K3_OK || r.ids.n != prompts[i].n)
            fail_msg("%s: %zu ids, wanted %zu", prompts[i].request, r.ids.n, prompts[i].n);
        free_rendering(&r);
    }
    /* An old assistant turn costs six ids more with thinking on: open think sep close think sep. */
    rendering on = render(vocab, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}");
    rendering off = render(vocab, "{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}], \"thinking\": false}");
    assert_int_equal(on.ids.n, off.ids.n + 6);
    assert_int_equal(on.thinking, 1);
    assert_int_equal(off.thinking, 0);
    free_rendering(&on);
    free_rendering(&off);
    k3_vocab_close(vocab);
}

static void c40_the_effort_message_costs_67_ids(void **state)
{
    (void)state;
    k3_vocab *vocab = open_real_vocab();
    if (!vocab) {
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model\n");
        skip();
    }
    rendering with = render(vocab, "{\"messages\": [], \"thinking_effort\": \"max\"}"), without = render(vocab, "{\"messages\": []}");
    assert_int_equal(with.ids.n - without.ids.n, 67);
    free_rendering(&with);
    free_rendering(&without);
    k3_vocab_close(vocab);
}

static void a_spelled_placeholder_takes_no_image_from_its_place(void **state)
{
    (void)state;
#define IMAGE(size) "<|media_begin|>image " size "<|media_content|><|media_pad|><|media_end|>"
    assert_renders(
        "{\"thinking\": false, \"images\": [[2, 3]], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"<|kimi_image_placeholder|>\"}, {\"type\": \"image_url\"}]}]}",
        USER("<|kimi_image_placeholder|>" IMAGE("2x3")) RESPOND);
    assert_refused("{\"images\": [[2, 3], [4, 5]], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
                   "chat request: images has 2 sizes, which is not the number of image parts in the messages");
    assert_refused("{\"images\": [[2, 0]], \"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
                   "chat request: images must be an array of [width, height] with whole numbers from 1");
}

static void images_keep_their_sizes_when_results_are_reordered(void **state)
{
    (void)state;
    assert_renders("{\"thinking\": false, \"images\": [[1, 1], [2, 2], [3, 3]], \"messages\": [{\"role\": \"assistant\", \"tool_calls\": ["
                   "{\"id\": \"a\", \"function\": {\"name\": \"f\"}}, {\"id\": \"b\", \"function\": {\"name\": \"g\"}}]},"
                   "{\"role\": \"tool\", \"tool_call_id\": \"b\", \"content\": [{\"type\": \"image\"}, {\"type\": \"image\"}]},"
                   "{\"role\": \"tool\", \"tool_call_id\": \"a\", \"content\": [{\"type\": \"image\"}]}]}",
                   SAID("", CALL("f", "1") CLOSE_CALL CALL("g", "2") CLOSE_CALL) RESULT("f", "1", IMAGE("3x3"))
                       RESULT("g", "2", IMAGE("1x1") IMAGE("2x2")) RESPOND);
}

static void broken_requests_are_refused_with_a_place(void **state)
{
    (void)state;
    assert_refused("{\"messages\": [", "chat request: line 1, column 15: the text ends here, wanted a JSON value");
    assert_refused("[]", "chat request: messages must be an array");
    assert_refused("{\"messages\": [1]}", "chat request: messages[0] is not an object with a role");
    assert_refused("{\"messages\": [{\"role\": \"user\", \"content\": 1}]}",
                   "chat request: messages[0]: content must be a string, null or an array of parts");
    assert_refused("{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\"}]}]}",
                   "chat request: messages[0]: content[0] is neither {\"type\": \"text\", \"text\": ...} nor of type image_url or image");
    assert_refused("{\"messages\": [{\"role\": \"user\", \"name\": 1}]}", "chat request: messages[0]: name must be a string");
    assert_refused("{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{}]}]}",
                   "chat request: messages[0]: tool_calls[0]: there is no function.name");
    assert_refused("{\"messages\": [], \"thinking\": \"yes\"}", "chat request: thinking must be true or false");
    assert_refused("{\"messages\": [], \"tools\": {}}", "chat request: tools must be an array");
}

static void a_vocabulary_without_markers_cannot_chat(void **state)
{
    (void)state;
    int n;
    char *model = small_model_text(&n);
    k3_vocab *vocab = parse_vocab(model, "{\"added_tokens_decoder\": {}}", n + 256);
    rendering r = render(vocab, "{\"messages\": []}");
    assert_int_equal(r.status, K3_E_UNSUPPORTED);
    assert_non_null(strstr(r.err.text, "no token <|open|>"));
    k3_vocab_close(vocab);
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_case_has_its_segments),
        cmocka_unit_test(every_golden_case_has_its_ids),
        cmocka_unit_test(b10_half_a_surrogate_pair_and_a_nul_are_accepted),
        cmocka_unit_test(b11_c07_no_special_id_comes_from_the_users_text),
        cmocka_unit_test(b13_quotes_and_ampersands_in_names_are_escaped),
        cmocka_unit_test(b15_empty_prompts_have_a_defined_answer),
        cmocka_unit_test(b17_each_piece_of_an_attribute_is_encoded_alone),
        cmocka_unit_test(c13_calls_and_results_are_numbered_from_1),
        cmocka_unit_test(c15_results_match_by_id_and_a_wrong_id_without_a_call_is_refused),
        cmocka_unit_test(c18_old_reasoning_is_rendered_from_either_field),
        cmocka_unit_test(c24_choices_and_formats_are_rendered_or_refused),
        cmocka_unit_test(c32_schemas_are_rendered_as_given),
        cmocka_unit_test(keys_sort_by_code_point_and_the_last_of_a_repeated_key_counts),
        cmocka_unit_test(c37_four_forms_of_no_arguments_and_the_object_form_are_equal),
        cmocka_unit_test(numbers_are_written_as_python_writes_them),
        cmocka_unit_test(c38_system_messages_stand_where_they_are),
        cmocka_unit_test(c40_prompt_lengths_are_the_published_ones),
        cmocka_unit_test(c40_the_effort_message_costs_67_ids),
        cmocka_unit_test(a_spelled_placeholder_takes_no_image_from_its_place),
        cmocka_unit_test(images_keep_their_sizes_when_results_are_reordered),
        cmocka_unit_test(broken_requests_are_refused_with_a_place),
        cmocka_unit_test(a_vocabulary_without_markers_cannot_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
