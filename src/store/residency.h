/* Which item is in which slot, and which slot is given up for another item. Pure bookkeeping, no memory of a device is touched here. */
#ifndef K3_STORE_RESIDENCY_H
#define K3_STORE_RESIDENCY_H

#include "base/error.h"

typedef struct k3_residency k3_residency;

k3_status k3_residency_open(k3_residency **out, int n_items, int n_slots, k3_error *err);
void k3_residency_close(k3_residency *r);

/* The item's slot, or -1. */
int k3_residency_find(const k3_residency *r, int item);
/* The item in a slot, or -1. */
int k3_residency_item(const k3_residency *r, int slot);
/* Starts a step: slots used or taken in it are not given up before the next one. */
void k3_residency_step(k3_residency *r);
/* The item is wanted in this step, resident or not. Returns its slot, or -1. */
int k3_residency_use(k3_residency *r, int item);
/* A slot for an item that has none: a free one, else that of the item used least among those not used for longest. Without `force` only an
 * item used less often than the new one makes room, so that what is wanted once does not push out what is wanted always. -1: none. */
int k3_residency_take(k3_residency *r, int item, int force);
/* The item is not resident after all; its slot is free. */
void k3_residency_drop(k3_residency *r, int item);
/* Slots first .. first+n-1 are gone for good, and what was in them is not resident any more. */
void k3_residency_cut(k3_residency *r, int first, int n);

int k3_residency_used(const k3_residency *r);
uint64_t k3_residency_evictions(const k3_residency *r);

#endif
