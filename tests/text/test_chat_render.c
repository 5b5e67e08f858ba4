#include "text_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_render.h"
#include "text/tokenize.h"
#include "text/utf8.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_case_has_its_segments),
        cmocka_unit_test(every_golden_case_has_its_ids),
    };
    (void)assert_renders;
    (void)assert_refused;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
