/* The byte strings of a vocabulary's ordinary tokens as a trie in one array, in the order of a walk that goes down first. */
#ifndef K3_CONSTRAIN_TOKEN_TRIE_H
#define K3_CONSTRAIN_TOKEN_TRIE_H

#include "text/vocab.h"

typedef struct k3_trie_node {
    uint32_t skip;  /* the first node behind this one's branch */
    int32_t id;     /* the token that ends here; -1: none */
    uint16_t depth; /* from 1 */
    uint8_t byte;
} k3_trie_node;

enum { K3_TRIE_SHORT = 16 };

/* Two tries, one behind the other: of tokens up to K3_TRIE_SHORT bytes, and of the few that are longer. */
typedef struct k3_token_trie {
    k3_trie_node *nodes;
    size_t n_short, n, deepest, n_long_tokens;
} k3_token_trie;

/* Tokens of more than 65,535 bytes are left out. */
k3_status k3_token_trie_build(k3_token_trie *out, const k3_vocab *vocab, k3_error *err);
void k3_token_trie_free(k3_token_trie *trie);

/* One trie for all who want it, from any thread: built when it is first asked for. */
typedef struct k3_shared_trie k3_shared_trie;
k3_status k3_shared_trie_open(k3_shared_trie **out, const k3_vocab *vocab, k3_error *err);
k3_status k3_shared_trie_get(k3_shared_trie *shared, const k3_token_trie **trie, k3_error *err);
void k3_shared_trie_close(k3_shared_trie *shared);

#endif
