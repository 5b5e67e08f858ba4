#include "backend/args/embed.h"
#include "backend/vulkan/vulkan.h"

void k3_vulkan_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T)
{
    enum { GROUP = 256 };
    k3_vk *vk = k3_vk_begin(be, K3_VK_EMBED);
    struct k3_mat_args parts[K3_VK_MAX_PARTS];
    int n_parts = k3_vk_mat(vk, parts, K3_VK_MAX_PARTS, table, 0, table->rows, "embed");
    if (T < 1 || k3_vk_failed(vk)) {
        k3_vk_end(vk, 0);
        return;
    }
    uint32_t groups = (uint32_t)k3_vk_groups((uint64_t)table->cols, GROUP), type = (uint32_t)table->type;
    struct k3_embed_args args = {k3_vk_write(vk, y, 4 * (uint64_t)T * (uint64_t)table->cols),
                                 k3_vk_read(vk, ids, 4 * (uint64_t)T),
                                 k3_vk_put(vk, parts, (size_t)n_parts * sizeof *parts),
                                 k3_vk_fault(vk),
                                 (uint32_t)n_parts,
                                 (uint32_t)table->cols,
                                 groups,
                                 K3_VK_FAULT_EMBED_ID};
    k3_vk_dispatch(vk, K3_VK_SHADER_embed, &type, 1, &args, sizeof args, (uint64_t)T * groups, 1, 1);
    k3_vk_end(vk, (uint64_t)T * (k3_vk_mat_bytes(table) / (uint64_t)table->rows));
}
