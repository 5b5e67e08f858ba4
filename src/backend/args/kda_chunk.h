/* Arguments of the kernels of kda_chunk. */
#ifndef K3_BACKEND_ARGS_KDA_CHUNK_H
#define K3_BACKEND_ARGS_KDA_CHUNK_H

#include "backend/args/runs.h"

struct k3_kda_chunk_args {
    uint64_t o, q, k, v, g, beta; /* addresses */
    uint64_t pairs;               /* of f32 [rows, H, 2, 16]: a row's part of T and of BT, from row `first` on */
    k3_runs_args runs;
    uint32_t H;
    uint32_t first, end; /* the chunks whose first row is one of these */
    uint32_t unused;
};
K3_ARGS_SIZE(k3_kda_chunk_args, 96)

#endif
