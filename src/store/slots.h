/* Device memory for experts: slabs of slots, one expert a slot. */
#ifndef K3_STORE_SLOTS_H
#define K3_STORE_SLOTS_H

#include "backend/backend.h"
#include "ckpt/hparams.h"

typedef struct k3_slab {
    k3_backend *be;
    k3_buf *buf;
    int tier, first, n; /* slots first .. first+n-1 */
} k3_slab;

/* The slots of all devices, numbered through. */
typedef struct k3_slots {
    const k3_hparams *hp;
    k3_slab *slabs;
    int n_slabs, max_slabs;
    k3_expert *experts; /* [n]: where the tensors of a slot are */
    int *tier;          /* [n] */
    int n, max;
} k3_slots;

uint64_t k3_slots_one_bytes(const k3_hparams *hp);
/* Adds as many slots of a device as fit, at most n. Memory that ends early is no failure. */
k3_status k3_slots_add(k3_slots *slots, k3_backend *be, int tier, int n, k3_error *err);
/* Where a matrix of an expert lies in its slot, as the host sees it; NULL where it does not. */
void *k3_slots_host(k3_backend *be, const k3_mat *mat, int scales, uint64_t *bytes);
/* Releases a slab of a tier and tells which slots went with it. Returns 0 if the tier has none. */
int k3_slots_release(k3_slots *slots, int tier, int *first, int *n);
void k3_slots_close(k3_slots *slots);

#endif
