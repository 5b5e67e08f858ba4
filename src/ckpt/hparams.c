#include "ckpt/hparams.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "ckpt/names.h"

typedef enum field_kind {
    INTEGER,          /* low .. high */
    INTEGER_OR_NULL,  /* null is 0 */
    TOKEN,            /* a token id, null (-1), or a list of ids, whose first counts */
    POSITIVE,         /* a finite number > 0 */
    POSITIVE_OR_NULL, /* null is INFINITY */
    GATE_BOUND,       /* -5 <= x < 0 */
    BOOLEAN,
    ALWAYS_TRUE,
    WORD,  /* exactly `word` */
    LAYERS /* a list of one-based layer numbers */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset; /* in reading */
    int64_t low, high;
    const char *word;
} field;

/* What the file says, before it becomes k3_hparams. */
typedef struct reading {
    k3_hparams hp;
    int ignored; /* fields whose value is only checked */
    int kv_heads;
    const k3_json *kda_layers, *full_attn_layers;
} reading;

enum { MAX_DIM = 1 << 24, MAX_EXPERTS = 65536, MAX_HEADS = 65536 };

#define HP(member) offsetof(reading, hp.member)
#define IGNORED offsetof(reading, ignored)

/* The fields that matter (specification 1.2): none has a default, because a model that runs on a guessed field prints fluent garbage. */
static const field text_fields[] = {
    {"hidden_size", INTEGER, HP(hidden), 1, MAX_DIM, NULL},
    {"num_hidden_layers", INTEGER, HP(n_layers), 1, K3_MAX_LAYERS, NULL},
    {"vocab_size", INTEGER, HP(vocab), 1, MAX_DIM, NULL},
    {"max_position_embeddings", INTEGER, HP(context), 1, INT32_MAX, NULL},
    {"rms_norm_eps", POSITIVE, HP(rms_eps), 0, 0, NULL},
    {"hidden_act", WORD, IGNORED, 0, 0, "situ"},
    {"activation_situ_beta", POSITIVE, HP(situ_b1), 0, 0, NULL},
    {"activation_situ_linear_beta", POSITIVE_OR_NULL, HP(situ_b2), 0, 0, NULL},
    {"intermediate_size", INTEGER, HP(dense_inner), 1, MAX_DIM, NULL},
    {"first_k_dense_replace", INTEGER, HP(n_dense), 0, K3_MAX_LAYERS, NULL},
    {"moe_layer_freq", INTEGER, HP(moe_freq), 1, K3_MAX_LAYERS, NULL},
    {"num_experts", INTEGER, HP(n_experts), 1, MAX_EXPERTS, NULL},
    {"num_experts_per_token", INTEGER, HP(top_k), 1, MAX_EXPERTS, NULL},
    {"num_shared_experts", INTEGER, HP(n_shared), 1, 1024, NULL},
    {"moe_intermediate_size", INTEGER, HP(expert_inner), 32, MAX_DIM, NULL},
    {"routed_expert_hidden_size", INTEGER_OR_NULL, HP(latent), 32, MAX_DIM, NULL},
    {"latent_moe_use_norm", BOOLEAN, HP(latent_norm), 0, 0, NULL},
    {"moe_router_activation_func", WORD, IGNORED, 0, 0, "sigmoid"},
    {"moe_renormalize", BOOLEAN, HP(renormalize), 0, 0, NULL},
    {"routed_scaling_factor", POSITIVE, HP(routed_scale), 0, 0, NULL},
    {"topk_method", WORD, IGNORED, 0, 0, "noaux_tc"},
    {"use_grouped_topk", BOOLEAN, IGNORED, 0, 0, NULL},
    {"num_expert_group", INTEGER, IGNORED, 1, 1, NULL},
    {"topk_group", INTEGER, IGNORED, 1, 1, NULL},
    {"num_attention_heads", INTEGER, HP(mla_heads), 1, MAX_HEADS, NULL},
    {"num_key_value_heads", INTEGER, offsetof(reading, kv_heads), 1, MAX_HEADS, NULL},
    {"q_lora_rank", INTEGER, HP(q_lora), 1, MAX_DIM, NULL},
    {"kv_lora_rank", INTEGER, HP(kv_lora), 1, MAX_DIM, NULL},
    {"qk_nope_head_dim", INTEGER, HP(nope), 1, 65536, NULL},
    {"qk_rope_head_dim", INTEGER, HP(rope), 1, 65536, NULL},
    {"v_head_dim", INTEGER, HP(v_dim), 1, 65536, NULL},
    {"mla_use_nope", ALWAYS_TRUE, IGNORED, 0, 0, NULL},
    {"mla_use_output_gate", BOOLEAN, HP(mla_gate), 0, 0, NULL},
    {"attn_res_block_size", INTEGER, HP(attn_res_block), 1, K3_MAX_LAYERS, NULL},
    {"num_nextn_predict_layers", INTEGER, HP(n_nextn), 0, K3_MAX_LAYERS, NULL},
};

/* The wrapper repeats these; where text_config is silent, the wrapper's value counts. */
static const field shared_fields[] = {
    {"tie_word_embeddings", BOOLEAN, HP(tied), 0, 0, NULL},
    {"bos_token_id", TOKEN, HP(bos), 0, 0, NULL},
    {"eos_token_id", TOKEN, HP(eos), 0, 0, NULL},
    {"pad_token_id", TOKEN, HP(pad), 0, 0, NULL},
};

static const field kda_fields[] = {
    {"num_heads", INTEGER, HP(kda_heads), 1, MAX_HEADS, NULL},
    {"head_dim", INTEGER, HP(kda_dim), 1, 65536, NULL},
    {"short_conv_kernel_size", INTEGER, HP(conv_width), 2, 8, NULL},
    {"gate_lower_bound", GATE_BOUND, HP(gate_lower), 0, 0, NULL},
    {"use_full_rank_gate", BOOLEAN, HP(full_rank_gate), 0, 0, NULL},
    {"kda_layers", LAYERS, offsetof(reading, kda_layers), 0, 0, NULL},
    {"full_attn_layers", LAYERS, offsetof(reading, full_attn_layers), 0, 0, NULL},
};

/* Written by the library that saved the file, or about training, images or storage: no influence on the text model. */
static const char *const boilerplate[] = {
    "_attn_implementation",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "chunk_size_feed_forward",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "ignore_index",
    "image_placeholder",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "linear_attn_config",
    "max_length",
    "media_placeholder_token_id",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "prefix",
    "problem_type",
    "pruned_heads",
    "quantization_config",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "text_config",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
    "vision_config",
};

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* The objects that hold fields; `outer` is NULL in a flat file. */
typedef struct config_file {
    const char *path;
    const k3_json *text, *outer, *kda;
} config_file;

static const k3_json *find(const config_file *file, const field *f, size_t i_table)
{
    if (i_table == 2)
        return k3_json_get(file->kda, f->name);
    const k3_json *value = k3_json_get(file->text, f->name);
    int is_silent = !value || (value->type == K3_JSON_NULL && k3_json_get(file->outer, f->name));
    return is_silent && i_table == 1 ? k3_json_get(file->outer, f->name) : value;
}

static const struct {
    const field *fields;
    size_t n;
    const char *prefix;
} tables[] = {{text_fields, COUNT(text_fields), ""},
              {shared_fields, COUNT(shared_fields), ""},
              {kda_fields, COUNT(kda_fields), "linear_attn_config."}};

/* How a value looks, for messages: its spelling, cut to fit. */
static const char *spelling(char *room, size_t size, const k3_json *value)
{
    static const char *const words[] = {"null", "false", "true", "", "", "a list", "an object"};
    if (value->type == K3_JSON_NUMBER)
        snprintf(room, size, "%.40s", value->text);
    else if (value->type == K3_JSON_STRING)
        snprintf(room, size, "\"%.40s\"", value->text);
    else
        snprintf(room, size, "%s", words[value->type]);
    for (char *c = room; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return room;
}

static k3_status refuse(const config_file *file, k3_status status, const k3_json *value, const char *prefix, const char *name,
                        const char *wanted, k3_error *err)
{
    char found[64];
    return k3_fail(err, status, "%s: line %u, column %u: %s%s is %s, wanted %s", file->path, value->line, value->column, prefix, name,
                   spelling(found, sizeof found, value), wanted);
}

static k3_status check_missing(const config_file *file, k3_error *err)
{
    k3_names missing = {0};
    for (size_t t = 0; t < COUNT(tables); t++) {
        if (t == 2 && !file->kda) {
            k3_names_add(&missing, "linear_attn_config");
            break;
        }
        for (size_t i = 0; i < tables[t].n; i++)
            if (!find(file, &tables[t].fields[i], t))
                k3_names_add(&missing, "%s%s", tables[t].prefix, tables[t].fields[i].name);
    }
    if (!missing.n)
        return K3_OK;
    return k3_fail(err, K3_E_FORMAT, "%s%s lacks %zu field%s that k3 does not guess: %s. Fetch the model's own config.json again",
                   file->path, file->outer ? " (text_config)" : "", missing.n, missing.n == 1 ? "" : "s", k3_names_end(&missing));
}

static k3_status read_integer(const config_file *file, int *out, const field *f, const k3_json *value, const char *prefix, k3_error *err)
{
    char wanted[96];
    int64_t x = 0;
    if (f->kind == INTEGER_OR_NULL && value->type == K3_JSON_NULL) {
        *out = 0;
        return K3_OK;
    }
    if (f->low == f->high)
        snprintf(wanted, sizeof wanted, "%lld (nothing else is implemented)", (long long)f->low);
    else
        snprintf(wanted, sizeof wanted, "an integer from %lld to %lld%s", (long long)f->low, (long long)f->high,
                 f->kind == INTEGER_OR_NULL ? ", or null" : "");
    if (!k3_json_int(value, &x))
        return refuse(file, K3_E_FORMAT, value, prefix, f->name, wanted, err);
    if (x < f->low || x > f->high)
        return refuse(file, f->low == f->high ? K3_E_UNSUPPORTED : K3_E_FORMAT, value, prefix, f->name, wanted, err);
    *out = (int)x;
    return K3_OK;
}

static k3_status read_real(const config_file *file, float *out, const field *f, const k3_json *value, const char *prefix, k3_error *err)
{
    double x = 0;
    if (f->kind == POSITIVE_OR_NULL && value->type == K3_JSON_NULL) {
        *out = INFINITY;
        return K3_OK;
    }
    const char *wanted = f->kind == GATE_BOUND ? "a number from -5 to below 0" : "a finite number above 0";
    if (!k3_json_double(value, &x))
        return refuse(file, K3_E_FORMAT, value, prefix, f->name, wanted, err);
    *out = (float)x;
    if (f->kind == GATE_BOUND ? !(x >= -5 && *out < 0) : !(*out > 0 && isfinite(*out)))
        return refuse(file, f->kind == GATE_BOUND ? K3_E_UNSUPPORTED : K3_E_FORMAT, value, prefix, f->name, wanted, err);
    return K3_OK;
}

static k3_status read_field(const config_file *file, reading *r, const field *f, const k3_json *value, const char *prefix, k3_error *err)
{
    void *out = (char *)r + f->offset;
    int is_boolean = value->type == K3_JSON_TRUE || value->type == K3_JSON_FALSE;
    char wanted[64];
    switch (f->kind) {
    case INTEGER:
    case INTEGER_OR_NULL:
        return read_integer(file, out, f, value, prefix, err);
    case POSITIVE:
    case POSITIVE_OR_NULL:
    case GATE_BOUND:
        return read_real(file, out, f, value, prefix, err);
    case BOOLEAN:
        if (!is_boolean)
            return refuse(file, K3_E_FORMAT, value, prefix, f->name, "true or false", err);
        *(int *)out = value->type == K3_JSON_TRUE;
        return K3_OK;
    case ALWAYS_TRUE:
        if (value->type != K3_JSON_TRUE)
            return refuse(file, is_boolean ? K3_E_UNSUPPORTED : K3_E_FORMAT, value, prefix, f->name, "true (nothing else is implemented)",
                          err);
        return K3_OK;
    case WORD:
        snprintf(wanted, sizeof wanted, "\"%s\" (nothing else is implemented)", f->word);
        if (!k3_json_text_is(value, f->word))
            return refuse(file, value->type == K3_JSON_STRING ? K3_E_UNSUPPORTED : K3_E_FORMAT, value, prefix, f->name, wanted, err);
        return K3_OK;
    case LAYERS:
        if (value->type != K3_JSON_ARRAY)
            return refuse(file, K3_E_FORMAT, value, prefix, f->name, "a list of layer numbers", err);
        *(const k3_json **)out = value;
        return K3_OK;
    case TOKEN:
        break; /* after vocab_size is known: read_token */
    }
    return K3_OK;
}

static k3_status read_token(const config_file *file, int *out, const field *f, const k3_json *value, int vocab, k3_error *err)
{
    char wanted[96];
    int64_t id = 0;
    snprintf(wanted, sizeof wanted, "a token id below vocab_size %d, a list of such ids, or null", vocab);
    if (value->type == K3_JSON_NULL) {
        *out = -1;
        return K3_OK;
    }
    const k3_json *item = value->type == K3_JSON_ARRAY ? value->first : value;
    if (!item)
        return refuse(file, K3_E_FORMAT, value, "", f->name, wanted, err);
    int is_first = 1;
    for (; item; item = value->type == K3_JSON_ARRAY ? item->next : NULL) {
        if (!k3_json_int(item, &id) || id < 0 || id >= vocab)
            return refuse(file, K3_E_FORMAT, item, "", f->name, wanted, err);
        if (is_first)
            *out = (int)id;
        is_first = 0;
    }
    return K3_OK;
}

static k3_status read_fields(const config_file *file, reading *r, k3_error *err)
{
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].n; i++)
            K3_TRY(read_field(file, r, &tables[t].fields[i], find(file, &tables[t].fields[i], t), tables[t].prefix, err));
    for (size_t i = 0; i < COUNT(shared_fields); i++) {
        const field *f = &shared_fields[i];
        if (f->kind == TOKEN)
            K3_TRY(read_token(file, (int *)(void *)((char *)r + f->offset), f, find(file, f, 1), r->hp.vocab, err));
    }
    return K3_OK;
}

/* Marks the list's layers with `mark`. Entries are one-based: a 0 means that the writer counted from zero. */
static k3_status read_layers(const config_file *file, unsigned char *marks, const k3_json *list, const char *name, unsigned char mark,
                             int n_layers, k3_error *err)
{
    char wanted[96];
    snprintf(wanted, sizeof wanted, "layer numbers from 1 to num_hidden_layers %d", n_layers);
    for (const k3_json *v = list->first; v; v = v->next) {
        int64_t layer = 0;
        if (!k3_json_int(v, &layer) || layer < 1 || layer > n_layers)
            return refuse(file, K3_E_FORMAT, v, "an entry of linear_attn_config.", name, wanted, err);
        if (marks[layer - 1])
            return k3_fail(err, K3_E_FORMAT,
                           "%s: line %u, column %u: layer %lld is %s, wanted each layer once in kda_layers or full_attn_layers", file->path,
                           v->line, v->column, (long long)layer, marks[layer - 1] == mark ? "twice in one list" : "in both lists");
        marks[layer - 1] = mark;
    }
    return K3_OK;
}

static k3_status map_layers(const config_file *file, reading *r, k3_error *err)
{
    enum { KDA = 1, MLA = 2 };
    unsigned char marks[K3_MAX_LAYERS] = {0};
    k3_names missing = {0};
    K3_TRY(read_layers(file, marks, r->kda_layers, "kda_layers", KDA, r->hp.n_layers, err));
    K3_TRY(read_layers(file, marks, r->full_attn_layers, "full_attn_layers", MLA, r->hp.n_layers, err));
    for (int l = 0; l < r->hp.n_layers; l++) {
        if (!marks[l])
            k3_names_add(&missing, "%d", l + 1);
        r->hp.is_mla[l] = marks[l] == MLA;
        r->hp.is_moe[l] = l >= r->hp.n_dense && l % r->hp.moe_freq == 0;
    }
    if (missing.n)
        return k3_fail(err, K3_E_FORMAT, "%s: line %u, column %u: layer %s (of 1 to %d) is in neither kda_layers nor full_attn_layers",
                       file->path, r->kda_layers->line, r->kda_layers->column, k3_names_end(&missing), r->hp.n_layers);
    return K3_OK;
}

static k3_status check_relations(const config_file *file, reading *r, k3_error *err)
{
    k3_hparams *hp = &r->hp;
    if (hp->top_k > hp->n_experts)
        return k3_fail(err, K3_E_FORMAT, "%s: num_experts_per_token is %d, wanted at most num_experts %d", file->path, hp->top_k,
                       hp->n_experts);
    if (r->kv_heads != hp->mla_heads)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: num_key_value_heads is %d, wanted num_attention_heads %d", file->path, r->kv_heads,
                       hp->mla_heads);
    if (hp->n_dense > hp->n_layers)
        return k3_fail(err, K3_E_FORMAT, "%s: first_k_dense_replace is %d, wanted at most num_hidden_layers %d", file->path, hp->n_dense,
                       hp->n_layers);
    if (!hp->full_rank_gate)
        return k3_fail(err, K3_E_UNSUPPORTED,
                       "%s: linear_attn_config.use_full_rank_gate is false, wanted true (nothing else is implemented)", file->path);
    const struct {
        const char *name;
        int width;
    } blocks[] = {{"moe_intermediate_size", hp->expert_inner},
                  {hp->latent ? "routed_expert_hidden_size" : "hidden_size", hp->latent ? hp->latent : hp->hidden}};
    for (size_t i = 0; i < COUNT(blocks); i++)
        if (blocks[i].width % 32)
            return k3_fail(err, K3_E_UNSUPPORTED, "%s: %s is %d, wanted a multiple of 32 (the MXFP4 block)", file->path, blocks[i].name,
                           blocks[i].width);
    /* Widths that are products; each is one side of a matrix. */
    const struct {
        const char *name;
        int64_t width;
    } products[] = {{"linear_attn_config.num_heads * head_dim", (int64_t)hp->kda_heads * hp->kda_dim},
                    {"num_attention_heads * (qk_nope_head_dim + qk_rope_head_dim)", (int64_t)hp->mla_heads * (hp->nope + hp->rope)},
                    {"num_attention_heads * (qk_nope_head_dim + v_head_dim)", (int64_t)hp->mla_heads * (hp->nope + hp->v_dim)},
                    {"num_shared_experts * moe_intermediate_size", (int64_t)hp->n_shared * hp->expert_inner}};
    for (size_t i = 0; i < COUNT(products); i++)
        if (products[i].width > MAX_DIM)
            return k3_fail(err, K3_E_UNSUPPORTED, "%s: %s is %lld, wanted at most %d", file->path, products[i].name,
                           (long long)products[i].width, MAX_DIM);
    hp->shared_inner = hp->n_shared * hp->expert_inner;
    return K3_OK;
}

static int is_known(const k3_json *member)
{
    for (size_t i = 0; i < COUNT(boilerplate); i++)
        if (strcmp(member->key, boilerplate[i]) == 0)
            return 1;
    for (size_t t = 0; t < 2; t++)
        for (size_t i = 0; i < tables[t].n; i++)
            if (strcmp(member->key, tables[t].fields[i].name) == 0)
                return 1;
    return 0;
}

static void find_unknown(k3_names *unknown, const config_file *file)
{
    const k3_json *const objects[] = {file->text, file->outer};
    for (size_t i = 0; i < COUNT(objects); i++)
        for (const k3_json *m = objects[i] ? objects[i]->first : NULL; m; m = m->next)
            if (!is_known(m))
                k3_names_add(unknown, "%s", m->key);
    for (const k3_json *m = file->kda->first; m; m = m->next) {
        size_t i = 0;
        while (i < COUNT(kda_fields) && strcmp(m->key, kda_fields[i].name) != 0)
            i++;
        if (i == COUNT(kda_fields))
            k3_names_add(unknown, "linear_attn_config.%s", m->key);
    }
}

/* Which objects hold the fields, and that the file is about this family of models at all. */
static k3_status find_objects(config_file *file, const k3_json *root, k3_error *err)
{
    if (root->type != K3_JSON_OBJECT)
        return refuse(file, K3_E_FORMAT, root, "", "the file", "an object", err);
    const k3_json *text = k3_json_get(root, "text_config");
    file->text = text ? text : root;
    file->outer = text ? root : NULL;
    if (file->text->type != K3_JSON_OBJECT)
        return refuse(file, K3_E_FORMAT, text, "", "text_config", "an object", err);
    const k3_json *const objects[] = {root, file->text};
    for (size_t i = 0; i < COUNT(objects); i++) {
        const k3_json *type = k3_json_get(objects[i], "model_type");
        if (type && !k3_json_text_is(type, "kimi_k3") && !k3_json_text_is(type, "kimi_linear"))
            return refuse(file, K3_E_UNSUPPORTED, type, "", "model_type", "\"kimi_k3\" or \"kimi_linear\": k3 runs no other model", err);
    }
    file->kda = k3_json_get(file->text, "linear_attn_config");
    if (file->kda && file->kda->type != K3_JSON_OBJECT)
        return refuse(file, K3_E_FORMAT, file->kda, "", "linear_attn_config", "an object", err);
    const k3_json *quantization = k3_json_get(file->text, "quantization_config");
    if (!quantization)
        quantization = k3_json_get(root, "quantization_config");
    const k3_json *format = k3_json_get(quantization, "format");
    if (format && !k3_json_text_is(format, "mxfp4-pack-quantized"))
        return refuse(file, K3_E_UNSUPPORTED, format, "quantization_config.", "format", "\"mxfp4-pack-quantized\"", err);
    return K3_OK;
}

static k3_status read_config(k3_hparams *hp, k3_names *unknown, config_file *file, const k3_json *root, k3_error *err)
{
    reading r = {0};
    K3_TRY(find_objects(file, root, err));
    K3_TRY(check_missing(file, err));
    K3_TRY(read_fields(file, &r, err));
    K3_TRY(check_relations(file, &r, err));
    K3_TRY(map_layers(file, &r, err));
    find_unknown(unknown, file);
    *hp = r.hp;
    return K3_OK;
}

k3_status k3_hparams_parse(k3_hparams *hp, char *warning, size_t size, const char *text, size_t n_bytes, const char *path, k3_error *err)
{
    const k3_json *root = NULL;
    if (warning && size)
        *warning = 0;
    k3_status status = k3_json_parse(&root, text, n_bytes, K3_JSON_NONFINITE | K3_JSON_UNIQUE_KEYS | K3_JSON_SURROGATES, err);
    if (status != K3_OK)
        return k3_fail_within(err, status, "%s: ", path);
    config_file file = {.path = path};
    k3_names unknown = {0};
    status = read_config(hp, &unknown, &file, root, err);
    if (status == K3_OK && unknown.n && warning)
        snprintf(warning, size, "%s: %zu unknown field%s ignored: %s", path, unknown.n, unknown.n == 1 ? "" : "s", k3_names_end(&unknown));
    k3_json_free(root);
    return status;
}
