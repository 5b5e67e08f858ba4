#include "backend/args/embed.h"
#include "backend/gpu/gpu.h"

void k3_gpu_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T)
{
    enum { GROUP = 256 };
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_EMBED);
    struct k3_mat_args parts[K3_GPU_MAX_PARTS];
    int n_parts = k3_gpu_mat(gpu, parts, K3_GPU_MAX_PARTS, table, 0, table->rows, "embed");
    if (T < 1 || k3_gpu_failed(gpu)) {
        k3_gpu_end(gpu, 0);
        return;
    }
    uint32_t groups = (uint32_t)k3_gpu_groups((uint64_t)table->cols, GROUP), type = (uint32_t)table->type;
    struct k3_embed_args args = {k3_gpu_write(gpu, y, 4 * (uint64_t)T * (uint64_t)table->cols),
                                 k3_gpu_read(gpu, ids, 4 * (uint64_t)T),
                                 k3_gpu_put(gpu, parts, (size_t)n_parts * sizeof *parts),
                                 k3_gpu_fault(gpu),
                                 (uint32_t)n_parts,
                                 (uint32_t)table->cols,
                                 groups,
                                 K3_GPU_FAULT_EMBED_ID};
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_embed, &type, 1, &args, sizeof args, (uint64_t)T * groups, 1, 1);
    k3_gpu_end(gpu, (uint64_t)T * (k3_gpu_mat_bytes(table) / (uint64_t)table->rows));
}
