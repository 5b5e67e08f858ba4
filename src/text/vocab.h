/* The vocabulary: byte strings with ranks (tiktoken.model) and the special names above them (tokenizer_config.json).
 * Read-only after opening, safe from any number of threads. */
#ifndef K3_TEXT_VOCAB_H
#define K3_TEXT_VOCAB_H

#include "base/error.h"
#include "text/pretokenize.h"

typedef struct k3_vocab k3_vocab;

/* Reads FOLDER/tiktoken.model: lines "base64 rank", ranks 0..n-1 each once, all 256 single bytes among them. LF or CRLF.
 * Ids n..vocab_size-1 (1 to 65,536 of them; 256 in K3) are special and take their names from added_tokens_decoder in
 * FOLDER/tokenizer_config.json, by the ids written there; without that file, or without that key, they get K3's names by their distance
 * from n, as far as there are slots. A slot without a name is <|reserved_token_ID|>. */
k3_status k3_vocab_open(k3_vocab **out, const char *folder, int vocab_size, k3_error *err);
/* The same from memory; config may be NULL (no such file). The texts are not kept. */
k3_status k3_vocab_parse(k3_vocab **out, const char *model, size_t n_model, const char *config, size_t n_config, int vocab_size,
                         k3_error *err);
void k3_vocab_close(k3_vocab *vocab);

int k3_vocab_size(const k3_vocab *vocab);
int k3_vocab_n_ranks(const k3_vocab *vocab);
/* *bytes points into the vocabulary; a special id gives its name. Any id outside 0..size-1 is K3_E_INVALID. */
k3_status k3_vocab_bytes(const k3_vocab *vocab, const char **bytes, size_t *n_bytes, int64_t id, k3_error *err);
/* Id of a special name; -1 if there is none. */
int k3_vocab_special(const k3_vocab *vocab, const char *name);
int k3_vocab_is_special(const k3_vocab *vocab, int64_t id);
/* Id of the longest special name that text begins with, and its length; -1 if there is none. */
int k3_vocab_special_at(const k3_vocab *vocab, const char *text, size_t n, size_t *n_name);

/* Rank of a byte string; -1 if it is no token. Special names are not found here. */
int k3_vocab_rank(const k3_vocab *vocab, const char *bytes, size_t n);
size_t k3_vocab_longest(const k3_vocab *vocab); /* bytes of the longest token that has a rank */
const k3_pretokenizer *k3_vocab_pretokenizer(const k3_vocab *vocab);

#endif
