#include "store/experts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef struct k3_map {
    void *at;
    uint64_t bytes;
    k3_buf *buf;
} k3_map;

struct k3_experts {
    const k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_backend *be;
    k3_map *maps;            /* by shard; at == NULL where no expert lives */
    k3_expert *experts;      /* [layer * E + id] */
    const k3_expert **table; /* the same as pointers */
    unsigned char *checked;  /* [layer * E + id] */
};

static k3_status map_shard(k3_experts *x, int shard, k3_error *err)
{
    k3_map *map = &x->maps[shard];
    if (map->at)
        return K3_OK;
    uint64_t bytes = k3_ckpt_shard_bytes(x->ckpt, shard);
    if (bytes > SIZE_MAX)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: %llu bytes cannot be mapped by a 32-bit process", k3_ckpt_shard_path(x->ckpt, shard),
                       (unsigned long long)bytes);
    void *at = mmap(NULL, (size_t)bytes, PROT_READ, MAP_PRIVATE, k3_ckpt_shard_fd(x->ckpt, shard), 0);
    if (at == MAP_FAILED)
        return k3_fail(err, K3_E_IO, "%s: cannot map %llu bytes: %s", k3_ckpt_shard_path(x->ckpt, shard), (unsigned long long)bytes,
                       strerror(errno));
    map->at = at;
    map->bytes = bytes;
    map->buf = x->be->memory->wrap(x->be, at, bytes, "routed experts");
    return map->buf ? K3_OK : x->be->sync(x->be, err);
}

static k3_status place(k3_experts *x, k3_mat *mat, k3_role codes, k3_role scale, int layer, int id, k3_error *err)
{
    const k3_tensor_info *w = k3_ckpt_role(x->ckpt, codes, layer, id), *s = k3_ckpt_role(x->ckpt, scale, layer, id);
    if (!w || !s)
        return k3_fail(err, K3_E_NOT_FOUND, "layer %d expert %d: no MXFP4 tensors", layer, id);
    K3_TRY(map_shard(x, w->shard, err));
    K3_TRY(map_shard(x, s->shard, err));
    *mat =
        (k3_mat){K3_MXFP4, (int)w->shape[0], (int)w->shape[1] * 2, {x->maps[w->shard].buf, w->offset}, {x->maps[s->shard].buf, s->offset}};
    return K3_OK;
}

static k3_status place_all(k3_experts *x, k3_error *err)
{
    const k3_hparams *hp = x->hp;
    for (int l = 0; l < hp->n_layers; l++)
        for (int e = 0; hp->is_moe[l] && e < hp->n_experts; e++) {
            size_t i = (size_t)l * (size_t)hp->n_experts + (size_t)e;
            K3_TRY(place(x, &x->experts[i].w1, K3_R_W1, K3_R_W1_SCALE, l, e, err));
            K3_TRY(place(x, &x->experts[i].w2, K3_R_W2, K3_R_W2_SCALE, l, e, err));
            K3_TRY(place(x, &x->experts[i].w3, K3_R_W3, K3_R_W3_SCALE, l, e, err));
            x->table[i] = &x->experts[i];
        }
    return K3_OK;
}

k3_status k3_experts_open(k3_experts **out, const k3_ckpt *ckpt, k3_backend *be, k3_error *err)
{
    *out = NULL;
    k3_experts *x = calloc(1, sizeof *x);
    if (!x)
        return k3_fail(err, K3_E_NOMEM, "expert table: out of memory");
    x->ckpt = ckpt;
    x->hp = k3_ckpt_hparams(ckpt);
    x->be = be;
    size_t n = (size_t)x->hp->n_layers * (size_t)x->hp->n_experts;
    x->maps = calloc((size_t)k3_ckpt_n_shards(ckpt), sizeof *x->maps);
    x->experts = calloc(n ? n : 1, sizeof *x->experts);
    x->table = calloc(n ? n : 1, sizeof *x->table);
    x->checked = calloc(n ? n : 1, 1);
    k3_status status = x->maps && x->experts && x->table && x->checked
                           ? place_all(x, err)
                           : k3_fail(err, K3_E_NOMEM, "expert table: out of memory for %zu experts", n);
    if (status != K3_OK) {
        k3_experts_close(x);
        return status;
    }
    *out = x;
    return K3_OK;
}

void k3_experts_close(k3_experts *x)
{
    if (!x)
        return;
    for (int i = 0; x->maps && i < k3_ckpt_n_shards(x->ckpt); i++) {
        if (x->maps[i].buf)
            x->be->memory->release(x->be, x->maps[i].buf);
        if (x->maps[i].at)
            munmap(x->maps[i].at, (size_t)x->maps[i].bytes);
    }
    free(x->maps);
    free(x->experts);
    free(x->table);
    free(x->checked);
    free(x);
}

static k3_status check_scales(const k3_mat *mat, int layer, int id, const char *which, k3_error *err)
{
    const unsigned char *scale = k3_host(mat->scale);
    size_t n = (size_t)mat->rows * (size_t)mat->cols / 32;
    const unsigned char *bad = memchr(scale, 255, n);
    if (!bad)
        return K3_OK;
    size_t i = (size_t)(bad - scale), per_row = (size_t)mat->cols / 32;
    return k3_fail(err, K3_E_FORMAT,
                   "layer %d expert %d %s: scale byte 255 (not a number in E8M0) at row %zu, block %zu; the file is damaged", layer, id,
                   which, i / per_row, i % per_row);
}

k3_status k3_experts_acquire(k3_experts *x, const k3_expert *const **table, int layer, const int32_t *ids, int n, k3_error *err)
{
    size_t base = (size_t)layer * (size_t)x->hp->n_experts;
    for (int i = 0; i < n; i++) {
        int id = ids[i];
        if (id < 0 || id >= x->hp->n_experts)
            return k3_fail(err, K3_E_INVALID, "layer %d: expert %d asked for, 0 to %d exist", layer, id, x->hp->n_experts - 1);
        if (x->checked[base + (size_t)id])
            continue;
        const k3_expert *e = &x->experts[base + (size_t)id];
        K3_TRY(check_scales(&e->w1, layer, id, "w1", err));
        K3_TRY(check_scales(&e->w2, layer, id, "w2", err));
        K3_TRY(check_scales(&e->w3, layer, id, "w3", err));
        x->checked[base + (size_t)id] = 1;
    }
    *table = x->table + base;
    return K3_OK;
}

uint64_t k3_experts_one_bytes(const k3_hparams *hp)
{
    uint64_t width = (uint64_t)(hp->latent ? hp->latent : hp->hidden), weights = 3 * width * (uint64_t)hp->expert_inner;
    return weights / 2 + weights / 32;
}
