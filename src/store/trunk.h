/* The part of the trunk that does not fit memory. Layers, and the rows of the head in blocks, are read from the shards in the order in
 * which a pass uses them, some ahead of the one that is computed: each of the two has a ring of slots. Reading goes on across the end of a
 * pass, so that the next one finds its first layers. Every byte is read once a pass. */
#ifndef K3_STORE_TRUNK_H
#define K3_STORE_TRUNK_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "io/io.h"

/* ---- what is kept and what is read ---------------------------------------------------------------------------------- */

typedef struct k3_trunk_size {
    uint64_t held;              /* in memory for good */
    uint64_t stored;            /* in the shards */
    uint64_t room;              /* of a slot that it is read into */
    uint64_t made;              /* of what is converted after it was read */
    uint64_t on[K3_MAX_DRIVES]; /* of `stored`, by drive */
} k3_trunk_size;

typedef struct k3_trunk_sizes {
    uint64_t always; /* vectors */
    uint64_t rows;   /* of the buffer for embedding rows, without the embedding */
    int n_layers;
    k3_trunk_size layers[K3_MAX_LAYERS], head, embed; /* room and made of head: of its largest block */
} k3_trunk_sizes;

typedef struct k3_trunk_plan {
    int n_pinned; /* layers 0 .. n_pinned-1 stay in memory */
    int has_head, has_embed;
    uint64_t bytes;       /* of memory */
    uint64_t token_bytes; /* read a pass that wants logits */
} k3_trunk_plan;

/* Of a ring: one item is computed while the next is read. More would be paid for with layers that could stay in memory. */
enum { K3_TRUNK_SLOTS = 2 };

/* The plan within `budget` bytes that reads least, but that the head stays in place of a layer of as many bytes; the embedding, of which a
 * pass reads some rows only, is kept last. A budget of the bytes of a plan gives the same plan. 0: the budget is below what the smallest
 * plan takes, which is then the plan. */
int k3_trunk_make_plan(k3_trunk_plan *plan, const k3_trunk_sizes *sizes, uint64_t budget);
/* What keeping the first n_pinned layers, the head or the embedding takes and leaves to be read. */
k3_trunk_plan k3_trunk_plan_of(const k3_trunk_sizes *sizes, int n_pinned, int has_head, int has_embed);

/* ---- reading ---------------------------------------------------------------------------------------------------------- */

/* Rows of a matrix: bytes `at` .. at + bytes - 1 of its tensor. */
typedef struct k3_trunk_part {
    const k3_tensor_info *tensor;
    uint64_t at, bytes;
    k3_mat *mat;      /* type and shape are set; its places are set when the bytes have arrived */
    int is_converted; /* 0: it is computed with as it is stored, where it was read to */
    int is_scale;     /* the scales of a matrix that is packed, and another part of the same matrix its codes */
} k3_trunk_part;

/* What is read together: the matrices of a layer, or a block of the head. */
typedef struct k3_trunk_item {
    int layer; /* -1: the head */
    int n_parts;
    k3_trunk_part *parts;
} k3_trunk_item;

typedef struct k3_trunk_config {
    const k3_ckpt *ckpt;
    k3_backend *be;              /* computes in the host's memory */
    const k3_trunk_item *layers; /* in order; copied, parts included */
    const k3_trunk_item *head;   /* blocks in order */
    int n_layers, n_blocks;
    /* Converts a part's rows at `raw` to the places of its matrix, or looks at those that need no conversion when they come for the first
     * time. K3_E_FORMAT: a value is not finite. */
    k3_status (*take)(void *user, const k3_trunk_part *part, const void *raw, k3_error *err);
    void *user;
    k3_io_meter *meter; /* of its reads, or NULL */
} k3_trunk_config;

typedef struct k3_trunk_stream k3_trunk_stream;
typedef enum k3_trunk_lane { K3_TRUNK_LAYERS, K3_TRUNK_HEAD, K3_TRUNK_LANES } k3_trunk_lane;

typedef struct k3_trunk_stat {
    uint64_t reads, bytes; /* begun; without what alignment adds */
    uint64_t wait_ns;      /* in which a layer or block was wanted that had not arrived */
    k3_io_stat io;
} k3_trunk_stat;

/* Room for an item's parts in a slot. Sorts the parts by place. */
uint64_t k3_trunk_room(k3_trunk_part *parts, int n);
/* Bytes of what is converted of an item. */
uint64_t k3_trunk_made(const k3_trunk_part *parts, int n);

/* Begins to read the first layers. */
k3_status k3_trunk_open(k3_trunk_stream **out, const k3_trunk_config *config, k3_error *err);
void k3_trunk_close(k3_trunk_stream *stream);

/* A pass begins: it uses every layer once, in order, and then every block of the head if it wants logits. What an earlier pass left
 * unfinished, or could not read, is read again. */
k3_status k3_trunk_begin(k3_trunk_stream *stream, int wants_head, k3_error *err);
/* Waits for the next layer, or block of the head, and sets the places of its matrices. A read that failed is reported here. */
k3_status k3_trunk_wait(k3_trunk_stream *stream, k3_trunk_lane lane, k3_error *err);
/* It has been computed: its slot takes the next one. */
void k3_trunk_done(k3_trunk_stream *stream, k3_trunk_lane lane);

k3_io *k3_trunk_io(k3_trunk_stream *stream);            /* what it reads with */
uint64_t k3_trunk_bytes(const k3_trunk_stream *stream); /* of memory */
void k3_trunk_stats(k3_trunk_stream *stream, k3_trunk_stat *out, int reset);
/* What reading fell back to: a line. */
const char *k3_trunk_notice(k3_trunk_stream *stream);

#endif
