/* The chat format. Bit 1 of the first byte chooses: render the rest as a request, or parse it as an output, where bytes 0xf9 and above are
 * marker tokens, below 9 common headers, and the rest ordinary text. An output is parsed in three chunkings, which must agree; pieces are
 * valid UTF-8, arguments are one JSON object, and no marker's name appears that the text did not spell. */
#include "frame.h"

#include "base/json.h"
#include "base/utf8.h"
#include "text/chat_parse.h"
#include "text/chat_render.h"
#include "text/tokenize.h"
#include "text/tokens.h"

static const k3_vocab *the_vocab(void)
{
    static const k3_vocab *vocab;
    if (!vocab) /* "<|", "|>", "|><", "=\"", "|>x": tokens that cross what the parser looks for */
        vocab = open_vocab("PHw= 256\nfD4= 257\nfD48 258\nPSI= 259\nfD54 260\n");
    return vocab;
}

/* ---- rendering ----------------------------------------------------------------------------------------- */

static void check_render(const char *request, size_t n)
{
    const k3_vocab *vocab = the_vocab();
    k3_tokens ids = {0}, joined = {0};
    k3_chat_segments segments = {0};
    int thinking;
    k3_error err = {0};
    k3_status status = k3_chat_render_request(vocab, &ids, &segments, &thinking, request, n, &err);
    check(status == K3_OK || (err.text[0] && ids.n == 0 && segments.n == 0));
    for (size_t i = 0; i < segments.n; i++) {
        const k3_chat_segment *s = &segments.items[i];
        check(s->n_bytes > 0);
        check(k3_text_encode(vocab, &joined, s->text, s->n_bytes, s->kind != K3_SEGMENT_TEXT, &err) == K3_OK);
    }
    check(joined.n == ids.n && (ids.n == 0 || memcmp(joined.ids, ids.ids, ids.n * sizeof *ids.ids) == 0));
    k3_tokens_free(&ids);
    k3_tokens_free(&joined);
    k3_chat_segments_free(&segments);
}

/* ---- parsing ------------------------------------------------------------------------------------------- */

typedef struct answer {
    k3_buffer all[2], calls;
    int n_calls, in_call;
    const char *finish;
} answer;

static void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    answer *a = user;
    check(k3_utf8_is_valid(text, n));
    if (kind == K3_CHAT_REASONING || kind == K3_CHAT_CONTENT) {
        check(n > 0 && !a->in_call);
        k3_buffer_add(&a->all[kind == K3_CHAT_CONTENT], text, n);
        return;
    }
    check(index == a->n_calls && (kind == K3_CHAT_CALL) != a->in_call);
    a->in_call = kind != K3_CHAT_CALL_END;
    k3_buffer_add(&a->calls, text, n);
    k3_buffer_add_char(&a->calls, '\n');
    if (kind == K3_CHAT_ARGUMENTS) {
        const k3_json *object;
        check(k3_json_parse(&object, text, n, K3_JSON_SURROGATES, NULL) == K3_OK && object->type == K3_JSON_OBJECT);
        k3_json_free(object);
    }
    a->n_calls += kind == K3_CHAT_CALL_END;
}

/* chunk 0: the longest valid stretches of text, encoded; otherwise single bytes, every chunk-th pair encoded together. */
static void make_ids(k3_tokens *ids, const uint8_t *data, size_t n, size_t chunk)
{
    static const char *const names[] = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>", "[EOS]", "[BOS]", "<|media_pad|>"};
    static const char *const words[] = {"call tool=\"f\"",
                                        "argument key=\"k\" type=\"number\"",
                                        "think",
                                        "response",
                                        "tools",
                                        "message",
                                        "json type=\"object\"",
                                        "argument",
                                        "call"};
    const k3_vocab *vocab = the_vocab();
    k3_error err;
    for (size_t i = 0; i < n; i++) {
        const char *text = (const char *)data + i;
        size_t n_here = 1;
        if (data[i] >= 0xf9) {
            check(k3_tokens_add(ids, k3_vocab_special(vocab, names[data[i] - 0xf9]), &err) == K3_OK);
            continue;
        }
        if (data[i] < 9) {
            text = words[data[i]];
            n_here = strlen(text);
        } else if (chunk > 0 && i + 1 < n && i % chunk == 0 && data[i] < 0x80 && data[i + 1] < 0x80 && data[i + 1] >= 9) {
            n_here = 2;
            i++;
        }
        if (n_here == 1 || chunk == 0)
            for (size_t j = 0; j < n_here; j++)
                check(k3_tokens_add(ids, k3_vocab_rank(vocab, text + j, 1), &err) == K3_OK);
        else
            check(k3_text_encode(vocab, ids, text, n_here, 0, &err) == K3_OK);
    }
}

static answer parse(const k3_tokens *ids, int thinking)
{
    answer a = {0};
    k3_chat_parse *p;
    k3_error err;
    int done = 0;
    check(k3_chat_parse_open(&p, the_vocab(), thinking, collect, &a, &err) == K3_OK);
    for (size_t i = 0; i < ids->n; i++)
        check(k3_chat_parse_push(p, ids->ids[i], &done, &err) == K3_OK);
    a.finish = k3_chat_parse_finish(p);
    k3_chat_parse_close(p);
    check(!a.in_call && done == (strcmp(a.finish, "length") != 0));
    return a;
}

static int same(const k3_buffer *a, const k3_buffer *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->bytes, b->bytes, a->n) == 0);
}

static void free_answer(answer *a)
{
    k3_buffer_free(&a->all[0]);
    k3_buffer_free(&a->all[1]);
    k3_buffer_free(&a->calls);
}

static int spells_marker(const k3_buffer *text)
{
    return text->n > 0 && memmem(text->bytes, text->n, "<|", 2) != NULL;
}

static void check_parse(const uint8_t *data, size_t n, int thinking)
{
    answer first = {0};
    int spelled = 0;
    for (size_t i = 0; i + 1 < n; i++)
        spelled |= data[i] == '<';
    for (size_t chunk = 0; chunk < 3; chunk++) {
        k3_tokens ids = {0};
        make_ids(&ids, data, n, chunk);
        answer a = parse(&ids, thinking);
        k3_tokens_free(&ids);
        check(spelled || !(spells_marker(&a.all[0]) || spells_marker(&a.all[1])));
        if (chunk == 0) {
            first = a;
            continue;
        }
        check(same(&a.all[0], &first.all[0]) && same(&a.all[1], &first.all[1]) && same(&a.calls, &first.calls));
        check(strcmp(a.finish, first.finish) == 0);
        free_answer(&a);
    }
    free_answer(&first);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] & 2)
        check_parse(data + 1, size - 1, data[0] & 1);
    else
        check_render((const char *)data + 1, size - 1);
    return 0;
}
