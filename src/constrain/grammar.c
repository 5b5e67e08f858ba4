#include "constrain/grammar.h"

#include <stdlib.h>
#include <string.h>

void k3_grammar_free(k3_grammar *g)
{
    free(g->nodes);
    free(g->index);
    free(g->rules);
    free(g->loops);
    free(g->heights);
    *g = (k3_grammar){0};
}

/* Makes room for one more of `size` bytes; 0 without memory. */
static int grow(void *items, uint32_t *capacity, uint32_t n, size_t size)
{
    if (n < *capacity)
        return 1;
    uint32_t more = 2 * *capacity + 64;
    void *moved = realloc(*(void **)items, more * size);
    if (!moved)
        return 0;
    *(void **)items = moved;
    *capacity = more;
    return 1;
}

/* ---- nodes --------------------------------------------------------------------------------------------- */

static uint32_t hash_node(const k3_grammar_node *node)
{
    uint64_t h = ((uint64_t)node->kind << 16 | (uint64_t)node->lo << 8 | node->hi) * 0x9e3779b97f4a7c15u;
    h = (h ^ node->next) * 0xff51afd7ed558ccdu;
    h = (h ^ h >> 32 ^ node->other) * 0xff51afd7ed558ccdu;
    return (uint32_t)(h >> 32);
}

static int same_node(const k3_grammar_node *a, const k3_grammar_node *b)
{
    return a->kind == b->kind && a->lo == b->lo && a->hi == b->hi && a->next == b->next && a->other == b->other;
}

static void put_index(k3_grammar *g, uint32_t number)
{
    uint32_t i = hash_node(&g->nodes[number]) & g->index_mask;
    while (g->index[i])
        i = (i + 1) & g->index_mask;
    g->index[i] = number + 1;
}

static int grow_index(k3_grammar *g)
{
    if (g->index && g->n_nodes * 2 < g->index_mask)
        return 1;
    uint32_t size = g->index ? 2 * (g->index_mask + 1) : 1024;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index)
        return 0;
    free(g->index);
    g->index = index;
    g->index_mask = size - 1;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        put_index(g, i);
    return 1;
}

static uint32_t add_node(k3_grammar *g, k3_grammar_node node)
{
    if (g->failed || g->too_large)
        return K3_GRAMMAR_RETURN;
    if (g->n_nodes == K3_GRAMMAR_MAX_NODES) {
        g->too_large = 1;
        return K3_GRAMMAR_RETURN;
    }
    if (!grow_index(g) || !grow(&g->nodes, &g->node_capacity, g->n_nodes + 2, sizeof *g->nodes)) {
        g->failed = 1;
        return K3_GRAMMAR_RETURN;
    }
    if (g->n_nodes == 0) {
        g->nodes[0] = (k3_grammar_node){.kind = K3_NODE_RETURN};
        g->nodes[1] = (k3_grammar_node){.kind = K3_NODE_DEAD};
        g->n_nodes = 2;
        put_index(g, 0);
        put_index(g, 1);
    }
    for (uint32_t i = hash_node(&node) & g->index_mask; g->index[i]; i = (i + 1) & g->index_mask)
        if (same_node(&g->nodes[g->index[i] - 1], &node))
            return g->index[i] - 1;
    g->nodes[g->n_nodes] = node;
    put_index(g, g->n_nodes);
    return g->n_nodes++;
}

uint32_t k3_grammar_bytes(k3_grammar *g, uint8_t lo, uint8_t hi, uint32_t next)
{
    return next == K3_GRAMMAR_DEAD ? next : add_node(g, (k3_grammar_node){.kind = K3_NODE_BYTES, .lo = lo, .hi = hi, .next = next});
}

uint32_t k3_grammar_text(k3_grammar *g, const char *text, size_t n, uint32_t next)
{
    while (n-- > 0)
        next = k3_grammar_bytes(g, (uint8_t)text[n], (uint8_t)text[n], next);
    return next;
}

uint32_t k3_grammar_word(k3_grammar *g, const char *text, uint32_t next)
{
    return k3_grammar_text(g, text, strlen(text), next);
}

uint32_t k3_grammar_marker(k3_grammar *g, uint8_t number, uint32_t next)
{
    return add_node(g, (k3_grammar_node){.kind = K3_NODE_MARKER, .lo = number, .next = next});
}

uint32_t k3_grammar_border(k3_grammar *g, uint32_t next)
{
    return add_node(g, (k3_grammar_node){.kind = K3_NODE_BORDER, .next = next});
}

uint32_t k3_grammar_either(k3_grammar *g, uint32_t a, uint32_t b)
{
    if (a == b || b == K3_GRAMMAR_DEAD)
        return a;
    if (a == K3_GRAMMAR_DEAD)
        return b;
    return add_node(g, (k3_grammar_node){.kind = K3_NODE_SPLIT, .next = a, .other = b});
}

/* ---- rules --------------------------------------------------------------------------------------------- */

uint32_t k3_grammar_rule(k3_grammar *g)
{
    if (g->n_rules >= K3_GRAMMAR_MAX_NODES)
        g->too_large = 1;
    if (g->too_large || g->failed || !grow(&g->rules, &g->rule_capacity, g->n_rules, sizeof *g->rules)) {
        g->failed |= !g->too_large;
        return 0;
    }
    g->rules[g->n_rules] = K3_GRAMMAR_DEAD;
    return g->n_rules++;
}

void k3_grammar_set(k3_grammar *g, uint32_t rule, uint32_t start)
{
    if (rule < g->n_rules)
        g->rules[rule] = start;
}

uint32_t k3_grammar_call(k3_grammar *g, uint32_t rule, uint32_t next)
{
    return add_node(g, (k3_grammar_node){.kind = K3_NODE_CALL, .next = next, .other = rule});
}

uint32_t k3_grammar_loop_of(k3_grammar *g, uint32_t rule, uint32_t least, uint32_t most, uint32_t next)
{
    if (most == 0)
        return next;
    if (g->n_loops >= K3_GRAMMAR_MAX_NODES)
        g->too_large = 1;
    if (g->too_large || g->failed || !grow(&g->loops, &g->loop_capacity, g->n_loops, sizeof *g->loops)) {
        g->failed |= !g->too_large;
        return K3_GRAMMAR_RETURN;
    }
    k3_grammar_loop loop = {rule, least, most};
    uint32_t i = g->n_loops > 8 ? g->n_loops - 8 : 0; /* the same loop is often asked for again at once */
    while (i < g->n_loops && memcmp(&g->loops[i], &loop, sizeof loop) != 0)
        i++;
    if (i == g->n_loops)
        g->loops[g->n_loops++] = loop;
    return add_node(g, (k3_grammar_node){.kind = K3_NODE_LOOP, .next = next, .other = i});
}

/* ---- choices ------------------------------------------------------------------------------------------- */

static int compare_choices(const void *a, const void *b)
{
    const k3_grammar_choice *x = a, *y = b;
    size_t n = x->n < y->n ? x->n : y->n;
    int order = n > 0 ? memcmp(x->text, y->text, n) : 0;
    return order ? order : (x->n > y->n) - (x->n < y->n);
}

/* Choices that agree in their first `at` bytes. */
static uint32_t build_choices(k3_grammar *g, const k3_grammar_choice *choices, size_t n, size_t at)
{
    size_t same = at, last = n - 1; /* sorted: what the first and the last share, all share */
    while (same < choices[0].n && same < choices[last].n && choices[0].text[same] == choices[last].text[same])
        same++;
    uint32_t start = K3_GRAMMAR_DEAD;
    size_t i = 0;
    for (; i < n && choices[i].n == same; i++)
        start = k3_grammar_either(g, choices[i].next, start);
    while (i < n) {
        size_t end = i + 1;
        while (end < n && choices[end].text[same] == choices[i].text[same])
            end++;
        start = k3_grammar_either(g, build_choices(g, choices + i, end - i, same), start);
        i = end;
    }
    return k3_grammar_text(g, choices[0].text + at, same - at, start);
}

uint32_t k3_grammar_one_of(k3_grammar *g, k3_grammar_choice *choices, size_t n)
{
    if (n == 0)
        return K3_GRAMMAR_DEAD;
    qsort(choices, n, sizeof *choices, compare_choices);
    return build_choices(g, choices, n, 0);
}

/* ---- heights ------------------------------------------------------------------------------------------- */

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t height_of(const k3_grammar *g, uint32_t i)
{
    const k3_grammar_node *node = &g->nodes[i];
    const uint32_t *h = g->heights;
    switch (node->kind) {
    case K3_NODE_RETURN:
        return 0;
    case K3_NODE_DEAD:
        return K3_GRAMMAR_NO_WAY;
    case K3_NODE_SPLIT:
        return h[node->next] < h[node->other] ? h[node->next] : h[node->other];
    case K3_NODE_CALL:
        return larger(h[g->rules[node->other]] + 1, h[node->next]);
    case K3_NODE_LOOP: {
        const k3_grammar_loop *loop = &g->loops[node->other];
        return loop->least == 0 ? h[node->next] : larger(h[g->rules[loop->rule]] + 1, h[node->next]);
    }
    default:
        return h[node->next];
    }
}

k3_status k3_grammar_finish(k3_grammar *g, k3_error *err)
{
    if (g->too_large)
        return k3_fail(err, K3_E_UNSUPPORTED, "what the answer is held to needs more than %d grammar nodes; use a smaller schema",
                       K3_GRAMMAR_MAX_NODES);
    g->heights = g->failed ? NULL : malloc((g->n_nodes + 1) * sizeof *g->heights);
    if (!g->heights)
        return k3_fail(err, K3_E_NOMEM, "no memory for a grammar of %u nodes", g->n_nodes);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        g->heights[i] = K3_GRAMMAR_NO_WAY;
    /* A node comes after those that follow it, so one sweep settles a rule; a sweep more for each level of rules inside rules. Beyond
     * the largest depth a node is as good as one without a way. */
    for (int changed = 1, sweep = 0; changed && sweep <= K3_GRAMMAR_MAX_DEPTH; sweep++) {
        changed = 0;
        for (uint32_t i = 0; i < g->n_nodes; i++) {
            uint32_t h = height_of(g, i);
            h = h > K3_GRAMMAR_MAX_DEPTH ? K3_GRAMMAR_NO_WAY : h;
            changed |= h != g->heights[i];
            g->heights[i] = h;
        }
    }
    return K3_OK;
}
