#include "constrain/way_sets.h"

#include <stdlib.h>
#include <string.h>

enum { MEMO_SIZE = 4096, MAX_WAYS = 1 << 22 };

struct k3_way_memo {
    uint32_t a, b, result; /* a 0: empty, since nothing is looked up for the outermost set */
};

static int grow(k3_way_sets *s, void *items, uint32_t *capacity, uint32_t n, uint32_t more, size_t size)
{
    if (n + more <= *capacity)
        return 1;
    uint32_t wanted = 2 * *capacity + more + 64;
    void *moved = s->failed || wanted > 2 * (uint32_t)MAX_WAYS ? NULL : realloc(*(void **)items, wanted * size);
    if (!moved) {
        s->failed = 1;
        return 0;
    }
    *(void **)items = moved;
    *capacity = wanted;
    return 1;
}

/* ---- sets ---------------------------------------------------------------------------------------------- */

static uint32_t hash_ways(const k3_way *ways, uint32_t n, int is_outermost)
{
    uint64_t h = n * 2 + (uint32_t)is_outermost;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ ((uint64_t)ways[i].node << 32 | ways[i].set)) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 29 ^ ways[i].count) * 0xff51afd7ed558ccdu;
    }
    return (uint32_t)(h >> 32);
}

static int grow_index(k3_way_sets *s)
{
    if (s->index && s->n_sets * 2 < s->index_mask)
        return 1;
    uint32_t size = s->index ? 2 * (s->index_mask + 1) : 1024;
    uint32_t *index = calloc(size, sizeof *index);
    if (!index) {
        s->failed = 1;
        return 0;
    }
    free(s->index);
    s->index = index;
    s->index_mask = size - 1;
    for (uint32_t k = 0; k < s->n_sets; k++) {
        uint32_t i = s->sets[k].hash & s->index_mask;
        while (index[i])
            i = (i + 1) & s->index_mask;
        index[i] = k + 1;
    }
    return 1;
}

/* Ways sorted by node and count, each pair once. Without memory the outermost set. */
static uint32_t make(k3_way_sets *s, const k3_way *ways, uint32_t n, int is_outermost)
{
    uint32_t hash = hash_ways(ways, n, is_outermost), depth = 0;
    if (!grow_index(s) || !grow(s, &s->ways, &s->way_capacity, s->n_ways, n, sizeof *s->ways) ||
        !grow(s, &s->sets, &s->set_capacity, s->n_sets, 1, sizeof *s->sets))
        return K3_WAYS_OUTERMOST;
    uint32_t i = hash & s->index_mask;
    for (; s->index[i]; i = (i + 1) & s->index_mask) {
        const k3_way_set *set = &s->sets[s->index[i] - 1];
        if (set->hash == hash && set->n == n && set->is_outermost == is_outermost &&
            (n == 0 || memcmp(s->ways + set->first, ways, n * sizeof *ways) == 0))
            return s->index[i] - 1;
    }
    for (uint32_t w = 0; w < n; w++) {
        depth = s->sets[ways[w].set].depth + 1 > depth ? s->sets[ways[w].set].depth + 1 : depth;
        s->ways[s->n_ways + w] = ways[w];
    }
    s->index[i] = s->n_sets + 1;
    s->sets[s->n_sets] = (k3_way_set){.first = s->n_ways, .n = n, .hash = hash, .depth = depth, .is_outermost = is_outermost};
    s->n_ways += n;
    return s->n_sets++;
}

uint32_t k3_way_sets_one(k3_way_sets *s, k3_way way)
{
    return make(s, &way, 1, 0);
}

void k3_way_sets_open(k3_way_sets *s)
{
    *s = (k3_way_sets){.memo = calloc(MEMO_SIZE, sizeof *s->memo)};
    s->failed = !s->memo;
    (void)make(s, NULL, 0, 1);
}

void k3_way_sets_close(k3_way_sets *s)
{
    free(s->ways);
    free(s->sets);
    free(s->index);
    free(s->memo);
    free(s->scratch);
    *s = (k3_way_sets){0};
}

/* ---- made of others ------------------------------------------------------------------------------------ */

static struct k3_way_memo *memo_of(k3_way_sets *s, uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return &s->memo[(h >> 40) % MEMO_SIZE];
}

/* Ways that are collected while other sets are made. */
static void collect(k3_way_sets *s, k3_way way)
{
    if (grow(s, &s->scratch, &s->scratch_capacity, s->n_scratch, 1, sizeof *s->scratch))
        s->scratch[s->n_scratch++] = way;
}

static uint32_t make_collected(k3_way_sets *s, uint32_t base, int is_outermost)
{
    uint32_t made = make(s, s->scratch + base, s->n_scratch - base, is_outermost);
    s->n_scratch = base;
    return made;
}

static int compare_ways(const k3_way *a, const k3_way *b)
{
    return a->node != b->node ? (a->node > b->node) - (a->node < b->node) : (a->count > b->count) - (a->count < b->count);
}

uint32_t k3_way_sets_union(k3_way_sets *s, uint32_t a, uint32_t b)
{
    if (a == b || s->failed)
        return a;
    if (a < b)
        return k3_way_sets_union(s, b, a);
    struct k3_way_memo *memo = memo_of(s, a, b);
    if (memo->a == a && memo->b == b)
        return memo->result;
    k3_way_set x = s->sets[a], y = s->sets[b];
    uint32_t base = s->n_scratch;
    for (uint32_t i = 0, j = 0; (i < x.n || j < y.n) && !s->failed;) {
        k3_way v = i < x.n ? s->ways[x.first + i] : (k3_way){0}, w = j < y.n ? s->ways[y.first + j] : (k3_way){0};
        int order = i == x.n ? 1 : j == y.n ? -1 : compare_ways(&v, &w);
        if (order == 0)
            v.set = k3_way_sets_union(s, v.set, w.set);
        collect(s, order > 0 ? w : v);
        i += order <= 0;
        j += order >= 0;
    }
    uint32_t both = make_collected(s, base, x.is_outermost || y.is_outermost);
    *memo = (struct k3_way_memo){a, b, both};
    return both;
}

static uint32_t blur_count(const k3_grammar *g, k3_way way, uint32_t longest)
{
    if (g->nodes[way.node].kind != K3_NODE_LOOP)
        return way.count;
    const k3_grammar_loop *loop = &g->loops[g->nodes[way.node].other];
    uint64_t furthest = (uint64_t)way.count + longest;
    if (furthest < loop->least)
        return way.count > 1 ? 1 : way.count;
    uint32_t first = loop->least > 1 ? loop->least : 1;
    return way.count >= first && furthest < loop->most ? first : way.count;
}

uint32_t k3_way_sets_blur(k3_way_sets *s, const k3_grammar *g, uint32_t set, uint32_t longest)
{
    if (set == K3_WAYS_OUTERMOST || s->failed)
        return set;
    uint32_t key = UINT32_MAX - longest; /* no set's number */
    struct k3_way_memo *memo = memo_of(s, set, key);
    if (memo->a == set && memo->b == key)
        return memo->result;
    k3_way_set x = s->sets[set];
    uint32_t base = s->n_scratch;
    for (uint32_t i = 0; i < x.n && !s->failed; i++) {
        k3_way way = s->ways[x.first + i];
        way.count = blur_count(g, way, longest);
        way.set = k3_way_sets_blur(s, g, way.set, longest);
        k3_way *last = s->n_scratch > base ? &s->scratch[s->n_scratch - 1] : NULL;
        if (last && compare_ways(last, &way) == 0) {
            uint32_t both = k3_way_sets_union(s, last->set, way.set);
            s->scratch[s->n_scratch - 1].set = both;
        } else if (last && compare_ways(last, &way) > 0) {
            s->n_scratch = base; /* out of order now: left as it is */
            memo->a = 0;
            return set;
        } else {
            collect(s, way);
        }
    }
    uint32_t blurred = make_collected(s, base, x.is_outermost);
    *memo = (struct k3_way_memo){set, key, blurred};
    return blurred;
}

/* ---- forgetting ---------------------------------------------------------------------------------------- */

/* Copies what is marked; a set stands behind those that its ways lead to. to: new numbers, 0 for sets that go. */
static void copy_marked(k3_way_sets *fresh, const k3_way_sets *old, uint32_t *to)
{
    for (uint32_t k = 1; k < old->n_sets; k++) {
        if (!to[k])
            continue;
        const k3_way_set *set = &old->sets[k];
        for (uint32_t i = 0; i < set->n; i++) {
            k3_way way = old->ways[set->first + i];
            way.set = to[way.set];
            collect(fresh, way);
        }
        to[k] = make_collected(fresh, 0, set->is_outermost);
    }
}

void k3_way_sets_keep(k3_way_sets *s, uint32_t *sets, uint32_t n)
{
    uint32_t *to = calloc(s->n_sets, sizeof *to);
    k3_way_sets fresh;
    k3_way_sets_open(&fresh);
    if (to && !fresh.failed && !s->failed) {
        for (uint32_t i = 0; i < n; i++)
            to[sets[i]] = 1;
        for (uint32_t k = s->n_sets; k-- > 1;)
            for (uint32_t i = 0; to[k] && i < s->sets[k].n; i++)
                to[s->ways[s->sets[k].first + i].set] = 1;
        to[0] = 0;
        copy_marked(&fresh, s, to);
        for (uint32_t i = 0; i < n; i++)
            sets[i] = to[sets[i]];
    } else {
        fresh.failed = 1;
    }
    free(to);
    k3_way_sets_close(s);
    *s = fresh;
}
