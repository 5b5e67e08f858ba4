/* Reading memory with full vectors; include after a vec header. */
#include "backend/cpu/kernels.h"

uint64_t K3_KERNEL(memory_read)(const unsigned char *data, int64_t bytes)
{
    enum { STEP_VECTORS = 8, AHEAD = 4096 };
    vf sum[STEP_VECTORS];
    float lanes[VF_LANES];
    uint64_t total = 0;
    for (int i = 0; i < STEP_VECTORS; i++)
        sum[i] = vf_zero();
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof(vf) * STEP_VECTORS) {
        for (int i = 0; i < STEP_VECTORS * (int)sizeof(vf); i += 64)
            vf_prefetch(data + at + AHEAD + i);
        for (int i = 0; i < STEP_VECTORS; i++)
            sum[i] = vf_add(sum[i], vf_load(data + at + (int64_t)sizeof(vf) * i));
    }
    for (int i = 0; i < STEP_VECTORS; i++) {
        vf_store(lanes, sum[i]);
        for (int j = 0; j < VF_LANES; j++)
            total += lanes[j] != 0;
    }
    return total;
}
