/* s = sigma(logits), the K largest s + bias of a row in descending order, ties to the lower id; weights from the unbiased s (specification
 * 3.7). A group takes a row. The scores lie in shared memory as integers of the same order; a thread keeps the best of every 256th of them,
 * and in each of K rounds the group takes the best of these, after which only its owner looks again. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"
#include "math.glsl"
#include "backend/args/router_topk.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_router_topk_args a;
};

const uint THREADS = 256, MOST_EXPERTS = 4096, MOST_CHOSEN = 64, NOBODY = 0xffffffffu;

shared uint score[MOST_EXPERTS]; /* 0: taken */
shared uvec2 best_of[2][K3_MAX_SUBGROUPS];
shared float chosen[MOST_CHOSEN];
shared uint damaged[K3_MAX_SUBGROUPS];

/* Floats as integers of the same order. */
uint ordered(float x)
{
    uint bits = floatBitsToUint(x);
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

bool is_nan(float x)
{
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

/* The best of this thread's experts: score, id. */
uvec2 own_best(uint thread)
{
    uvec2 best = uvec2(0u, NOBODY);
    for (uint e = thread; e < a.E; e += THREADS)
        if (score[e] > best.x)
            best = uvec2(score[e], e);
    return best;
}

/* The id of the best of all threads' bests. Rounds use two sets of slots in turn, so that one barrier a round is enough. */
uint group_best(uvec2 own, uint round)
{
    uint most = subgroupMax(own.x);
    uint id = subgroupMin(own.x == most ? own.y : NOBODY);
    if (subgroupElect())
        best_of[round & 1u][gl_SubgroupID] = uvec2(most, id);
    barrier();
    uvec2 best = best_of[round & 1u][0];
    for (uint i = 1; i < gl_NumSubgroups; i++) {
        uvec2 other = best_of[round & 1u][i];
        if (other.x > best.x || (other.x == best.x && other.y < best.y))
            best = other;
    }
    return best.y;
}

void main()
{
    uint thread = gl_LocalInvocationIndex, row = gl_WorkGroupID.x;
    F32 logits = F32(a.logits + 4ul * row * a.E), bias = F32(a.bias);
    uint bad = 0u;
    for (uint e = thread; e < a.E; e += THREADS) {
        float x = logits.at[e], biased = k3_sigma(x) + bias.at[e];
        score[e] = ordered(biased);
        if (is_nan(x) || is_nan(biased))
            bad = 1u;
    }
    bad = subgroupMax(bad);
    if (subgroupElect())
        damaged[gl_SubgroupID] = bad;
    barrier();
    for (uint i = 0; i < gl_NumSubgroups; i++)
        bad |= damaged[i];
    if (bad != 0u) { /* ids stay inside the table, so that what follows is harmless until the fault is seen */
        if (thread == 0u)
            U32(a.fault).at[0] = a.fault_code;
        for (uint e = thread; e < a.E; e += THREADS)
            score[e] = 1u;
    }
    uvec2 own = own_best(thread);
    uint mine = 0u;
    for (uint round = 0; round < a.K; round++) {
        uint id = group_best(own, round);
        mine = round == thread ? id : mine;
        if (id % THREADS == thread) {
            score[id] = 0u;
            own = own_best(thread);
        }
    }
    float s = 0.0;
    if (thread < a.K)
        chosen[thread] = s = k3_sigma(logits.at[mine]);
    barrier();
    if (thread < a.K) {
        float sum = 0.0;
        for (uint k = 0; k < a.K; k++)
            sum += chosen[k];
        uint64_t at = 4ul * (row * a.K + thread);
        I32(a.ids + at).at[0] = int(mine);
        F32(a.weights + at).at[0] = s / (a.renormalize != 0u ? sum + 1e-20 : 1.0) * a.scale;
    }
}
