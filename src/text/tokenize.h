/* Text to ids. */
#ifndef K3_TEXT_TOKENIZE_H
#define K3_TEXT_TOKENIZE_H

#include "text/vocab.h"

/* Appends the ids of `text`. trusted: the names of special tokens in it become those tokens; otherwise their spelling is plain text.
 * Invalid UTF-8 is read as U+FFFD, as utf8.h says. When it fails, out keeps what it had before. */
k3_status k3_text_encode(const k3_vocab *vocab, k3_tokens *out, const char *text, size_t n, int trusted, k3_error *err);

/* For many short texts: the working memory lives as long as the encoder. One thread at a time. */
typedef struct k3_encoder k3_encoder;
k3_status k3_encoder_open(k3_encoder **out, const k3_vocab *vocab, k3_error *err);
k3_status k3_encoder_add(k3_encoder *encoder, k3_tokens *out, const char *text, size_t n, int trusted, k3_error *err);
void k3_encoder_close(k3_encoder *encoder);

#endif
