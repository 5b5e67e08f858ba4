#include "ckpt/spelled.h"

#include <stdlib.h>

#include "base/hash.h"
#include "ckpt/parts.h"

enum { SAMPLE_BYTES = 4096, LENGTH_BYTES = 8 };

static k3_status read_file(k3_spelled *out, const k3_ckpt *ckpt, int i, k3_error *err)
{
    uint64_t n = ckpt->files[i].header_bytes;
    char *header = malloc((size_t)n + 1);
    if (!header)
        return k3_fail(err, K3_E_NOMEM, "%s: no memory for a header of %llu bytes", ckpt->paths[i], (unsigned long long)n);
    k3_status status = k3_st_pread(ckpt->fds[i], header, n, LENGTH_BYTES, ckpt->paths[i], err);
    if (status == K3_OK) {
        out->hash = k3_hash_on(out->hash, header, n);
        status = k3_st_parse(&out->files[i], header, n, ckpt->files[i].file_bytes, i, ckpt->paths[i], err);
    }
    free(header);
    if (status == K3_OK && out->files[i].n_tensors != ckpt->files[i].n_tensors)
        status = k3_fail(err, K3_E_IO, "%s: changed while it was read", ckpt->paths[i]);
    return status;
}

/* Headers of two finetunes are alike. */
static k3_status sample(k3_spelled *out, const k3_ckpt *ckpt, const k3_tensor_info *t, k3_error *err)
{
    unsigned char bytes[SAMPLE_BYTES];
    uint64_t n = t->bytes < sizeof bytes ? t->bytes : sizeof bytes;
    K3_TRY(k3_ckpt_read(ckpt, bytes, t, (t->bytes - n) / 2, n, err));
    out->hash = k3_hash_on(out->hash, bytes, n);
    return K3_OK;
}

static k3_status read_all(k3_spelled *out, const k3_ckpt *ckpt, k3_error *err)
{
    for (int i = 0; i < out->n; i++)
        K3_TRY(read_file(out, ckpt, i, err));
    for (int r = 0; r < K3_R_W1; r++)
        for (int l = 0; l < ckpt->hp.n_layers; l++)
            if (ckpt->layout.roles[r][l])
                K3_TRY(sample(out, ckpt, ckpt->layout.roles[r][l], err));
    return K3_OK;
}

k3_status k3_spelled_open(k3_spelled *out, const k3_ckpt *ckpt, k3_error *err)
{
    *out = (k3_spelled){.n = k3_ckpt_n_shards(ckpt), .hash = K3_HASH_NOTHING};
    out->files = calloc((size_t)out->n, sizeof *out->files);
    k3_status status = out->files ? read_all(out, ckpt, err) : k3_fail(err, K3_E_NOMEM, "no memory for the headers of %d files", out->n);
    if (status != K3_OK)
        k3_spelled_close(out);
    return status;
}

void k3_spelled_close(k3_spelled *spelled)
{
    for (int i = 0; spelled->files && i < spelled->n; i++)
        k3_st_free(&spelled->files[i]);
    free(spelled->files);
    *spelled = (k3_spelled){0};
}

k3_st_tensor *k3_spelled_of(const k3_spelled *spelled, const k3_ckpt *ckpt, const k3_tensor_info *t)
{
    /* Headers are read the same way twice; an info begins its tensor. */
    const k3_st_tensor *known = (const k3_st_tensor *)(const void *)t;
    return &spelled->files[t->shard].tensors[known - ckpt->files[t->shard].tensors];
}
