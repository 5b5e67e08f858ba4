/* What of the trunk stays in memory. A byte of a layer or of the head that does not is read once a pass, so those count alike; the
 * embedding costs a few rows a pass and is the last to stay. */
#include "store/trunk.h"

static uint64_t ring_bytes(const k3_trunk_size *items, int n)
{
    uint64_t room = 0, made = 0;
    for (int i = 0; i < n; i++) {
        room = items[i].room > room ? items[i].room : room;
        made = items[i].made > made ? items[i].made : made;
    }
    return room * K3_TRUNK_SLOTS + made;
}

k3_trunk_plan k3_trunk_plan_of(const k3_trunk_sizes *sizes, int n_pinned, int has_head, int has_embed)
{
    k3_trunk_plan plan = {n_pinned, has_head, has_embed, sizes->always, 0};
    for (int l = 0; l < sizes->n_layers; l++)
        *(l < n_pinned ? &plan.bytes : &plan.token_bytes) += l < n_pinned ? sizes->layers[l].held : sizes->layers[l].stored;
    plan.bytes += ring_bytes(sizes->layers + n_pinned, sizes->n_layers - n_pinned);
    plan.bytes += has_head ? sizes->head.held : ring_bytes(&sizes->head, 1);
    plan.token_bytes += has_head ? 0 : sizes->head.stored;
    plan.bytes += has_embed ? sizes->embed.held : sizes->rows;
    return plan;
}

/* The head is read at the end of a pass, when little is left to compute meanwhile: it counts a layer more than its bytes. */
static uint64_t cost_of(const k3_trunk_plan *plan, const k3_trunk_sizes *sizes)
{
    uint64_t most = 0;
    for (int l = 0; l < sizes->n_layers; l++)
        most = sizes->layers[l].stored > most ? sizes->layers[l].stored : most;
    return plan->token_bytes + (plan->has_head ? 0 : most);
}

/* Not always the one that keeps nothing: a layer that is larger than those after it may take less than slots for it. */
static k3_trunk_plan smallest(const k3_trunk_sizes *sizes)
{
    k3_trunk_plan plan = k3_trunk_plan_of(sizes, 0, 0, 0);
    for (int n_pinned = 0; n_pinned <= sizes->n_layers; n_pinned++)
        for (int kept = 0; kept < 4; kept++) {
            k3_trunk_plan one = k3_trunk_plan_of(sizes, n_pinned, kept & 1, kept >> 1);
            if (one.bytes < plan.bytes)
                plan = one;
        }
    return plan;
}

int k3_trunk_make_plan(k3_trunk_plan *plan, const k3_trunk_sizes *sizes, uint64_t budget)
{
    *plan = smallest(sizes);
    if (plan->bytes > budget)
        return 0;
    for (int n_pinned = 0; n_pinned <= sizes->n_layers; n_pinned++)
        for (int kept = 0; kept < 4; kept++) {
            k3_trunk_plan one = k3_trunk_plan_of(sizes, n_pinned, kept & 1, kept >> 1);
            uint64_t cost = cost_of(&one, sizes), best = cost_of(plan, sizes);
            if (one.bytes <= budget && (cost < best || (cost == best && one.has_embed > plan->has_embed)))
                *plan = one;
        }
    return 1;
}
