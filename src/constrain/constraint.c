#include "constrain/constraint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "constrain/answer.h"
#include "constrain/automaton.h"
#include "constrain/markup.h"
#include "text/chat_markers.h"

enum { N_MASKS = 24 };

/* The ids that may come next from a configuration, a bit each. */
typedef struct mask {
    uint64_t *bits; /* NULL: not used yet */
    uint32_t config;
    uint64_t last_used;
    int is_known, has_long; /* has_long: long tokens are in it as well */
} mask;

typedef struct kept {
    int32_t id;
    float logit;
} kept;

struct k3_constraint {
    const k3_vocab *vocab;
    const k3_token_trie *trie;
    k3_grammar grammar;
    k3_automaton *automaton;
    uint32_t config;
    int32_t marks[K3_N_MARKS], eos;
    mask masks[N_MASKS];
    uint64_t n_uses;
    uint32_t *path;        /* [deepest + 1] configurations of the walk by depth */
    const int32_t **steps; /* [deepest + 1] what is known of their steps */
    kept *kept;            /* [n_long_tokens] those of them that stay */
    size_t n_kept;
};

/* ---- opening ------------------------------------------------------------------------------------------- */

static k3_status prepare(k3_constraint *c, int *narrows, const k3_json *request, int thinking, k3_error *err)
{
    k3_chat_markers markers;
    uint32_t rule;
    K3_TRY(k3_chat_markers_find(&markers, c->vocab, err));
    K3_TRY(k3_answer_grammar(&c->grammar, &rule, narrows, request, thinking, err));
    if (!*narrows)
        return K3_OK;
    c->marks[K3_MARK_OPEN] = markers.open;
    c->marks[K3_MARK_CLOSE] = markers.close;
    c->marks[K3_MARK_SEP] = markers.sep;
    c->marks[K3_MARK_END] = markers.end;
    c->eos = markers.eos;
    c->path = malloc((c->trie->deepest + 1) * sizeof *c->path);
    c->steps = malloc((c->trie->deepest + 1) * sizeof *c->steps);
    c->kept = malloc((c->trie->n_long_tokens + 1) * sizeof *c->kept);
    if (!c->path || !c->steps || !c->kept)
        return k3_fail(err, K3_E_NOMEM, "no memory for a constraint");
    return k3_automaton_open(&c->automaton, &c->config, &c->grammar, rule, err);
}

k3_status k3_constraint_make(k3_constraint **out, const k3_vocab *vocab, const k3_token_trie *trie, const char *text, size_t n,
                             int thinking, k3_error *err)
{
    const k3_json *request;
    int narrows = 0;
    *out = NULL;
    k3_status status = k3_json_parse(&request, text, n, K3_JSON_NONFINITE | K3_JSON_SURROGATES, err);
    if (status != K3_OK)
        return k3_fail_within(err, status == K3_E_FORMAT ? K3_E_INVALID : status, "chat request: ");
    k3_constraint *c = calloc(1, sizeof *c);
    if (c) {
        c->vocab = vocab;
        c->trie = trie;
        status = prepare(c, &narrows, request, thinking, err);
    } else {
        status = k3_fail(err, K3_E_NOMEM, "no memory for a constraint");
    }
    k3_json_free(request);
    if (status == K3_OK && narrows)
        *out = c;
    else
        k3_constraint_close(c);
    return status == K3_OK ? K3_OK : k3_fail_within(err, status, "chat request: ");
}

void k3_constraint_close(k3_constraint *c)
{
    if (!c)
        return;
    k3_automaton_close(c->automaton);
    k3_grammar_free(&c->grammar);
    for (size_t i = 0; i < N_MASKS; i++)
        free(c->masks[i].bits);
    free(c->path);
    free(c->steps);
    free(c->kept);
    free(c);
}

/* ---- which ids ----------------------------------------------------------------------------------------- */

static void allow(uint64_t *bits, int32_t id)
{
    bits[id / 64] |= (uint64_t)1 << id % 64;
}

/* Walks tokens of the trie at once, from node `from` to `to`: what does not go on from a beginning is left out with all that begins so. Ids
 * go to bits, or (bits NULL) to c->kept. */
static void walk_tokens(k3_constraint *c, uint32_t config, size_t from, size_t to, uint64_t *bits)
{
    const k3_trie_node *nodes = c->trie->nodes;
    c->path[0] = config;
    c->steps[0] = k3_automaton_steps(c->automaton, config);
    for (size_t i = from; i < to;) {
        const k3_trie_node *node = &nodes[i];
        const int32_t *steps = c->steps[node->depth - 1];
        int32_t next = steps ? steps[node->byte] : -1;
        if (next < 0)
            next = (int32_t)k3_automaton_byte(c->automaton, c->path[node->depth - 1], node->byte);
        if (next == K3_CONFIG_DEAD) {
            i = node->skip;
            continue;
        }
        if (node->id >= 0 && bits)
            allow(bits, node->id);
        else if (node->id >= 0)
            c->kept[c->n_kept++].id = node->id;
        if (node->skip > i + 1) {
            int stays = (uint32_t)next == c->path[node->depth - 1]; /* inside of a string most bytes do */
            c->path[node->depth] = (uint32_t)next;
            c->steps[node->depth] = stays ? steps : k3_automaton_steps(c->automaton, (uint32_t)next);
        }
        i++;
    }
}

/* The mask of a configuration that is blurred for its tokens, made if it is not known. */
static k3_status find_mask(k3_constraint *c, const uint64_t **bits, uint32_t config, int has_long, k3_error *err)
{
    size_t n_words = ((size_t)k3_vocab_size(c->vocab) + 63) / 64;
    mask *oldest = &c->masks[0];
    for (size_t i = 0; i < N_MASKS; i++) {
        mask *m = &c->masks[i];
        if (m->is_known && m->config == config && m->has_long == has_long) {
            m->last_used = ++c->n_uses;
            *bits = m->bits;
            return K3_OK;
        }
        if (m->last_used < oldest->last_used)
            oldest = m;
    }
    if (!oldest->bits)
        oldest->bits = malloc(n_words * sizeof *oldest->bits);
    if (!oldest->bits)
        return k3_fail(err, K3_E_NOMEM, "no memory for which ids may come next");
    memset(oldest->bits, 0, n_words * sizeof *oldest->bits);
    oldest->is_known = 0;
    walk_tokens(c, config, 0, has_long ? c->trie->n : c->trie->n_short, oldest->bits);
    int is_over = k3_automaton_is_over(c->automaton, config);
    for (int m = 0; m < K3_N_MARKS; m++)
        if (k3_automaton_marker(c->automaton, config, (uint8_t)m) != K3_CONFIG_DEAD || (is_over && m == K3_MARK_END))
            allow(oldest->bits, c->marks[m]);
    K3_TRY(k3_automaton_state(c->automaton, err));
    *oldest = (mask){.bits = oldest->bits, .config = config, .last_used = ++c->n_uses, .is_known = 1, .has_long = has_long};
    *bits = oldest->bits;
    return K3_OK;
}

static void drop_others(float *logits, size_t n, const uint64_t *bits)
{
    for (size_t i = 0; i < n; i += 64) {
        uint64_t word = bits[i / 64];
        size_t end = n - i < 64 ? n - i : 64;
        if (word == UINT64_MAX)
            continue;
        for (size_t k = 0; k < end; k++)
            if (!(word >> k & 1))
                logits[i + k] = -INFINITY;
    }
}

/* Near a limit of a count the few long tokens may find what no other does: then they are walked apart, so that the rest stays known. */
k3_status k3_constraint_narrow(k3_constraint *c, float *logits, size_t n, k3_error *err)
{
    const uint64_t *bits = NULL;
    if (n != (size_t)k3_vocab_size(c->vocab))
        return k3_fail(err, K3_E_INVALID, "%zu logits, wanted one for each of the vocabulary's %d ids", n, k3_vocab_size(c->vocab));
    k3_automaton_rest(c->automaton);
    uint32_t config = k3_automaton_blur(c->automaton, c->config, K3_TRIE_SHORT);
    int has_long = c->trie->n_long_tokens == 0 || config == k3_automaton_blur(c->automaton, c->config, (uint32_t)c->trie->deepest);
    K3_TRY(find_mask(c, &bits, config, has_long, err));
    c->n_kept = 0;
    if (!has_long)
        walk_tokens(c, c->config, c->trie->n_short, c->trie->n, NULL);
    K3_TRY(k3_automaton_state(c->automaton, err));
    for (size_t i = 0; i < c->n_kept; i++)
        c->kept[i].logit = logits[c->kept[i].id];
    drop_others(logits, n, bits);
    for (size_t i = 0; i < c->n_kept; i++)
        logits[c->kept[i].id] = c->kept[i].logit;
    return K3_OK;
}

/* ---- going on ------------------------------------------------------------------------------------------ */

static uint32_t step_of(k3_constraint *c, int32_t id, const char *bytes, size_t n)
{
    uint32_t config = c->config;
    if (!k3_vocab_is_special(c->vocab, id)) {
        for (size_t i = 0; i < n && config != K3_CONFIG_DEAD; i++)
            config = k3_automaton_byte(c->automaton, config, (uint8_t)bytes[i]);
        return k3_automaton_end_token(c->automaton, config);
    }
    int is_end = id == c->marks[K3_MARK_END] || (c->eos >= 0 && id == c->eos);
    if (is_end && k3_automaton_is_over(c->automaton, config))
        return config;
    for (int m = 0; m < K3_N_MARKS; m++)
        if (id == c->marks[m] || (is_end && m == K3_MARK_END))
            return k3_automaton_end_token(c->automaton, k3_automaton_marker(c->automaton, config, (uint8_t)m));
    return K3_CONFIG_DEAD;
}

k3_status k3_constraint_push(k3_constraint *c, int32_t id, k3_error *err)
{
    const char *bytes;
    size_t n;
    int did_trim;
    K3_TRY(k3_vocab_bytes(c->vocab, &bytes, &n, id, err));
    k3_automaton_rest(c->automaton);
    uint32_t next = step_of(c, id, bytes, n);
    K3_TRY(k3_automaton_state(c->automaton, err));
    if (next == K3_CONFIG_DEAD)
        return k3_fail(err, K3_E_INVALID, "id %d (\"%.*s\") cannot come here: the request asks for another answer", id,
                       (int)(n < 60 ? n : 60), bytes);
    c->config = k3_automaton_trim(c->automaton, next, &did_trim);
    for (size_t i = 0; did_trim && i < N_MASKS; i++)
        c->masks[i].is_known = 0;
    return k3_automaton_state(c->automaton, err);
}

int k3_constraint_is_over(const k3_constraint *c)
{
    return k3_automaton_is_over(c->automaton, c->config);
}
