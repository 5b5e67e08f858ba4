/* The rules around a place, as sets of ways out: where to go on when the rule ends, how often a loop there has gone round, and the set of
 * ways out of the rule around that. In a set each (node, count) stands once. Equal sets are one number. */
#ifndef K3_CONSTRAIN_WAY_SETS_H
#define K3_CONSTRAIN_WAY_SETS_H

#include "constrain/grammar.h"

typedef struct k3_way {
    uint32_t node, count, set;
} k3_way;

typedef struct k3_way_set {
    uint32_t first, n, hash, depth;
    int is_outermost; /* one of the ways out ends the whole text */
} k3_way_set;

typedef struct k3_way_sets {
    k3_way *ways;
    k3_way_set *sets;
    uint32_t n_ways, way_capacity, n_sets, set_capacity;
    uint32_t *index, index_mask;
    struct k3_way_memo *memo; /* what was united or blurred last */
    k3_way *scratch;
    uint32_t n_scratch, scratch_capacity;
    int failed;
} k3_way_sets;

enum { K3_WAYS_OUTERMOST = 0 }; /* around the outermost rule */

void k3_way_sets_open(k3_way_sets *s);
void k3_way_sets_close(k3_way_sets *s);
/* The set of this one way. */
uint32_t k3_way_sets_one(k3_way_sets *s, k3_way way);
uint32_t k3_way_sets_union(k3_way_sets *s, uint32_t a, uint32_t b);
/* With counts that a token of `longest` bytes cannot bring to a limit replaced by one of them. */
uint32_t k3_way_sets_blur(k3_way_sets *s, const k3_grammar *g, uint32_t set, uint32_t longest);
/* Forgets all but sets [n], which get their new numbers. */
void k3_way_sets_keep(k3_way_sets *s, uint32_t *sets, uint32_t n);

static inline uint32_t k3_way_sets_depth(const k3_way_sets *s, uint32_t set)
{
    return s->sets[set].depth;
}

static inline uint32_t k3_way_sets_size(const k3_way_sets *s, uint32_t set)
{
    return s->sets[set].n;
}

static inline k3_way k3_way_sets_get(const k3_way_sets *s, uint32_t set, uint32_t i)
{
    return s->ways[s->sets[set].first + i];
}

static inline int k3_way_sets_is_outermost(const k3_way_sets *s, uint32_t set)
{
    return s->sets[set].is_outermost;
}

#endif
