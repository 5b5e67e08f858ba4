/* Arguments of mla_append and mla_attend. A pair is a row of activations and a head: pair t * heads + h of a run. */
#ifndef K3_BACKEND_ARGS_MLA_H
#define K3_BACKEND_ARGS_MLA_H

#include "backend/args/types.h"

/* Rows row .. row+n-1 are positions pos .. pos+n-1 of one sequence. */
struct k3_mla_run {
    uint64_t cache; /* address of position 0 */
    uint32_t pos, row, n;
    uint32_t first; /* tile of mla_attend, numbered through all runs */
};
K3_ARGS_SIZE(k3_mla_run, 24)

/* A table, or the only run in place, so that one token does not wait for the table. */
struct k3_mla_runs {
    uint64_t table; /* address of k3_mla_run [n]; 0: the only run follows */
    k3_mla_run only;
    uint32_t n, pad;
};
K3_ARGS_SIZE(k3_mla_runs, 40)

struct k3_mla_append_args {
    uint64_t ckv, w; /* addresses */
    k3_mla_runs runs;
    uint32_t kv, rope;
    float eps;
    uint32_t pad;
};
K3_ARGS_SIZE(k3_mla_append_args, 72)

/* kv_b against the rows of a block: query [T, H, stride] of q [T, H, nope + rope], or o [T, H, v] of the context [T, H, stride]. */
struct k3_mla_weights_args {
    k3_mat_args w;  /* kv_b, or its first piece */
    uint64_t parts; /* address of k3_mat_args: the other pieces */
    uint64_t x, y;  /* addresses of row 0 */
    uint32_t T, heads, nope, rope, v, kv;
    uint32_t stride; /* floats */
    uint32_t block;  /* rows of W_v that a workgroup takes */
    float scale;     /* of the query */
    uint32_t pad;
};
K3_ARGS_SIZE(k3_mla_weights_args, 96)

struct k3_mla_attend_args {
    uint64_t query;   /* address, f32 [pairs, query_stride] */
    uint64_t context; /* f32 [parts, pairs, context_stride] */
    uint64_t stats;   /* f32 [parts, pairs, 2]: reference of the exponents, their sum */
    k3_mla_runs runs;
    uint32_t heads, kv, rope, pairs;
    uint32_t query_stride, context_stride; /* floats, multiples of 4 */
    uint32_t parts, part_rows;             /* cache rows of a part, a multiple of 16 */
};
K3_ARGS_SIZE(k3_mla_attend_args, 96)

#endif
