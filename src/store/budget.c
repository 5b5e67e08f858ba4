#include "store/budget.h"

#include <string.h>

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

/* ---- several drives ------------------------------------------------------------------------------------------------------ */

double k3_budget_seconds(const k3_budget_facts *facts, const k3_trunk_plan *plan, int n_slots, double bytes[K3_MAX_DRIVES])
{
    const k3_trunk_sizes *trunk = facts->trunk;
    double missing = facts->n_experts ? 1 - (double)n_slots / facts->n_experts : 0, all = 0, sums[K3_MAX_DRIVES] = {0};
    int n_layers = trunk ? trunk->n_layers : K3_MAX_LAYERS;
    for (int l = 0; l <= n_layers; l++) {
        int is_head = l == n_layers, is_read = trunk && (is_head ? !plan->has_head : l >= plan->n_pinned);
        const k3_trunk_size *size = !is_read ? NULL : is_head ? &trunk->head : &trunk->layers[l];
        double most = 0;
        for (int d = 0; d < facts->n_drives; d++) {
            double one = size ? (double)size->on[d] : 0;
            one += is_head ? 0 : missing * (double)facts->experts->wanted[l][d];
            sums[d] += one;
            most = one / facts->rates[d] > most ? one / facts->rates[d] : most;
        }
        all += most;
    }
    if (bytes)
        memcpy(bytes, sums, sizeof sums);
    return all;
}

/* Of all ways to part `room`, the one that takes least time; where times are equal, with the embedding. 0: there is none with that many
 * experts. */
static int choose(k3_budget *b, const k3_budget_facts *facts, uint64_t room, int least_slots)
{
    double best = -1;
    for (int i = 0; i < 4 * (facts->trunk->n_layers + 1); i++) {
        k3_trunk_plan one = k3_trunk_plan_of(facts->trunk, i / 4, i & 1, (i & 2) / 2);
        if (one.bytes > room)
            continue;
        uint64_t slots = facts->expert_slot ? (room - one.bytes) / facts->expert_slot : 0;
        if (slots < (uint64_t)least_slots)
            continue;
        slots = slots < (uint64_t)facts->n_experts ? slots : (uint64_t)facts->n_experts;
        double seconds = k3_budget_seconds(facts, &one, (int)slots, NULL);
        if (best < 0 || seconds < best || (!(seconds > best) && one.has_embed > b->trunk_plan.has_embed)) {
            best = seconds;
            b->trunk_plan = one;
        }
    }
    return best >= 0;
}

/* ---- the plan ------------------------------------------------------------------------------------------------------------ */

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
    if (facts->n_drives > 1 && facts->rates && facts->trunk && !choose(&b, facts, room, now))
        (void)choose(&b, facts, room, one);
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
