/* Routed experts by (layer, id). They stay in the shards as stored, MXFP4, and are mapped into memory: the page cache holds what is used,
 * and a model larger than memory still runs. */
#ifndef K3_STORE_EXPERTS_H
#define K3_STORE_EXPERTS_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"

typedef struct k3_experts k3_experts;

k3_status k3_experts_open(k3_experts **out, const k3_ckpt *ckpt, k3_backend *be, k3_error *err);
void k3_experts_close(k3_experts *experts);

/* Makes the experts named by ids[0..n-1] of a MoE layer readable; *table is indexed by id and valid until close. The first use of an
 * expert checks its scale bytes: 255 is not a number in E8M0 and is refused by name. */
k3_status k3_experts_acquire(k3_experts *experts, const k3_expert *const **table, int layer, const int32_t *ids, int n, k3_error *err);

uint64_t k3_experts_one_bytes(const k3_hparams *hp); /* stored bytes of one expert */

#endif
