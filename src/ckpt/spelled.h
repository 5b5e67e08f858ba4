/* The tensors of an open checkpoint as its files spell them: type and shape before roles gave them one form, and tensors without a role.
 * For copies. */
#ifndef K3_CKPT_SPELLED_H
#define K3_CKPT_SPELLED_H

#include "ckpt/safetensors.h"

typedef struct k3_spelled {
    k3_st_file *files; /* [n]: headers, read again */
    int n;
    uint64_t hash; /* of all headers, and of some bytes in the middle of each tensor outside the experts */
} k3_spelled;

k3_status k3_spelled_open(k3_spelled *out, const k3_ckpt *ckpt, k3_error *err);
void k3_spelled_close(k3_spelled *spelled);
/* The tensor that k3_ckpt_role knows as t. */
k3_st_tensor *k3_spelled_of(const k3_spelled *spelled, const k3_ckpt *ckpt, const k3_tensor_info *t);

#endif
