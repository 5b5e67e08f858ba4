#include "engine/pack.h"

#include "engine/engine.h"
#include "text/json_write.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_format(k3_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void add_format(k3_buffer *out, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    k3_buffer_add_text(out, text);
}

/* ---- the source -------------------------------------------------------------------------------------------------------- */

static void find_most_cols(pack_source *source)
{
    const k3_ckpt *ckpt = source->ckpt;
    for (int r = 0; r < K3_R_W1; r++)
        for (int l = 0; l < k3_ckpt_hparams(ckpt)->n_layers; l++) {
            const k3_tensor_info *t = k3_ckpt_role(ckpt, (k3_role)r, l, 0);
            if (t && t->rank == 2 && t->shape[1] > source->most_cols)
                source->most_cols = t->shape[1];
        }
}

/* Marks what has a role: the rest goes into the last shard. */
static void mark_roles(pack_source *source)
{
    const k3_hparams *hp = k3_ckpt_hparams(source->ckpt);
    for (int i = 0; i < source->spelled.n; i++)
        for (size_t k = 0; k < source->spelled.files[i].n_tensors; k++)
            source->spelled.files[i].tensors[k].listed = 0;
    for (int r = 0; r < K3_N_ROLES; r++)
        for (int l = 0; l < hp->n_layers; l++)
            for (int e = 0; e < (r < K3_R_W1 ? 1 : hp->n_experts); e++) {
                const k3_tensor_info *t = k3_ckpt_role(source->ckpt, (k3_role)r, l, e);
                if (t)
                    k3_spelled_of(&source->spelled, source->ckpt, t)->listed = 1;
            }
}

k3_status pack_source_open(pack_source *out, const k3_ckpt *ckpt, k3_trunk trunk, k3_error *err)
{
    *out = (pack_source){.ckpt = ckpt, .trunk = trunk, .n_shards = k3_ckpt_hparams(ckpt)->n_layers + 1};
    K3_TRY(k3_spelled_open(&out->spelled, ckpt, err));
    find_most_cols(out);
    mark_roles(out);
    return K3_OK;
}

void pack_source_close(pack_source *source)
{
    k3_spelled_close(&source->spelled);
}

/* ---- items --------------------------------------------------------------------------------------------------------------- */

static k3_status push(pack_shard *shard, pack_item item, k3_error *err)
{
    if (shard->n == shard->capacity) {
        size_t capacity = shard->capacity ? 2 * shard->capacity : 64;
        pack_item *grown = realloc(shard->items, capacity * sizeof *grown);
        if (!grown)
            return k3_fail(err, K3_E_NOMEM, "%s: no memory for a list of %zu tensors", shard->name, capacity);
        shard->items = grown;
        shard->capacity = capacity;
    }
    item.at = shard->bytes;
    shard->bytes += item.bytes;
    shard->items[shard->n++] = item;
    return K3_OK;
}

/* The format has no holes: what alignment leaves is a tensor too. */
static k3_status add(pack_shard *shard, pack_item item, uint64_t align, k3_error *err)
{
    uint64_t over = shard->bytes % align;
    if (over)
        K3_TRY(push(shard, (pack_item){.kind = PACK_PADDING, .bytes = align - over}, err));
    return push(shard, item, err);
}

static k3_status add_copy(pack_shard *shard, const pack_source *source, const k3_tensor_info *t, uint64_t align, k3_error *err)
{
    return add(shard, (pack_item){PACK_COPY, t, k3_spelled_of(&source->spelled, source->ckpt, t), K3_N_TYPES, 0, t->bytes}, align, err);
}

static k3_status add_converted(pack_shard *shard, const k3_tensor_info *t, const k3_st_tensor *spelled, k3_type type, k3_error *err)
{
    uint64_t rows = (uint64_t)t->shape[0];
    int cols = (int)t->shape[1];
    K3_TRY(add(shard, (pack_item){PACK_CODES, t, spelled, type, 0, rows * k3_type_row_bytes(type, cols)}, K3_PACK_ALIGN, err));
    return add(shard, (pack_item){PACK_SCALES, t, spelled, type, 0, rows * k3_type_scale_bytes(type, cols)}, K3_PACK_ALIGN, err);
}

static k3_status add_roles(pack_shard *shard, const pack_source *source, int layer, k3_role first, k3_role last, k3_error *err)
{
    k3_weights_type types[K3_MAX_PARTS];
    int n = 0, is_tied = k3_ckpt_hparams(source->ckpt)->tied;
    K3_TRY(k3_weights_types(types, &n, source->ckpt, source->trunk, first < K3_R_INPUT_NORM ? -1 : layer, err));
    for (int r = (int)first; r <= (int)last; r++) {
        const k3_tensor_info *t = k3_ckpt_role(source->ckpt, (k3_role)r, layer, 0);
        k3_type type = K3_N_TYPES;
        if (!t || (r == K3_R_HEAD && is_tied))
            continue;
        for (int i = n - 1; i >= 0; i--)
            type = types[i].tensor == t ? types[i].type : type;
        if (type == K3_INT8 || type == K3_INT4_G64)
            K3_TRY(add_converted(shard, t, k3_spelled_of(&source->spelled, source->ckpt, t), type, err));
        else
            K3_TRY(add_copy(shard, source, t, K3_PACK_ALIGN, err));
    }
    return K3_OK;
}

static k3_status add_layer(pack_shard *shard, const pack_source *source, int layer, k3_error *err)
{
    const k3_hparams *hp = k3_ckpt_hparams(source->ckpt);
    for (int e = 0; hp->is_moe[layer] && e < hp->n_experts; e++)
        for (int r = K3_R_W1; r < K3_N_ROLES; r++)
            K3_TRY(add_copy(shard, source, k3_ckpt_role(source->ckpt, (k3_role)r, layer, e),
                            r == K3_R_W1 ? K3_PACK_EXPERT_ALIGN : K3_PACK_ALIGN, err));
    return add_roles(shard, source, layer, K3_R_INPUT_NORM, K3_R_W1 - 1, err);
}

/* Tensors without a role: the image encoder, and what nothing here knows. */
static k3_status add_others(pack_shard *shard, const pack_source *source, k3_error *err)
{
    for (int f = 0; f < source->spelled.n; f++)
        for (size_t i = 0; i < source->spelled.files[f].n_tensors; i++) {
            const k3_st_tensor *t = &source->spelled.files[f].tensors[i];
            if (t->listed)
                continue;
            if (t->info.rank > 4)
                return k3_fail(err, K3_E_UNSUPPORTED, "%s: %d dimensions, at most 4 can be packed", t->info.name, t->info.rank);
            K3_TRY(add(shard, (pack_item){PACK_COPY, &t->info, t, K3_N_TYPES, 0, t->info.bytes}, K3_PACK_ALIGN, err));
        }
    return K3_OK;
}

/* ---- the header ---------------------------------------------------------------------------------------------------------- */

static void add_name(k3_buffer *out, const pack_shard *shard, const pack_item *item, size_t i)
{
    char padding[48];
    if (item->kind == PACK_PADDING) {
        snprintf(padding, sizeof padding, K3_PACK_PADDING "%05d.%06zu", shard->number, i);
        k3_json_write_string(out, padding, strlen(padding));
        return;
    }
    k3_json_write_string(out, item->from->name, strlen(item->from->name));
    if (item->kind != PACK_SCALES || out->failed)
        return;
    out->n--; /* the quote */
    k3_buffer_add_text(out, K3_PACK_SCALE "\"");
}

static void add_shape(k3_buffer *out, const pack_item *item)
{
    const k3_st_tensor *s = item->spelled;
    if (item->kind == PACK_PADDING) {
        add_format(out, "\"U8\",\"shape\":[%llu]", (unsigned long long)item->bytes);
        return;
    }
    if (item->kind == PACK_COPY) {
        add_format(out, "\"%s\",\"shape\":[", s->dtype_name);
        for (int i = 0; i < s->info.rank; i++) {
            int halved = i == s->info.rank - 1 && strcmp(s->dtype_name, "F4") == 0;
            add_format(out, "%s%lld", i ? "," : "", (long long)s->info.shape[i] * (halved ? 2 : 1));
        }
        k3_buffer_add_text(out, "]");
        return;
    }
    int64_t rows = item->from->shape[0], size = item->kind == PACK_SCALES ? 4 : 1;
    const char *dtype = item->kind == PACK_SCALES ? "F32" : item->type == K3_INT8 ? "I8" : "U8";
    add_format(out, "\"%s\",\"shape\":[%lld,%lld]", dtype, (long long)rows, (long long)((int64_t)item->bytes / rows / size));
}

static k3_status make_header(pack_shard *shard, const pack_source *source, k3_error *err)
{
    k3_buffer *out = &shard->header;
    k3_buffer_add(out, "\0\0\0\0\0\0\0", 8);
    add_format(out,
               "{\"__metadata__\":{\"format\":\"pt\",\"" K3_PACK_KEY_VERSION "\":\"" K3_PACK_VERSION "\",\"" K3_PACK_KEY_TRUNK "\":\"%s\",",
               k3_trunk_name(source->trunk));
    if (source->trunk == K3_TRUNK_INT4)
        k3_buffer_add_text(out, "\"" K3_PACK_KEY_CODES "\":\"" K3_PACK_CODES "\",");
    add_format(out, "\"" K3_PACK_KEY_SOURCE "\":\"%016llx\"}", (unsigned long long)source->spelled.hash);
    for (size_t i = 0; i < shard->n; i++) {
        const pack_item *item = &shard->items[i];
        k3_buffer_add_text(out, ",");
        add_name(out, shard, item, i);
        k3_buffer_add_text(out, ":{\"dtype\":");
        add_shape(out, item);
        add_format(out, ",\"data_offsets\":[%llu,%llu]}", (unsigned long long)item->at, (unsigned long long)(item->at + item->bytes));
    }
    k3_buffer_add_text(out, "}");
    while (!out->failed && out->n % K3_PACK_EXPERT_ALIGN)
        k3_buffer_add_char(out, ' ');
    if (out->failed)
        return k3_fail(err, K3_E_NOMEM, "%s: no memory for a header", shard->name);
    uint64_t n = out->n - 8;
    if (n > K3_ST_MAX_HEADER)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: would have a header of %llu bytes, at most %llu are read", shard->name,
                       (unsigned long long)n, (unsigned long long)K3_ST_MAX_HEADER);
    for (int i = 0; i < 8; i++)
        out->bytes[i] = (char)(n >> (8 * i));
    shard->bytes += out->n;
    return K3_OK;
}

k3_status pack_plan(pack_shard *out, const pack_source *source, int i, k3_error *err)
{
    *out = (pack_shard){.number = i + 1};
    snprintf(out->name, sizeof out->name, "model-%05d-of-%05d.safetensors", i + 1, source->n_shards);
    k3_status status;
    if (i + 1 < source->n_shards) {
        status = add_layer(out, source, i, err);
    } else {
        status = add_roles(out, source, 0, K3_R_EMBED, K3_R_HEAD, err);
        if (status == K3_OK)
            status = add_others(out, source, err);
    }
    if (status == K3_OK)
        status = make_header(out, source, err);
    if (status != K3_OK)
        pack_shard_free(out);
    return status;
}

void pack_shard_free(pack_shard *shard)
{
    free(shard->items);
    k3_buffer_free(&shard->header);
    *shard = (pack_shard){0};
}

void pack_add_to_index(k3_buffer *index, const pack_shard *shard)
{
    for (size_t i = 0; i < shard->n; i++) {
        const pack_item *item = &shard->items[i];
        if (item->kind == PACK_PADDING)
            continue;
        k3_buffer_add_text(index, shard->number == 1 && i == 0 ? "\n    " : ",\n    ");
        add_name(index, shard, item, i);
        k3_buffer_add_text(index, ": \"");
        k3_buffer_add_text(index, shard->name);
        k3_buffer_add_text(index, "\"");
    }
}
