/* The language model's tensors by role: which name, which shape, which types; and the check that all of them are there. */
#ifndef K3_CKPT_LAYOUT_H
#define K3_CKPT_LAYOUT_H

#include "ckpt/roles.h"
#include "ckpt/safetensors.h"

enum { K3_EXPERT_TENSORS = K3_N_ROLES - K3_R_W1 };

typedef struct k3_layout {
    const k3_tensor_info *roles[K3_R_W1][K3_MAX_LAYERS];  /* global roles stand under layer 0 */
    const k3_tensor_info *scales[K3_R_W1][K3_MAX_LAYERS]; /* of roles that are packed */
    const k3_tensor_info **experts;                       /* [layer][expert][role - K3_R_W1] */
    char prefix[24], head[32];                            /* such as "language_model.model." and "language_model.lm_head.weight" */
    uint64_t trunk_bytes, expert_bytes, n_params;         /* of the language model; a packed code is one parameter, a scale none */
    size_t n_vision, n_unknown;                           /* tensors that belong to the image encoder, or to nothing known */
    uint64_t vision_bytes;
    char first_unknown[96];
} k3_layout;

/* Assigns every tensor of the files its role. Shapes of one-row tensors are brought to the form of specification 2.2 ([1, H], [C, 1, 4]).
 * has_index: tensors that the index does not list count as missing. All problems are collected; the message counts and samples them. */
k3_status k3_layout_build(k3_layout *out, const k3_hparams *hp, k3_st_file *files, size_t n_files, int has_index, const char *path,
                          k3_error *err);
void k3_layout_free(k3_layout *layout);
const k3_tensor_info *k3_layout_find(const k3_layout *layout, const k3_hparams *hp, k3_role role, int layer, int expert);

#endif
