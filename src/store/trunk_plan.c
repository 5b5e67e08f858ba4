/* What of the trunk stays in memory. A byte of a layer or of the head that does not is read once a pass, so those count alike; the
 * embedding costs a few rows a pass and is the last to stay. */
#include "store/trunk.h"

static uint64_t ring_bytes(const k3_trunk_sizes *sizes, int n_pinned, int n_slots)
{
    uint64_t room = 0, made = 0;
    for (int l = n_pinned; l < sizes->n_layers; l++) {
        room = sizes->layers[l].room > room ? sizes->layers[l].room : room;
        made = sizes->layers[l].made > made ? sizes->layers[l].made : made;
    }
    return room * (uint64_t)n_slots + made;
}

static k3_trunk_plan plan_of(const k3_trunk_sizes *sizes, int n_pinned, int n_slots, int has_head, int has_embed)
{
    k3_trunk_plan plan = {n_pinned, n_pinned < sizes->n_layers ? n_slots : 0, has_head, has_embed, sizes->always, 0};
    for (int l = 0; l < sizes->n_layers; l++)
        *(l < n_pinned ? &plan.bytes : &plan.token_bytes) += l < n_pinned ? sizes->layers[l].held : sizes->layers[l].stored;
    plan.bytes += ring_bytes(sizes, n_pinned, plan.n_slots);
    plan.bytes += has_head ? sizes->head.held : sizes->head.room * K3_TRUNK_HEAD_SLOTS + sizes->head.made;
    plan.token_bytes += has_head ? 0 : sizes->head.stored;
    plan.bytes += has_embed ? sizes->embed.held : sizes->rows;
    return plan;
}

/* A ring of more slots evens out layers and experts that take unequal time, if it costs a small part of the budget. */
static int slots_for(const k3_trunk_sizes *sizes, int n_pinned, uint64_t budget)
{
    int n = K3_TRUNK_MOST_SLOTS;
    while (n > K3_TRUNK_LEAST_SLOTS && ring_bytes(sizes, n_pinned, n) > budget / 8)
        n--;
    return n;
}

int k3_trunk_make_plan(k3_trunk_plan *plan, const k3_trunk_sizes *sizes, uint64_t budget)
{
    *plan = plan_of(sizes, 0, K3_TRUNK_LEAST_SLOTS, 0, 0);
    if (plan->bytes > budget)
        return 0;
    for (int n_pinned = 0; n_pinned <= sizes->n_layers; n_pinned++)
        for (int kept = 0; kept < 4; kept++) {
            k3_trunk_plan one = plan_of(sizes, n_pinned, slots_for(sizes, n_pinned, budget), kept & 1, kept >> 1);
            if (one.bytes > budget)
                continue;
            if (one.token_bytes < plan->token_bytes || (one.token_bytes == plan->token_bytes && one.has_embed > plan->has_embed))
                *plan = one;
        }
    return 1;
}
