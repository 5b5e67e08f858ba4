#include "store/residency.h"

#include <stdlib.h>

/* LOOK: slots compared when one is given up. AGE: uses an item, on average, after which all counts are halved: what was popular once is
 * forgotten. */
enum { LOOK = 16, AGE = 16 };

/* Slots form a ring by time of use around entry n_slots: next[n_slots] is the latest, previous[n_slots] the one not used for longest. */
struct k3_residency {
    int n_items, n_slots, n_used, n_free;
    int *slot_of; /* [n_items]; -1: not resident */
    int *uses;    /* [n_items] */
    int *item_in; /* [n_slots]; -1: free */
    int *next, *previous;
    int *free;         /* [n_free]; the last is taken first */
    uint64_t *step_of; /* [n_slots]: step of the last use */
    uint64_t step, n_uses, evictions;
};

k3_status k3_residency_open(k3_residency **out, int n_items, int n_slots, k3_error *err)
{
    size_t items = (size_t)n_items + 1, slots = (size_t)n_slots + 1;
    k3_residency *r = calloc(1, sizeof *r);
    *out = r;
    if (r) {
        *r = (k3_residency){.n_items = n_items, .n_slots = n_slots, .n_free = n_slots};
        r->slot_of = malloc(items * sizeof(int));
        r->uses = calloc(items, sizeof(int));
        r->item_in = malloc(slots * sizeof(int));
        r->next = malloc(slots * sizeof(int));
        r->previous = malloc(slots * sizeof(int));
        r->free = malloc(slots * sizeof(int));
        r->step_of = calloc(slots, sizeof *r->step_of);
    }
    if (!r || !r->slot_of || !r->uses || !r->item_in || !r->next || !r->previous || !r->free || !r->step_of) {
        k3_residency_close(r);
        *out = NULL;
        return k3_fail(err, K3_E_NOMEM, "expert slots: out of memory for %d items in %d slots", n_items, n_slots);
    }
    for (int i = 0; i < n_items; i++)
        r->slot_of[i] = -1;
    for (int s = 0; s < n_slots; s++) {
        r->item_in[s] = -1;
        r->free[s] = n_slots - 1 - s;
    }
    r->next[n_slots] = r->previous[n_slots] = n_slots;
    return K3_OK;
}

void k3_residency_close(k3_residency *r)
{
    if (!r)
        return;
    free(r->slot_of);
    free(r->uses);
    free(r->item_in);
    free(r->next);
    free(r->previous);
    free(r->free);
    free(r->step_of);
    free(r);
}

int k3_residency_find(const k3_residency *r, int item)
{
    return r->slot_of[item];
}

int k3_residency_item(const k3_residency *r, int slot)
{
    return r->item_in[slot];
}

void k3_residency_step(k3_residency *r)
{
    r->step++;
}

static void unlink_slot(k3_residency *r, int slot)
{
    r->next[r->previous[slot]] = r->next[slot];
    r->previous[r->next[slot]] = r->previous[slot];
}

static void link_latest(k3_residency *r, int slot)
{
    int head = r->n_slots, second = r->next[head];
    r->next[head] = r->previous[second] = slot;
    r->previous[slot] = head;
    r->next[slot] = second;
    r->step_of[slot] = r->step;
}

static void age(k3_residency *r)
{
    r->n_uses = 0;
    for (int i = 0; i < r->n_items; i++)
        r->uses[i] /= 2;
}

int k3_residency_use(k3_residency *r, int item)
{
    int slot = r->slot_of[item];
    r->uses[item]++;
    if (++r->n_uses >= (uint64_t)AGE * (uint64_t)r->n_items)
        age(r);
    if (slot >= 0) {
        unlink_slot(r, slot);
        link_latest(r, slot);
    }
    return slot;
}

/* Of the LOOK slots not used for longest and not in this step, the one whose item is used least; -1: there is none. */
static int victim(const k3_residency *r)
{
    int best = -1, head = r->n_slots;
    for (int slot = r->previous[head], n = 0; slot != head && n < LOOK && r->step_of[slot] != r->step; slot = r->previous[slot], n++)
        if (best < 0 || r->uses[r->item_in[slot]] < r->uses[r->item_in[best]])
            best = slot;
    return best;
}

int k3_residency_take(k3_residency *r, int item, int force)
{
    int slot = r->n_free ? r->free[--r->n_free] : victim(r);
    if (slot < 0)
        return -1;
    int old = r->item_in[slot];
    if (old >= 0) {
        if (!force && r->uses[old] >= r->uses[item])
            return -1;
        r->slot_of[old] = -1;
        r->evictions++;
        unlink_slot(r, slot);
    } else {
        r->n_used++;
    }
    r->item_in[slot] = item;
    r->slot_of[item] = slot;
    link_latest(r, slot);
    return slot;
}

void k3_residency_drop(k3_residency *r, int item)
{
    int slot = r->slot_of[item];
    if (slot < 0)
        return;
    r->slot_of[item] = -1;
    r->item_in[slot] = -1;
    r->n_used--;
    unlink_slot(r, slot);
    r->free[r->n_free++] = slot;
}

void k3_residency_cut(k3_residency *r, int first, int n)
{
    for (int slot = first; slot < first + n; slot++)
        if (r->item_in[slot] >= 0) {
            r->slot_of[r->item_in[slot]] = -1;
            r->item_in[slot] = -1;
            r->n_used--;
            unlink_slot(r, slot);
        }
    int kept = 0;
    for (int i = 0; i < r->n_free; i++)
        if (r->free[i] < first || r->free[i] >= first + n)
            r->free[kept++] = r->free[i];
    r->n_free = kept;
}

int k3_residency_used(const k3_residency *r)
{
    return r->n_used;
}

uint64_t k3_residency_evictions(const k3_residency *r)
{
    return r->evictions;
}
