#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/parts.h"

static const char *const dtype_names[] = {"F32", "BF16", "U8", "other", "I8", "I4"};

/* "17.5 MB", powers of 1000 as disks are sold and as the shards are listed. */
static const char *human(char *room, size_t size, double x, const char *unit)
{
    static const char *const scales[] = {"", "k", "M", "G", "T"};
    size_t i = 0;
    for (; x >= 999.5 && i + 1 < sizeof scales / sizeof scales[0]; i++)
        x /= 1000;
    snprintf(room, size, i ? "%.3g %s%s" : "%.0f %s%s", x, scales[i], unit);
    return room;
}

static void print_bytes(FILE *out, const char *label, uint64_t n, const char *note)
{
    char text[32];
    fprintf(out, "  %-14s%-10s %17llu bytes%s\n", label, human(text, sizeof text, (double)n, "B"), (unsigned long long)n, note);
}

static void print_dimensions(FILE *out, const k3_hparams *hp)
{
    int n_mla = 0, n_moe = 0;
    for (int l = 0; l < hp->n_layers; l++) {
        n_mla += hp->is_mla[l];
        n_moe += hp->is_moe[l];
    }
    fprintf(out, "  %-14s%d: %d KDA, %d MLA; %d dense, %d MoE; AttnRes block of %d\n", "layers", hp->n_layers, hp->n_layers - n_mla, n_mla,
            hp->n_layers - n_moe, n_moe, hp->attn_res_block);
    fprintf(out, "  %-14shidden %d, vocabulary %d, context %d, norm eps %g\n", "widths", hp->hidden, hp->vocab, hp->context,
            (double)hp->rms_eps);
    fprintf(out, "  %-14s%d heads of %d, convolution %d, gate bound %g\n", "KDA", hp->kda_heads, hp->kda_dim, hp->conv_width,
            (double)hp->gate_lower);
    fprintf(out, "  %-14s%d heads, query rank %d, latent %d + %d, key %d + %d, value %d%s\n", "MLA", hp->mla_heads, hp->q_lora, hp->kv_lora,
            hp->rope, hp->nope, hp->rope, hp->v_dim, hp->mla_gate ? ", gated" : "");
    fprintf(out, "  %-14s%d experts, %d a token, inner %d, ", "MoE", hp->n_experts, hp->top_k, hp->expert_inner);
    if (hp->latent)
        fprintf(out, "latent %d", hp->latent);
    else
        fprintf(out, "no latent");
    fprintf(out, "; %d shared, inner %d; dense inner %d\n", hp->n_shared, hp->shared_inner, hp->dense_inner);
    fprintf(out, "  %-14s%g * tanh, %g * tanh\n", "SiTU caps", (double)hp->situ_b1, (double)hp->situ_b2);
    fprintf(out, "  %-14sbegin %d, end %d, pad %d%s\n", "tokens", hp->bos, hp->eos, hp->pad,
            hp->tied ? "; head tied to the embedding" : "");
}

/* One letter a layer: K or M for the mixer, small where the layer is dense; a bar where a new AttnRes block begins. */
static void print_layer_map(FILE *out, const k3_hparams *hp)
{
    fprintf(out, "  %-14s", "layer map");
    for (int l = 0; l < hp->n_layers; l++) {
        if (l && l % hp->attn_res_block == 0)
            fputc('|', out);
        fputc(hp->is_moe[l] ? (hp->is_mla[l] ? 'M' : 'K') : (hp->is_mla[l] ? 'm' : 'k'), out);
    }
    fprintf(out, "\n  %-14sK KDA, M MLA, small letters dense, | AttnRes snapshot\n", "");
}

typedef struct role_total {
    const k3_tensor_info *first;
    size_t n;
    uint64_t bytes;
    int mixed; /* types differ */
} role_total;

static void add_tensor(role_total *total, const k3_tensor_info *t)
{
    if (!t)
        return;
    if (!total->first)
        total->first = t;
    total->mixed |= t->dtype != total->first->dtype;
    total->n++;
    total->bytes += t->bytes;
}

static role_total total_of(const k3_ckpt *ckpt, k3_role role)
{
    role_total total = {0};
    int n_layers = role < K3_R_INPUT_NORM ? 1 : ckpt->hp.n_layers, n_experts = role < K3_R_W1 ? 1 : ckpt->hp.n_experts;
    for (int l = 0; l < n_layers; l++)
        for (int e = 0; e < n_experts; e++)
            add_tensor(&total, k3_ckpt_role(ckpt, role, l, e));
    return total;
}

static void print_role(FILE *out, const k3_ckpt *ckpt, k3_role role)
{
    role_total total = total_of(ckpt, role);
    char name[80], shape[80], text[32];
    size_t n = 0;
    if (!total.first)
        return;
    snprintf(name, sizeof name, "%s%s", role < K3_R_W1 ? "" : "block_sparse_moe.experts.*.", k3_role_tail(role));
    for (int i = 0; i < total.first->rank && n < sizeof shape; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", i ? " x " : "", (long long)total.first->shape[i]);
    fprintf(out, "  %-48s %6zu  %-18s %-5s %10s\n", name, total.n, shape, total.mixed ? "mixed" : dtype_names[total.first->dtype],
            human(text, sizeof text, (double)total.bytes, "B"));
}

static void print_files(FILE *out, const k3_ckpt *ckpt)
{
    uint64_t n_bytes = 0, n_header = 0;
    size_t n_tensors = 0;
    char bytes[32], header[32];
    for (size_t i = 0; i < ckpt->folder.n_shards; i++) {
        n_bytes += ckpt->files[i].file_bytes;
        n_header += ckpt->files[i].header_bytes;
        n_tensors += ckpt->files[i].n_tensors;
    }
    fprintf(out, "  %-14s%zu (%s), %zu tensors, headers %s, %s\n", "files", ckpt->folder.n_shards,
            human(bytes, sizeof bytes, (double)n_bytes, "B"), n_tensors, human(header, sizeof header, (double)n_header, "B"),
            ckpt->folder.has_index ? "index agrees" : "no index");
}

char *k3_ckpt_describe(const k3_ckpt *ckpt)
{
    char *text = NULL, params[32];
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    const k3_layout *layout = &ckpt->layout;
    fprintf(out, "%s\n", ckpt->folder.path);
    print_files(out, ckpt);
    print_dimensions(out, &ckpt->hp);
    print_layer_map(out, &ckpt->hp);
    fprintf(out, "  %-14s%-10s %17llu in the language model\n", "parameters", human(params, sizeof params, (double)layout->n_params, ""),
            (unsigned long long)layout->n_params);
    print_bytes(out, "experts", layout->expert_bytes, "");
    print_bytes(out, "trunk", layout->trunk_bytes, ", embedding and head included");
    if (k3_ckpt_packed(ckpt))
        fprintf(out, "  %-14strunk %s, by k3 pack\n", "packed", k3_ckpt_packed(ckpt));
    if (layout->n_vision)
        print_bytes(out, "vision", layout->vision_bytes, ", not used");
    fprintf(out, "  %-14s\"%s\"\n\n", "name prefix", layout->prefix);
    fprintf(out, "  %-48s %6s  %-18s %-5s %10s\n", "tensor", "count", "shape", "type", "bytes");
    for (int r = 0; r < K3_N_ROLES; r++)
        if (!(r == K3_R_HEAD && ckpt->hp.tied))
            print_role(out, ckpt, (k3_role)r);
    if (ckpt->warning[0])
        fprintf(out, "\n  warning: %s\n", ckpt->warning);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}
