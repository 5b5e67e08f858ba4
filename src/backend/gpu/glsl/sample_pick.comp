/* The id of that rank among those with the key that was found: first the part of the row, then the place in the part. One workgroup a row. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "sample.glsl"

shared uint found, rank;

/* Finds the place 8 lane + j at which the running sum of n exceeds the rank, which is then counted from that place on. */
void find(uint n[BINS_A_LANE])
{
    uint own = 0u, sought = rank;
    uint64_t unused = 0ul;
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++)
        own += n[j];
    uint to = own;
    scan_lanes(unused, to);
    uint before = to - own;
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++) {
        if (before <= sought && sought < before + n[j]) {
            found = BINS_A_LANE * gl_LocalInvocationID.x + j;
            rank = sought - before;
        }
        before += n[j];
    }
    barrier();
}

void main()
{
    States states = States(a.states);
    U32 ties = U32(a.ties + 4ul * a.groups * gl_WorkGroupID.y);
    uint lane = gl_LocalInvocationID.x, last = K3_SAMPLE_STEPS * gl_WorkGroupID.y + a.step, n[BINS_A_LANE];
    uint key = states.at[last].prefix;
    if (lane == 0u) {
        found = 0u;
        rank = states.at[last].rank;
    }
    barrier();
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++)
        n[j] = BINS_A_LANE * lane + j < a.groups ? ties.at[BINS_A_LANE * lane + j] : 0u;
    find(n);
    uint from = found * K3_SAMPLE_GROUP;
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++) {
        uint i = from + BINS_A_LANE * lane + j;
        n[j] = i < a.V && key_at(i) == key ? 1u : 0u;
    }
    find(n);
    if (lane == 0u)
        I32(a.ids).at[gl_WorkGroupID.y] = has_distribution(states.at[last].best) ? int(from + found) : -1;
}
