/* Arguments of matmul: projections of one input are a table of parts, one for each piece of each matrix. */
#ifndef K3_BACKEND_ARGS_MATMUL_H
#define K3_BACKEND_ARGS_MATMUL_H

#include "backend/args/types.h"

/* y[t * stride + row] for the rows of w. Blocks of rows are numbered through all parts; this one's begin at `first`. */
struct k3_matmul_part {
    k3_mat_args w;
    uint64_t y; /* address of row 0, column 0 */
    uint32_t stride, first;
};
K3_ARGS_SIZE(k3_matmul_part, 48)

struct k3_matmul_args {
    uint64_t parts;   /* address of k3_matmul_part [n_parts] */
    uint64_t x;       /* f32 [T, cols]; f16 for the matrix kernel, each row divided by its scale */
    uint64_t x_scale; /* f32 [T], for the matrix kernel */
    uint32_t n_parts;
    uint32_t blocks; /* of rows, of all parts together */
    uint32_t T, cols;
};
K3_ARGS_SIZE(k3_matmul_args, 40)

#endif
