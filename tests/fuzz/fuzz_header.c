/* Any bytes as the header of a shard, with any amount of data behind it: no crash; what is accepted tiles the data exactly. The
 * tensors are then given roles in a small model, and looked up by name. */
#include <stdlib.h>
#include <string.h>

#include "ckpt/layout.h"
#include "ckpt/table.h"

/* Width 64, two layers (KDA + dense, MLA + MoE), two experts. */
static const k3_hparams model = {.hidden = 64,
                                 .n_layers = 2,
                                 .vocab = 32,
                                 .dense_inner = 32,
                                 .n_dense = 1,
                                 .moe_freq = 1,
                                 .n_experts = 2,
                                 .top_k = 1,
                                 .n_shared = 1,
                                 .expert_inner = 32,
                                 .shared_inner = 32,
                                 .latent = 32,
                                 .latent_norm = 1,
                                 .mla_heads = 2,
                                 .q_lora = 16,
                                 .kv_lora = 16,
                                 .nope = 8,
                                 .rope = 8,
                                 .v_dim = 8,
                                 .mla_gate = 1,
                                 .kda_heads = 2,
                                 .kda_dim = 16,
                                 .conv_width = 4,
                                 .full_rank_gate = 1,
                                 .is_mla = {0, 1},
                                 .is_moe = {0, 1}};

static void use(k3_st_file *file)
{
    static k3_layout layout;
    char *path = (char[]){"shard"};
    k3_table table = {0};
    k3_error err;
    if (k3_table_build(&table, file, &path, 1, &err) != K3_OK)
        abort(); /* the header's own check refuses repeated names */
    for (size_t i = 0; i < file->n_tensors; i++)
        if (k3_table_find(&table, file->tensors[i].info.name, strlen(file->tensors[i].info.name)) != &file->tensors[i])
            abort();
    k3_table_free(&table);
    if (k3_layout_build(&layout, &model, file, 1, 0, path, &err) == K3_OK)
        for (int r = 0; r < K3_N_ROLES; r++)
            for (int l = 0; l < model.n_layers; l++)
                if (k3_role_exists(&model, (k3_role)r, l) != (k3_layout_find(&layout, &model, (k3_role)r, l, 0) != NULL) &&
                    r >= K3_R_INPUT_NORM)
                    abort();
    k3_layout_free(&layout);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;
    uint64_t n_header = size - 4, n_data = data[0] | data[1] << 8 | data[2] << 16 | (uint64_t)data[3] << 24, sum = 0;
    char *header = malloc(n_header + 1);
    if (!header)
        return 0;
    memcpy(header, data + 4, n_header);
    k3_st_file file;
    k3_error err;
    if (k3_st_parse(&file, header, n_header, 8 + n_header + n_data, 0, "shard", &err) == K3_OK) {
        for (size_t i = 0; i < file.n_tensors; i++) {
            const k3_tensor_info *t = &file.tensors[i].info;
            sum += t->bytes;
            if (t->offset < 8 + n_header || t->offset + t->bytes > 8 + n_header + n_data)
                abort();
        }
        if (sum != n_data)
            abort();
        use(&file);
    }
    k3_st_free(&file);
    free(header);
    return 0;
}
