#include "store/budget.h"

/* What other programs may come to want: with an explicit wish less, since somebody has thought about it. */
static uint64_t reserve_of(const k3_budget_facts *facts)
{
    uint64_t least = (uint64_t)256 << 20, share = facts->ram ? facts->available / 50 : facts->available / 10;
    return share + least < facts->available / 2 ? share + least : facts->available / 2;
}

static double gb(uint64_t bytes)
{
    return (double)bytes * 1e-9;
}

/* The trunk within `room`, beside `slots` of experts. */
static int fits(k3_budget *b, const k3_budget_facts *facts, uint64_t room, int slots)
{
    uint64_t experts = facts->expert_slot * (uint64_t)slots;
    b->trunk_plan = (k3_trunk_plan){0};
    if (experts > room)
        return 0;
    return !facts->trunk || k3_trunk_make_plan(&b->trunk_plan, facts->trunk, room - experts);
}

k3_status k3_budget_make(k3_budget *out, const k3_budget_facts *facts, k3_error *err)
{
    uint64_t reserve = reserve_of(facts), most = facts->available - reserve;
    k3_budget b = {.available = facts->available, .reserve = reserve};
    b.limit = facts->ram && facts->ram < most ? facts->ram : most;
    b.is_clamped = facts->ram > most;
    uint64_t fixed = facts->scratch + facts->sessions, room = b.limit > fixed ? b.limit - fixed : 0;
    int one = facts->n_experts > 0, now = facts->n_experts_now < facts->n_experts ? facts->n_experts_now : facts->n_experts;
    if (!fits(&b, facts, room, now) && !fits(&b, facts, room, one)) {
        if (facts->trunk)
            (void)k3_trunk_make_plan(&b.trunk_plan, facts->trunk, 0);
        uint64_t experts = facts->expert_slot * (uint64_t)one;
        return k3_fail(
            err, K3_E_NOMEM,
            "%.3f GB of memory may be used and at least %.3f are wanted: passes %.3f, conversations %.3f, trunk %.3f, one expert "
            "%.3f; raise --ram, or lower --chunk",
            gb(b.limit), gb(fixed + b.trunk_plan.bytes + experts), gb(facts->scratch), gb(facts->sessions), gb(b.trunk_plan.bytes),
            gb(experts));
    }
    b.scratch = facts->scratch;
    b.sessions = facts->sessions;
    b.trunk = b.trunk_plan.bytes;
    uint64_t left = room - b.trunk, slots = facts->expert_slot ? left / facts->expert_slot : 0;
    b.n_slots = slots < (uint64_t)facts->n_experts ? (int)slots : facts->n_experts;
    b.experts = facts->expert_slot * (uint64_t)b.n_slots;
    b.peak = fixed + b.trunk + b.experts;
    *out = b;
    return K3_OK;
}
