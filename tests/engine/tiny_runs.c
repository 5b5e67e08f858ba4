#include "engine/tiny_runs.h"

#include "backend/args/moe.h"

#include <stdlib.h>
#include <string.h>

const int32_t run_prompt[RUN_PROMPT] = {5,   78,  151, 224, 41,  114, 187, 4,   77,  150, 223, 40,
                                        113, 186, 3,   76,  149, 222, 39,  112, 185, 2,   75,  148};

static tiny_run on_cpu[2];
static int has_cpu[2];
static uint64_t before_experts, on_helper, table, slot; /* bytes */

int32_t run_best(const float *logits)
{
    int32_t best = 0;
    for (int32_t i = 1; i < TINY_VOCAB; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

void run_must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("status %d: %s", (int)status, err->text);
}

k3_status run_greedy(tiny_run *out, k3_engine *engine, k3_error *err)
{
    k3_session *session;
    k3_status status = k3_session_open(&session, engine, err);
    if (status != K3_OK)
        return status;
    status = k3_session_append(session, run_prompt, RUN_PROMPT, err);
    for (int i = 0; status == K3_OK && i < RUN_NEW; i++) {
        out->ids[i] = run_best(k3_session_logits(session));
        status = k3_session_append(session, &out->ids[i], 1, err);
        if (status == K3_OK)
            memcpy(out->logits[i], k3_session_logits(session), sizeof out->logits[i]);
    }
    k3_session_close(session);
    return status;
}

const tiny_run *run_on_cpu(int exact)
{
    k3_error err;
    if (!has_cpu[exact]) {
        k3_engine *engine;
        k3_config config = {.backend = "cpu", .trunk = exact ? NULL : "int8", .exact = exact};
        run_must(k3_engine_open(&engine, tiny_model, &config, &err), &err);
        run_must(run_greedy(&on_cpu[exact], engine, &err), &err);
        k3_engine_close(engine);
        has_cpu[exact] = 1;
    }
    return &on_cpu[exact];
}

void run_check(const tiny_run *got, const tiny_run *want)
{
    assert_memory_equal(got->ids, want->ids, sizeof got->ids);
    if (!posing.inner)
        assert_memory_equal(got->logits, want->logits, sizeof got->logits);
}

k3_engine *run_open(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    run_must(k3_engine_open_on(&engine, tiny_model, config, posing_open, &err), &err);
    return engine;
}

uint64_t run_budget(int n_experts)
{
    return before_experts + table + slot * (uint64_t)n_experts;
}

uint64_t run_helper_budget(int n_experts)
{
    return on_helper + table + slot * (uint64_t)n_experts;
}

void run_measure(k3_config config)
{
    int n, i_main;
    k3_memory_info info;
    config.backend = config.expert_devices = "posing";
    posing_reset();
    k3_engine *engine = run_open(&config);
    const k3_tier *tiers = k3_experts_tiers(engine->experts, &n, &i_main);
    tiers[1].be->memory->info(tiers[1].be, &info);
    on_helper = info.used;
    before_experts = posing.used_before_experts + k3_machine_reserved_bytes(engine);
    table = sizeof(struct k3_expert_address) * TINY_LAYERS * TINY_EXPERTS;
    slot = k3_experts_slot_bytes(engine->hp);
    k3_engine_close(engine);
    posing_reset();
}

uint64_t run_least_ram(const char *model, k3_config config)
{
    k3_engine *engine = NULL;
    for (config.ram = 65536; config.ram <= (uint64_t)1 << 30; config.ram += 65536)
        if (k3_engine_open(&engine, model, &config, NULL) == K3_OK) {
            k3_engine_close(engine);
            return config.ram;
        }
    return 0;
}
