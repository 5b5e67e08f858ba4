#include "model/weights.h"

#include "base/bf16.h"
#include "model/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How much precision a matrix may lose. */
typedef enum k3_care {
    K3_CARE_TRUNK,  /* the trunk's type */
    K3_CARE_LATENT, /* at least int8: what it makes is cached or shared by every head */
    K3_CARE_KEEP    /* as stored */
} k3_care;

typedef enum k3_load_mode {
    K3_LOAD_NOW,    /* into memory */
    K3_LOAD_LATER,  /* vectors into memory; matrices are only met */
    K3_LOAD_MEASURE /* nothing is loaded */
} k3_load_mode;

typedef struct k3_loader {
    k3_weights *w;
    const k3_ckpt *ckpt;
    k3_trunk trunk;
    k3_load_mode mode;
    k3_converter *converter;
    k3_progress progress;
    void *user;
    uint64_t done, total;
    /* Matrices met, of the layer at hand. */
    k3_trunk_part parts[K3_MAX_PARTS];
    int n_parts;
    uint64_t always; /* bytes of vectors met */
    int64_t most_cols;
    /* What comes later: blocks of the head, a part each, then layers, K3_MAX_PARTS each. */
    k3_trunk_item *items;
    k3_trunk_part *kept;
    int n_items;
    void *raw; /* rows as stored */
    uint64_t raw_bytes;
    void *codes, *scales; /* rows as wanted */
    uint64_t codes_bytes, scales_bytes;
} k3_loader;

enum { K3_LOAD_BYTES = 64 << 20 };

static k3_type type_for(k3_trunk trunk, k3_care care, k3_dtype stored, int cols)
{
    if (k3_dtype_is_packed(stored))
        return stored == K3_DT_INT8 ? K3_INT8 : K3_INT4_G64;
    if (stored == K3_DT_F32 && (care == K3_CARE_KEEP || trunk == K3_TRUNK_BF16))
        return K3_F32;
    if (care == K3_CARE_KEEP || trunk == K3_TRUNK_BF16)
        return K3_BF16;
    if (trunk == K3_TRUNK_INT4 && care == K3_CARE_TRUNK && cols % 64 == 0)
        return K3_INT4_G64;
    return K3_INT8;
}

/* Rows of a matrix may lie in pieces, where a device limits one allocation; a vector is one row, and lies in one. */
static k3_buf *new_buffer(k3_loader *ld, uint64_t rows, uint64_t row_bytes, const char *what, k3_error *err)
{
    k3_weights *w = ld->w;
    uint64_t bytes = rows * row_bytes;
    if (w->n_buffers == w->max_buffers) {
        int max = w->max_buffers ? 2 * w->max_buffers : 64;
        k3_buf **grown = realloc(w->buffers, (size_t)max * sizeof *grown);
        if (!grown) {
            k3_fail(err, K3_E_NOMEM, "%s: out of memory", what);
            return NULL;
        }
        w->buffers = grown;
        w->max_buffers = max;
    }
    const k3_memory_ops *memory = w->be->memory;
    k3_buf *buf = memory->alloc_rows(w->be, rows, row_bytes, what);
    if (!buf) {
        if (w->be->sync(w->be, err) == K3_OK)
            k3_fail(err, K3_E_NOMEM, "%s: no memory for %llu bytes", what, (unsigned long long)bytes);
        return NULL;
    }
    w->buffers[w->n_buffers++] = buf;
    w->bytes += bytes;
    return buf;
}

static k3_status advance(k3_loader *ld, uint64_t bytes, k3_error *err)
{
    ld->done += bytes;
    if (ld->progress && ld->progress(ld->user, "loading", ld->done, ld->total))
        return k3_fail(err, K3_E_CANCELLED, "loading was cancelled");
    return K3_OK;
}

/* A small vector as f32 in the backend's memory. n: how many leading values to keep. */
static k3_status load_values(k3_loader *ld, float *values, k3_role role, int layer, int64_t n, k3_error *err)
{
    const k3_tensor_info *t = k3_ckpt_role(ld->ckpt, role, layer, 0);
    if (!t)
        return k3_fail(err, K3_E_NOT_FOUND, "layer %d: a tensor of role %d is missing", layer, (int)role);
    uint64_t size = t->dtype == K3_DT_F32 ? 4 : 2;
    if (t->bytes < (uint64_t)n * size)
        return k3_fail(err, K3_E_FORMAT, "%s: %llu bytes found, %llu wanted", t->name, (unsigned long long)t->bytes,
                       (unsigned long long)((uint64_t)n * size));
    K3_TRY(k3_ckpt_read(ld->ckpt, values, t, 0, (uint64_t)n * size, err));
    if (size == 2)
        for (int64_t i = n - 1; i >= 0; i--) { /* widens in place, from the end */
            uint16_t b;
            memcpy(&b, (const char *)values + 2 * i, 2);
            values[i] = k3_bf16_value(b);
        }
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return k3_fail(err, K3_E_FORMAT, "%s: value %lld is not finite; the file is damaged", t->name, (long long)i);
    return advance(ld, t->bytes, err);
}

static k3_status put_vector(k3_loader *ld, k3_ref *out, const float *values, int64_t n, k3_error *err)
{
    k3_buf *buf = new_buffer(ld, 1, (uint64_t)n * 4, "vector", err);
    if (!buf)
        return err ? err->status : K3_E_NOMEM;
    *out = (k3_ref){buf, 0};
    ld->w->token_bytes += (uint64_t)n * 4;
    ld->w->be->memory->upload(ld->w->be, *out, values, (uint64_t)n * 4);
    return K3_OK;
}

/* Counts a vector instead of loading it. */
static int is_measured(k3_loader *ld, int64_t n)
{
    ld->always += ld->mode == K3_LOAD_MEASURE ? 4 * (uint64_t)n : 0;
    return ld->mode == K3_LOAD_MEASURE;
}

static k3_status load_vector(k3_loader *ld, k3_ref *out, k3_role role, int layer, int64_t n, k3_error *err)
{
    if (is_measured(ld, n))
        return K3_OK;
    float *values = malloc((size_t)n * sizeof *values);
    if (!values)
        return k3_fail(err, K3_E_NOMEM, "no memory for a vector of %lld", (long long)n);
    k3_status status = load_values(ld, values, role, layer, n, err);
    if (status == K3_OK)
        status = put_vector(ld, out, values, n, err);
    free(values);
    return status;
}

/* s = norm * proj, folded once in f32 (specification 3.3). */
static k3_status load_folded(k3_loader *ld, k3_ref *out, k3_role norm, k3_role proj, int layer, k3_error *err)
{
    int64_t n = ld->w->hp->hidden;
    if (is_measured(ld, n))
        return K3_OK;
    float *a = malloc(2 * (size_t)n * sizeof *a);
    if (!a)
        return k3_fail(err, K3_E_NOMEM, "no memory for a vector of %lld", (long long)n);
    k3_status status = load_values(ld, a, norm, layer, n, err);
    if (status == K3_OK)
        status = load_values(ld, a + n, proj, layer, n, err);
    for (int64_t i = 0; status == K3_OK && i < n; i++)
        a[i] *= a[n + i];
    if (status == K3_OK)
        status = put_vector(ld, out, a, n, err);
    free(a);
    return status;
}

static k3_status reserve(void **p, uint64_t *have, uint64_t want, k3_error *err)
{
    if (*have >= want)
        return K3_OK;
    free(*p);
    *p = malloc(want);
    *have = *p ? want : 0;
    return *p ? K3_OK : k3_fail(err, K3_E_NOMEM, "no memory for a load buffer of %llu bytes", (unsigned long long)want);
}

/* Rows of a packed matrix need no conversion. */
static k3_status read_packed(k3_loader *ld, const k3_mat *mat, const k3_tensor_info *t, const k3_tensor_info *s, int64_t first, int64_t n,
                             k3_error *err)
{
    uint64_t codes = k3_type_row_bytes(mat->type, mat->cols), scales = k3_type_scale_bytes(mat->type, mat->cols);
    K3_TRY(k3_ckpt_read(ld->ckpt, ld->codes, t, (uint64_t)first * codes, (uint64_t)n * codes, err));
    K3_TRY(k3_ckpt_read(ld->ckpt, ld->scales, s, (uint64_t)first * scales, (uint64_t)n * scales, err));
    return k3_scales_check(ld->scales, s, (uint64_t)n * scales, err);
}

/* Rows first .. first+n-1 of a tensor: read, convert, upload. s: scales of a packed one. */
static k3_status load_rows(k3_loader *ld, const k3_mat *mat, const k3_tensor_info *t, const k3_tensor_info *s, int64_t first, int64_t n,
                           k3_error *err)
{
    k3_memory_ops const *memory = ld->w->be->memory;
    uint64_t stored = k3_stored_row(t);
    uint64_t codes = k3_type_row_bytes(mat->type, mat->cols), scales = k3_type_scale_bytes(mat->type, mat->cols);
    if (s) {
        K3_TRY(read_packed(ld, mat, t, s, first, n, err));
    } else {
        K3_TRY(k3_ckpt_read(ld->ckpt, ld->raw, t, (uint64_t)first * stored, (uint64_t)n * stored, err));
        K3_TRY(k3_convert(ld->converter, ld->codes, ld->scales, mat->type, ld->raw, t, first, n, err));
    }
    memory->upload(ld->w->be, k3_at(mat->data, (uint64_t)first * codes), ld->codes, (uint64_t)n * codes);
    if (scales)
        memory->upload(ld->w->be, k3_at(mat->scale, (uint64_t)first * scales), ld->scales, (uint64_t)n * scales);
    return advance(ld, (uint64_t)n * (stored + (s ? scales : 0)), err);
}

/* A matrix that is not loaded now. */
static k3_status meet(k3_loader *ld, k3_mat *mat, const k3_tensor_info *t, const k3_tensor_info *s, k3_error *err)
{
    if (ld->n_parts + 2 > K3_MAX_PARTS)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: more than %d matrices in a layer", t->name, (int)K3_MAX_PARTS);
    int is_stored = s || mat->type == (t->dtype == K3_DT_F32 ? K3_F32 : K3_BF16);
    ld->parts[ld->n_parts++] = (k3_trunk_part){t, 0, t->bytes, mat, !is_stored, 0};
    if (s)
        ld->parts[ld->n_parts++] = (k3_trunk_part){s, 0, s->bytes, mat, 0, 1};
    ld->most_cols = mat->cols > ld->most_cols ? mat->cols : ld->most_cols;
    return ld->mode == K3_LOAD_MEASURE ? K3_OK : advance(ld, t->bytes + (s ? s->bytes : 0), err);
}

static k3_status load_matrix(k3_loader *ld, k3_mat *mat, k3_role role, int layer, k3_care care, k3_error *err)
{
    const k3_tensor_info *t = k3_ckpt_role(ld->ckpt, role, layer, 0), *s = k3_ckpt_scale(ld->ckpt, role, layer);
    if (!t || t->rank != 2)
        return k3_fail(err, K3_E_NOT_FOUND, "layer %d: a matrix of role %d is missing", layer, (int)role);
    int64_t rows = t->shape[0], cols = t->shape[1];
    /* The head runs for few rows, where bytes decide and not sums: it keeps x as well. */
    int rounds_x = care != K3_CARE_KEEP && role != K3_R_HEAD;
    *mat = (k3_mat){type_for(ld->trunk, care, t->dtype, (int)cols), (int)rows, (int)cols, {NULL, 0}, {NULL, 0}, rounds_x};
    uint64_t codes = k3_type_row_bytes(mat->type, (int)cols), scales = k3_type_scale_bytes(mat->type, (int)cols);
    if (role != K3_R_EMBED) {
        ld->w->token_bytes += (uint64_t)rows * (codes + scales);
        ld->w->token_macs += (uint64_t)rows * (uint64_t)cols;
    }
    if (ld->mode != K3_LOAD_NOW)
        return meet(ld, mat, t, s, err);
    if (!(mat->data.buf = new_buffer(ld, (uint64_t)rows, codes, t->name, err)))
        return err ? err->status : K3_E_NOMEM;
    if (scales && !(mat->scale.buf = new_buffer(ld, (uint64_t)rows, scales, t->name, err)))
        return err ? err->status : K3_E_NOMEM;
    uint64_t stored = k3_stored_row(t);
    int64_t step = (int64_t)(K3_LOAD_BYTES / stored) + 1;
    step = step > rows ? rows : step;
    K3_TRY(reserve(&ld->raw, &ld->raw_bytes, (uint64_t)step * stored, err));
    K3_TRY(reserve(&ld->codes, &ld->codes_bytes, (uint64_t)step * codes, err));
    K3_TRY(reserve(&ld->scales, &ld->scales_bytes, (uint64_t)step * scales + 1, err));
    for (int64_t r = 0; r < rows; r += step)
        K3_TRY(load_rows(ld, mat, t, s, r, rows - r < step ? rows - r : step, err));
    return K3_OK;
}

static k3_status load_kda(k3_loader *ld, k3_kda_weights *w, int l, k3_error *err)
{
    const k3_hparams *hp = ld->w->hp;
    int64_t C = (int64_t)hp->kda_heads * hp->kda_dim;
    K3_TRY(load_matrix(ld, &w->q, K3_R_KDA_Q, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->k, K3_R_KDA_K, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->v, K3_R_KDA_V, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->g, K3_R_KDA_G, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->o, K3_R_KDA_O, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->f_a, K3_R_KDA_F_A, l, K3_CARE_KEEP, err));
    K3_TRY(load_matrix(ld, &w->f_b, K3_R_KDA_F_B, l, K3_CARE_KEEP, err));
    K3_TRY(load_matrix(ld, &w->b, K3_R_KDA_B, l, K3_CARE_KEEP, err));
    K3_TRY(load_vector(ld, &w->q_conv, K3_R_KDA_Q_CONV, l, C * hp->conv_width, err));
    K3_TRY(load_vector(ld, &w->k_conv, K3_R_KDA_K_CONV, l, C * hp->conv_width, err));
    K3_TRY(load_vector(ld, &w->v_conv, K3_R_KDA_V_CONV, l, C * hp->conv_width, err));
    /* One decay rate a head; the stored vector is longer and its tail is padding. */
    K3_TRY(load_vector(ld, &w->a_log, K3_R_KDA_A_LOG, l, hp->kda_heads, err));
    K3_TRY(load_vector(ld, &w->dt_bias, K3_R_KDA_DT_BIAS, l, C, err));
    return load_vector(ld, &w->o_norm, K3_R_KDA_O_NORM, l, hp->kda_dim, err);
}

static k3_status load_mla(k3_loader *ld, k3_mla_weights *w, int l, k3_error *err)
{
    const k3_hparams *hp = ld->w->hp;
    K3_TRY(load_matrix(ld, &w->q_a, K3_R_MLA_Q_A, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->q_b, K3_R_MLA_Q_B, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->kv_a, K3_R_MLA_KV_A, l, K3_CARE_LATENT, err));
    K3_TRY(load_matrix(ld, &w->kv_b, K3_R_MLA_KV_B, l, K3_CARE_LATENT, err));
    if (hp->mla_gate)
        K3_TRY(load_matrix(ld, &w->g, K3_R_MLA_G, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->o, K3_R_MLA_O, l, K3_CARE_TRUNK, err));
    K3_TRY(load_vector(ld, &w->q_a_norm, K3_R_MLA_Q_A_NORM, l, hp->q_lora, err));
    return load_vector(ld, &w->kv_a_norm, K3_R_MLA_KV_A_NORM, l, hp->kv_lora, err);
}

static k3_status load_glu(k3_loader *ld, k3_glu_weights *w, k3_role gate, k3_role up, k3_role down, int l, k3_error *err)
{
    K3_TRY(load_matrix(ld, &w->gate, gate, l, K3_CARE_TRUNK, err));
    K3_TRY(load_matrix(ld, &w->up, up, l, K3_CARE_TRUNK, err));
    return load_matrix(ld, &w->down, down, l, K3_CARE_TRUNK, err);
}

static k3_status load_moe(k3_loader *ld, k3_moe_weights *w, int l, k3_error *err)
{
    const k3_hparams *hp = ld->w->hp;
    K3_TRY(load_matrix(ld, &w->router, K3_R_ROUTER, l, K3_CARE_KEEP, err));
    K3_TRY(load_vector(ld, &w->bias, K3_R_ROUTER_BIAS, l, hp->n_experts, err));
    if (hp->latent) {
        K3_TRY(load_matrix(ld, &w->down, K3_R_LATENT_DOWN, l, K3_CARE_TRUNK, err));
        K3_TRY(load_matrix(ld, &w->up, K3_R_LATENT_UP, l, K3_CARE_TRUNK, err));
        if (hp->latent_norm)
            K3_TRY(load_vector(ld, &w->norm, K3_R_LATENT_NORM, l, hp->latent, err));
    }
    if (!hp->n_shared)
        return K3_OK;
    return load_glu(ld, &w->shared, K3_R_SHARED_GATE, K3_R_SHARED_UP, K3_R_SHARED_DOWN, l, err);
}

static k3_status load_layer(k3_loader *ld, k3_layer *layer, int l, k3_error *err)
{
    const k3_hparams *hp = ld->w->hp;
    ld->n_parts = 0;
    layer->is_mla = hp->is_mla[l];
    layer->is_moe = hp->is_moe[l];
    K3_TRY(load_vector(ld, &layer->input_norm, K3_R_INPUT_NORM, l, hp->hidden, err));
    K3_TRY(load_vector(ld, &layer->post_norm, K3_R_POST_NORM, l, hp->hidden, err));
    K3_TRY(load_folded(ld, &layer->attn_res, K3_R_ATTN_RES_NORM, K3_R_ATTN_RES_PROJ, l, err));
    K3_TRY(load_folded(ld, &layer->mlp_res, K3_R_MLP_RES_NORM, K3_R_MLP_RES_PROJ, l, err));
    K3_TRY(layer->is_mla ? load_mla(ld, &layer->mla, l, err) : load_kda(ld, &layer->kda, l, err));
    if (layer->is_moe)
        return load_moe(ld, &layer->moe, l, err);
    return load_glu(ld, &layer->dense, K3_R_DENSE_GATE, K3_R_DENSE_UP, K3_R_DENSE_DOWN, l, err);
}

static k3_status load_ends(k3_loader *ld, k3_error *err)
{
    k3_weights *w = ld->w;
    K3_TRY(load_vector(ld, &w->norm, K3_R_NORM, 0, w->hp->hidden, err));
    return load_folded(ld, &w->out_res, K3_R_OUT_RES_NORM, K3_R_OUT_RES_PROJ, 0, err);
}

/* ---- what it takes ----------------------------------------------------------------------------------------------------- */

static uint64_t bytes_of(const k3_mat *mat)
{
    return (uint64_t)mat->rows * (k3_type_row_bytes(mat->type, mat->cols) + k3_type_scale_bytes(mat->type, mat->cols));
}

/* Of the matrices met. */
static k3_trunk_size size_of(k3_loader *ld)
{
    k3_trunk_size size = {.room = k3_trunk_room(ld->parts, ld->n_parts), .made = k3_trunk_made(ld->parts, ld->n_parts)};
    for (int i = 0; i < ld->n_parts; i++) {
        size.held += ld->parts[i].is_scale ? 0 : bytes_of(ld->parts[i].mat);
        size.stored += ld->parts[i].bytes;
        size.on[k3_ckpt_shard_drive(ld->ckpt, ld->parts[i].tensor->shard)] += ld->parts[i].bytes;
    }
    return size;
}

/* Rows first .. of the head, the matrix met, that are read together, at most an eighth of it: a matrix of its own, and its one part, or
 * two where it is packed. Returns how many. */
static int head_block(const k3_loader *ld, k3_trunk_part parts[2], k3_mat *block, int first)
{
    const k3_mat *head = ld->parts[0].mat;
    uint64_t bytes = 0, n_rows = (uint64_t)head->rows;
    for (int i = 0; i < ld->n_parts; i++)
        bytes += ld->parts[i].bytes;
    int rows = (int)((bytes / 8 < K3_LOAD_BYTES ? bytes / 8 : K3_LOAD_BYTES) / (bytes / n_rows)) + 1;
    *block = *head;
    block->rows = head->rows - first < rows ? head->rows - first : rows;
    for (int i = 0; i < ld->n_parts; i++) {
        uint64_t row = ld->parts[i].bytes / n_rows;
        parts[i] = ld->parts[i];
        parts[i].at = (uint64_t)first * row;
        parts[i].bytes = (uint64_t)block->rows * row;
        parts[i].mat = block;
    }
    return ld->n_parts;
}

static k3_status measure(k3_loader *ld, k3_trunk_sizes *out, k3_error *err)
{
    k3_weights *w = ld->w;
    k3_layer layer = {0};
    k3_mat block;
    ld->mode = K3_LOAD_MEASURE;
    K3_TRY(load_matrix(ld, &w->embed, K3_R_EMBED, 0, K3_CARE_KEEP, err));
    out->embed = size_of(ld);
    out->rows = out->embed.held / (uint64_t)w->embed.rows * K3_LATE_ROWS;
    ld->n_parts = 0;
    K3_TRY(load_matrix(ld, &w->head, K3_R_HEAD, 0, K3_CARE_TRUNK, err));
    out->head = size_of(ld);
    k3_trunk_part parts[2];
    int n_parts = head_block(ld, parts, &block, 0);
    out->head.room = k3_trunk_room(parts, n_parts);
    out->head.made = k3_trunk_made(parts, n_parts);
    K3_TRY(load_ends(ld, err));
    out->n_layers = w->hp->n_layers;
    for (int l = 0; l < out->n_layers; l++) {
        K3_TRY(load_layer(ld, &layer, l, err));
        out->layers[l] = size_of(ld);
    }
    out->always = ld->always;
    ld->n_parts = 0;
    w->token_bytes = w->token_macs = 0;
    return K3_OK;
}

k3_status k3_weights_measure(k3_trunk_sizes *out, const k3_ckpt *ckpt, k3_trunk trunk, k3_error *err)
{
    k3_weights w = {.hp = k3_ckpt_hparams(ckpt)};
    k3_loader ld = {.w = &w, .ckpt = ckpt, .trunk = trunk};
    *out = (k3_trunk_sizes){0};
    return measure(&ld, out, err);
}

k3_status k3_weights_types(k3_weights_type out[K3_MAX_PARTS], int *n, const k3_ckpt *ckpt, k3_trunk trunk, int layer, k3_error *err)
{
    k3_weights w = {.hp = k3_ckpt_hparams(ckpt)};
    k3_loader ld = {.w = &w, .ckpt = ckpt, .trunk = trunk, .mode = K3_LOAD_MEASURE};
    k3_layer room = {0};
    if (layer >= 0) {
        K3_TRY(load_layer(&ld, &room, layer, err));
    } else {
        K3_TRY(load_matrix(&ld, &w.embed, K3_R_EMBED, 0, K3_CARE_KEEP, err));
        K3_TRY(load_matrix(&ld, &w.head, K3_R_HEAD, 0, K3_CARE_TRUNK, err));
    }
    for (*n = 0; *n < ld.n_parts; ++*n)
        out[*n] = (k3_weights_type){ld.parts[*n].tensor, ld.parts[*n].mat->type};
    return K3_OK;
}

static k3_trunk_plan plan_for(const k3_ckpt *ckpt, k3_trunk trunk, uint64_t budget)
{
    k3_trunk_sizes sizes;
    k3_trunk_plan plan = {0};
    if (k3_weights_measure(&sizes, ckpt, trunk, NULL) == K3_OK)
        (void)k3_trunk_make_plan(&plan, &sizes, budget);
    return plan;
}

uint64_t k3_weights_bytes(const k3_ckpt *ckpt, k3_trunk trunk)
{
    return plan_for(ckpt, trunk, UINT64_MAX).bytes;
}

uint64_t k3_trunk_least_bytes(const k3_ckpt *ckpt, k3_trunk trunk)
{
    return plan_for(ckpt, trunk, 0).bytes;
}

/* ---- what comes later -------------------------------------------------------------------------------------------------- */

static k3_status later_embed(k3_loader *ld, k3_error *err)
{
    k3_late *late = ld->w->late;
    late->embed = ld->parts[0].tensor;
    late->table = ld->w->embed;
    late->table.rows = K3_LATE_ROWS;
    /* It is the late's own: rows are written where they lie. */
    late->table.data.buf = late->be->memory->alloc(late->be, bytes_of(&late->table), "rows of the embedding");
    if (!late->table.data.buf)
        return late->be->sync(late->be, err);
    ld->w->bytes += bytes_of(&late->table);
    return K3_OK;
}

/* Room for the items, and the head as blocks if it comes later. */
static k3_status later_head(k3_loader *ld, int has_head, k3_error *err)
{
    k3_late *late = ld->w->late;
    k3_mat block;
    k3_trunk_part parts[2];
    if (!has_head) {
        head_block(ld, parts, &block, 0);
        late->n_blocks = (ld->w->head.rows + block.rows - 1) / block.rows;
    }
    size_t n_layers = (size_t)ld->w->hp->n_layers, n = (size_t)late->n_blocks;
    ld->items = calloc(n + n_layers, sizeof *ld->items);
    ld->kept = calloc(2 * n + n_layers * K3_MAX_PARTS, sizeof *ld->kept);
    late->blocks = calloc(n + 1, sizeof *late->blocks);
    if (!ld->items || !ld->kept || !late->blocks)
        return k3_fail(err, K3_E_NOMEM, "weights: out of memory");
    for (int first = 0; ld->n_items < late->n_blocks; ld->n_items++) {
        int i = ld->n_items;
        int n_parts = head_block(ld, &ld->kept[2 * i], &late->blocks[i], first);
        ld->items[i] = (k3_trunk_item){-1, n_parts, &ld->kept[2 * i]};
        first += late->blocks[i].rows;
    }
    return K3_OK;
}

static void later_layer(k3_loader *ld, int layer)
{
    int n_blocks = ld->w->late->n_blocks;
    k3_trunk_part *kept = ld->kept + 2 * n_blocks + (ld->n_items - n_blocks) * K3_MAX_PARTS;
    memcpy(kept, ld->parts, (size_t)ld->n_parts * sizeof *kept);
    ld->items[ld->n_items++] = (k3_trunk_item){layer, ld->n_parts, kept};
}

static k3_status open_stream(k3_loader *ld, k3_io_meter *meter, k3_error *err)
{
    k3_late *late = ld->w->late;
    int n = late->n_blocks;
    k3_trunk_config config = {ld->ckpt, late->be, ld->items + n, ld->items, ld->n_items - n, n, k3_late_take, late, meter};
    if (!ld->n_items)
        return K3_OK;
    K3_TRY(k3_trunk_open(&late->stream, &config, err));
    ld->w->bytes += k3_trunk_bytes(late->stream);
    return K3_OK;
}

/* ---- load --------------------------------------------------------------------------------------------------------------- */

static k3_status load_all(k3_loader *ld, const k3_trunk_plan *plan, k3_error *err)
{
    k3_weights *w = ld->w;
    ld->mode = plan->has_embed ? K3_LOAD_NOW : K3_LOAD_LATER;
    K3_TRY(load_matrix(ld, &w->embed, K3_R_EMBED, 0, K3_CARE_KEEP, err));
    if (!plan->has_embed)
        K3_TRY(later_embed(ld, err));
    ld->n_parts = 0;
    ld->mode = plan->has_head ? K3_LOAD_NOW : K3_LOAD_LATER;
    K3_TRY(load_matrix(ld, &w->head, K3_R_HEAD, 0, K3_CARE_TRUNK, err));
    if (w->late)
        K3_TRY(later_head(ld, plan->has_head, err));
    K3_TRY(load_ends(ld, err));
    for (int l = 0; l < w->hp->n_layers; l++) {
        ld->mode = l < plan->n_pinned ? K3_LOAD_NOW : K3_LOAD_LATER;
        K3_TRY(load_layer(ld, &w->layers[l], l, err));
        if (l >= plan->n_pinned)
            later_layer(ld, l);
    }
    return K3_OK;
}

/* What stays in memory; `late` is there if not everything does. */
static k3_status choose(k3_loader *ld, k3_trunk_plan *plan, const k3_weights_config *config, k3_error *err)
{
    static const char *const names[] = {"bf16", "int8", "int4"};
    k3_weights *w = ld->w;
    k3_trunk_sizes sizes = {0};
    uint64_t budget = config->trunk_bytes;
    K3_TRY(measure(ld, &sizes, err));
    if (config->plan && !w->be->is_device)
        *plan = *config->plan;
    else if (!k3_trunk_make_plan(plan, &sizes, w->be->is_device || !budget ? UINT64_MAX : budget))
        return k3_fail(err, K3_E_NOMEM, "%.6f GB of memory for the %s trunk: at least %.6f GB are wanted", (double)budget * 1e-9,
                       names[ld->trunk], (double)plan->bytes * 1e-9);
    if (plan->n_pinned == sizes.n_layers && plan->has_head && plan->has_embed)
        return K3_OK;
    w->late = calloc(1, sizeof *w->late);
    if (!w->late)
        return k3_fail(err, K3_E_NOMEM, "weights: out of memory");
    w->late->ckpt = ld->ckpt;
    w->late->be = w->be;
    w->late->first_layer = plan->n_pinned;
    return K3_OK;
}

static k3_status load(k3_loader *ld, const k3_weights_config *config, k3_error *err)
{
    k3_weights *w = ld->w;
    k3_trunk_plan plan;
    k3_converter converter = {0};
    ld->converter = &converter;
    k3_status status = choose(ld, &plan, config, err);
    if (status == K3_OK)
        status = k3_converter_open(&converter, config->threads, ld->most_cols, err);
    if (status == K3_OK)
        status = load_all(ld, &plan, err);
    free(ld->raw);
    free(ld->codes);
    free(ld->scales);
    if (status == K3_OK)
        status = w->be->sync(w->be, err);
    if (status == K3_OK && w->late) {
        w->late->converter = converter;
        converter = (k3_converter){0};
        status = open_stream(ld, config->meter, err);
    }
    k3_converter_close(&converter);
    free(ld->items);
    free(ld->kept);
    return status;
}

k3_status k3_weights_load(k3_weights **out, const k3_ckpt *ckpt, k3_backend *be, const k3_weights_config *config, k3_error *err)
{
    *out = NULL;
    k3_weights *w = calloc(1, sizeof *w);
    k3_loader ld = {.w = w, .ckpt = ckpt, .trunk = config->trunk, .progress = config->progress, .user = config->user};
    if (!w)
        return k3_fail(err, K3_E_NOMEM, "weights: out of memory");
    uint64_t experts = 0;
    ld.total = k3_ckpt_total_bytes(ckpt, &experts);
    ld.total -= experts;
    w->hp = k3_ckpt_hparams(ckpt);
    w->be = be;
    w->layers = calloc((size_t)w->hp->n_layers, sizeof *w->layers);
    k3_status status = w->layers ? load(&ld, config, err) : k3_fail(err, K3_E_NOMEM, "weights: out of memory");
    if (status != K3_OK) {
        k3_weights_free(w);
        return status;
    }
    *out = w;
    return K3_OK;
}

void k3_weights_free(k3_weights *w)
{
    if (!w)
        return;
    k3_late_close(w->late);
    for (int i = 0; i < w->n_buffers; i++)
        w->be->memory->release(w->be, w->buffers[i]);
    free(w->buffers);
    free(w->layers);
    free(w);
}
