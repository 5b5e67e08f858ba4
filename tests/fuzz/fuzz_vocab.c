/* Vocabulary files and text. The input is "model NUL config NUL text": broken files are refused, good ones encode any text to ids that
 * decode to it. Missing single bytes are added, so that small inputs get past the check for them. */
#include "frame.h"

#include "base/utf8.h"
#include "text/tokenize.h"

static void check_text(const k3_vocab *vocab, const char *text, size_t n, int trusted)
{
    k3_tokens ids = {0};
    k3_error err;
    check(k3_text_encode(vocab, &ids, text, n, trusted, &err) == K3_OK);
    k3_buffer back = {0}, wanted = {0};
    for (size_t i = 0; i < ids.n; i++) {
        const char *bytes;
        size_t n_bytes;
        check(k3_vocab_bytes(vocab, &bytes, &n_bytes, ids.ids[i], &err) == K3_OK);
        check(trusted || !k3_vocab_is_special(vocab, ids.ids[i]));
        k3_buffer_add(&back, bytes, n_bytes);
    }
    k3_utf8 utf8 = {0};
    char *room = k3_buffer_room(&wanted, 3 * (n + 3));
    check(room != NULL);
    wanted.n = k3_utf8_push(&utf8, room, text, n);
    wanted.n += k3_utf8_push(&utf8, room + wanted.n, NULL, 0);
    check(k3_utf8_is_valid(wanted.bytes, wanted.n));
    check(back.n == wanted.n && (back.n == 0 || memcmp(back.bytes, wanted.bytes, back.n) == 0));
    k3_buffer_free(&back);
    k3_buffer_free(&wanted);
    k3_tokens_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = text + size;
    const char *config = memchr(text, 0, size);
    size_t n_model = config ? (size_t)(config - text) : size;
    config = config ? config + 1 : end;
    const char *rest = memchr(config, 0, (size_t)(end - config));
    size_t n_config = rest ? (size_t)(rest - config) : (size_t)(end - config);
    rest = rest ? rest + 1 : end;
    char bytes[BYTE_VOCAB_TEXT];
    k3_buffer model = {0};
    if (size % 4 != 0)
        k3_buffer_add(&model, bytes, byte_vocab(bytes));
    k3_buffer_add(&model, text, n_model);
    int n_lines = 0;
    for (size_t i = 0; i < model.n; i++)
        n_lines += model.bytes[i] == '\n';
    k3_vocab *vocab;
    k3_error err;
    if (k3_vocab_parse(&vocab, model.n ? model.bytes : "", model.n, n_config ? config : NULL, n_config, n_lines + 30 + (int)(size % 300),
                       &err) == K3_OK) {
        check_text(vocab, rest, (size_t)(end - rest), 0);
        check_text(vocab, rest, (size_t)(end - rest), 1);
        k3_vocab_close(vocab);
    }
    k3_buffer_free(&model);
    return 0;
}
