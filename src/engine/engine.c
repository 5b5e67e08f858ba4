#include "engine/engine.h"

#include "base/os.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { K3_CHUNK_ROWS = 256 };

/* The widest trunk that leaves a tenth of the free memory and a gigabyte for everything else; "auto" starts at int8, which reads half of
 * what bf16 reads and stays within a percent of its perplexity (docs/numerics.md). */
static k3_trunk choose_trunk(const k3_ckpt *ckpt)
{
    uint64_t available = k3_os_memory_available(), spare = available / 10 + ((uint64_t)1 << 30);
    uint64_t room = available > spare ? available - spare : available / 2;
    return k3_weights_bytes(ckpt, K3_TRUNK_INT8) <= room ? K3_TRUNK_INT8 : K3_TRUNK_INT4;
}

static k3_status parse_trunk(k3_trunk *out, const k3_config *config, const k3_ckpt *ckpt, k3_error *err)
{
    const char *name = config->trunk ? config->trunk : "auto";
    int is_auto = strcmp(name, "auto") == 0;
    if (config->exact && !is_auto && strcmp(name, "bf16") != 0)
        return k3_fail(err, K3_E_INVALID, "trunk \"%s\": exact mode computes with the stored bf16 trunk; leave the trunk out or say bf16",
                       name);
    if (config->exact || strcmp(name, "bf16") == 0)
        *out = K3_TRUNK_BF16;
    else if (strcmp(name, "int8") == 0)
        *out = K3_TRUNK_INT8;
    else if (strcmp(name, "int4") == 0)
        *out = K3_TRUNK_INT4;
    else if (is_auto)
        *out = choose_trunk(ckpt);
    else
        return k3_fail(err, K3_E_INVALID, "trunk \"%s\": auto, bf16, int8 or int4 wanted", name);
    return K3_OK;
}

static const char *trunk_name(k3_trunk trunk)
{
    return trunk == K3_TRUNK_BF16 ? "bf16" : trunk == K3_TRUNK_INT8 ? "int8" : "int4";
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

static uint64_t fingerprint_of(const k3_engine *engine, k3_trunk trunk)
{
    const k3_hparams *hp = engine->hp;
    uint64_t experts = 0, h = mix_hash(k3_ckpt_total_bytes(engine->ckpt, &experts), experts);
    int dims[] = {hp->hidden,     hp->n_layers, hp->vocab, hp->kda_heads,           hp->kda_dim,
                  hp->conv_width, hp->kv_lora,  hp->rope,  (int)engine->cache_type, (int)trunk};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        h = mix_hash(h, (uint64_t)dims[i]);
    for (int l = 0; l < hp->n_layers; l++)
        h = mix_hash(h, hp->is_mla[l]);
    return h;
}

static void describe(k3_engine *engine, k3_trunk trunk, const k3_config *config)
{
    const k3_hparams *hp = engine->hp;
    k3_info *info = &engine->info;
    uint64_t experts = 0, moe_layers = 0;
    k3_ckpt_total_bytes(engine->ckpt, &experts);
    for (int l = 0; l < hp->n_layers; l++)
        moe_layers += hp->is_moe[l];
    uint64_t one = k3_experts_one_bytes(hp);
    *info = (k3_info){.vocab_size = hp->vocab,
                      .hidden_size = hp->hidden,
                      .n_layers = hp->n_layers,
                      .n_experts = hp->n_experts,
                      .n_experts_per_token = hp->top_k,
                      .context_length = hp->context,
                      .bos_id = hp->bos,
                      .eos_id = hp->eos,
                      .has_tokenizer = engine->vocab != NULL,
                      .n_params = k3_ckpt_n_params(engine->ckpt),
                      .trunk_bytes = engine->weights->bytes,
                      .expert_bytes = experts,
                      .token_bytes = engine->weights->token_bytes + moe_layers * (uint64_t)hp->top_k * one,
                      .plan = engine->plan};
    snprintf(engine->plan, sizeof engine->plan, "%s, trunk %s%s %.2f GB, experts mxfp4 %.2f GB mapped, cache %s, %d rows a pass",
             engine->be->describe(engine->be), trunk_name(trunk), config->exact ? " (exact)" : "", (double)info->trunk_bytes * 1e-9,
             (double)experts * 1e-9, k3_type_name(engine->cache_type), engine->chunk_rows);
}

static k3_status open_parts(k3_engine *engine, const char *model, const k3_config *config, k3_error *err)
{
    if (config->chunk_rows < 0 || config->chunk_rows > 65536)
        return k3_fail(err, K3_E_INVALID, "chunk_rows: %d found, 0 (chosen) to 65536 wanted", config->chunk_rows);
    K3_TRY(k3_ckpt_open(&engine->ckpt, model, err));
    engine->hp = k3_ckpt_hparams(engine->ckpt);
    k3_trunk trunk = K3_TRUNK_BF16;
    K3_TRY(parse_trunk(&trunk, config, engine->ckpt, err));
    K3_TRY(open_vocab(engine, err));
    k3_backend_config backend = {.name = config->backend, .threads = config->threads, .exact = config->exact};
    K3_TRY(k3_backend_open(&engine->be, &backend, NULL, 0, err));
    engine->cache_type = config->exact ? K3_F32 : K3_BF16;
    engine->chunk_rows = config->chunk_rows ? config->chunk_rows : K3_CHUNK_ROWS;
    uint64_t need = k3_weights_bytes(engine->ckpt, trunk), available = k3_os_memory_available();
    if (need > available)
        return k3_fail(err, K3_E_NOMEM, "the %s trunk takes %.1f GB, %.1f GB of memory are free; use a smaller trunk (--trunk int8, int4)",
                       trunk_name(trunk), (double)need * 1e-9, (double)available * 1e-9);
    K3_TRY(k3_weights_load(&engine->weights, engine->ckpt, engine->be, trunk, config->threads, config->progress, config->user, err));
    k3_experts_config experts = {k3_backend_open, backend, NULL};
    K3_TRY(k3_experts_open(&engine->experts, engine->ckpt, engine->be, &experts, err));
    int spans = engine->chunk_rows < K3_MAX_SESSIONS_A_PASS ? engine->chunk_rows : K3_MAX_SESSIONS_A_PASS;
    K3_TRY(k3_forward_open(&engine->forward, engine->weights, engine->experts, engine->cache_type, engine->chunk_rows, spans, err));
    K3_TRY(k3_experts_load(engine->experts, 0, config->progress, config->user, err));
    engine->fingerprint = fingerprint_of(engine, trunk);
    engine->progress = config->progress;
    engine->user = config->user;
    describe(engine, trunk, config);
    return K3_OK;
}

k3_status k3_engine_open(k3_engine **out, const char *model, const k3_config *config, k3_error *err)
{
    static const k3_config defaults;
    *out = NULL;
    k3_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return k3_fail(err, K3_E_NOMEM, "engine: out of memory");
    k3_status status = open_parts(engine, model, config ? config : &defaults, err);
    if (status != K3_OK) {
        k3_engine_close(engine);
        return status;
    }
    *out = engine;
    return K3_OK;
}

void k3_engine_close(k3_engine *engine)
{
    if (!engine)
        return;
    k3_packing_free(&engine->packing);
    k3_forward_close(engine->forward);
    k3_experts_close(engine->experts);
    k3_weights_free(engine->weights);
    if (engine->be)
        engine->be->close(engine->be);
    k3_vocab_close(engine->vocab);
    k3_ckpt_close(engine->ckpt);
    free(engine);
}

const k3_info *k3_engine_info(const k3_engine *engine)
{
    return &engine->info;
}

void k3_engine_stats(k3_engine *engine, char *text, size_t size, int reset)
{
    k3_op_stat stats[64];
    int n = engine->be->stats(engine->be, stats, 64, reset);
    uint64_t total = 0;
    for (int i = 0; i < n && i < 64; i++)
        total += stats[i].nanoseconds;
    size_t at = 0;
    if (size)
        *text = 0;
    for (int i = 0; i < n && i < 64 && at < size; i++) {
        if (!stats[i].calls)
            continue;
        double seconds = (double)stats[i].nanoseconds * 1e-9, gb = (double)stats[i].bytes * 1e-9;
        int m = snprintf(text + at, size - at, "%-14s %9llu calls %10.3f ms %5.1f %%", stats[i].name, (unsigned long long)stats[i].calls,
                         seconds * 1e3, total ? 100.0 * (double)stats[i].nanoseconds / (double)total : 0.0);
        at += m > 0 ? (size_t)m : 0;
        if (at < size && stats[i].bytes) {
            m = snprintf(text + at, size - at, " %8.3f GB %7.2f GB/s", gb, seconds > 0 ? gb / seconds : 0.0);
            at += m > 0 ? (size_t)m : 0;
        }
        if (at + 1 < size) {
            text[at++] = '\n';
            text[at] = 0;
        }
    }
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
