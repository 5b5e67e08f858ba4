/* Byte-pair encoding by rank: start from single bytes, and as long as two neighbours join to a token, join the pair of the lowest
 * rank, the leftmost of equals. Time grows like n log n, so a word of a megabyte is as harmless as a page of prose. */
#ifndef K3_TEXT_BPE_H
#define K3_TEXT_BPE_H

#include "text/vocab.h"

/* Working memory of one thread, reused from piece to piece; zero-initialise. */
typedef struct k3_bpe {
    struct k3_bpe_part *parts;
    uint64_t *heap;
    size_t capacity;  /* parts */
    size_t heap_size; /* entries */
    uint64_t n_steps; /* pairs looked up so far: the work, for tests of its growth */
} k3_bpe;

/* Appends the ids of one piece, n < 2^31. */
k3_status k3_bpe_encode(k3_bpe *bpe, k3_tokens *out, const k3_vocab *vocab, const char *piece, size_t n, k3_error *err);
void k3_bpe_close(k3_bpe *bpe);

#endif
