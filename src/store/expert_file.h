/* An expert in the released files: six tensors, which lie together unless a writer has torn them apart. */
#ifndef K3_STORE_EXPERT_FILE_H
#define K3_STORE_EXPERT_FILE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"

enum { K3_EXPERT_MATRICES = 3, K3_EXPERT_PARTS = 2 * K3_EXPERT_MATRICES };

/* The matrices in the order of their names. */
typedef struct k3_expert_matrix {
    size_t at; /* of the matrix in k3_expert */
    k3_role codes, scale;
    const char *name;
} k3_expert_matrix;
extern const k3_expert_matrix k3_expert_matrices[K3_EXPERT_MATRICES];

k3_mat *k3_expert_mat(k3_expert *e, int i_matrix);
/* Tensor i of K3_EXPERT_PARTS: codes and scales of one matrix after the other. NULL: it is missing. */
const k3_tensor_info *k3_expert_tensor(const k3_ckpt *ckpt, int layer, int id, int i);

/* A stretch of a shard that holds tensors of one expert, and at most some bytes that are not its own in between. */
typedef struct k3_expert_part {
    int shard;
    uint64_t offset, bytes;
} k3_expert_part;

/* All of an expert in as few stretches as there can be, in the order of their places: mostly one. 0: a tensor is missing. */
int k3_expert_parts(k3_expert_part parts[K3_EXPERT_PARTS], const k3_ckpt *ckpt, int layer, int id);

/* 255 is not a number in E8M0. `scale` has those of matrix i; K3_E_FORMAT names the first that is damaged. */
k3_status k3_expert_check_scales(const unsigned char *scale, const k3_mat *mat, int layer, int id, int i_matrix, k3_error *err);

#endif
