#include "chat_answer.h"

#include <string.h>

#include "base/utf8.h"
#include "text/chat_parse.h"
#include "text/tokenize.h"
#include "text/tokens.h"

void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    answer *a = user;
    a->n_events++;
    assert_true(k3_utf8_is_valid(text, n));
    if (kind == K3_CHAT_REASONING || kind == K3_CHAT_CONTENT) {
        assert_false(a->in_call);
        assert_true(n > 0);
        k3_buffer_add(kind == K3_CHAT_REASONING ? &a->reasoning : &a->content, text, n);
        return;
    }
    assert_int_equal(index, a->n_calls);
    assert_true(index < MAX_CALLS);
    if (kind == K3_CHAT_CALL) {
        assert_false(a->in_call);
        a->in_call = 1;
        k3_buffer_add(&a->names[index], text, n);
    } else if (kind == K3_CHAT_ARGUMENTS) {
        assert_true(a->in_call);
        k3_buffer_add(&a->arguments[index], text, n);
    } else {
        assert_int_equal(kind, K3_CHAT_CALL_END);
        a->in_call = 0;
        a->n_calls++;
    }
}

void free_answer(answer *a)
{
    k3_buffer_free(&a->reasoning);
    k3_buffer_free(&a->content);
    for (int i = 0; i < MAX_CALLS; i++) {
        k3_buffer_free(&a->names[i]);
        k3_buffer_free(&a->arguments[i]);
    }
}

answer parse_ids(const k3_vocab *vocab, int thinking, const int32_t *ids, size_t n)
{
    answer a = {0};
    k3_error err = {0};
    k3_chat_parse *parse;
    assert_int_equal(k3_chat_parse_open(&parse, vocab, thinking, collect, &a, &err), K3_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(k3_chat_parse_push(parse, ids[i], &a.done, &err), K3_OK);
    a.finish = k3_chat_parse_finish(parse);
    k3_chat_parse_close(parse);
    assert_false(a.in_call);
    return a;
}

int same_buffer(const k3_buffer *a, const k3_buffer *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

int same_answer(const answer *a, const answer *b)
{
    int same = same_buffer(&a->reasoning, &b->reasoning) && same_buffer(&a->content, &b->content) && a->n_calls == b->n_calls &&
               strcmp(a->finish, b->finish) == 0;
    for (int i = 0; same && i < a->n_calls; i++)
        same = same_buffer(&a->names[i], &b->names[i]) && same_buffer(&a->arguments[i], &b->arguments[i]);
    return same;
}

void add_text(const k3_vocab *vocab, k3_tokens *ids, const char *text, size_t n, uint32_t n_most, uint64_t *random)
{
    k3_error err;
    for (size_t i = 0; i < n;) {
        size_t n_here = n_most == 0 ? n : 1 + random_below(random, n_most);
        n_here = n_here < n - i ? n_here : n - i;
        if (k3_utf8_is_valid(text + i, n_here)) {
            assert_int_equal(k3_text_encode(vocab, ids, text + i, n_here, 0, &err), K3_OK);
        } else {
            /* Part of a character: what a model does when it writes it byte by byte. */
            for (size_t j = 0; j < n_here; j++)
                assert_int_equal(k3_tokens_add(ids, k3_vocab_rank(vocab, text + i + j, 1), &err), K3_OK);
        }
        i += n_here;
    }
}

void add_script(const k3_vocab *vocab, k3_tokens *ids, const char *script)
{
    static const char signs[] = "{}|$";
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    uint64_t random = 0;
    k3_error err;
    while (*script) {
        const char *sign = strchr(signs, *script);
        size_t n = sign ? 1 : strcspn(script, signs);
        if (sign)
            assert_int_equal(k3_text_encode(vocab, ids, names[sign - signs], strlen(names[sign - signs]), 1, &err), K3_OK);
        else
            add_text(vocab, ids, script, n, 0, &random);
        script += n;
    }
}
