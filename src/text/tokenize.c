#include "text/tokenize.h"

#include <stdlib.h>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/tokens.h"

struct k3_encoder {
    const k3_vocab *vocab;
    k3_splitter *splitter;
    k3_bpe bpe;
};

k3_status k3_encoder_open(k3_encoder **out, const k3_vocab *vocab, k3_error *err)
{
    *out = NULL;
    k3_encoder *e = calloc(1, sizeof *e);
    if (!e)
        return k3_fail(err, K3_E_NOMEM, "no memory to encode text");
    e->vocab = vocab;
    k3_status status = k3_splitter_open(&e->splitter, k3_vocab_pretokenizer(vocab), err);
    if (status != K3_OK) {
        k3_encoder_close(e);
        return status;
    }
    *out = e;
    return K3_OK;
}

void k3_encoder_close(k3_encoder *e)
{
    if (!e)
        return;
    k3_splitter_close(e->splitter);
    k3_bpe_close(&e->bpe);
    free(e);
}

/* A stretch without cuts and without special tokens. */
static k3_status add_plain(k3_encoder *e, k3_tokens *out, const char *text, size_t n, int late, k3_error *err)
{
    K3_TRY(k3_splitter_start(e->splitter, text, n, late, err));
    for (;;) {
        size_t n_piece;
        K3_TRY(k3_splitter_next(e->splitter, &n_piece, err));
        if (n_piece == 0)
            return K3_OK;
        K3_TRY(k3_bpe_encode(&e->bpe, out, e->vocab, text, n_piece, err));
        text += n_piece;
    }
}

/* A stretch without cuts whose special names are tokens: the text between two of them is a string of its own. */
static k3_status add_trusted(k3_encoder *e, k3_tokens *out, const char *text, size_t n, int late, k3_error *err)
{
    size_t start = 0;
    for (size_t i = 0; i < n;) {
        size_t n_name;
        int id = k3_vocab_special_at(e->vocab, text + i, n - i, &n_name);
        if (id < 0) {
            i++;
            continue;
        }
        K3_TRY(add_plain(e, out, text + start, i - start, late, err));
        K3_TRY(k3_tokens_add(out, id, err));
        i += n_name;
        start = i;
    }
    return add_plain(e, out, text + start, n - start, late, err);
}

static k3_status add_valid(k3_encoder *e, k3_tokens *out, const char *text, size_t n, int trusted, k3_error *err)
{
    k3_cut cut = {0};
    while (n > 0) {
        int late;
        size_t n_cut = k3_cut_next(&cut, text, n, &late);
        K3_TRY(trusted ? add_trusted(e, out, text, n_cut, late, err) : add_plain(e, out, text, n_cut, late, err));
        text += n_cut;
        n -= n_cut;
    }
    return K3_OK;
}

k3_status k3_encoder_add(k3_encoder *e, k3_tokens *out, const char *text, size_t n, int trusted, k3_error *err)
{
    size_t n_before = out->n;
    k3_status status;
    if (k3_utf8_is_valid(text, n)) {
        status = add_valid(e, out, text, n, trusted, err);
    } else {
        char *repaired = n < SIZE_MAX / 4 ? malloc(3 * (n + 3)) : NULL;
        if (!repaired)
            return k3_fail(err, K3_E_NOMEM, "no memory for a text of %zu bytes", n);
        k3_utf8 state = {0};
        size_t n_repaired = k3_utf8_push(&state, repaired, text, n);
        n_repaired += k3_utf8_push(&state, repaired + n_repaired, NULL, 0);
        status = add_valid(e, out, repaired, n_repaired, trusted, err);
        free(repaired);
    }
    if (status != K3_OK)
        out->n = n_before;
    return status;
}

k3_status k3_text_encode(const k3_vocab *vocab, k3_tokens *out, const char *text, size_t n, int trusted, k3_error *err)
{
    k3_encoder *encoder;
    K3_TRY(k3_encoder_open(&encoder, vocab, err));
    k3_status status = k3_encoder_add(encoder, out, text, n, trusted, err);
    k3_encoder_close(encoder);
    return status;
}
