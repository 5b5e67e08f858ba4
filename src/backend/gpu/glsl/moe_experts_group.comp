/* Sorts the pairs of moe_experts by expert, stably: jobs (an expert and its pairs' places, in order of id) and the pair at each place. One
 * group: it counts, sums the counts up, and places the pairs 256 at a time, each behind the earlier ones of its expert. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "moe.glsl"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_group_args a;
};

const uint THREADS = 256, MOST_EXPERTS = 4096;

shared uint place[MOST_EXPERTS]; /* pairs of an expert; then its next place */
shared uvec2 before[THREADS];    /* pairs and jobs of the threads up to this one */
shared uint entries[THREADS];

uint expert_of(uint pair)
{
    return pair < a.n_pairs ? K3_EXPERT_OF(pair, a) : K3_NO_EXPERT;
}

void count(uint thread)
{
    for (uint e = thread; e < a.E; e += THREADS)
        place[e] = 0u;
    barrier();
    for (uint p = thread; p < a.n_pairs; p += THREADS) {
        uint e = expert_of(p);
        if (e != K3_NO_EXPERT)
            atomicAdd(place[e], 1u);
    }
    barrier();
}

/* Jobs of this thread's share of the experts; the rest of the list has no pairs. */
void write_jobs(uint thread)
{
    uint share = (a.E + THREADS - 1u) / THREADS, first = min(thread * share, a.E), end = min(first + share, a.E);
    uvec2 own = uvec2(0u);
    for (uint e = first; e < end; e++)
        own += uvec2(place[e], min(place[e], 1u));
    before[thread] = own;
    for (uint step = 1u; step < THREADS; step *= 2u) {
        barrier();
        uvec2 other = thread >= step ? before[thread - step] : uvec2(0u);
        barrier();
        before[thread] += other;
    }
    uvec2 at = before[thread] - own;
    U32x4 jobs = U32x4(a.jobs);
    for (uint e = first; e < end; e++) {
        uint n = place[e];
        place[e] = at.x;
        if (n == 0u)
            continue;
        jobs.at[at.y] = uvec4(e, at.x, n, 0u);
        at += uvec2(n, 1u);
    }
    barrier();
    for (uint i = before[THREADS - 1u].y + thread; i < a.max_jobs; i += THREADS)
        jobs.at[i] = uvec4(0u);
}

/* How many of the 256 pairs at hand have this expert: among all, and before this thread's. */
uvec2 among(uint entry, uint thread)
{
    uvec2 n = uvec2(0u);
    for (uint i = 0; i < THREADS; i++)
        if (entries[i] == entry)
            n += uvec2(1u, i < thread ? 1u : 0u);
    return n;
}

void main()
{
    uint thread = gl_LocalInvocationIndex;
    count(thread);
    write_jobs(thread);
    for (uint first = 0; first < a.n_pairs; first += THREADS) {
        uint pair = first + thread, entry = expert_of(pair);
        entries[thread] = entry;
        barrier();
        uvec2 n = among(entry, thread);
        bool there = entry != K3_NO_EXPERT;
        uint at = there ? place[entry] + n.y : 0u;
        barrier();
        if (there && n.y == 0u)
            place[entry] += n.x;
        if (there)
            U32(a.pair_at).at[at] = pair;
    }
}
