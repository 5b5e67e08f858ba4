#include "store/policy.h"

#include <stdlib.h>
#include <string.h>

enum { SPANS = 2 };

/* What a visit leaves of a rate: half of it is gone after 2 and 48 visits. */
static const float keep[SPANS] = {0.70710678f, 0.98566319f};
/* A rate never falls to 0: a wait is finite, and no rate becomes too small for fast arithmetic. */
static const float LEAST = 1e-12f;
/* How much a step changes the trust in each span. */
static const float LEARN = 0.01f;
/* A whole round until the next visit counts as much as that many visits without a use. */
static const float ROUND = 2;
/* Without force, an item makes room only for one that is so much cheaper to keep: estimates that waver would move experts for nothing. */
static const float MARGIN = 1.5f;

struct k3_policy {
    int n_layers, n_experts, n_items, n_slots, n_used, n_free;
    int *slot_of; /* [n_items]; -1: not resident */
    int *item_in; /* [n_slots]; -1: free */
    int *free;    /* [n_free]; the last is taken first */

    float *rate[SPANS]; /* [n_items]: decayed mean of uses a visit, times `seen` of the layer */
    float *seen[SPANS]; /* [n_layers]: the decayed mean of 1 a visit, which makes up for the visits before the first */
    float trust[SPANS], evidence[SPANS];
    int n_evidence;
    uint32_t *uses, *visits; /* [n_items], [n_layers]: since the counts began */

    /* Slots that may be given up: a heap a layer, longest wait first, of slots at heap + layer * n_experts. */
    int *heap, *n_heap;
    float *wait; /* [n_slots]: visits between two uses */
    int *place;  /* [n_slots]: in its heap; -1: free, or held by the step */
    int *held;   /* [n_held]: slots used or taken in this step */
    int n_held, layer;
    uint64_t evictions;
};

static void *zeros(int n, size_t size)
{
    return calloc((size_t)n + 1, size);
}

k3_status k3_policy_open(k3_policy **out, int n_layers, int n_experts, int n_slots, k3_error *err)
{
    int n_items = n_layers * n_experts, complete = 0;
    k3_policy *p = calloc(1, sizeof *p);
    *out = p;
    if (p) {
        *p = (k3_policy){.n_layers = n_layers, .n_experts = n_experts, .n_items = n_items, .n_slots = n_slots, .n_free = n_slots};
        p->slot_of = zeros(n_items, sizeof(int));
        p->item_in = zeros(n_slots, sizeof(int));
        p->free = zeros(n_slots, sizeof(int));
        p->heap = zeros(n_items, sizeof(int));
        p->n_heap = zeros(n_layers, sizeof(int));
        p->wait = zeros(n_slots, sizeof(float));
        p->place = zeros(n_slots, sizeof(int));
        p->held = zeros(n_slots, sizeof(int));
        p->uses = zeros(n_items, sizeof *p->uses);
        p->visits = zeros(n_layers, sizeof *p->visits);
        complete = p->uses && p->visits;
        for (int s = 0; s < SPANS; s++) {
            p->rate[s] = zeros(n_items, sizeof(float));
            p->seen[s] = zeros(n_layers, sizeof(float));
            p->trust[s] = 1.0f / SPANS;
            complete = complete && p->rate[s] && p->seen[s];
        }
    }
    if (!p || !p->slot_of || !p->item_in || !p->free || !p->heap || !p->n_heap || !p->wait || !p->place || !p->held || !complete) {
        k3_policy_close(p);
        *out = NULL;
        return k3_fail(err, K3_E_NOMEM, "expert slots: out of memory for %d items in %d slots", n_items, n_slots);
    }
    for (int i = 0; i < n_items; i++)
        p->slot_of[i] = -1;
    for (int s = 0; s < n_slots; s++) {
        p->item_in[s] = p->place[s] = -1;
        p->free[s] = n_slots - 1 - s;
    }
    return K3_OK;
}

void k3_policy_close(k3_policy *p)
{
    if (!p)
        return;
    for (int s = 0; s < SPANS; s++) {
        free(p->rate[s]);
        free(p->seen[s]);
    }
    free(p->uses);
    free(p->visits);
    free(p->slot_of);
    free(p->item_in);
    free(p->free);
    free(p->heap);
    free(p->n_heap);
    free(p->wait);
    free(p->place);
    free(p->held);
    free(p);
}

int k3_policy_find(const k3_policy *p, int item)
{
    return p->slot_of[item];
}

int k3_policy_item(const k3_policy *p, int slot)
{
    return p->item_in[slot];
}

/* ---- heaps ------------------------------------------------------------------------------------------------------------- */

static void put(k3_policy *p, int *heap, int at, int slot)
{
    heap[at] = slot;
    p->place[slot] = at;
}

static void rise(k3_policy *p, int *heap, int at, int slot)
{
    for (; at && p->wait[heap[(at - 1) / 2]] < p->wait[slot]; at = (at - 1) / 2)
        put(p, heap, at, heap[(at - 1) / 2]);
    put(p, heap, at, slot);
}

static void sink(k3_policy *p, int *heap, int n, int at, int slot)
{
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && p->wait[heap[child + 1]] > p->wait[heap[child]])
            child++;
        if (p->wait[heap[child]] <= p->wait[slot])
            break;
        put(p, heap, at, heap[child]);
    }
    put(p, heap, at, slot);
}

static int *heap_of(k3_policy *p, int layer)
{
    return p->heap + (size_t)layer * (size_t)p->n_experts;
}

static void heap_remove(k3_policy *p, int slot)
{
    int layer = p->item_in[slot] / p->n_experts, *heap = heap_of(p, layer), at = p->place[slot], n = --p->n_heap[layer], last = heap[n];
    p->place[slot] = -1;
    if (last == slot)
        return;
    if (at && p->wait[heap[(at - 1) / 2]] < p->wait[last])
        rise(p, heap, at, last);
    else
        sink(p, heap, n, at, last);
}

/* ---- steps ------------------------------------------------------------------------------------------------------------- */

/* Visits of the layer between two uses of the item. */
static float wait_of(const k3_policy *p, int item)
{
    int layer = item / p->n_experts;
    float rate = LEAST;
    for (int s = 0; s < SPANS; s++)
        if (p->seen[s][layer] > 0)
            rate += p->trust[s] * p->rate[s][item] / p->seen[s][layer];
    return 1 / rate;
}

/* The spans' shares in what foretold the uses of the last step: one turn of expectation and maximization for a mixture. */
static void learn(k3_policy *p)
{
    for (int s = 0; s < SPANS && p->n_evidence; s++) {
        p->trust[s] += LEARN * (p->evidence[s] / (float)p->n_evidence - p->trust[s]);
        p->evidence[s] = 0;
    }
    p->n_evidence = 0;
}

static void release_held(k3_policy *p)
{
    for (int i = 0; i < p->n_held; i++) {
        int slot = p->held[i], item = p->item_in[slot], layer = item / p->n_experts;
        p->wait[slot] = wait_of(p, item);
        rise(p, heap_of(p, layer), p->n_heap[layer]++, slot);
    }
    p->n_held = 0;
}

void k3_policy_step(k3_policy *p, int layer)
{
    int *heap = heap_of(p, layer), n = p->n_experts;
    learn(p);
    release_held(p);
    p->layer = layer;
    p->visits[layer]++;
    for (int s = 0; s < SPANS; s++) {
        float *rate = p->rate[s] + (size_t)layer * (size_t)n;
        for (int i = 0; i < n; i++)
            rate[i] = rate[i] * keep[s] + LEAST;
        p->seen[s][layer] = p->seen[s][layer] * keep[s] + (1 - keep[s]);
    }
    for (int i = 0; i < p->n_heap[layer]; i++)
        p->wait[heap[i]] = wait_of(p, p->item_in[heap[i]]);
    for (int i = p->n_heap[layer] / 2 - 1; i >= 0; i--)
        sink(p, heap, p->n_heap[layer], i, heap[i]);
}

int k3_policy_use(k3_policy *p, int item)
{
    int slot = p->slot_of[item];
    float foretold[SPANS], all = 0;
    p->uses[item]++;
    for (int s = 0; s < SPANS; s++) {
        float before = p->seen[s][p->layer] - (1 - keep[s]); /* what `seen` is without this visit */
        foretold[s] = before > 0 ? p->trust[s] * p->rate[s][item] / before : 0;
        all += foretold[s];
        p->rate[s][item] += 1 - keep[s];
    }
    for (int s = 0; s < SPANS && all > 0; s++)
        p->evidence[s] += foretold[s] / all;
    p->n_evidence += all > 0;
    k3_policy_hold(p, item);
    return slot;
}

void k3_policy_hold(k3_policy *p, int item)
{
    int slot = p->slot_of[item];
    if (slot >= 0 && p->place[slot] >= 0) {
        heap_remove(p, slot);
        p->held[p->n_held++] = slot;
    }
}

/* What keeping a slot costs: the wait, counted from the next visit of its layer, which is 1 to n_layers steps away. */
static float cost(const k3_policy *p, int layer, float wait)
{
    int steps = layer > p->layer ? layer - p->layer : layer - p->layer + p->n_layers;
    return wait + ROUND * (float)steps / (float)p->n_layers;
}

/* The slot that costs most to keep; -1: the step holds all. */
static int victim(k3_policy *p, float *most)
{
    int best = -1;
    for (int l = 0; l < p->n_layers; l++) {
        int slot = p->n_heap[l] ? heap_of(p, l)[0] : -1;
        if (slot < 0)
            continue;
        float c = cost(p, l, p->wait[slot]);
        if (best < 0 || c > *most) {
            best = slot;
            *most = c;
        }
    }
    return best;
}

int k3_policy_take(k3_policy *p, int item, int force)
{
    float most = 0;
    int slot = p->n_free ? p->free[--p->n_free] : victim(p, &most);
    if (slot < 0)
        return -1;
    int old = p->item_in[slot];
    if (old >= 0) {
        if (!force && most <= MARGIN * cost(p, item / p->n_experts, wait_of(p, item)))
            return -1;
        heap_remove(p, slot);
        p->slot_of[old] = -1;
        p->evictions++;
    } else {
        p->n_used++;
    }
    p->item_in[slot] = item;
    p->slot_of[item] = slot;
    p->held[p->n_held++] = slot;
    return slot;
}

/* Nothing is in the slot any more. */
static void vacate(k3_policy *p, int slot)
{
    if (p->place[slot] >= 0)
        heap_remove(p, slot);
    for (int i = 0; i < p->n_held; i++)
        if (p->held[i] == slot)
            p->held[i--] = p->held[--p->n_held];
    p->slot_of[p->item_in[slot]] = -1;
    p->item_in[slot] = -1;
    p->n_used--;
}

void k3_policy_drop(k3_policy *p, int item)
{
    int slot = p->slot_of[item];
    if (slot < 0)
        return;
    vacate(p, slot);
    p->free[p->n_free++] = slot;
}

void k3_policy_cut(k3_policy *p, int first, int n)
{
    for (int slot = first; slot < first + n; slot++)
        if (p->item_in[slot] >= 0)
            vacate(p, slot);
    int kept = 0;
    for (int i = 0; i < p->n_free; i++)
        if (p->free[i] < first || p->free[i] >= first + n)
            p->free[kept++] = p->free[i];
    p->n_free = kept;
}

int k3_policy_used(const k3_policy *p)
{
    return p->n_used;
}

uint64_t k3_policy_evictions(const k3_policy *p)
{
    return p->evictions;
}

/* ---- over a long time ---------------------------------------------------------------------------------------------------- */

void k3_policy_counts(const k3_policy *p, int item, uint32_t *uses, uint32_t *visits)
{
    *uses = p->uses[item];
    *visits = p->visits[item / p->n_experts];
}

void k3_policy_remember(k3_policy *p, const uint32_t *uses, const uint32_t *visits)
{
    memcpy(p->uses, uses, (size_t)p->n_items * sizeof *uses);
    memcpy(p->visits, visits, (size_t)p->n_layers * sizeof *visits);
    for (int s = 0; s < SPANS; s++) {
        for (int i = 0; i < p->n_items; i++)
            p->rate[s][i] = visits[i / p->n_experts] ? (float)uses[i] / (float)visits[i / p->n_experts] : 0;
        for (int l = 0; l < p->n_layers; l++)
            p->seen[s][l] = visits[l] ? 1 : 0;
    }
}
