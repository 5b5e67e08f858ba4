/* Arguments of kda_gate. */
#ifndef K3_BACKEND_ARGS_KDA_GATE_H
#define K3_BACKEND_ARGS_KDA_GATE_H

#include "backend/args/types.h"

struct k3_kda_gate_args {
    uint64_t alpha, g; /* addresses of [T, H, D]; 0: not wanted */
    uint64_t beta, z, b, a_log, dt_bias;
    uint32_t rows, H, D; /* rows: T * H */
    float lower;
};
K3_ARGS_SIZE(k3_kda_gate_args, 72)

#endif
