#include "constrain/automaton.h"

#include <stdlib.h>
#include <string.h>

#include "constrain/way_sets.h"

enum {
    MAX_ITEMS = 1 << 22,  /* places in all configurations together */
    TRIM_ITEMS = 1 << 16, /* from here on k3_automaton_trim forgets */
    TRIM_SETS = 1 << 16,
    MAX_ROWS = 2048,
    ROWS_A_CHUNK = 64,
    MAX_WORK = 1 << 24 /* places reached between two k3_automaton_rest, a second's worth */
};

/* A place and the rules around it. */
typedef struct item {
    uint32_t node, set;
} item;

typedef struct config {
    uint32_t first, n, hash;
    int32_t *steps;
} config;

/* What is reached without reading: an entry for each (node, count), while a step is worked out. */
typedef struct entry {
    uint32_t node, count, set, slot; /* slot: its place in the index */
    int is_waiting;
} entry;

struct k3_automaton {
    const k3_grammar *g;
    k3_way_sets sets;
    item *items;
    config *configs;
    uint32_t n_items, item_capacity, n_configs, config_capacity;
    uint32_t *index, index_mask; /* of configurations */
    int32_t *chunks[MAX_ROWS / ROWS_A_CHUNK];
    uint32_t n_rows;
    entry *entries;
    uint32_t n_entries, entry_capacity, *entry_index, entry_mask;
    uint32_t *waiting;
    uint32_t n_waiting, waiting_capacity;
    uint64_t work;
    int passes_borders, failed, is_overworked;
};

static int grow(k3_automaton *a, void *items, uint32_t *capacity, uint32_t n, uint32_t more, size_t size)
{
    if (n + more <= *capacity)
        return 1;
    uint32_t wanted = 2 * *capacity + more + 64;
    void *moved = a->failed ? NULL : realloc(*(void **)items, wanted * size);
    if (!moved) {
        a->failed = 1;
        return 0;
    }
    *(void **)items = moved;
    *capacity = wanted;
    return 1;
}

/* ---- what is reached without reading ------------------------------------------------------------------- */

static uint32_t hash_two(uint32_t x, uint32_t y)
{
    uint64_t h = ((uint64_t)x << 32 | y) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32 ^ h >> 13);
}

static int grow_entries(k3_automaton *a)
{
    if (!grow(a, &a->entries, &a->entry_capacity, a->n_entries, 1, sizeof *a->entries) ||
        !grow(a, &a->waiting, &a->waiting_capacity, a->n_waiting, 1, sizeof *a->waiting))
        return 0;
    if (a->entry_index && a->n_entries * 2 < a->entry_mask)
        return 1;
    uint32_t size = a->entry_index ? 2 * (a->entry_mask + 1) : 64;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index) {
        a->failed = 1;
        return 0;
    }
    free(a->entry_index);
    a->entry_index = index;
    a->entry_mask = size - 1;
    for (uint32_t e = 0; e < a->n_entries; e++) {
        uint32_t i = hash_two(a->entries[e].node, a->entries[e].count) & a->entry_mask;
        while (index[i])
            i = (i + 1) & a->entry_mask;
        index[i] = e + 1;
        a->entries[e].slot = i;
    }
    return 1;
}

/* A place is reached, inside of the rules of `set`. */
static void reach(k3_automaton *a, uint32_t node, uint32_t count, uint32_t set)
{
    if (k3_way_sets_depth(&a->sets, set) + a->g->heights[node] > K3_GRAMMAR_MAX_DEPTH || !grow_entries(a))
        return;
    uint32_t i = hash_two(node, count) & a->entry_mask;
    for (; a->entry_index[i]; i = (i + 1) & a->entry_mask) {
        entry *e = &a->entries[a->entry_index[i] - 1];
        if (e->node != node || e->count != count)
            continue;
        uint32_t both = k3_way_sets_union(&a->sets, e->set, set);
        if (both != e->set && !e->is_waiting) {
            e->is_waiting = 1;
            a->waiting[a->n_waiting++] = (uint32_t)(e - a->entries);
        }
        e->set = both;
        return;
    }
    a->entry_index[i] = a->n_entries + 1;
    a->waiting[a->n_waiting++] = a->n_entries;
    a->entries[a->n_entries++] = (entry){node, count, set, i, 1};
}

static void enter_rule(k3_automaton *a, uint32_t rule, uint32_t node, uint32_t count, uint32_t set)
{
    reach(a, a->g->rules[rule], 0, k3_way_sets_one(&a->sets, (k3_way){node, count, set}));
}

static void follow(k3_automaton *a, entry e)
{
    const k3_grammar_node *node = &a->g->nodes[e.node];
    if (node->kind == K3_NODE_SPLIT) {
        reach(a, node->next, 0, e.set);
        reach(a, node->other, 0, e.set);
    } else if (node->kind == K3_NODE_CALL) {
        enter_rule(a, node->other, node->next, 0, e.set);
    } else if (node->kind == K3_NODE_LOOP) {
        const k3_grammar_loop *loop = &a->g->loops[node->other];
        if (e.count >= loop->least)
            reach(a, node->next, 0, e.set);
        int no_limit = loop->most == K3_GRAMMAR_NO_LIMIT;
        if (no_limit || e.count < loop->most)
            enter_rule(a, loop->rule, e.node, no_limit && e.count >= loop->least ? e.count : e.count + 1, e.set);
    } else if (node->kind == K3_NODE_RETURN) {
        for (uint32_t i = 0; i < k3_way_sets_size(&a->sets, e.set); i++) {
            k3_way way = k3_way_sets_get(&a->sets, e.set, i);
            reach(a, way.node, way.count, way.set);
        }
    } else if (node->kind == K3_NODE_BORDER && a->passes_borders) {
        reach(a, node->next, 0, e.set);
    }
}

static void begin(k3_automaton *a, int passes_borders)
{
    for (uint32_t e = 0; e < a->n_entries; e++)
        a->entry_index[a->entries[e].slot] = 0;
    a->n_entries = a->n_waiting = 0;
    a->passes_borders = passes_borders;
}

/* ---- configurations ------------------------------------------------------------------------------------ */

static int is_place(const k3_automaton *a, const entry *e)
{
    uint8_t kind = a->g->nodes[e->node].kind;
    return kind == K3_NODE_BYTES || kind == K3_NODE_MARKER || (kind == K3_NODE_BORDER && !a->passes_borders) ||
           (kind == K3_NODE_RETURN && k3_way_sets_is_outermost(&a->sets, e->set));
}

static int compare_items(const void *x, const void *y)
{
    const item *a = x, *b = y;
    return a->node != b->node ? (a->node > b->node) - (a->node < b->node) : (a->set > b->set) - (a->set < b->set);
}

static uint32_t find_slot(const k3_automaton *a, const item *items, uint32_t n, uint32_t hash)
{
    uint32_t i = hash & a->index_mask;
    for (; a->index[i]; i = (i + 1) & a->index_mask) {
        const config *c = &a->configs[a->index[i] - 1];
        if (c->hash == hash && c->n == n && memcmp(a->items + c->first, items, n * sizeof *items) == 0)
            break;
    }
    return i;
}

static int grow_index(k3_automaton *a)
{
    if (a->index && a->n_configs * 2 < a->index_mask)
        return 1;
    uint32_t size = a->index ? 2 * (a->index_mask + 1) : 1024;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index) {
        a->failed = 1;
        return 0;
    }
    free(a->index);
    a->index = index;
    a->index_mask = size - 1;
    for (uint32_t c = 0; c < a->n_configs; c++) {
        uint32_t i = a->configs[c].hash & a->index_mask;
        while (index[i])
            i = (i + 1) & a->index_mask;
        index[i] = c + 1;
    }
    return 1;
}

/* The number of the configuration whose items stand behind the last one's. */
static uint32_t intern(k3_automaton *a, uint32_t n)
{
    item *items = a->items + a->n_items;
    if (n == 0 && a->n_configs > 0)
        return K3_CONFIG_DEAD;
    qsort(items, n, sizeof *items, compare_items);
    uint32_t hash = n;
    for (uint32_t i = 0; i < n; i++)
        hash = hash_two(hash ^ items[i].node, items[i].set);
    if (!grow_index(a) || !grow(a, &a->configs, &a->config_capacity, a->n_configs, 1, sizeof *a->configs))
        return K3_CONFIG_DEAD;
    uint32_t slot = find_slot(a, items, n, hash);
    if (a->index[slot])
        return a->index[slot] - 1;
    a->index[slot] = a->n_configs + 1;
    a->configs[a->n_configs] = (config){.first = a->n_items, .n = n, .hash = hash};
    a->n_items += n;
    return a->n_configs++;
}

/* Follows everything that waits, and makes a configuration of the places that were reached. */
static uint32_t settle(k3_automaton *a)
{
    while (a->n_waiting > 0 && !a->failed) {
        entry *e = &a->entries[a->waiting[--a->n_waiting]];
        e->is_waiting = 0;
        follow(a, *e);
        a->is_overworked |= ++a->work > MAX_WORK;
        if (a->is_overworked)
            return K3_CONFIG_DEAD;
    }
    a->failed |= a->n_items + a->n_entries > MAX_ITEMS || a->sets.failed;
    if (!grow(a, &a->items, &a->item_capacity, a->n_items, a->n_entries + 1, sizeof *a->items) || a->failed)
        return K3_CONFIG_DEAD;
    uint32_t n = 0;
    for (uint32_t i = 0; i < a->n_entries; i++)
        if (is_place(a, &a->entries[i])) {
            int ends = a->g->nodes[a->entries[i].node].kind == K3_NODE_RETURN;
            a->items[a->n_items + n++] = (item){a->entries[i].node, ends ? K3_WAYS_OUTERMOST : a->entries[i].set};
        }
    return intern(a, n);
}

static uint32_t step(k3_automaton *a, uint32_t number, uint8_t kind, uint8_t value)
{
    config c = a->configs[number];
    begin(a, 0);
    for (uint32_t i = 0; i < c.n; i++) {
        item at = a->items[c.first + i];
        const k3_grammar_node *node = &a->g->nodes[at.node];
        if (node->kind == kind && value >= node->lo && (kind == K3_NODE_MARKER ? value == node->lo : value <= node->hi))
            reach(a, node->next, 0, at.set);
    }
    return settle(a);
}

const int32_t *k3_automaton_steps(k3_automaton *a, uint32_t number)
{
    config *c = &a->configs[number];
    if (c->steps || a->n_rows == MAX_ROWS)
        return c->steps;
    int32_t **chunk = &a->chunks[a->n_rows / ROWS_A_CHUNK];
    if (!*chunk)
        *chunk = malloc((size_t)ROWS_A_CHUNK * 256 * sizeof **chunk);
    if (!*chunk)
        return NULL;
    c->steps = *chunk + (size_t)(a->n_rows++ % ROWS_A_CHUNK) * 256;
    for (int i = 0; i < 256; i++)
        c->steps[i] = -1;
    return c->steps;
}

uint32_t k3_automaton_byte(k3_automaton *a, uint32_t number, uint8_t byte)
{
    if (number == K3_CONFIG_DEAD)
        return K3_CONFIG_DEAD;
    (void)k3_automaton_steps(a, number);
    int32_t *steps = a->configs[number].steps;
    if (steps && steps[byte] >= 0)
        return (uint32_t)steps[byte];
    uint32_t next = step(a, number, K3_NODE_BYTES, byte);
    if (steps)
        steps[byte] = (int32_t)next;
    return next;
}

uint32_t k3_automaton_marker(k3_automaton *a, uint32_t number, uint8_t marker)
{
    return step(a, number, K3_NODE_MARKER, marker);
}

uint32_t k3_automaton_end_token(k3_automaton *a, uint32_t number)
{
    config c = a->configs[number];
    int has_border = 0;
    for (uint32_t i = 0; i < c.n; i++)
        has_border |= a->g->nodes[a->items[c.first + i].node].kind == K3_NODE_BORDER;
    if (!has_border)
        return number;
    begin(a, 1);
    for (uint32_t i = 0; i < c.n; i++)
        reach(a, a->items[c.first + i].node, 0, a->items[c.first + i].set);
    return settle(a);
}

int k3_automaton_is_over(const k3_automaton *a, uint32_t number)
{
    const config *c = &a->configs[number];
    return c->n > 0 && a->items[c->first].node == K3_GRAMMAR_RETURN;
}

uint32_t k3_automaton_blur(k3_automaton *a, uint32_t number, uint32_t longest)
{
    config c = a->configs[number];
    begin(a, 0);
    for (uint32_t i = 0; i < c.n; i++) {
        item at = a->items[c.first + i];
        reach(a, at.node, 0, k3_way_sets_blur(&a->sets, a->g, at.set, longest));
    }
    /* Nothing is followed: the places are those of `number`. */
    a->n_waiting = 0;
    return settle(a);
}

/* ---- opening and forgetting ---------------------------------------------------------------------------- */

static void forget(k3_automaton *a)
{
    a->n_items = a->n_configs = a->n_rows = 0;
    if (a->index)
        memset(a->index, 0, (a->index_mask + 1) * sizeof *a->index);
    if (grow(a, &a->items, &a->item_capacity, 0, 1, sizeof *a->items))
        (void)intern(a, 0);
}

uint32_t k3_automaton_trim(k3_automaton *a, uint32_t number, int *did_trim)
{
    *did_trim = (a->n_items > TRIM_ITEMS || a->sets.n_sets > TRIM_SETS || a->n_rows > MAX_ROWS / 2) && !a->failed;
    if (!*did_trim)
        return number;
    config c = a->configs[number];
    uint32_t *sets = malloc((c.n + 1) * sizeof *sets), *nodes = malloc((c.n + 1) * sizeof *nodes);
    if (sets && nodes) {
        for (uint32_t i = 0; i < c.n; i++) {
            nodes[i] = a->items[c.first + i].node;
            sets[i] = a->items[c.first + i].set;
        }
        k3_way_sets_keep(&a->sets, sets, c.n);
        forget(a);
        begin(a, 0);
        for (uint32_t i = 0; i < c.n; i++)
            reach(a, nodes[i], 0, sets[i]);
        a->n_waiting = 0;
        number = settle(a);
    } else {
        a->failed = 1;
    }
    free(sets);
    free(nodes);
    return number;
}

void k3_automaton_rest(k3_automaton *a)
{
    a->work = 0;
}

k3_status k3_automaton_state(const k3_automaton *a, k3_error *err)
{
    if (a->is_overworked)
        return k3_fail(err, K3_E_UNSUPPORTED,
                       "the schema leaves too many ways open at this place of the answer; use fewer or clearer "
                       "choices and patterns");
    return a->failed || a->sets.failed
               ? k3_fail(err, K3_E_NOMEM, "no memory for all that the schema leaves open at this place of the answer")
               : K3_OK;
}

k3_status k3_automaton_open(k3_automaton **out, uint32_t *start, const k3_grammar *grammar, uint32_t rule, k3_error *err)
{
    *out = NULL;
    *start = K3_CONFIG_DEAD;
    k3_automaton *a = calloc(1, sizeof *a);
    if (!a)
        return k3_fail(err, K3_E_NOMEM, "no memory for a grammar's automaton");
    a->g = grammar;
    k3_way_sets_open(&a->sets);
    forget(a);
    if (!a->failed && !a->sets.failed) {
        begin(a, 1);
        reach(a, grammar->rules[rule], 0, K3_WAYS_OUTERMOST);
        *start = settle(a);
    }
    k3_status status = k3_automaton_state(a, err);
    if (status != K3_OK) {
        k3_automaton_close(a);
        return status;
    }
    *out = a;
    return K3_OK;
}

void k3_automaton_close(k3_automaton *a)
{
    if (!a)
        return;
    k3_way_sets_close(&a->sets);
    for (uint32_t i = 0; i < MAX_ROWS / ROWS_A_CHUNK; i++)
        free(a->chunks[i]);
    free(a->items);
    free(a->configs);
    free(a->index);
    free(a->entries);
    free(a->entry_index);
    free(a->waiting);
    free(a);
}
