/* What of the trunk does not stay in memory but comes when it is wanted: layers and head through the rings of store/trunk.h, rows of the
 * embedding one by one. */
#ifndef K3_MODEL_LATE_H
#define K3_MODEL_LATE_H

#include "model/convert.h"
#include "store/trunk.h"

enum { K3_LATE_ROWS = 64 }; /* of the embedding at once */

typedef struct k3_late {
    const k3_ckpt *ckpt;
    k3_backend *be;
    k3_converter converter;
    k3_trunk_stream *stream;     /* NULL: layers and head are in memory */
    int first_layer;             /* those before it are in memory */
    k3_mat *blocks;              /* [n_blocks] of the head, in the order of rows */
    int n_blocks;                /* 0: it is in memory */
    const k3_tensor_info *embed; /* NULL: it is in memory */
    k3_mat table;                /* [K3_LATE_ROWS]: rows of the embedding */
    uint64_t row_bytes, row_ns;  /* read of it, and how long that took */
} k3_late;

/* All of them do nothing where late is NULL: all of the trunk is in memory. Order of a pass: begin, layers, blocks of the head. */
void k3_late_close(k3_late *late);
k3_status k3_late_begin(k3_late *late, int wants_head, k3_error *err);
k3_status k3_late_layer(k3_late *late, int layer, k3_error *err);
void k3_late_layer_done(k3_late *late, int layer);

/* At most K3_LATE_ROWS rows of the embedding: places[i] is the row of the table that ids[i] names. */
k3_status k3_late_rows(k3_late *late, int32_t *places, const int32_t *ids, int n, k3_error *err);

/* What the ring's reader calls: part->mat's rows have come. */
k3_status k3_late_take(void *late, const k3_trunk_part *part, const void *raw, k3_error *err);

/* `bytes` and `wait_ns` include rows of the embedding. */
void k3_late_stats(k3_late *late, k3_trunk_stat *out, int reset);

#endif
