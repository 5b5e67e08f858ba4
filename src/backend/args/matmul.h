/* Arguments of matmul: projections of one input are a table of parts, one for each piece of each matrix. */
#ifndef K3_BACKEND_ARGS_MATMUL_H
#define K3_BACKEND_ARGS_MATMUL_H

#include "backend/args/types.h"

/* y[t * stride + row] for the rows of w. Blocks of rows and rows are numbered through all parts; this one's begin at those numbers. */
struct k3_matmul_part {
    k3_mat_args w;
    uint64_t y; /* address of row 0, column 0 */
    uint32_t stride, first_block, first_row, pad;
};
K3_ARGS_SIZE(k3_matmul_part, 56)

struct k3_matmul_args {
    uint64_t parts;   /* k3_matmul_part [n_parts] */
    uint64_t x;       /* f32 [T, cols]; for the matrix kernel f16, each row divided by its scale */
    uint64_t x_scale; /* f32 [T], for the matrix kernel */
    uint64_t sums;    /* f32 [splits, T, rows - split_row], for the matrix kernel where it splits the columns */
    uint32_t n_parts, T, cols;
    uint32_t blocks, rows;             /* of all parts together */
    uint32_t whole, split_row, splits; /* the matrix kernel splits the columns of blocks from number `whole` on, which begins at that row */
    k3_matmul_part only;               /* the part, if there is one only */
};
K3_ARGS_SIZE(k3_matmul_args, 120)

/* Rows of x in f16, columns in the order of halves.glsl. */
struct k3_matmul_half_args {
    uint64_t y, scale; /* f16 [T, cols], f32 [T]; x = y * scale */
    uint64_t x;
    uint32_t cols, pad;
};
K3_ARGS_SIZE(k3_matmul_half_args, 32)

#endif
