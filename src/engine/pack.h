/* What the parts of k3_pack share: the shards that it writes, planned one by one from the source's headers. */
#ifndef K3_ENGINE_PACK_H
#define K3_ENGINE_PACK_H

#include "ckpt/spelled.h"
#include "model/weights.h"
#include "text/buffer.h"

typedef enum pack_kind {
    PACK_COPY,   /* bytes as they are */
    PACK_CODES,  /* a matrix in `type` */
    PACK_SCALES, /* its scales, a later item of the same shard */
    PACK_PADDING /* zeros */
} pack_kind;

typedef struct pack_item {
    pack_kind kind;
    const k3_tensor_info *from;  /* NULL: padding */
    const k3_st_tensor *spelled; /* the same tensor */
    k3_type type;
    uint64_t at, bytes; /* from the first byte of data */
} pack_item;

typedef struct pack_shard {
    char name[64];
    int number; /* from 1 */
    pack_item *items;
    size_t n, capacity;
    k3_buffer header; /* its length first, padded to K3_PACK_EXPERT_ALIGN */
    uint64_t bytes;   /* of the file */
} pack_shard;

typedef struct pack_source {
    const k3_ckpt *ckpt;
    k3_spelled spelled;
    k3_trunk trunk;
    int n_shards;      /* one a layer, then one with embedding, head and everything that is no layer's */
    int64_t most_cols; /* of a matrix */
} pack_source;

k3_status pack_source_open(pack_source *out, const k3_ckpt *ckpt, k3_trunk trunk, k3_error *err);
void pack_source_close(pack_source *source);

/* Shard `i`, from 0. */
k3_status pack_plan(pack_shard *out, const pack_source *source, int i, k3_error *err);
void pack_shard_free(pack_shard *shard);
/* Adds the shard's tensors to the index's weight_map, without what only fills room. */
void pack_add_to_index(k3_buffer *index, const pack_shard *shard);

#endif
