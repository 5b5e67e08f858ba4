#include "constrain/token_trie.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct token {
    const char *bytes;
    uint32_t n;
    int32_t id;
} token;

static int is_long(const token *t)
{
    return t->n > K3_TRIE_SHORT;
}

static int compare_tokens(const void *a, const void *b)
{
    const token *x = a, *y = b;
    if (is_long(x) != is_long(y))
        return is_long(x) - is_long(y);
    int order = memcmp(x->bytes, y->bytes, x->n < y->n ? x->n : y->n);
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* The tokens in the order of their bytes, malloc'd [*n]; *n_bytes is their sum. */
static token *sorted_tokens(const k3_vocab *vocab, size_t *n, size_t *n_bytes)
{
    int n_ranks = k3_vocab_n_ranks(vocab);
    token *tokens = malloc(((size_t)n_ranks + 1) * sizeof *tokens);
    *n = *n_bytes = 0;
    for (int id = 0; tokens && id < n_ranks; id++) {
        const char *bytes;
        size_t length;
        if (k3_vocab_bytes(vocab, &bytes, &length, id, NULL) != K3_OK || length == 0 || length > UINT16_MAX)
            continue;
        tokens[(*n)++] = (token){bytes, (uint32_t)length, id};
        *n_bytes += length;
    }
    if (tokens)
        qsort(tokens, *n, sizeof *tokens, compare_tokens);
    return tokens;
}

k3_status k3_token_trie_build(k3_token_trie *out, const k3_vocab *vocab, k3_error *err)
{
    size_t n, n_bytes, n_open = 0;
    token *tokens = sorted_tokens(vocab, &n, &n_bytes);
    uint32_t *open = malloc(((size_t)UINT16_MAX + 1) * sizeof *open); /* nodes on the way to the token before, by depth - 1 */
    *out = (k3_token_trie){.nodes = n_bytes < UINT32_MAX / 2 ? malloc((n_bytes + 1) * sizeof *out->nodes) : NULL};
    if (!tokens || !open || !out->nodes) {
        free(tokens);
        free(open);
        k3_token_trie_free(out);
        return k3_fail(err, K3_E_NOMEM, "no memory for the trie of a vocabulary");
    }
    for (size_t i = 0; i < n; i++) {
        const token *t = &tokens[i];
        size_t same = 0;
        int is_first_long = is_long(t) && out->n_long_tokens++ == 0;
        while (!is_first_long && same < n_open && same < t->n && out->nodes[open[same]].byte == (uint8_t)t->bytes[same])
            same++;
        while (n_open > same)
            out->nodes[open[--n_open]].skip = (uint32_t)out->n;
        if (is_first_long)
            out->n_short = out->n;
        for (; n_open < t->n; n_open++) {
            open[n_open] = (uint32_t)out->n;
            out->nodes[out->n++] = (k3_trie_node){.id = -1, .depth = (uint16_t)(n_open + 1), .byte = (uint8_t)t->bytes[n_open]};
        }
        out->nodes[open[n_open - 1]].id = t->id;
        out->deepest = t->n > out->deepest ? t->n : out->deepest;
    }
    while (n_open > 0)
        out->nodes[open[--n_open]].skip = (uint32_t)out->n;
    if (out->n_long_tokens == 0)
        out->n_short = out->n;
    free(tokens);
    free(open);
    k3_trie_node *fitted = realloc(out->nodes, (out->n + 1) * sizeof *fitted);
    out->nodes = fitted ? fitted : out->nodes;
    return K3_OK;
}

void k3_token_trie_free(k3_token_trie *trie)
{
    free(trie->nodes);
    *trie = (k3_token_trie){0};
}

struct k3_shared_trie {
    pthread_mutex_t lock;
    const k3_vocab *vocab;
    k3_token_trie trie; /* nodes NULL: not built yet */
};

k3_status k3_shared_trie_open(k3_shared_trie **out, const k3_vocab *vocab, k3_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return k3_fail(err, K3_E_NOMEM, "no memory for the trie of a vocabulary");
    (*out)->vocab = vocab;
    pthread_mutex_init(&(*out)->lock, NULL);
    return K3_OK;
}

k3_status k3_shared_trie_get(k3_shared_trie *shared, const k3_token_trie **trie, k3_error *err)
{
    pthread_mutex_lock(&shared->lock);
    k3_status status = shared->trie.nodes ? K3_OK : k3_token_trie_build(&shared->trie, shared->vocab, err);
    pthread_mutex_unlock(&shared->lock);
    *trie = &shared->trie;
    return status;
}

void k3_shared_trie_close(k3_shared_trie *shared)
{
    if (!shared)
        return;
    pthread_mutex_destroy(&shared->lock);
    k3_token_trie_free(&shared->trie);
    free(shared);
}
