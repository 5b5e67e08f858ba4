/* Arguments of embed. */
#ifndef K3_BACKEND_ARGS_EMBED_H
#define K3_BACKEND_ARGS_EMBED_H

#include "backend/args/types.h"

/* Invocations are columns of T rows of y, `groups` workgroups a row. */
struct k3_embed_args {
    uint64_t y;     /* f32 [T, cols] */
    uint64_t ids;   /* i32 [T] */
    uint64_t parts; /* k3_mat_args [n_parts]: the table's rows, one part after the other */
    uint64_t fault; /* takes bad_id where an id is outside the table */
    uint32_t n_parts, cols, groups, bad_id;
};
K3_ARGS_SIZE(k3_embed_args, 48)

#endif
