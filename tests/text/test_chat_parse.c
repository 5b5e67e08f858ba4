/* Every case of tests/golden/chat/chat-parse.json: whole, cut at every id, and in random chunkings. */
#include "chat_answer.h"

#include <string.h>

#include "text/chat_parse.h"
#include "text/tokenize.h"

enum { N_CHUNKINGS = 1000 };

static void add_case(const k3_vocab *vocab, k3_tokens *ids, const k3_json *test, uint32_t n_most, uint64_t *random)
{
    k3_error err;
    for (const k3_json *segment = k3_json_get(test, "segments")->first; segment; segment = segment->next) {
        const k3_json *text = segment->first->next;
        if (k3_json_text_is(segment->first, "control"))
            assert_int_equal(k3_text_encode(vocab, ids, text->text, text->text_bytes, 1, &err), K3_OK);
        else
            add_text(vocab, ids, text->text, text->text_bytes, n_most, random);
    }
}

static int same_json(const k3_json *a, const k3_json *b)
{
    if (a->type != b->type || a->n_children != b->n_children)
        return 0;
    double x, y;
    if (a->type == K3_JSON_NUMBER)
        return k3_json_double(a, &x) && k3_json_double(b, &y) && x == y;
    if (a->type == K3_JSON_STRING)
        return a->text_bytes == b->text_bytes && memcmp(a->text, b->text, a->text_bytes) == 0;
    const k3_json *c = a->first, *d = b->first;
    for (; c; c = c->next, d = d->next) {
        if (a->type == K3_JSON_OBJECT && (c->key_bytes != d->key_bytes || memcmp(c->key, d->key, c->key_bytes) != 0))
            return 0;
        if (!same_json(c, d))
            return 0;
    }
    return 1;
}

static void assert_buffer(const char *id, const char *what, const k3_buffer *found, const k3_json *wanted)
{
    if (found->n != wanted->text_bytes || (found->n > 0 && memcmp(found->bytes, wanted->text, found->n) != 0))
        fail_msg("%s: %s is \"%.*s\", wanted \"%s\"", id, what, (int)found->n, found->n ? found->bytes : "", wanted->text);
}

static void check_answer(const char *id, const answer *a, const k3_json *expect)
{
    assert_buffer(id, "reasoning", &a->reasoning, k3_json_get(expect, "reasoning"));
    assert_buffer(id, "content", &a->content, k3_json_get(expect, "content"));
    if (!k3_json_text_is(k3_json_get(expect, "finish"), a->finish))
        fail_msg("%s: finish is %s, wanted %s", id, a->finish, k3_json_get(expect, "finish")->text);
    const k3_json *calls = k3_json_get(expect, "tool_calls");
    if ((size_t)a->n_calls != calls->n_children)
        fail_msg("%s: %d calls, wanted %zu", id, a->n_calls, calls->n_children);
    int i = 0;
    for (const k3_json *call = calls->first; call; call = call->next, i++) {
        const k3_json *wanted, *found, *arguments = k3_json_get(call, "arguments");
        k3_error err = {0};
        assert_buffer(id, "name", &a->names[i], k3_json_get(call, "name"));
        assert_int_equal(k3_json_parse(&wanted, arguments->text, arguments->text_bytes, 0, &err), K3_OK);
        if (k3_json_parse(&found, a->arguments[i].bytes, a->arguments[i].n, 0, &err) != K3_OK)
            fail_msg("%s: arguments %.*s: %s", id, (int)a->arguments[i].n, a->arguments[i].bytes, err.text);
        if (!same_json(found, wanted))
            fail_msg("%s: arguments %.*s, wanted %s", id, (int)a->arguments[i].n, a->arguments[i].bytes, arguments->text);
        k3_json_free(wanted);
        k3_json_free(found);
    }
}

typedef void case_check(const k3_vocab *vocab, const k3_json *test, const char *id, int thinking);

static void for_every_case(case_check *check)
{
    k3_vocab *vocab = open_small_vocab();
    const k3_json *cases = read_json("tests/golden/chat/chat-parse.json");
    size_t n = 0;
    for (const k3_json *test = cases->first; test; test = test->next, n++)
        check(vocab, test, k3_json_get(test, "id")->text, k3_json_text_is(k3_json_get(test, "start"), "think"));
    assert_int_equal(n, 111);
    k3_json_free(cases);
    k3_vocab_close(vocab);
}

static void check_whole(const k3_vocab *vocab, const k3_json *test, const char *id, int thinking)
{
    k3_tokens ids = {0};
    uint64_t random = 0;
    add_case(vocab, &ids, test, 0, &random);
    answer a = parse_ids(vocab, thinking, ids.ids, ids.n);
    check_answer(id, &a, k3_json_get(test, "expect"));
    free_answer(&a);
    k3_tokens_free(&ids);
}

static void every_case_parses_as_expected(void **state)
{
    (void)state;
    for_every_case(check_whole);
}

static int begins_with(const k3_buffer *whole, const k3_buffer *part)
{
    return part->n <= whole->n && (part->n == 0 || memcmp(whole->bytes, part->bytes, part->n) == 0);
}

/* The streamed events up to a cut are what a parse of the cut output gives, except for text that is held for its next byte; and they are
 * a beginning of the whole answer. */
static void check_cuts(const k3_vocab *vocab, const k3_json *test, const char *id, int thinking)
{
    k3_tokens ids = {0};
    uint64_t random = 0;
    k3_error err;
    add_case(vocab, &ids, test, 1, &random);
    answer whole = parse_ids(vocab, thinking, ids.ids, ids.n), streamed = {0};
    k3_chat_parse *parse;
    assert_int_equal(k3_chat_parse_open(&parse, vocab, thinking, collect, &streamed, &err), K3_OK);
    for (size_t i = 0; i <= ids.n; i++) {
        answer cut = parse_ids(vocab, thinking, ids.ids, i);
        int good = begins_with(&whole.reasoning, &streamed.reasoning) && begins_with(&whole.content, &streamed.content) &&
                   begins_with(&cut.reasoning, &streamed.reasoning) && begins_with(&cut.content, &streamed.content) &&
                   streamed.n_calls == cut.n_calls && cut.n_calls <= whole.n_calls &&
                   cut.reasoning.n + cut.content.n <= streamed.reasoning.n + streamed.content.n + 24;
        for (int c = 0; good && c < cut.n_calls; c++)
            good = same_buffer(&cut.names[c], &whole.names[c]) && same_buffer(&cut.arguments[c], &whole.arguments[c]) &&
                   same_buffer(&streamed.arguments[c], &cut.arguments[c]);
        good = good && (streamed.done ? strcmp(cut.finish, whole.finish) == 0 : strcmp(cut.finish, "length") == 0);
        if (!good)
            fail_msg("%s: cut after %zu of %zu ids", id, i, ids.n);
        free_answer(&cut);
        if (i < ids.n)
            assert_int_equal(k3_chat_parse_push(parse, ids.ids[i], &streamed.done, &err), K3_OK);
    }
    k3_chat_parse_close(parse);
    free_answer(&whole);
    free_answer(&streamed);
    k3_tokens_free(&ids);
}

static void every_case_cut_anywhere_is_a_beginning_of_the_whole(void **state)
{
    (void)state;
    for_every_case(check_cuts);
}

static void check_chunkings(const k3_vocab *vocab, const k3_json *test, const char *id, int thinking)
{
    k3_tokens ids = {0};
    uint64_t random = 20260727;
    add_case(vocab, &ids, test, 0, &random);
    answer whole = parse_ids(vocab, thinking, ids.ids, ids.n);
    for (uint32_t i = 0; i < N_CHUNKINGS; i++) {
        ids.n = 0;
        add_case(vocab, &ids, test, 1 + i % 9, &random);
        answer merged = parse_ids(vocab, thinking, ids.ids, ids.n);
        if (!same_answer(&merged, &whole))
            fail_msg("%s: chunking %u of %zu ids", id, i, ids.n);
        free_answer(&merged);
    }
    free_answer(&whole);
    k3_tokens_free(&ids);
}

static void c02_every_case_in_1000_chunkings_merges_to_the_whole(void **state)
{
    (void)state;
    for_every_case(check_chunkings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_parses_as_expected),
        cmocka_unit_test(every_case_cut_anywhere_is_a_beginning_of_the_whole),
        cmocka_unit_test(c02_every_case_in_1000_chunkings_merges_to_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
