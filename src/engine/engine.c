#include "engine/engine.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A packed trunk is what it is. */
static k3_status take_packed(k3_engine *engine, const char *wanted, k3_error *err)
{
    const char *packed = k3_ckpt_packed(engine->ckpt);
    if (!packed || strcmp(packed, "bf16") == 0)
        return K3_OK;
    if (wanted && strcmp(wanted, packed) != 0)
        return k3_fail(err, K3_E_INVALID,
                       "%s: holds an %s trunk and no other, %s was asked for; leave the trunk out or say %s, or open the model that it was "
                       "packed from",
                       k3_ckpt_folder(engine->ckpt), packed, wanted, packed);
    engine->trunk = strcmp(packed, "int8") == 0 ? K3_TRUNK_INT8 : K3_TRUNK_INT4;
    engine->has_trunk = 1;
    return K3_OK;
}

static k3_status parse_trunk(k3_engine *engine, const k3_config *config, k3_error *err)
{
    const char *name = config->trunk ? config->trunk : "auto";
    int is_auto = strcmp(name, "auto") == 0;
    k3_trunk *out = &engine->trunk;
    if (config->exact && !is_auto && strcmp(name, "bf16") != 0)
        return k3_fail(err, K3_E_INVALID, "trunk \"%s\": exact mode computes with the stored bf16 trunk; leave the trunk out or say bf16",
                       name);
    if (config->exact || strcmp(name, "bf16") == 0)
        *out = K3_TRUNK_BF16;
    else if (strcmp(name, "int8") == 0)
        *out = K3_TRUNK_INT8;
    else if (strcmp(name, "int4") == 0)
        *out = K3_TRUNK_INT4;
    else if (!is_auto)
        return k3_fail(err, K3_E_INVALID, "trunk \"%s\": auto, bf16, int8 or int4 wanted", name);
    engine->has_trunk = config->exact || !is_auto;
    return take_packed(engine, config->exact ? "exact mode with a bf16 trunk" : is_auto ? NULL : name, err);
}

/* A model folder without tiktoken.model works with ids; one whose vocabulary is broken does not open. */
static k3_status open_vocab(k3_engine *engine, k3_error *err)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/tiktoken.model", k3_ckpt_folder(engine->ckpt));
    if (!k3_os_exists(path))
        return K3_OK;
    return k3_vocab_open(&engine->vocab, k3_ckpt_folder(engine->ckpt), engine->hp->vocab, err);
}

static uint64_t mix_hash(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    return h * 0xff51afd7ed558ccdu;
}

uint64_t k3_engine_model(const k3_engine *engine)
{
    uint64_t experts = 0, h = mix_hash(k3_ckpt_total_bytes(engine->ckpt, &experts), k3_ckpt_n_params(engine->ckpt));
    return mix_hash(mix_hash(h, experts), (uint64_t)engine->hp->vocab);
}

static uint64_t fingerprint_of(const k3_engine *engine)
{
    const k3_hparams *hp = engine->hp;
    uint64_t experts = 0, h = mix_hash(k3_ckpt_total_bytes(engine->ckpt, &experts), experts);
    int dims[] = {hp->hidden,     hp->n_layers, hp->vocab, hp->kda_heads,           hp->kda_dim,
                  hp->conv_width, hp->kv_lora,  hp->rope,  (int)engine->cache_type, (int)engine->trunk};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        h = mix_hash(h, (uint64_t)dims[i]);
    for (int l = 0; l < hp->n_layers; l++)
        h = mix_hash(h, hp->is_mla[l]);
    return h;
}

/* What one token costs beside the trunk: experts, the three products of a KDA state (with k, of k and v, with q), and, for each token
 * before it, the row of the latent cache that every head multiplies twice. Sums, norms and other work of single elements is not counted. */
static void count_work(k3_engine *engine, uint64_t moe_layers)
{
    const k3_hparams *hp = engine->hp;
    k3_info *info = &engine->info;
    uint64_t mla_layers = 0, D = (uint64_t)hp->kda_dim, width = (uint64_t)(hp->latent ? hp->latent : hp->hidden);
    for (int l = 0; l < hp->n_layers; l++)
        mla_layers += hp->is_mla[l];
    info->token_bytes += moe_layers * (uint64_t)hp->top_k * k3_experts_one_bytes(hp);
    info->state_bytes = 2 * k3_state_fixed_bytes(hp);
    info->token_macs += moe_layers * (uint64_t)hp->top_k * 3 * width * (uint64_t)hp->expert_inner;
    info->token_macs += ((uint64_t)hp->n_layers - mla_layers) * (uint64_t)hp->kda_heads * 3 * D * D;
    info->context_bytes = mla_layers * (uint64_t)(hp->kv_lora + hp->rope) * (engine->cache_type == K3_F32 ? 4 : 2);
    info->context_macs = mla_layers * (uint64_t)hp->mla_heads * (uint64_t)(2 * hp->kv_lora + hp->rope);
}

static void describe(k3_engine *engine)
{
    const k3_hparams *hp = engine->hp;
    k3_info *info = &engine->info;
    uint64_t experts = 0, moe_layers = 0;
    k3_ckpt_total_bytes(engine->ckpt, &experts);
    for (int l = 0; l < hp->n_layers; l++)
        moe_layers += hp->is_moe[l];
    const char *products = engine->config.exact ? "f32" : engine->trunk == K3_TRUNK_BF16 ? "bf16" : "int8";
    *info = (k3_info){.vocab_size = hp->vocab,
                      .hidden_size = hp->hidden,
                      .n_layers = hp->n_layers,
                      .n_experts = hp->n_experts,
                      .n_experts_per_token = hp->top_k,
                      .context_length = hp->context,
                      .bos_id = hp->bos,
                      .eos_id = hp->eos,
                      .pass_rows = engine->chunk_rows,
                      .has_tokenizer = engine->vocab != NULL,
                      .n_params = k3_ckpt_n_params(engine->ckpt),
                      .trunk_bytes = engine->weights->bytes,
                      .expert_bytes = experts,
                      .token_bytes = engine->weights->token_bytes,
                      .token_macs = engine->weights->token_macs,
                      .products = engine->be->is_device ? NULL : products,
                      .plan = engine->plan};
    count_work(engine, moe_layers);
}

static char *copy_text(const char *text, int *failed)
{
    char *copy = text ? strdup(text) : NULL;
    *failed |= text && !copy;
    return copy;
}

static k3_status keep_config(k3_engine *engine, const k3_config *config, k3_error *err)
{
    int failed = 0;
    engine->config = *config;
    engine->config.trunk = NULL; /* read once */
    engine->config.backend = engine->backend_name = copy_text(config->backend, &failed);
    engine->config.expert_devices = engine->expert_devices = copy_text(config->expert_devices, &failed);
    engine->config.kernel_cache = engine->kernel_cache = copy_text(config->kernel_cache, &failed);
    engine->config.kernels = engine->kernels = copy_text(config->kernels, &failed);
    engine->config.usage = engine->usage = copy_text(config->usage, &failed);
    return failed ? k3_fail(err, K3_E_NOMEM, "engine: out of memory") : K3_OK;
}

k3_status k3_engine_prepare(k3_engine *engine, const char *model, const k3_config *config, k3_error *err)
{
    K3_TRY(keep_config(engine, config, err));
    if (config->chunk_rows < 0 || config->chunk_rows > 65536)
        return k3_fail(err, K3_E_INVALID, "chunk_rows: %d found, 0 (chosen) to 65536 wanted", config->chunk_rows);
    k3_os_allow_files();
    K3_TRY(k3_ckpt_open(&engine->ckpt, model, err));
    engine->planning = calloc(1, sizeof *engine->planning);
    if (!engine->planning)
        return k3_fail(err, K3_E_NOMEM, "engine: out of memory");
    k3_drives_find(&engine->planning->drives, engine->ckpt);
    K3_TRY(k3_io_meter_open(&engine->meter, err));
    engine->hp = k3_ckpt_hparams(engine->ckpt);
    engine->cache_type = config->exact ? K3_F32 : K3_BF16;
    engine->chunk_rows = config->chunk_rows;
    return parse_trunk(engine, config, err);
}

static k3_status open_parts(k3_engine *engine, const char *model, const k3_config *config, k3_error *err)
{
    K3_TRY(k3_engine_prepare(engine, model, config, err));
    K3_TRY(open_vocab(engine, err));
    if (engine->vocab)
        K3_TRY(k3_shared_trie_open(&engine->trie, engine->vocab, err));
    K3_TRY(k3_machine_open(engine, err));
    engine->fingerprint = fingerprint_of(engine);
    describe(engine);
    return K3_OK;
}

k3_status k3_engine_open_on(k3_engine **out, const char *model, const k3_config *config, k3_backend_opener open, k3_error *err)
{
    static const k3_config defaults;
    *out = NULL;
    k3_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return k3_fail(err, K3_E_NOMEM, "engine: out of memory");
    engine->open_backend = open;
    k3_status status = open_parts(engine, model, config ? config : &defaults, err);
    if (status != K3_OK) {
        k3_engine_close(engine);
        return status;
    }
    *out = engine;
    return K3_OK;
}

k3_status k3_engine_open(k3_engine **out, const char *model, const k3_config *config, k3_error *err)
{
    return k3_engine_open_on(out, model, config, k3_backend_open, err);
}

void k3_engine_close(k3_engine *engine)
{
    if (!engine)
        return;
    k3_packing_free(&engine->packing);
    k3_machine_close(engine);
    k3_io_meter_close(engine->meter);
    k3_shared_trie_close(engine->trie);
    k3_vocab_close(engine->vocab);
    k3_ckpt_close(engine->ckpt);
    free(engine->planning);
    free(engine->backend_name);
    free(engine->expert_devices);
    free(engine->kernel_cache);
    free(engine->kernels);
    free(engine->usage);
    free(engine->sessions);
    free(engine);
}

void k3_engine_cancel(k3_engine *engine, int on)
{
    atomic_store(&engine->is_cancelled, on);
}

const k3_info *k3_engine_info(const k3_engine *engine)
{
    return &engine->info;
}

k3_status k3_devices(char **text, k3_error *err)
{
    k3_backend *cpu;
    char *list = NULL;
    k3_error why = {K3_OK, ""};
    *text = NULL;
    K3_TRY(k3_backend_open(&cpu, &(k3_backend_config){.name = "cpu"}, NULL, 0, err));
    k3_status status = k3_backend_devices(&list, &why);
    const char *line = cpu->describe(cpu);
    size_t size = (list ? strlen(list) : 0) + strlen(line) + sizeof why.text + 32;
    *text = list ? malloc(size) : NULL;
    if (*text && status == K3_OK)
        snprintf(*text, size, "%scpu  %s\n", list, line);
    else if (*text)
        snprintf(*text, size, "no GPU: %s\ncpu  %s\n", why.text, line);
    cpu->close(cpu);
    free(list);
    return *text ? K3_OK : k3_fail(err, K3_E_NOMEM, "devices: out of memory");
}

k3_status k3_inspect(char **text, const char *model, k3_error *err)
{
    *text = NULL;
    k3_ckpt *ckpt = NULL;
    k3_vocab *vocab = NULL;
    k3_status status = k3_ckpt_open(&ckpt, model, err);
    if (status == K3_OK) {
        *text = k3_ckpt_describe(ckpt);
        k3_engine probe = {.ckpt = ckpt, .hp = k3_ckpt_hparams(ckpt)};
        status = open_vocab(&probe, err);
        vocab = probe.vocab;
    }
    k3_vocab_close(vocab);
    k3_ckpt_close(ckpt);
    if (status == K3_OK && !*text)
        status = k3_fail(err, K3_E_NOMEM, "inspect: out of memory");
    return status;
}
