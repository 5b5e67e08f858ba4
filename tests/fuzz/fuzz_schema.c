/* JSON Schema. The input is a schema; a request for it is opened, and an answer is drawn by the input's own bytes from the ids that stay.
 * There is always one, each that stays is taken, and an answer that comes to its end is JSON. */
#include "frame.h"

#include <math.h>

#include "base/json.h"
#include "constrain/constraint.h"
#include "text/chat_parse.h"

static const k3_vocab *the_vocab(void)
{
    static const k3_vocab *vocab;
    if (!vocab) /* `":`, `","`, `{"`, `"}`, `]}`, `, "`, `null`: tokens that cross what the grammar looks for */
        vocab = open_vocab("Ijo= 256\nIiwi 257\neyI= 258\nIn0= 259\nXX0= 260\nLCAi 261\nbnVsbA== 262\n");
    return vocab;
}

static void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    (void)index;
    check(kind == K3_CHAT_CONTENT);
    k3_buffer_add(user, text, n);
}

static void draw(k3_constraint *c, const uint8_t *data, size_t size)
{
    enum { MOST = 200 };
    float logits[263 + 256];
    size_t n = (size_t)k3_vocab_size(the_vocab());
    int32_t ids[MOST];
    k3_buffer content = {0};
    k3_chat_parse *parse;
    k3_error err;
    int done = 0;
    check(k3_chat_parse_open(&parse, the_vocab(), 0, collect, &content, &err) == K3_OK);
    for (size_t i = 0; i < MOST && !k3_constraint_is_over(c); i++) {
        memset(logits, 0, sizeof logits);
        if (k3_constraint_narrow(c, logits, n, &err) != K3_OK)
            break; /* too ambiguous */
        size_t n_stay = 0, at;
        for (size_t id = 0; id < n; id++)
            n_stay += logits[id] == 0;
        check(n_stay > 0);
        at = (size_t)(data[(i * 7 + 3) % size] + 31 * data[i % size]) % n_stay;
        for (ids[i] = 0; logits[ids[i]] != 0 || at-- > 0;)
            ids[i]++;
        k3_status status = k3_constraint_push(c, ids[i], &err);
        check(status == K3_OK || status == K3_E_UNSUPPORTED);
        if (status != K3_OK)
            break;
        check(k3_chat_parse_push(parse, ids[i], &done, &err) == K3_OK);
    }
    check(k3_constraint_is_over(c) == done);
    if (done) {
        const k3_json *value;
        (void)k3_chat_parse_finish(parse);
        check(k3_json_parse(&value, content.bytes, content.n, 0, &err) == K3_OK);
        k3_json_free(value);
    }
    k3_chat_parse_close(parse);
    k3_buffer_free(&content);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static k3_token_trie trie;
    static const char before[] = "{\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":";
    k3_error err = {0};
    k3_constraint *c;
    k3_buffer request = {0};
    if (size == 0)
        return 0;
    if (!trie.nodes)
        check(k3_token_trie_build(&trie, the_vocab(), &err) == K3_OK);
    k3_buffer_add_text(&request, before);
    k3_buffer_add(&request, (const char *)data, size);
    k3_buffer_add_text(&request, "}}}");
    k3_status status = k3_constraint_make(&c, the_vocab(), &trie, request.bytes, request.n, 0, &err);
    check(status == K3_OK || (err.text[0] && !c));
    if (c)
        draw(c, data, size);
    k3_constraint_close(c);
    k3_buffer_free(&request);
    return 0;
}
