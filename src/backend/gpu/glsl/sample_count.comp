/* Number and mass of the ids at each value of a digit, of those in the interval that the search has come to. In a workgroup a mass is summed
 * as two halves of 20 bits, which 2048 weights of 41 bits do not overflow; into the row's histogram it goes as three. The first step also
 * sums what min_p keeps. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "sample.glsl"

shared uint counts[K3_SAMPLE_BINS + 1u], lows[K3_SAMPLE_BINS + 1u], highs[K3_SAMPLE_BINS + 1u];

void count(uint bin, uint64_t weight)
{
    atomicAdd(counts[bin], 1u);
    atomicAdd(lows[bin], uint(weight) & 0xfffffu);
    atomicAdd(highs[bin], uint(weight >> 20));
}

void main()
{
    uint lane = gl_LocalInvocationID.x, from = gl_WorkGroupID.x * K3_SAMPLE_GROUP;
    advance();
    if (!wanted(a.digit == 0u ? K3_SAMPLE_DRAW : a.search))
        return;
    for (uint i = lane; i <= K3_SAMPLE_BINS; i += LANES)
        counts[i] = lows[i] = highs[i] = 0u;
    barrier();
    uint shift = a.digit == 0u ? 21u : a.digit == 1u ? 10u : 0u, mask = a.digit == 2u ? 1023u : 2047u;
    uint64_t min_p = Draws(a.draws).at[gl_WorkGroupID.y].min_p;
    for (uint i = from + lane; i < min(from + K3_SAMPLE_GROUP, a.V); i += LANES) {
        uint key = key_at(i), leading = key >> shift;
        if (a.digit != 0u && leading >> (a.digit == 1u ? 11u : 10u) != now_prefix)
            continue;
        uint64_t distance = distance_of(key, now_best), weight = weight_of(distance);
        count(leading & mask, weight);
        if (a.digit == 0u && min_p != ~0ul && distance <= min_p)
            count(K3_SAMPLE_BINS, weight);
    }
    barrier();
    U32 bins = U32(histogram_at(a.step));
    for (uint i = lane; i <= K3_SAMPLE_BINS; i += LANES) {
        if (counts[i] == 0u)
            continue;
        uint64_t mass = uint64_t(lows[i]) + (uint64_t(highs[i]) << 20);
        atomicAdd(bins.at[4u * i], counts[i]);
        atomicAdd(bins.at[4u * i + 1u], uint(mass) & 0xfffffu);
        atomicAdd(bins.at[4u * i + 2u], uint(mass >> 20) & 0xfffffu);
        atomicAdd(bins.at[4u * i + 3u], uint(mass >> 40));
    }
}
