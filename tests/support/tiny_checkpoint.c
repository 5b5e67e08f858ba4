#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ftw.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADS = 4, Q_LORA = 64, KV_LORA = 32, NOPE = 24, ROPE = 8, V_DIM = 16, DENSE = 96, SHARED = 2 * TINY_EXPERT_INNER, CONV = 4 };

static void *check(void *p)
{
    if (!p)
        fail_msg("no memory");
    return p;
}

/* ---- random numbers ---------------------------------------------------------------------------------------- */

static uint64_t next_random(tiny_checkpoint *tiny)
{
    uint64_t z = tiny->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Nearly normal, variance 1: the sum of four 16-bit uniform numbers. */
static float next_normal(tiny_checkpoint *tiny)
{
    uint64_t z = next_random(tiny);
    double sum = (double)(z & 0xffff) + (double)(z >> 16 & 0xffff) + (double)(z >> 32 & 0xffff) + (double)(z >> 48);
    return (float)((sum / 65536 - 2) * 1.7320508075688772);
}

static void put_float(tiny_tensor *t, size_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (strcmp(t->dtype, "F32") == 0) {
        memcpy(t->data + 4 * i, &bits, 4);
    } else {
        uint16_t high = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        memcpy(t->data + 2 * i, &high, 2);
    }
}

/* ---- tensors ----------------------------------------------------------------------------------------------- */

static size_t dtype_bytes(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 ? 4 : strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 ? 2 : 1;
}

tiny_tensor *tiny_add(tiny_checkpoint *tiny, int shard, const char *name, const char *dtype, int rank, const int64_t *shape)
{
    if ((tiny->n_tensors & (tiny->n_tensors - 1)) == 0)
        tiny->tensors = check(realloc(tiny->tensors, (tiny->n_tensors ? tiny->n_tensors * 2 : 1) * sizeof *tiny->tensors));
    tiny_tensor *t = &tiny->tensors[tiny->n_tensors++];
    memset(t, 0, sizeof *t);
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype);
    t->rank = rank;
    t->shard = shard;
    t->in_header = t->in_index = 1;
    t->n_bytes = dtype_bytes(dtype);
    for (int i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->n_bytes *= (size_t)shape[i];
    }
    t->data = check(calloc(1, t->n_bytes + 1));
    return t;
}

/* Where the tensors of one layer go and what their names begin with. */
typedef struct site {
    tiny_checkpoint *tiny;
    int shard;
    char prefix[72];
} site;

static tiny_tensor *add(const site *s, const char *tail, const char *dtype, int rank, int64_t a, int64_t b, int64_t c)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s", s->prefix, tail);
    return tiny_add(s->tiny, s->shard, name, dtype, rank, (int64_t[]){a, b, c});
}

static void fill(const site *s, tiny_tensor *t, float mean, float std)
{
    size_t n = t->n_bytes / dtype_bytes(t->dtype);
    for (size_t i = 0; i < n; i++)
        put_float(t, i, mean + std * next_normal(s->tiny));
}

static void matrix(const site *s, const char *tail, int64_t rows, int64_t columns, float gain)
{
    fill(s, add(s, tail, "BF16", 2, rows, columns, 0), 0, gain / sqrtf((float)columns));
}

static void gains(const site *s, const char *tail, const char *dtype, int64_t n)
{
    fill(s, add(s, tail, dtype, 1, n, 0, 0), 1, 0.1f);
}

static void add_vectors(const site *s)
{
    gains(s, "input_layernorm.weight", "BF16", TINY_HIDDEN);
    gains(s, "post_attention_layernorm.weight", "BF16", TINY_HIDDEN);
    gains(s, "self_attention_res_norm.weight", "BF16", TINY_HIDDEN);
    matrix(s, "self_attention_res_proj.weight", 1, TINY_HIDDEN, 1.5f);
    gains(s, "mlp_res_norm.weight", "BF16", TINY_HIDDEN);
    matrix(s, "mlp_res_proj.weight", 1, TINY_HIDDEN, 1.5f);
}

static void add_kda(const site *s)
{
    static const char *const wide[] = {"q", "k", "v", "g"};
    int64_t channels = TINY_KDA_HEADS * TINY_KDA_DIM;
    char tail[64];
    for (int i = 0; i < 4; i++) {
        snprintf(tail, sizeof tail, "self_attn.%s_proj.weight", wide[i]);
        matrix(s, tail, channels, TINY_HIDDEN, 1);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(tail, sizeof tail, "self_attn.%s_conv1d.weight", wide[i]);
        fill(s, add(s, tail, "F32", 3, channels, 1, CONV), 0, 0.4f);
    }
    matrix(s, "self_attn.f_a_proj.weight", TINY_KDA_DIM, TINY_HIDDEN, 1);
    matrix(s, "self_attn.f_b_proj.weight", channels, TINY_KDA_DIM, 1);
    tiny_tensor *a_log = add(s, "self_attn.A_log", "F32", 1, TINY_KDA_DIM, 0, 0);
    for (int h = 0; h < TINY_KDA_HEADS; h++)
        put_float(a_log, (size_t)h, -0.4f + 1.6f * (float)h / (TINY_KDA_HEADS - 1));
    fill(s, add(s, "self_attn.dt_bias", "F32", 1, channels, 0, 0), 0, 0.5f);
    matrix(s, "self_attn.b_proj.weight", TINY_KDA_HEADS, TINY_HIDDEN, 1);
    gains(s, "self_attn.o_norm.weight", "F32", TINY_KDA_DIM);
    matrix(s, "self_attn.o_proj.weight", TINY_HIDDEN, channels, 1);
}

static void add_mla(const site *s)
{
    matrix(s, "self_attn.q_a_proj.weight", Q_LORA, TINY_HIDDEN, 1);
    gains(s, "self_attn.q_a_layernorm.weight", "BF16", Q_LORA);
    matrix(s, "self_attn.q_b_proj.weight", HEADS * (NOPE + ROPE), Q_LORA, 1.5f);
    matrix(s, "self_attn.kv_a_proj_with_mqa.weight", KV_LORA + ROPE, TINY_HIDDEN, 1);
    gains(s, "self_attn.kv_a_layernorm.weight", "BF16", KV_LORA);
    matrix(s, "self_attn.kv_b_proj.weight", HEADS * (NOPE + V_DIM), KV_LORA, 1.5f);
    matrix(s, "self_attn.g_proj.weight", HEADS * V_DIM, TINY_HIDDEN, 1);
    matrix(s, "self_attn.o_proj.weight", TINY_HIDDEN, HEADS * V_DIM, 1);
}

/* Codes are uniform over all 16 values (root mean square 2.92); the scale gives the rows the wanted gain. */
static void add_expert_matrix(const site *s, int expert, const char *which, int64_t rows, int64_t columns, double gain)
{
    char tail[80];
    snprintf(tail, sizeof tail, "block_sparse_moe.experts.%d.%s.weight_packed", expert, which);
    tiny_tensor *codes = add(s, tail, "U8", 2, rows, columns / 2, 0);
    for (size_t i = 0; i < codes->n_bytes; i++)
        codes->data[i] = (unsigned char)next_random(s->tiny);
    snprintf(tail, sizeof tail, "block_sparse_moe.experts.%d.%s.weight_scale", expert, which);
    tiny_tensor *scales = add(s, tail, "U8", 2, rows, columns / 32, 0);
    int centre = 127 + (int)lround(log2(gain / (2.92 * sqrt((double)columns))));
    for (size_t i = 0; i < scales->n_bytes; i++)
        scales->data[i] = (unsigned char)(centre + (int)(next_random(s->tiny) % 3) - 1);
}

static void add_moe(const site *s)
{
    matrix(s, "block_sparse_moe.gate.weight", TINY_EXPERTS, TINY_HIDDEN, 1);
    tiny_tensor *bias = add(s, "block_sparse_moe.gate.e_score_correction_bias", "F32", 1, TINY_EXPERTS, 0, 0);
    for (size_t e = 0; e < TINY_EXPERTS; e++)
        put_float(bias, e, (float)(next_random(s->tiny) % 3001) / 10000 - 0.15f);
    matrix(s, "block_sparse_moe.routed_expert_down_proj.weight", TINY_LATENT, TINY_HIDDEN, 1);
    gains(s, "block_sparse_moe.routed_expert_norm.weight", "BF16", TINY_LATENT);
    matrix(s, "block_sparse_moe.routed_expert_up_proj.weight", TINY_HIDDEN, TINY_LATENT, 1);
    matrix(s, "block_sparse_moe.shared_experts.gate_proj.weight", SHARED, TINY_HIDDEN, 3);
    matrix(s, "block_sparse_moe.shared_experts.up_proj.weight", SHARED, TINY_HIDDEN, 6);
    matrix(s, "block_sparse_moe.shared_experts.down_proj.weight", TINY_HIDDEN, SHARED, 1);
    /* Not in id order, as in the release; an expert's six tensors are neighbours. */
    for (int i = 0; i < TINY_EXPERTS; i++) {
        int e = (i * 5 + 3) % TINY_EXPERTS;
        add_expert_matrix(s, e, "w1", TINY_EXPERT_INNER, TINY_LATENT, 3);
        add_expert_matrix(s, e, "w2", TINY_LATENT, TINY_EXPERT_INNER, 1);
        add_expert_matrix(s, e, "w3", TINY_EXPERT_INNER, TINY_LATENT, 6);
    }
}

tiny_checkpoint *tiny_new(int n_shards)
{
    tiny_checkpoint *tiny = check(calloc(1, sizeof *tiny));
    tiny->n_shards = n_shards;
    tiny->has_index = 1;
    tiny->align = 8;
    tiny->metadata = "{\"format\":\"pt\"}";
    tiny->config = tiny_config(1);
    for (int l = 0; l < TINY_LAYERS; l++) {
        site s = {.tiny = tiny, .shard = l * (n_shards > 1 ? n_shards - 1 : 1) / TINY_LAYERS};
        snprintf(s.prefix, sizeof s.prefix, TINY_BODY "layers.%d.", l);
        add_vectors(&s);
        if (l % 4 == 3 || l == TINY_LAYERS - 1)
            add_mla(&s);
        else
            add_kda(&s);
        if (l == 0) {
            matrix(&s, "mlp.gate_proj.weight", DENSE, TINY_HIDDEN, 3);
            matrix(&s, "mlp.up_proj.weight", DENSE, TINY_HIDDEN, 6);
            matrix(&s, "mlp.down_proj.weight", TINY_HIDDEN, DENSE, 1);
        } else {
            add_moe(&s);
        }
    }
    site s = {.tiny = tiny, .shard = n_shards - 1, .prefix = TINY_BODY};
    fill(&s, add(&s, "embed_tokens.weight", "BF16", 2, TINY_VOCAB, TINY_HIDDEN, 0), 0, 1);
    gains(&s, "norm.weight", "BF16", TINY_HIDDEN);
    gains(&s, "output_attn_res_norm.weight", "BF16", TINY_HIDDEN);
    matrix(&s, "output_attn_res_proj.weight", 1, TINY_HIDDEN, 1.5f);
    snprintf(s.prefix, sizeof s.prefix, "language_model.");
    matrix(&s, "lm_head.weight", TINY_VOCAB, TINY_HIDDEN, 3);
    return tiny;
}

void tiny_free(tiny_checkpoint *tiny)
{
    for (size_t i = 0; i < tiny->n_tensors; i++)
        free(tiny->tensors[i].data);
    free(tiny->tensors);
    free(tiny->config);
    free(tiny);
}

tiny_tensor *tiny_find(tiny_checkpoint *tiny, const char *name)
{
    for (size_t i = 0; i < tiny->n_tensors; i++)
        if (strcmp(tiny->tensors[i].name, name) == 0)
            return &tiny->tensors[i];
    fail_msg("the tiny checkpoint has no tensor %s", name);
    return NULL;
}

void tiny_remove(tiny_checkpoint *tiny, const char *name)
{
    tiny_tensor *t = tiny_find(tiny, name);
    free(t->data);
    size_t left = tiny->n_tensors - (size_t)(t - tiny->tensors) - 1;
    memmove(t, t + 1, left * sizeof *t);
    tiny->n_tensors--;
}

/* ---- config.json ------------------------------------------------------------------------------------------- */

static const char text_fields[] =
    "  \"model_type\": \"kimi_linear\",\n"
    "  \"architectures\": [\"KimiLinearForCausalLM\"],\n"
    "  \"hidden_size\": 128,\n"
    "  \"num_hidden_layers\": 13,\n"
    "  \"vocab_size\": 256,\n"
    "  \"rms_norm_eps\": 1e-05,\n"
    "  \"hidden_act\": \"situ\",\n"
    "  \"activation_situ_beta\": 4.0,\n"
    "  \"activation_situ_linear_beta\": 25.0,\n"
    "  \"intermediate_size\": 96,\n"
    "  \"first_k_dense_replace\": 1,\n"
    "  \"moe_layer_freq\": 1,\n"
    "  \"num_experts\": 8,\n"
    "  \"num_experts_per_token\": 2,\n"
    "  \"num_shared_experts\": 2,\n"
    "  \"moe_intermediate_size\": 64,\n"
    "  \"routed_expert_hidden_size\": 64,\n"
    "  \"latent_moe_use_norm\": true,\n"
    "  \"moe_router_activation_func\": \"sigmoid\",\n"
    "  \"moe_renormalize\": true,\n"
    "  \"routed_scaling_factor\": 1.0,\n"
    "  \"topk_method\": \"noaux_tc\",\n"
    "  \"use_grouped_topk\": true,\n"
    "  \"num_expert_group\": 1,\n"
    "  \"topk_group\": 1,\n"
    "  \"num_attention_heads\": 4,\n"
    "  \"num_key_value_heads\": 4,\n"
    "  \"q_lora_rank\": 64,\n"
    "  \"kv_lora_rank\": 32,\n"
    "  \"qk_nope_head_dim\": 24,\n"
    "  \"qk_rope_head_dim\": 8,\n"
    "  \"v_head_dim\": 16,\n"
    "  \"mla_use_nope\": true,\n"
    "  \"mla_use_output_gate\": true,\n"
    "  \"attn_res_block_size\": 3,\n"
    "  \"max_position_embeddings\": 1048576,\n"
    "  \"num_nextn_predict_layers\": 0,\n"
    "  \"tie_word_embeddings\": false,\n"
    "  \"bos_token_id\": 253,\n"
    "  \"eos_token_id\": 255,\n"
    "  \"pad_token_id\": 254,\n"
    "  \"initializer_range\": 0.02,\n"
    "  \"top_k\": 50,\n"
    "  \"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\"},\n"
    "  \"linear_attn_config\": {\n"
    "   \"num_heads\": 4,\n"
    "   \"head_dim\": 16,\n"
    "   \"short_conv_kernel_size\": 4,\n"
    "   \"gate_lower_bound\": -5.0,\n"
    "   \"use_full_rank_gate\": true,\n"
    "   \"kda_layers\": [1, 2, 3, 5, 6, 7, 9, 10, 11],\n"
    "   \"full_attn_layers\": [4, 8, 12, 13]\n"
    "  }\n";

char *tiny_config(int nested)
{
    size_t n = sizeof text_fields + 600;
    char *text = check(malloc(n));
    if (nested)
        snprintf(text, n,
                 "{\n \"architectures\": [\"KimiK3ForConditionalGeneration\"],\n \"model_type\": \"kimi_k3\",\n \"dtype\": \"bfloat16\",\n"
                 " \"tie_word_embeddings\": false,\n \"bos_token_id\": 253,\n \"eos_token_id\": 255,\n \"pad_token_id\": 254,\n"
                 " \"text_config\": {\n%s }\n}\n",
                 text_fields);
    else
        snprintf(text, n, "{\n%s}\n", text_fields);
    return text;
}

void tiny_replace(char **text, const char *from, const char *to)
{
    char *found = strstr(*text, from);
    size_t n_from = strlen(from), n_to = strlen(to), n_out = 0;
    if (!found)
        fail_msg("<%s> is not in the text", from);
    char *out = check(malloc((strlen(*text) + 1) * (n_to + 1)));
    const char *at = *text;
    for (; found; found = strstr(at, from)) {
        memcpy(out + n_out, at, (size_t)(found - at));
        n_out += (size_t)(found - at);
        memcpy(out + n_out, to, n_to);
        n_out += n_to;
        at = found + n_from;
    }
    memcpy(out + n_out, at, strlen(at) + 1);
    free(*text);
    *text = out;
}

/* ---- files ------------------------------------------------------------------------------------------------- */

char *tiny_folder(void)
{
    const char *base = getenv("TMPDIR");
    char path[400];
    snprintf(path, sizeof path, "%s/k3-test-XXXXXX", base && *base ? base : P_tmpdir);
    if (!mkdtemp(path))
        fail_msg("cannot make a folder in %s", path);
    return check(strdup(path));
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info;
    (void)type;
    (void)where;
    return remove(path);
}

void tiny_remove_folder(char *folder)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}

static FILE *open_in(const char *folder, const char *name, const char *mode)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, mode);
    if (!f)
        fail_msg("cannot open %s", path);
    return f;
}

static void put(FILE *f, const void *bytes, size_t n)
{
    if (n && fwrite(bytes, 1, n, f) != n)
        fail_msg("cannot write");
}

void tiny_put_file(const char *folder, const char *name, const void *bytes, size_t n_bytes)
{
    FILE *f = open_in(folder, name, "wb");
    put(f, bytes, n_bytes);
    if (fclose(f) != 0)
        fail_msg("cannot write %s", name);
}

char *tiny_get_file(const char *folder, const char *name, size_t *n_bytes)
{
    FILE *f = open_in(folder, name, "rb");
    fseek(f, 0, SEEK_END);
    *n_bytes = (size_t)ftell(f);
    rewind(f);
    char *bytes = check(malloc(*n_bytes + 1));
    if (fread(bytes, 1, *n_bytes, f) != *n_bytes)
        fail_msg("cannot read %s", name);
    bytes[*n_bytes] = 0;
    fclose(f);
    return bytes;
}

void tiny_shard_name(char name[64], const tiny_checkpoint *tiny, int shard)
{
    if (tiny->n_shards == 1)
        snprintf(name, 64, "model.safetensors");
    else
        snprintf(name, 64, "model-%05d-of-%06d.safetensors", shard + 1, tiny->n_shards);
}

static void put_header_length(unsigned char length[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)(n >> 8 * i);
}

static void write_header(FILE *f, const tiny_checkpoint *tiny, int shard)
{
    char *text = NULL;
    size_t n_text = 0, at = 0;
    const char *comma = "";
    unsigned char length[8];
    FILE *header = check(open_memstream(&text, &n_text));
    fputc('{', header);
    if (tiny->metadata) {
        fprintf(header, "\"__metadata__\":%s", tiny->metadata);
        comma = ",";
    }
    for (size_t i = 0; i < tiny->n_tensors; i++) {
        const tiny_tensor *t = &tiny->tensors[i];
        if (t->shard != shard || !t->in_header)
            continue;
        fprintf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", comma, t->name, t->dtype);
        for (int d = 0; d < t->rank; d++)
            fprintf(header, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        fprintf(header, "],\"data_offsets\":[%zu,%zu]}", at, at + t->n_bytes);
        at += t->n_bytes;
        comma = ",";
    }
    fputc('}', header);
    while ((8 + ftell(header)) % tiny->align)
        fputc(' ', header);
    fclose(header);
    put_header_length(length, n_text);
    put(f, length, 8);
    put(f, text, n_text);
    free(text);
}

static void write_index(const tiny_checkpoint *tiny, const char *folder)
{
    FILE *f = open_in(folder, "model.safetensors.index.json", "wb");
    const char *comma = "";
    size_t total = 0;
    fprintf(f, "{\n  \"weight_map\": {\n");
    for (size_t i = 0; i < tiny->n_tensors; i++) {
        char shard[64];
        const tiny_tensor *t = &tiny->tensors[i];
        tiny_shard_name(shard, tiny, t->shard);
        total += t->n_bytes;
        if (t->in_index) {
            fprintf(f, "%s    \"%s\": \"%s\"", comma, t->name, shard);
            comma = ",\n";
        }
    }
    fprintf(f, "\n  },\n  \"metadata\": {\"total_size\": %zu}\n}\n", total);
    if (fclose(f) != 0)
        fail_msg("cannot write the index");
}

void tiny_write(const tiny_checkpoint *tiny, const char *folder)
{
    if (tiny->config)
        tiny_put_file(folder, "config.json", tiny->config, strlen(tiny->config));
    for (int s = 0; s < tiny->n_shards; s++) {
        char name[64];
        tiny_shard_name(name, tiny, s);
        FILE *f = open_in(folder, name, "wb");
        write_header(f, tiny, s);
        for (size_t i = 0; i < tiny->n_tensors; i++)
            if (tiny->tensors[i].shard == s && tiny->tensors[i].in_header)
                put(f, tiny->tensors[i].data, tiny->tensors[i].n_bytes);
        if (fclose(f) != 0)
            fail_msg("cannot write %s", name);
    }
    if (tiny->has_index)
        write_index(tiny, folder);
}

char *tiny_settle(tiny_checkpoint *tiny)
{
    char *folder = tiny_folder();
    tiny_write(tiny, folder);
    tiny_free(tiny);
    return folder;
}

char *tiny_model;

int tiny_setup(void **state)
{
    (void)state;
    tiny_model = tiny_settle(tiny_new(2));
    return 0;
}

int tiny_teardown(void **state)
{
    (void)state;
    tiny_remove_folder(tiny_model);
    return 0;
}

void tiny_edit_header(const char *folder, const char *shard, const char *from, const char *to)
{
    size_t n = 0;
    char *bytes = tiny_get_file(folder, shard, &n);
    uint64_t n_header = 0;
    unsigned char length[8];
    for (int i = 7; i >= 0; i--)
        n_header = n_header << 8 | (unsigned char)bytes[i];
    char *header = check(strndup(bytes + 8, n_header));
    tiny_replace(&header, from, to);
    put_header_length(length, strlen(header));
    FILE *f = open_in(folder, shard, "wb");
    put(f, length, 8);
    put(f, header, strlen(header));
    put(f, bytes + 8 + n_header, n - 8 - n_header);
    fclose(f);
    free(header);
    free(bytes);
}
