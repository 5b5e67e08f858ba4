/* The host's memory is dealt out before anything is loaded. */
#include "engine/engine.h"

enum { K3_RESERVED_TOKENS = 8192 };

uint64_t k3_machine_reserved_bytes(const k3_engine *engine)
{
    const k3_hparams *hp = engine->hp;
    uint64_t n_mla = 0, tokens = hp->context < K3_RESERVED_TOKENS ? (uint64_t)hp->context : K3_RESERVED_TOKENS;
    for (int l = 0; l < hp->n_layers; l++)
        n_mla += hp->is_mla[l];
    return 4 * k3_state_fixed_bytes(hp) + 2 * n_mla * tokens * (uint64_t)(hp->kv_lora + hp->rope) * (engine->cache_type == K3_BF16 ? 2 : 4);
}

k3_status k3_machine_rates(k3_engine *engine, k3_error *err)
{
    k3_drives *drives = &engine->planning->drives;
    if (engine->config.disk_rate > 0)
        k3_drives_state(drives, engine->config.disk_rate);
    else if (!drives->is_measured)
        K3_TRY(k3_drives_measure(drives, engine->ckpt, err));
    engine->planning->facts.rates = drives->rates;
    return K3_OK;
}

/* Rates are asked for where they decide something: of several drives, and if anything is left to be read. */
static k3_status make_budget(k3_engine *engine, k3_error *err)
{
    k3_budget_facts *facts = &engine->planning->facts;
    k3_budget *b = &engine->budget;
    K3_TRY(k3_budget_make(b, facts, err));
    if (facts->n_drives < 2 || (!b->trunk_plan.token_bytes && b->n_slots == facts->n_experts))
        return K3_OK;
    K3_TRY(k3_machine_rates(engine, err));
    return k3_budget_make(b, facts, err);
}

/* Trunk, passes and conversations lie in the host's memory unless a device has them. Rows a pass that nobody chose are fewer where their
 * scratch would take more than an eighth. */
k3_status k3_machine_budget(k3_engine *engine, int is_device, uint64_t available, k3_error *err)
{
    const k3_hparams *hp = engine->hp;
    k3_planning *p = engine->planning;
    k3_budget_facts facts = {.available = available,
                             .ram = engine->config.ram,
                             .trunk = is_device ? NULL : &p->trunk,
                             .n_experts_now = hp->top_k,
                             .n_drives = p->drives.n,
                             .experts = &p->experts};
    uint64_t most = facts.ram && facts.ram < available ? facts.ram : available;
    while (!is_device && !engine->config.chunk_rows && engine->chunk_rows > 16 && k3_forward_bytes(hp, engine->chunk_rows) > most / 8)
        engine->chunk_rows /= 2;
    for (int l = 0; l < hp->n_layers; l++)
        facts.n_experts += hp->is_moe[l] ? hp->n_experts : 0;
    if (facts.n_experts && !p->experts.slot)
        k3_stream_measure(&p->experts, engine->ckpt);
    facts.expert_slot = p->experts.slot;
    facts.scratch = is_device ? 0 : k3_forward_bytes(hp, engine->chunk_rows);
    facts.sessions = is_device ? 0 : k3_machine_reserved_bytes(engine);
    K3_TRY(k3_weights_measure(&p->trunk, engine->ckpt, engine->trunk, err));
    p->facts = facts;
    if (!is_device)
        return make_budget(engine, err);
    /* A device can do with the little that the CPU needs beside it. */
    uint64_t little = facts.expert_slot * (uint64_t)hp->top_k;
    if (k3_budget_make(&engine->budget, &facts, NULL) != K3_OK)
        engine->budget = (k3_budget){.available = available, .n_slots = hp->top_k, .experts = little, .peak = little};
    return K3_OK;
}
