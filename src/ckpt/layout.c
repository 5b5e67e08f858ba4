#include "ckpt/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/names.h"

/* How many names of each kind of problem a message shows. */
enum { SAMPLES = 4 };

typedef struct builder {
    k3_layout *out;
    const k3_hparams *hp;
    const char *path;
    int has_index;
    k3_names missing, shapes, types, plain, contrary;
} builder;

typedef enum find_result { FOUND, VISION, UNKNOWN, PLAIN_EXPERT, BEYOND_CONFIG } find_result;

typedef struct place {
    k3_role role;
    int layer, expert;
} place;

static const char *after(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* A decimal number without leading zeros, then a dot. Returns what follows the dot, or NULL. */
static const char *take_number(const char *text, int *number)
{
    size_t n = strspn(text, "0123456789");
    if (!n || n > 8 || (n > 1 && text[0] == '0') || text[n] != '.')
        return NULL;
    *number = atoi(text);
    return text + n + 1;
}

/* ---- prefixes ---------------------------------------------------------------------------------------------- */

/* Re-packed and test checkpoints drop the wrapper's name: the prefix with the most layer tensors is the language model's. */
static k3_status find_prefix(builder *b, const k3_st_file *files, size_t n_files, k3_error *err)
{
    static const char *const prefixes[] = {"language_model.model.", "model.", "model.language_model.", "language_model.", ""};
    enum { N = sizeof prefixes / sizeof prefixes[0] };
    size_t counts[N] = {0}, best = 0;
    const char *sample = NULL;
    for (size_t f = 0; f < n_files; f++) {
        for (size_t i = 0; i < files[f].n_tensors; i++) {
            const char *name = files[f].tensors[i].info.name;
            if (!sample)
                sample = name;
            for (size_t p = 0; p < N; p++) {
                const char *tail = after(name, prefixes[p]);
                counts[p] += tail && (after(tail, "layers.") || strcmp(tail, "embed_tokens.weight") == 0);
            }
        }
    }
    for (size_t p = 1; p < N; p++)
        if (counts[p] > counts[best])
            best = p;
    if (!counts[best]) {
        k3_names shown = {0};
        k3_names_add(&shown, "%s", sample ? sample : "no tensor at all");
        return k3_fail(err, K3_E_NOT_FOUND, "%s: no language-model tensors; wanted names such as language_model.model.layers.0.*, found %s",
                       b->path, k3_names_end(&shown));
    }
    snprintf(b->out->prefix, sizeof b->out->prefix, "%s", prefixes[best]);
    return K3_OK;
}

/* The head stands outside the body: beside it in the release, at the top or inside the body elsewhere. */
static int is_head(const builder *b, const char *name)
{
    const char *in_body = after(name, b->out->prefix);
    return strcmp(name, "language_model.lm_head.weight") == 0 || strcmp(name, "lm_head.weight") == 0 ||
           (in_body && strcmp(in_body, "lm_head.weight") == 0);
}

static void full_name(char *room, size_t size, const builder *b, const place *p)
{
    const char *prefix = b->out->prefix, *tail = k3_role_tail(p->role);
    if (p->role == K3_R_HEAD)
        snprintf(room, size, "%s%s", after(prefix, "language_model.") ? "language_model." : "", tail);
    else if (k3_role_specs[p->role].scope == K3_IN_MODEL)
        snprintf(room, size, "%s%s", prefix, tail);
    else if (k3_role_specs[p->role].scope == K3_IN_EXPERT)
        snprintf(room, size, "%slayers.%d.block_sparse_moe.experts.%d.%s", prefix, p->layer, p->expert, tail);
    else
        snprintf(room, size, "%slayers.%d.%s", prefix, p->layer, tail);
}

/* ---- name -> role ------------------------------------------------------------------------------------------ */

static find_result find_expert(const builder *b, place *p, const char *tail)
{
    static const char *const plain[] = {"w1.weight", "w2.weight", "w3.weight", "gate_proj.weight", "up_proj.weight", "down_proj.weight"};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (strcmp(tail, plain[i]) == 0)
            return PLAIN_EXPERT;
    for (int r = K3_R_W1; r < K3_N_ROLES; r++) {
        if (strcmp(tail, k3_role_specs[r].tail) == 0) {
            p->role = (k3_role)r;
            return p->expert < b->hp->n_experts && k3_role_exists(b->hp, p->role, p->layer) ? FOUND : BEYOND_CONFIG;
        }
    }
    return UNKNOWN;
}

static find_result find_in_layer(const builder *b, place *p, const char *tail)
{
    find_result result = UNKNOWN;
    if (p->layer >= b->hp->n_layers)
        return p->layer < b->hp->n_layers + b->hp->n_nextn ? UNKNOWN : BEYOND_CONFIG;
    const char *rest = after(tail, "block_sparse_moe.experts.");
    if (rest && (rest = take_number(rest, &p->expert)) != NULL)
        return find_expert(b, p, rest);
    /* g_proj and o_proj exist in both kinds of layers: a role that this layer has wins. */
    for (int r = K3_R_INPUT_NORM; r < K3_R_W1; r++) {
        if (strcmp(tail, k3_role_specs[r].tail) != 0)
            continue;
        p->role = (k3_role)r;
        if (k3_role_exists(b->hp, p->role, p->layer))
            return FOUND;
        result = BEYOND_CONFIG;
    }
    return result;
}

static find_result find_role(const builder *b, place *p, const char *name)
{
    *p = (place){.role = K3_R_EMBED};
    const char *tail = after(name, b->out->prefix), *rest = NULL;
    if (is_head(b, name)) {
        p->role = K3_R_HEAD;
        return b->hp->tied ? UNKNOWN : FOUND;
    }
    if (tail && (rest = after(tail, "layers.")) != NULL && (rest = take_number(rest, &p->layer)) != NULL)
        return find_in_layer(b, p, rest);
    for (int r = K3_R_EMBED; tail && r < K3_R_HEAD; r++) {
        if (strcmp(tail, k3_role_specs[r].tail) == 0) {
            p->role = (k3_role)r;
            return FOUND;
        }
    }
    return strstr(name, "vision_tower.") || strstr(name, "mm_projector.") || strstr(name, "multi_modal_projector.") ? VISION : UNKNOWN;
}

/* ---- checks ------------------------------------------------------------------------------------------------ */

static void print_shape(char *room, size_t size, const int64_t *shape, int rank)
{
    size_t n = (size_t)snprintf(room, size, "[");
    for (int i = 0; i < rank && i < 4 && n < size; i++)
        n += (size_t)snprintf(room + n, size - n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (n < size)
        snprintf(room + n, size - n, "%s]", rank > 4 ? ", ..." : "");
}

/* Compares without sizes of 1, so that [1, H] and [H], [C, 1, 4] and [C, 4] are the same; then writes the wanted form over the found. */
static int match_shape(const builder *b, k3_tensor_info *t, const place *p, int64_t want[4], int *want_rank)
{
    const k3_dim *dims = k3_role_specs[p->role].dims;
    int64_t found_tight[4], want_tight[4];
    int n_found = 0, n_want = 0, at_least = dims[0] == K3_DIM_KDA_HEADS_OR_MORE;
    *want_rank = 0;
    for (int i = 0; i < 4 && dims[i] != K3_DIM_NONE; i++) {
        want[i] = k3_dim_size(b->hp, dims[i]);
        *want_rank = i + 1;
        if (want[i] != 1)
            want_tight[n_want++] = want[i];
    }
    for (int i = 0; i < t->rank && i < 4; i++)
        if (t->shape[i] != 1)
            found_tight[n_found++] = t->shape[i];
    if (t->rank > 4)
        return 0;
    if (at_least) {
        int64_t found = n_found ? found_tight[0] : 1;
        if (n_found > 1 || found < want[0])
            return 0;
        want[0] = found;
    } else if (n_found != n_want || memcmp(found_tight, want_tight, (size_t)n_want * sizeof want_tight[0]) != 0) {
        return 0;
    }
    memcpy(t->shape, want, (size_t)*want_rank * sizeof want[0]);
    t->rank = *want_rank;
    return 1;
}

/* Matrices that a packed folder may hold as codes; the others stay as stored at every precision. */
static int may_be_packed(k3_role role)
{
    const k3_dim *dims = k3_role_specs[role].dims;
    return role < K3_R_W1 && role != K3_R_EMBED && role != K3_R_KDA_F_A && role != K3_R_KDA_F_B && role != K3_R_KDA_B &&
           role != K3_R_ROUTER && dims[0] != K3_DIM_ONE && dims[1] != K3_DIM_NONE && dims[2] == K3_DIM_NONE;
}

/* U8 codes have two columns a byte. */
static void unpack_shape(const k3_pack_tag *pack, k3_st_tensor *t, k3_role role)
{
    if (t->info.dtype != K3_DT_U8 || !pack->has_int4 || !may_be_packed(role) || t->info.rank != 2)
        return;
    t->info.dtype = K3_DT_INT4_G64;
    t->info.shape[1] *= 2;
}

static int is_type_right(const k3_pack_tag *pack, const k3_tensor_info *t, k3_role role)
{
    if (role >= K3_R_W1)
        return t->dtype == K3_DT_U8;
    if (k3_dtype_is_packed(t->dtype))
        return pack->is_packed && may_be_packed(role);
    return t->dtype == K3_DT_BF16 || t->dtype == K3_DT_F32;
}

static void check_tensor(builder *b, const k3_pack_tag *pack, k3_st_tensor *t, const place *p)
{
    int is_expert = p->role >= K3_R_W1, want_rank = 0;
    int64_t want[4] = {0};
    unpack_shape(pack, t, p->role);
    if (!is_type_right(pack, &t->info, p->role))
        k3_names_add(&b->types, "%s is %s, wanted %s", t->info.name, t->dtype_name, is_expert ? "U8" : "BF16 or F32");
    if (!match_shape(b, &t->info, p, want, &want_rank)) {
        char found_text[96], want_text[96];
        print_shape(found_text, sizeof found_text, t->info.shape, t->info.rank);
        print_shape(want_text, sizeof want_text, want, want_rank);
        k3_names_add(&b->shapes, "%s is %s, wanted %s", t->info.name, found_text, want_text);
    }
}

static const k3_tensor_info **slot_of(k3_layout *out, const k3_hparams *hp, const place *p)
{
    if (p->role < K3_R_W1)
        return &out->roles[p->role][p->layer];
    return &out->experts[((size_t)p->layer * (size_t)hp->n_experts + (size_t)p->expert) * K3_EXPERT_TENSORS + (size_t)(p->role - K3_R_W1)];
}

static void count_bytes(k3_layout *out, const k3_tensor_info *t, k3_role role)
{
    int is_codes = role == K3_R_W1 || role == K3_R_W2 || role == K3_R_W3;
    if (role >= K3_R_W1)
        out->expert_bytes += t->bytes;
    else
        out->trunk_bytes += t->bytes;
    if (is_codes)
        out->n_params += t->bytes * 2;
    else if (role < K3_R_W1 && k3_dtype_is_packed(t->dtype))
        out->n_params += t->bytes * (t->dtype == K3_DT_INT4_G64 ? 2 : 1);
    else if (role < K3_R_W1)
        out->n_params += t->bytes / (t->dtype == K3_DT_F32 ? 4 : 2);
}

/* The scales of a packed matrix, whose own name is the part before the suffix. */
static int place_scale(builder *b, const k3_st_tensor *t)
{
    char name[256];
    place p;
    size_t n = strlen(t->info.name), n_suffix = sizeof K3_PACK_SCALE - 1;
    if (n <= n_suffix || n >= sizeof name || strcmp(t->info.name + n - n_suffix, K3_PACK_SCALE) != 0)
        return 0;
    snprintf(name, sizeof name, "%.*s", (int)(n - n_suffix), t->info.name);
    if (find_role(b, &p, name) != FOUND || !may_be_packed(p.role))
        return 0;
    if (!b->has_index || t->listed) {
        b->out->scales[p.role][p.layer] = &t->info;
        b->out->trunk_bytes += t->info.bytes;
    }
    return 1;
}

static void place_tensor(builder *b, const k3_pack_tag *pack, k3_st_tensor *t)
{
    place p;
    if (pack->is_packed && (k3_pack_is_padding(t->info.name) || place_scale(b, t)))
        return;
    switch (find_role(b, &p, t->info.name)) {
    case FOUND:
        if (b->has_index && !t->listed)
            return; /* reported as missing: the index and the files must agree on what the model needs */
        if (*slot_of(b->out, b->hp, &p)) {
            k3_names_add(&b->contrary, "%s, a second tensor for the role of %s", t->info.name, (*slot_of(b->out, b->hp, &p))->name);
            return;
        }
        check_tensor(b, pack, t, &p);
        *slot_of(b->out, b->hp, &p) = &t->info;
        count_bytes(b->out, &t->info, p.role);
        return;
    case PLAIN_EXPERT:
        k3_names_add(&b->plain, "%s", t->info.name);
        return;
    case BEYOND_CONFIG:
        k3_names_add(&b->contrary, "%s", t->info.name);
        return;
    case VISION:
        b->out->n_vision++;
        b->out->vision_bytes += t->info.bytes;
        return;
    case UNKNOWN:
        if (b->out->n_unknown++ == 0)
            snprintf(b->out->first_unknown, sizeof b->out->first_unknown, "%.*s", (int)sizeof b->out->first_unknown - 1, t->info.name);
        return;
    }
}

static void note_missing(builder *b, const place *p)
{
    char name[160];
    if (*slot_of(b->out, b->hp, p))
        return;
    full_name(name, sizeof name, b, p);
    k3_names_add(&b->missing, "%s", name);
}

static void find_missing(builder *b)
{
    for (int r = 0; r < K3_R_W1; r++)
        for (int l = 0; l < b->hp->n_layers; l++)
            if (k3_role_exists(b->hp, (k3_role)r, l))
                note_missing(b, &(place){.role = (k3_role)r, .layer = l});
    for (int l = 0; l < b->hp->n_layers; l++)
        for (int e = 0; b->hp->is_moe[l] && e < b->hp->n_experts; e++)
            for (int r = K3_R_W1; r < K3_N_ROLES; r++)
                note_missing(b, &(place){.role = (k3_role)r, .layer = l, .expert = e});
}

/* Codes without scales, scales without codes, or of another shape. */
static void check_scales(builder *b, const k3_st_file *files, k3_role role, int layer)
{
    const k3_tensor_info *t = b->out->roles[role][layer], *s = b->out->scales[role][layer];
    int is_packed = t && k3_dtype_is_packed(t->dtype);
    if (!is_packed && s)
        k3_names_add(&b->contrary, "%s, scales of a tensor that is not packed", s->name);
    if (!is_packed || !is_type_right(&files[t->shard].pack, t, role))
        return;
    if (!s) {
        k3_names_add(&b->missing, "%s" K3_PACK_SCALE, t->name);
        return;
    }
    int64_t wanted = t->dtype == K3_DT_INT8 ? 1 : t->shape[1] / 64;
    if (s->dtype != K3_DT_F32)
        k3_names_add(&b->types, "%s is not F32", s->name);
    if (s->rank != 2 || s->shape[0] != t->shape[0] || s->shape[1] != wanted || (t->dtype == K3_DT_INT4_G64 && t->shape[1] % 64))
        k3_names_add(&b->shapes, "%s does not fit %s", s->name, t->name);
}

static k3_status report(builder *b, k3_error *err)
{
    struct {
        k3_names *names;
        const char *what;
    } kinds[] = {{&b->missing, b->has_index ? "model.safetensors.index.json never lists needed tensors" : "tensors are in no file"},
                 {&b->shapes, "wrong shapes"},
                 {&b->types, "wrong types"},
                 {&b->contrary, "tensors that contradict config.json"}};
    char text[900];
    size_t n = 0, n_kinds = 0;
    if (b->plain.n) {
        size_t n_plain = b->plain.n;
        return k3_fail(err, K3_E_UNSUPPORTED,
                       "%s: routed experts stored as plain weights (%zu): %s; wanted MXFP4 pairs .weight_packed and .weight_scale", b->path,
                       n_plain, k3_names_end(&b->plain));
    }
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t count = kinds[i].names->n;
        if (count && n < sizeof text)
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s (%zu): %s", n_kinds++ ? "; " : "", kinds[i].what, count,
                                  k3_names_end(kinds[i].names));
    }
    if (!n_kinds)
        return K3_OK;
    k3_status status = b->missing.n ? K3_E_NOT_FOUND : !b->shapes.n && !b->contrary.n ? K3_E_UNSUPPORTED : K3_E_FORMAT;
    return k3_fail(err, status, "%s: %s", b->path, text);
}

static k3_status alloc_experts(builder *b, size_t n_tensors, k3_error *err)
{
    int64_t n_moe = 0;
    for (int l = 0; l < b->hp->n_layers; l++)
        n_moe += b->hp->is_moe[l];
    /* A config may ask for billions; the files bound what is worth a table. */
    int64_t wanted = n_moe * b->hp->n_experts * K3_EXPERT_TENSORS;
    if (wanted > (int64_t)n_tensors + (1 << 20))
        return k3_fail(err, K3_E_NOT_FOUND, "%s: config.json asks for %lld routed-expert tensors, the files hold %zu tensors in all",
                       b->path, (long long)wanted, n_tensors);
    size_t n = (size_t)b->hp->n_layers * (size_t)b->hp->n_experts * K3_EXPERT_TENSORS;
    b->out->experts = calloc(n, sizeof *b->out->experts);
    return b->out->experts ? K3_OK : k3_fail(err, K3_E_NOMEM, "no memory for a table of %zu expert tensors", n);
}

k3_status k3_layout_build(k3_layout *out, const k3_hparams *hp, k3_st_file *files, size_t n_files, int has_index, const char *path,
                          k3_error *err)
{
    size_t n_tensors = 0;
    memset(out, 0, sizeof *out);
    builder b = {.out = out, .hp = hp, .path = path, .has_index = has_index};
    k3_names *const lists[] = {&b.missing, &b.shapes, &b.types, &b.plain, &b.contrary};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        lists[i]->limit = SAMPLES;
    for (size_t f = 0; f < n_files; f++)
        n_tensors += files[f].n_tensors;
    K3_TRY(find_prefix(&b, files, n_files, err));
    K3_TRY(alloc_experts(&b, n_tensors, err));
    for (size_t f = 0; f < n_files; f++)
        for (size_t i = 0; i < files[f].n_tensors; i++)
            place_tensor(&b, &files[f].pack, &files[f].tensors[i]);
    find_missing(&b);
    for (int r = 0; r < K3_R_W1; r++)
        for (int l = 0; l < hp->n_layers; l++)
            check_scales(&b, files, (k3_role)r, l);
    return report(&b, err);
}

void k3_layout_free(k3_layout *layout)
{
    free(layout->experts);
    layout->experts = NULL;
}

const k3_tensor_info *k3_layout_find(const k3_layout *layout, const k3_hparams *hp, k3_role role, int layer, int expert)
{
    if ((unsigned)role >= K3_N_ROLES)
        return NULL;
    if (role < K3_R_INPUT_NORM)
        return layout->roles[role == K3_R_HEAD && hp->tied ? K3_R_EMBED : role][0];
    if (layer < 0 || layer >= hp->n_layers)
        return NULL;
    if (role < K3_R_W1)
        return layout->roles[role][layer];
    if (expert < 0 || expert >= hp->n_experts)
        return NULL;
    return layout->experts[((size_t)layer * (size_t)hp->n_experts + (size_t)expert) * K3_EXPERT_TENSORS + (size_t)(role - K3_R_W1)];
}
