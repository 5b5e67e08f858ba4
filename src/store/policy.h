/* Which expert is in which slot, and which slot is given up for another expert. Pure bookkeeping, no memory of a device is touched here.
 *
 * Layers are visited in turn, so an expert cannot be wanted again before its layer is: what was used last is needed last. The slot given
 * up is therefore that of the expert with the longest expected wait, which is the rest of the round until its layer's next visit, and then
 * the visits between two uses. How often a visit uses an expert is estimated over the last few visits and over many; how far each of the
 * two is to be believed is learned from what they said about the experts that were then used. */
#ifndef K3_STORE_POLICY_H
#define K3_STORE_POLICY_H

#include "base/error.h"

#include <stdint.h>

typedef struct k3_policy k3_policy;

/* Items are layer * n_experts + id. */
k3_status k3_policy_open(k3_policy **out, int n_layers, int n_experts, int n_slots, k3_error *err);
void k3_policy_close(k3_policy *p);

/* The item's slot, or -1. */
int k3_policy_find(const k3_policy *p, int item);
/* The item in a slot, or -1. */
int k3_policy_item(const k3_policy *p, int slot);
/* Starts a step, the visit of a layer: slots used or taken in it are not given up before the next one. */
void k3_policy_step(k3_policy *p, int layer);
/* The item, of the step's layer, is wanted in this step, resident or not; to be told once. Returns its slot, or -1. */
int k3_policy_use(k3_policy *p, int item);
/* A slot for an item that has none: a free one, else that of the item with the longest expected wait. Without `force` only an item with a
 * clearly longer wait than the new one makes room, so that what is wanted once does not push out what is wanted always. -1: none. The item
 * may be of another layer, not used yet: what is read ahead for the next step. */
int k3_policy_take(k3_policy *p, int item, int force);
/* The slot of a resident item is not given up in this step, though the item is not used. */
void k3_policy_hold(k3_policy *p, int item);
/* The item is not resident after all; its slot is free. */
void k3_policy_drop(k3_policy *p, int item);
/* Slots first .. first+n-1 are gone for good, and what was in them is not resident any more. */
void k3_policy_cut(k3_policy *p, int first, int n);

int k3_policy_used(const k3_policy *p);
uint64_t k3_policy_evictions(const k3_policy *p);

/* How often the item was used, and its layer visited, since the counts began. */
void k3_policy_counts(const k3_policy *p, int item, uint32_t *uses, uint32_t *visits);
/* Goes on from the counts of an earlier run, uses [n_items] and visits [n_layers]: every item is expected as often as it was used then. To
 * be called before the first step. */
void k3_policy_remember(k3_policy *p, const uint32_t *uses, const uint32_t *visits);

#endif
