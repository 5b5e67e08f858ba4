/* The policy on traces: what the bundled model's router wanted (tests/golden/traces), and made-up ones of K3's 896 experts, top 16.
 * Compared with giving up what was used longest ago (LRU), what was used least (LFU), and what is needed last, which nothing can beat
 * (Belady). */
#include "store/policy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NEVER = 1 << 30, MOST_EXPERTS = 896, TOP = 16, N_SIZES = 5 };
static const int percent[N_SIZES] = {5, 10, 25, 50, 75};

/* Steps, each the items that a layer wants in a pass. */
typedef struct trace {
    int n_layers, n_experts, n_steps, n_uses;
    int *layer, *first; /* [n_steps], [n_steps + 1] */
    int *item, *next;   /* [n_uses]; step of the item's next use, or NEVER */
} trace;

typedef enum kind { LRU, LFU, BELADY, POLICY, N_KINDS } kind;

/* ---- traces -------------------------------------------------------------------------------------------------------------- */

static trace new_trace(int n_layers, int n_experts, int max_steps, int max_uses)
{
    trace t = {.n_layers = n_layers, .n_experts = n_experts};
    t.layer = malloc((size_t)max_steps * sizeof(int));
    t.first = calloc((size_t)max_steps + 1, sizeof(int));
    t.item = malloc((size_t)max_uses * sizeof(int));
    t.next = malloc((size_t)max_uses * sizeof(int));
    return t;
}

static void free_trace(trace *t)
{
    free(t->layer);
    free(t->first);
    free(t->item);
    free(t->next);
}

static void add_step(trace *t, int layer, const int *ids, int n)
{
    t->layer[t->n_steps++] = layer;
    for (int i = 0; i < n; i++)
        t->item[t->n_uses++] = layer * t->n_experts + ids[i];
    t->first[t->n_steps] = t->n_uses;
}

static void look_ahead(trace *t)
{
    int n = t->n_layers * t->n_experts, *next = malloc((size_t)n * sizeof(int));
    for (int i = 0; i < n; i++)
        next[i] = NEVER;
    for (int s = t->n_steps - 1; s >= 0; s--)
        for (int i = t->first[s]; i < t->first[s + 1]; i++) {
            t->next[i] = next[t->item[i]];
            next[t->item[i]] = s;
        }
    free(next);
}

static trace recorded(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/traces/%s.bin", name);
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    fseek(f, 0, SEEK_END);
    int bytes = (int)ftell(f), ids[32];
    rewind(f);
    trace t = new_trace(8, 32, bytes / 2, bytes);
    for (int layer; (layer = fgetc(f)) != EOF;) {
        int n = fgetc(f);
        assert_in_range(layer, 1, 8);
        assert_in_range(n, 4, 32);
        for (int i = 0; i < n; i++)
            ids[i] = fgetc(f) & 31;
        add_step(&t, layer - 1, ids, n);
    }
    fclose(f);
    look_ahead(&t);
    return t;
}

static uint64_t seed;

static double draw(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (double)(seed >> 11) * 0x1p-53;
}

/* TOP different experts, each drawn in proportion to its weight. */
static void draw_top(int *ids, const double *weight)
{
    double best[TOP];
    int n = 0;
    for (int e = 0; e < MOST_EXPERTS; e++) {
        double key = -log(1 - draw()) / weight[e];
        int at = n < TOP ? n++ : TOP;
        if (at == TOP && key >= best[--at])
            continue;
        for (; at && best[at - 1] > key; at--) {
            best[at] = best[at - 1];
            ids[at] = ids[at - 1];
        }
        best[at] = key;
        ids[at] = e;
    }
}

static void swap(int *a, int *b)
{
    int c = *a;
    *a = *b;
    *b = c;
}

/* The expert of rank r in a layer is drawn with weight (r + 1)^-skew, times `loyalty` if the token before used it. After each token and
 * layer `drift` pairs of experts trade ranks. */
static trace made(int n_layers, int n_tokens, double skew, int drift, double loyalty)
{
    static int by_rank[8][MOST_EXPERTS], ids[8][TOP];
    double weight[MOST_EXPERTS];
    trace t = new_trace(n_layers, MOST_EXPERTS, n_layers * n_tokens, n_layers * n_tokens * TOP);
    seed = 88172645463325252u;
    for (int l = 0; l < n_layers; l++) {
        for (int e = 0; e < MOST_EXPERTS; e++)
            by_rank[l][e] = e;
        for (int e = MOST_EXPERTS - 1; e; e--)
            swap(&by_rank[l][e], &by_rank[l][(int)(draw() * (e + 1))]);
    }
    for (int token = 0; token < n_tokens; token++)
        for (int l = 0; l < n_layers; l++) {
            for (int e = 0; e < MOST_EXPERTS; e++)
                weight[by_rank[l][e]] = pow(e + 1, -skew);
            for (int k = 0; token && k < TOP; k++)
                weight[ids[l][k]] *= loyalty;
            draw_top(ids[l], weight);
            add_step(&t, l, ids[l], TOP);
            for (int i = 0; i < drift; i++)
                swap(&by_rank[l][(int)(draw() * MOST_EXPERTS)], &by_rank[l][(int)(draw() * MOST_EXPERTS)]);
        }
    look_ahead(&t);
    return t;
}

/* ---- what the policy is compared with ---------------------------------------------------------------------------------- */

typedef struct entry {
    double key;
    int item;
} entry;

/* A cache that gives up the item of least key. The heap keeps outdated entries: those whose key is not the item's. */
typedef struct cache {
    int n_slots, n_used;
    double *key; /* [n_items] */
    char *in, *held;
    entry *heap, *aside;
    int n, max;
} cache;

static void push(cache *c, entry e)
{
    if (c->n == c->max)
        c->heap = realloc(c->heap, (size_t)(c->max = 2 * c->max + 64) * sizeof *c->heap);
    int at = c->n++;
    for (; at && c->heap[(at - 1) / 2].key > e.key; at = (at - 1) / 2)
        c->heap[at] = c->heap[(at - 1) / 2];
    c->heap[at] = e;
}

static entry pop(cache *c)
{
    entry top = c->heap[0], last = c->heap[--c->n];
    int at = 0;
    for (int child; (child = 2 * at + 1) < c->n; at = child) {
        child += child + 1 < c->n && c->heap[child + 1].key < c->heap[child].key;
        if (c->heap[child].key >= last.key)
            break;
        c->heap[at] = c->heap[child];
    }
    c->heap[at] = last;
    return top;
}

/* Makes room for one item that is not held. Returns 0 if all are. */
static int evict(cache *c)
{
    int n_aside = 0, done = 0;
    while (!done && c->n) {
        entry e = pop(c);
        if (!c->in[e.item] || e.key < c->key[e.item] || e.key > c->key[e.item])
            continue;
        if (c->held[e.item]) {
            c->aside[n_aside++] = e;
        } else {
            c->in[e.item] = 0;
            done = 1;
        }
    }
    while (n_aside)
        push(c, c->aside[--n_aside]);
    c->n_used -= done;
    return done;
}

static double new_key(const trace *t, kind how, double old, int step, int use)
{
    return how == LRU ? step : how == LFU ? floor(old) + 1 + step * 1e-7 : -(double)t->next[use];
}

/* Brings what the step misses; Belady begins with what is needed again soonest, since there may not be room for all. */
static void bring(cache *c, const int *missing, int n)
{
    for (int i = 0; i < n; i++) {
        if (c->n_used == c->n_slots && !evict(c))
            break;
        c->in[missing[i]] = 1;
        c->n_used++;
        push(c, (entry){c->key[missing[i]], missing[i]});
    }
}

static int compared_hits(const trace *t, kind how, int n_slots)
{
    size_t n_items = (size_t)(t->n_layers * t->n_experts);
    cache c = {.n_slots = n_slots};
    c.key = calloc(n_items, sizeof *c.key);
    c.in = calloc(n_items, 1);
    c.held = calloc(n_items, 1);
    c.aside = malloc(n_items * sizeof *c.aside);
    int hits = 0, missing[MOST_EXPERTS];
    for (int s = 0; s < t->n_steps; s++) {
        int n = 0;
        for (int i = t->first[s]; i < t->first[s + 1]; i++) {
            int item = t->item[i], at = n;
            c.held[item] = 1;
            c.key[item] = new_key(t, how, c.key[item], s, i);
            if (c.in[item]) {
                hits++;
                push(&c, (entry){c.key[item], item});
                continue;
            }
            for (n++; how == BELADY && at && c.key[missing[at - 1]] < c.key[item]; at--)
                missing[at] = missing[at - 1];
            missing[at] = item;
        }
        bring(&c, missing, n);
        for (int i = t->first[s]; i < t->first[s + 1]; i++)
            c.held[t->item[i]] = 0;
    }
    free(c.key);
    free(c.in);
    free(c.held);
    free(c.aside);
    free(c.heap);
    return hits;
}

/* Every miss takes a slot, as it must where an expert is computed from one; or at most two a step take one if that is worth it, as where
 * somebody else computes what is missing. *n_brought counts them. */
static int policy_hits(const trace *t, int n_slots, int forced, int *n_brought)
{
    k3_policy *p;
    int hits = 0, missing[MOST_EXPERTS];
    *n_brought = 0;
    assert_int_equal(k3_policy_open(&p, t->n_layers, t->n_experts, n_slots, NULL), K3_OK);
    for (int s = 0; s < t->n_steps; s++) {
        int n = 0;
        k3_policy_step(p, t->layer[s]);
        for (int i = t->first[s]; i < t->first[s + 1]; i++)
            if (k3_policy_use(p, t->item[i]) < 0)
                missing[n++] = t->item[i];
            else
                hits++;
        for (int i = 0, left = forced ? n : 2; i < n && left; i++) {
            int brought = k3_policy_take(p, missing[i], forced) >= 0;
            *n_brought += brought;
            left -= brought;
        }
    }
    k3_policy_close(p);
    return hits;
}

/* ---- what is claimed ----------------------------------------------------------------------------------------------------- */

/* Hit rates in percent, printed as a table. */
typedef struct rates {
    double of[N_KINDS][N_SIZES];
} rates;

static rates replay(const char *name, trace t)
{
    static const char *const names[N_KINDS] = {"LRU", "LFU", "optimum", "policy"};
    rates r;
    print_message("           %s: %d items wanted\n", name, t.n_uses);
    for (int k = 0; k < N_KINDS; k++) {
        print_message("           %-8s", names[k]);
        for (int i = 0; i < N_SIZES; i++) {
            int n_slots = t.n_layers * t.n_experts * percent[i] / 100;
            int n_brought, hits = k == POLICY ? policy_hits(&t, n_slots, 1, &n_brought) : compared_hits(&t, (kind)k, n_slots);
            r.of[k][i] = 100.0 * hits / t.n_uses;
            print_message(" %6.2f", r.of[k][i]);
        }
        print_message("\n");
    }
    for (int i = 0; i < N_SIZES; i++) {
        assert_true(r.of[POLICY][i] <= r.of[BELADY][i]);
        assert_true(r.of[POLICY][i] >= r.of[LRU][i] - 0.2);
    }
    free_trace(&t);
    return r;
}

/* At least `points` more than LRU at every size from `first` to `last`. */
static void assert_better(const rates *r, int first, int last, double points)
{
    for (int i = first; i <= last; i++)
        assert_true(r->of[POLICY][i] >= r->of[LRU][i] + points);
}

static void answers_one_after_another(void **state)
{
    (void)state;
    rates r = replay("single", recorded("single"));
    assert_better(&r, 0, 4, 6);
    for (int i = 0; i < N_SIZES; i++)
        assert_true(r.of[POLICY][i] >= r.of[LFU][i]);
}

static void sessions_that_share_passes(void **state)
{
    (void)state;
    rates r = replay("shared", recorded("shared"));
    assert_better(&r, 1, 4, 6);
    for (int i = 0; i < N_SIZES; i++)
        assert_true(r.of[POLICY][i] >= r.of[LFU][i]);
}

/* Prefill wants nearly all experts of a layer at once, and then all of the next: what was used last is what is needed last. */
static void prefill_of_long_prompts(void **state)
{
    (void)state;
    rates r = replay("long", recorded("long"));
    assert_better(&r, 0, 4, 1);
    assert_better(&r, 2, 4, 12);
}

static void experts_all_alike(void **state)
{
    (void)state;
    rates r = replay("flat", made(4, 1500, 0, 0, 1));
    assert_better(&r, 0, 1, 0.3);
}

static void some_experts_are_popular(void **state)
{
    (void)state;
    rates r = replay("skewed", made(4, 600, 0.7, 0, 1));
    assert_better(&r, 0, 1, 8);
    for (int i = 0; i < N_SIZES; i++)
        assert_true(r.of[POLICY][i] >= r.of[LFU][i] - 2);
}

static void popularity_moves(void **state)
{
    (void)state;
    rates r = replay("drifting", made(4, 600, 0.7, 8, 1));
    assert_better(&r, 0, 1, 4);
    for (int i = 0; i < N_SIZES; i++)
        assert_true(r.of[POLICY][i] >= r.of[LFU][i] - 0.2);
}

/* Here the last token tells most, which is where LRU is good and use counts are bad. */
static void the_next_token_wants_much_of_the_last(void **state)
{
    (void)state;
    rates r = replay("loyal", made(4, 600, 0.5, 4, 30));
    assert_better(&r, 0, 0, 1);
    assert_true(r.of[POLICY][0] >= r.of[LFU][0] + 5);
}

/* A device that brings a few of what it lacks, and not for one use, has the hits of one that brings all with half of the traffic. */
static void few_are_brought_where_others_can_compute(void **state)
{
    (void)state;
    static const char *const names[] = {"single", "shared"};
    for (int i = 0; i < 2; i++)
        for (int size = 2; size < 4; size++) {
            trace t = recorded(names[i]);
            int n_all, n_few, n_slots = t.n_layers * t.n_experts * percent[size] / 100;
            int all = policy_hits(&t, n_slots, 1, &n_all), few = policy_hits(&t, n_slots, 0, &n_few);
            print_message("           %s, %d %%: %d hits, %d brought; all brought: %d, %d\n", names[i], percent[size], few, n_few, all,
                          n_all);
            assert_true(few >= all - t.n_uses * 2 / 100);
            assert_true(n_few <= n_all / 2);
            free_trace(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_one_after_another),
        cmocka_unit_test(sessions_that_share_passes),
        cmocka_unit_test(prefill_of_long_prompts),
        cmocka_unit_test(experts_all_alike),
        cmocka_unit_test(some_experts_are_popular),
        cmocka_unit_test(popularity_moves),
        cmocka_unit_test(the_next_token_wants_much_of_the_last),
        cmocka_unit_test(few_are_brought_where_others_can_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
