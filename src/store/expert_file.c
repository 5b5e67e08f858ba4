#include "store/expert_file.h"

#include <stddef.h>
#include <string.h>

/* A gap up to that many bytes is read along: cheaper than another request. */
enum { MOST_GAP = 65536 };

const k3_expert_matrix k3_expert_matrices[K3_EXPERT_MATRICES] = {
    {offsetof(k3_expert, w1), K3_R_W1, K3_R_W1_SCALE, "w1"},
    {offsetof(k3_expert, w2), K3_R_W2, K3_R_W2_SCALE, "w2"},
    {offsetof(k3_expert, w3), K3_R_W3, K3_R_W3_SCALE, "w3"},
};

k3_mat *k3_expert_mat(k3_expert *e, int i_matrix)
{
    return (k3_mat *)(void *)((char *)e + k3_expert_matrices[i_matrix].at);
}

const k3_tensor_info *k3_expert_tensor(const k3_ckpt *ckpt, int layer, int id, int i)
{
    return k3_ckpt_role(ckpt, i % 2 ? k3_expert_matrices[i / 2].scale : k3_expert_matrices[i / 2].codes, layer, id);
}

static int is_before(const k3_tensor_info *t, const k3_expert_part *part)
{
    return t->shard != part->shard ? t->shard < part->shard : t->offset < part->offset;
}

int k3_expert_parts(k3_expert_part parts[K3_EXPERT_PARTS], const k3_ckpt *ckpt, int layer, int id)
{
    int n = 0;
    for (int i = 0; i < K3_EXPERT_PARTS; i++) {
        const k3_tensor_info *t = k3_expert_tensor(ckpt, layer, id, i);
        if (!t)
            return 0;
        int at = n++;
        for (; at > 0 && is_before(t, &parts[at - 1]); at--)
            parts[at] = parts[at - 1];
        parts[at] = (k3_expert_part){t->shard, t->offset, t->bytes};
    }
    int kept = 1;
    for (int i = 1; i < n; i++) {
        k3_expert_part *last = &parts[kept - 1];
        uint64_t end = last->offset + last->bytes;
        if (last->shard == parts[i].shard && parts[i].offset - end <= MOST_GAP)
            last->bytes = parts[i].offset + parts[i].bytes - last->offset;
        else
            parts[kept++] = parts[i];
    }
    return kept;
}

k3_status k3_expert_check_scales(const unsigned char *scale, const k3_mat *mat, int layer, int id, int i_matrix, k3_error *err)
{
    size_t per_row = (size_t)mat->cols / 32, n = (size_t)mat->rows * per_row;
    const unsigned char *bad = memchr(scale, 255, n);
    if (!bad)
        return K3_OK;
    return k3_fail(err, K3_E_FORMAT,
                   "layer %d expert %d %s: scale byte 255 (not a number in E8M0) at row %zu, block %zu; the file is damaged", layer, id,
                   k3_expert_matrices[i_matrix].name, (size_t)(bad - scale) / per_row, (size_t)(bad - scale) % per_row);
}
