/* Any bytes as config.json: no crash; what is accepted obeys every rule that later code relies on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/roles.h"

static void require(int condition)
{
    if (!condition)
        abort();
}

static void check(const k3_hparams *hp)
{
    const int64_t limit = 1 << 24;
    require(hp->n_layers >= 1 && hp->n_layers <= K3_MAX_LAYERS && hp->attn_res_block >= 1);
    require(hp->top_k >= 1 && hp->top_k <= hp->n_experts);
    require(hp->eos < hp->vocab && hp->bos < hp->vocab && hp->pad < hp->vocab && hp->eos >= -1 && hp->bos >= -1 && hp->pad >= -1);
    require(hp->rms_eps > 0 && isfinite(hp->rms_eps) && hp->gate_lower < 0 && hp->gate_lower >= -5 && hp->routed_scale > 0);
    require(hp->expert_inner % 32 == 0 && hp->latent % 32 == 0 && (hp->latent || hp->hidden % 32 == 0) && hp->conv_width >= 2);
    for (int r = 0; r < K3_N_ROLES; r++)
        for (int i = 0; i < 4 && k3_role_specs[r].dims[i] != K3_DIM_NONE; i++) {
            int64_t size = k3_dim_size(hp, k3_role_specs[r].dims[i]);
            require(size >= 1 && size <= 2 * limit);
        }
    for (int l = 0; l < hp->n_layers; l++)
        require(hp->is_mla[l] <= 1 && hp->is_moe[l] <= 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size ? size : 1), warning[200];
    if (!text)
        return 0;
    memcpy(text, data, size);
    k3_hparams hp;
    k3_error err;
    if (k3_hparams_parse(&hp, warning, sizeof warning, text, size, "config.json", &err) == K3_OK)
        check(&hp);
    else
        require(memchr(err.text, 0, sizeof err.text) != NULL);
    free(text);
    return 0;
}
