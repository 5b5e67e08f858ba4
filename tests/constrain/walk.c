#include "walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_parse.h"
#include "text/tokenize.h"

static k3_vocab *vocab;
static k3_token_trie trie;
static float *logits;

const k3_vocab *the_vocab(void)
{
    k3_error err;
    if (!vocab && k3_vocab_open(&vocab, "models/k3-mini", 2048, &err) != K3_OK)
        fail_msg("%s", err.text);
    return vocab;
}

const k3_token_trie *the_trie(void)
{
    k3_error err;
    if (!trie.nodes && k3_token_trie_build(&trie, the_vocab(), &err) != K3_OK)
        fail_msg("%s", err.text);
    return &trie;
}

void close_vocab(void)
{
    k3_token_trie_free(&trie);
    k3_vocab_close(vocab);
    free(logits);
    logits = NULL;
    vocab = NULL;
}

k3_constraint *open_constraint(const char *request, int thinking)
{
    k3_constraint *c;
    k3_error err;
    if (k3_constraint_make(&c, the_vocab(), the_trie(), request, strlen(request), thinking, &err) != K3_OK)
        fail_msg("%s: %s", request, err.text);
    if (!c)
        fail_msg("%s: narrows nothing", request);
    return c;
}

char *request_of(const char *schema)
{
    static const char before[] = "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"t\",\"schema\":";
    char *request = malloc(sizeof before + strlen(schema) + 8);
    assert_non_null(request);
    sprintf(request, "%s%s}}}", before, schema);
    return request;
}

/* ---- taking apart -------------------------------------------------------------------------------------- */

static void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    parts *p = user;
    assert_true(index < MAX_CALLS);
    if (kind == K3_CHAT_CONTENT)
        k3_buffer_add(&p->content, text, n);
    if (kind == K3_CHAT_CALL)
        k3_buffer_add(&p->names[index], text, n);
    if (kind == K3_CHAT_ARGUMENTS)
        k3_buffer_add(&p->arguments[index], text, n);
    p->n_calls += kind == K3_CHAT_CALL_END;
}

parts take_apart(const k3_tokens *ids, int thinking)
{
    parts p = {0};
    k3_chat_parse *parse;
    k3_error err;
    assert_int_equal(k3_chat_parse_open(&parse, the_vocab(), thinking, collect, &p, &err), K3_OK);
    for (size_t i = 0; i < ids->n; i++)
        assert_int_equal(k3_chat_parse_push(parse, ids->ids[i], &p.done, &err), K3_OK);
    (void)k3_chat_parse_finish(parse);
    k3_chat_parse_close(parse);
    return p;
}

void free_parts(parts *p)
{
    k3_buffer_free(&p->content);
    for (int i = 0; i < MAX_CALLS; i++) {
        k3_buffer_free(&p->names[i]);
        k3_buffer_free(&p->arguments[i]);
    }
}

/* ---- random answers ------------------------------------------------------------------------------------ */

static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

static void narrow(k3_constraint *c)
{
    size_t n = (size_t)k3_vocab_size(the_vocab());
    k3_error err;
    if (!logits)
        logits = malloc(n * sizeof *logits);
    assert_non_null(logits);
    for (size_t i = 0; i < n; i++)
        logits[i] = 0;
    if (k3_constraint_narrow(c, logits, n, &err) != K3_OK)
        fail_msg("%s", err.text);
}

/* What ends something: markers, then quotes, then brackets. */
static int pick_end(void)
{
    static const char ends[] = "\"}]";
    for (int id = k3_vocab_n_ranks(the_vocab()); id < k3_vocab_size(the_vocab()); id++)
        if (logits[id] == 0 && id != k3_vocab_special(the_vocab(), "<|open|>"))
            return id;
    for (size_t i = 0; ends[i]; i++) {
        int id = k3_vocab_rank(the_vocab(), &ends[i], 1);
        if (logits[id] == 0)
            return id;
    }
    return -1;
}

static int pick(uint64_t *random, size_t n_before)
{
    int picked = -1;
    if (n_before > 60 || draw(random, 8) == 0)
        picked = pick_end();
    uint32_t n = 0;
    for (int id = 0; id < k3_vocab_size(the_vocab()) && picked < 0; id++)
        n += logits[id] == 0;
    uint32_t at = n > 0 ? draw(random, n) : 0;
    for (int id = 0; picked < 0 && id < k3_vocab_size(the_vocab()); id++)
        if (logits[id] == 0 && at-- == 0)
            picked = id;
    return picked;
}

void random_answer(k3_constraint *c, k3_tokens *ids, uint64_t *random)
{
    k3_error err;
    while (!k3_constraint_is_over(c)) {
        narrow(c);
        int id = pick(random, ids->n);
        if (id < 0 || ids->n > MAX_WALK)
            fail_msg("%s after %zu ids", id < 0 ? "a dead end" : "no end", ids->n);
        if (k3_constraint_push(c, id, &err) != K3_OK)
            fail_msg("an id that stays is refused: %s", err.text);
        assert_int_equal(k3_tokens_add(ids, id, &err), K3_OK);
    }
}

/* ---- answers that are fed ------------------------------------------------------------------------------ */

/* Whether the id stays and is taken: both or none. */
static int feed_id(k3_constraint *c, int32_t id, k3_tokens *fed)
{
    k3_error err;
    narrow(c);
    int stays = logits[id] == 0;
    k3_status status = k3_constraint_push(c, id, &err);
    assert_int_equal(status, stays ? K3_OK : K3_E_INVALID);
    if (stays && fed)
        assert_int_equal(k3_tokens_add(fed, id, &err), K3_OK);
    return stays;
}

size_t feed_text(k3_constraint *c, const char *text, size_t n, int by_bytes, k3_tokens *fed)
{
    k3_tokens ids = {0};
    k3_error err;
    size_t taken = 0;
    if (by_bytes)
        for (size_t i = 0; i < n; i++)
            assert_int_equal(k3_tokens_add(&ids, k3_vocab_rank(the_vocab(), text + i, 1), &err), K3_OK);
    else
        assert_int_equal(k3_text_encode(the_vocab(), &ids, text, n, 0, &err), K3_OK);
    for (size_t i = 0; i < ids.n && feed_id(c, ids.ids[i], fed); i++) {
        const char *bytes;
        size_t n_bytes;
        assert_int_equal(k3_vocab_bytes(the_vocab(), &bytes, &n_bytes, ids.ids[i], &err), K3_OK);
        taken += n_bytes;
    }
    k3_tokens_free(&ids);
    return taken;
}

/* The end of the tag's part that begins at text: the renderer encodes name, " key", "=\"", value and "\"" alone. */
static size_t part_length(const char *text, size_t n, int *in_value)
{
    if (*in_value) {
        size_t length = strcspn(text, "\"");
        if (length > 0)
            return length < n ? length : n;
        *in_value = 0;
        return 1;
    }
    if (n >= 2 && text[0] == '=' && text[1] == '"') {
        *in_value = 1;
        return 2;
    }
    size_t length = 1;
    while (length < n && text[length] != ' ' && text[length] != '=')
        length++;
    return length;
}

size_t feed_script(k3_constraint *c, const char *script, int by_bytes, k3_tokens *fed)
{
    static const char signs[] = OPEN CLOSE SEP END;
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
    int in_tag = 0;
    size_t at = 0;
    while (script[at]) {
        const char *sign = strchr(signs, script[at]);
        if (sign) {
            if (!feed_id(c, k3_vocab_special(the_vocab(), names[sign - signs]), fed))
                return at;
            in_tag = sign - signs < 2;
            at++;
            continue;
        }
        size_t n = strcspn(script + at, signs), n_taken;
        int in_value = 0;
        for (size_t end = at + n; at < end; at += n_taken) {
            size_t length = in_tag ? part_length(script + at, end - at, &in_value) : end - at;
            n_taken = feed_text(c, script + at, length, by_bytes, fed);
            if (n_taken < length)
                return at + n_taken;
        }
    }
    return at;
}
