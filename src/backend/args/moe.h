/* Arguments of moe_experts and moe_sum, and the table of a layer's experts in device memory. A pair is a row and one of its K choices,
 * pair p = row p / K; L is the latent width, I the inner one. */
#ifndef K3_BACKEND_ARGS_MOE_H
#define K3_BACKEND_ARGS_MOE_H

#include "backend/args/types.h"

/* Addresses of the codes and scales of one expert, MXFP4, each a multiple of 16 (of 4 in a table made for a call without K3_ALIGNED). 0
 * where the expert is not resident. */
struct k3_expert_address {
    uint64_t w1, w1_scale, w3, w3_scale, w2, w2_scale;
};
K3_ARGS_SIZE(k3_expert_address, 48)

/* A step of the experts pair by pair: y[pair, rows] of x[pair / pairs_a_row, cols] for n_pairs of them. The i-th is pair pair_at[i], and
 * its expert is entry ids[i] of the table; where pair_at or ids is the table's own address, i itself. (It is not 0: software devices read
 * in branches that are not taken.) A pair without an expert is left out, and is a fault if missing_is_fault. fault_code goes to `fault`. */
struct k3_moe_gemv_args {
    uint64_t y, x, table, ids, pair_at, fault;
    uint32_t E, missing_is_fault, fault_code;
    uint32_t rows, cols, pairs_a_row, n_pairs;
    float b1, b2; /* b2 = 0: no cap */
    uint32_t pad;
};
K3_ARGS_SIZE(k3_moe_gemv_args, 88)

/* The experts that pairs want and, in their order, the pairs of each: they take places first .. first+n-1. */
struct k3_moe_job {
    uint32_t entry, first, n, pad; /* entry of the table of experts */
};
K3_ARGS_SIZE(k3_moe_job, 16)

struct k3_moe_group_args {
    uint64_t jobs, pair_at; /* [max_jobs], those at the end without pairs; [n_pairs]: the pair at a place */
    uint64_t table, ids, fault;
    uint32_t E, missing_is_fault, fault_code;
    uint32_t n_pairs, max_jobs, pad;
};
K3_ARGS_SIZE(k3_moe_group_args, 64)

/* A step of the experts job by job. First gate and up: y by place, x by row; then down: y by pair, x by place. On matrix units x is by
 * place in both, and f16: first its row p times x_unit[p], then all times inner_unit. It lies in panels of 16 columns, [cols / 16][places]
 * [16], so that 16 rows of a panel are neighbours. */
struct k3_moe_tile_args {
    uint64_t y, x, x_unit, table, jobs, pair_at;
    uint32_t rows, cols, pairs_a_row;
    float b1, b2; /* b2 = 0: no cap */
    float inner_unit;
    uint32_t places, pad; /* of a panel */
};
K3_ARGS_SIZE(k3_moe_tile_args, 80)

/* y = panels of f16: row pair_at[place] / pairs_a_row of x [.., cols], divided by unit[place]. */
struct k3_moe_half_args {
    uint64_t y, unit, x, pair_at;
    uint32_t cols, pairs_a_row, n_pairs, places;
};
K3_ARGS_SIZE(k3_moe_half_args, 48)

struct k3_moe_sum_args {
    uint64_t y, slots, weights;
    uint32_t K, L;
};
K3_ARGS_SIZE(k3_moe_sum_args, 32)

#endif
