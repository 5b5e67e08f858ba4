/* Sampling without sorting and without rounding that depends on an order: logits become integer keys in the same order, weights become
 * integers, and sums of integers are exact in any order and on any device.
 *
 * All filters keep a prefix of the ids by falling logit, so a prefix is known by its mass alone, the shortest of several is the one of least
 * mass, and "where does the running sum reach the goal" is the only question: top_k asks it of counts, top_p and the draw of masses. It is
 * answered digit by digit of the key (11, 11 and 10 bits): count the ids and weights of each value of the digit, pick the value in which the
 * sum from the top reaches the goal, go on with the ids that have it. What is left in the end has one key, and goes by id. */
#ifndef K3_SAMPLE_GLSL
#define K3_SAMPLE_GLSL

#include "common.glsl"
#include "backend/args/sample.h"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_sample_args a;
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer Draws
{
    k3_sample_draw at[];
};
layout(buffer_reference, std430, buffer_reference_align = 8) buffer States
{
    k3_sample_state at[];
};

const uint LANES = 256, BINS_A_LANE = K3_SAMPLE_BINS / LANES;
const uint KEY_OF_INFINITY = 0xff800000u, KEY_OF_MINUS_INFINITY = 0x007fffffu;

/* ---- keys and weights ------------------------------------------------------------------------------------------ */

/* Larger logits have larger keys, equal ones (0 and -0 are) equal keys; NaN has the largest. */
uint key_of(uint bits)
{
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0xffffffffu;
    if (bits == 0x80000000u)
        bits = 0u;
    return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

uint bits_of(uint key)
{
    return (key & 0x80000000u) != 0u ? key & 0x7fffffffu : ~key;
}

uint key_at(uint i)
{
    return key_of(U32(a.logits + 4ul * a.V * gl_WorkGroupID.y).at[i]);
}

bool has_distribution(uint best)
{
    return best < KEY_OF_INFINITY && best > KEY_OF_MINUS_INFINITY;
}

/* Logits count in units of 2^-32, or of as many temperatures up to twice that: their distances matter by temperature. */
int unit_shift()
{
    return min(Draws(a.draws).at[gl_WorkGroupID.y].shift, 0);
}

/* An f32 in units; 2^62 for what is not below 2^61. */
int64_t fixed_of(uint bits)
{
    int exponent = int(bits >> 23 & 255u), shift = exponent - 118 + unit_shift();
    int64_t mantissa = exponent == 0 ? 0l : int64_t(bits & 0x7fffffu | 0x800000u);
    int64_t size = shift > 37 ? 1l << 62 : shift >= 0 ? mantissa << shift : shift > -24 ? mantissa >> -shift : 0l;
    return (bits & 0x80000000u) != 0u ? -size : size;
}

/* How far a key lies below the best, in units. Where that is too large for them, the difference is taken in f32. */
uint64_t distance_of(uint key, uint best)
{
    uint x = bits_of(key), max_x = bits_of(best);
    if (int(max_x >> 23 & 255u) + unit_shift() < 155) /* below 2^60 units */
        return uint64_t(fixed_of(max_x) - fixed_of(x));
    return uint64_t(fixed_of(floatBitsToUint(uintBitsToFloat(max_x) - uintBitsToFloat(x))));
}

/* 2^40 exp(-distance / temperature), rounded; within 4e-9 of it besides. */
uint64_t weight_of(uint64_t distance)
{
    Draws draws = Draws(a.draws);
    uint t = gl_WorkGroupID.y;
    if (distance > draws.at[t].cut)
        return 0ul;
    const uint64_t ONE = 1ul << 32, LN_2 = 2977044472ul;
    uint64_t d = distance << max(draws.at[t].shift, 0), scale = draws.at[t].scale;
    uint64_t halvings = (d >> 32) * scale + ((d & 0xfffffffful) * scale >> 32); /* of the weight, in units of 2^-32 */
    /* e^-y = 1 - y (1 - y/2 (1 - y/3 (...))) for y = ln 2 times the fraction */
    uint64_t y = (halvings & 0xfffffffful) * LN_2 >> 32, power = ONE;
    [[unroll]] for (uint k = 12u; k > 0u; k--)
        power = ONE - uint(y * power >> 32) / k;
    uint whole = uint(halvings >> 32);
    return ((power << 8) + (1ul << whole >> 1)) >> whole;
}

/* ---- one step of a search --------------------------------------------------------------------------------------- */

uint now_best;
shared uint64_t now_kept, now_goal, now_above;
shared uint now_n_above, now_prefix, now_rank;
shared uint64_t scan_mass[2][LANES];
shared uint scan_count[2][LANES];
shared uint maxima_of[K3_MAX_SUBGROUPS];

/* The largest of all lanes. A barrier in it. */
uint group_most(uint own)
{
    uint most = subgroupMax(own);
    if (subgroupElect())
        maxima_of[gl_SubgroupID] = most;
    barrier();
    for (uint i = 0u; i < gl_NumSubgroups; i++)
        most = max(most, maxima_of[i]);
    return most;
}

/* The sums over lanes 0 .. own; returns the mass of all. Rounds, an even number, use two sets of slots in turn, so that one barrier a round is
 * enough. */
uint64_t scan_lanes(inout uint64_t mass, inout uint count)
{
    uint lane = gl_LocalInvocationID.x, set = 0u;
    for (uint reach = 1u; reach < LANES; reach *= 2u, set ^= 1u) {
        scan_mass[set][lane] = mass;
        scan_count[set][lane] = count;
        barrier();
        if (lane >= reach) {
            mass += scan_mass[set][lane - reach];
            count += scan_count[set][lane - reach];
        }
    }
    return scan_mass[1][LANES / 2u - 1u] + scan_mass[1][LANES - 1u]; /* of the last round, halves */
}

uint64_t histogram_at(uint step)
{
    return a.histograms + 16ul * (K3_SAMPLE_BINS + 1u) * (K3_SAMPLE_STEPS * gl_WorkGroupID.y + step);
}

/* The mass in a bin: words of 20 bits each, summed apart. */
uint64_t mass_of(uvec4 bin)
{
    return uint64_t(bin.y) + (uint64_t(bin.z) << 20) + (uint64_t(bin.w) << 40);
}

/* A search begins: what its sum has to reach. kept is the mass of all ids, or of those that earlier filters have left. */
uint64_t begin_search(uint search, inout uint64_t kept)
{
    Draws draws = Draws(a.draws);
    uint t = gl_WorkGroupID.y;
    uint64_t share = search == K3_SAMPLE_TOP_P ? draws.at[t].top_p : draws.at[t].u;
    if (search == K3_SAMPLE_DRAW && draws.at[t].min_p != ~0ul)
        kept = min(kept, mass_of(U32x4(histogram_at(0u)).at[K3_SAMPLE_BINS]));
    /* kept times share, of 128 bits: whole part and whether there is a fraction */
    uint64_t k0 = kept & 0xfffffffful, k1 = kept >> 32, s0 = share & 0xfffffffful, s1 = share >> 32;
    uint64_t middle = (k0 * s0 >> 32) + (k1 * s0 & 0xfffffffful) + k0 * s1;
    uint64_t whole = k1 * s1 + (k1 * s0 >> 32) + (middle >> 32);
    return search == K3_SAMPLE_TOP_K ? uint64_t(draws.at[t].top_k) : whole + (search == K3_SAMPLE_DRAW || kept * share != 0ul ? 1ul : 0ul);
}

/* Goes on to the bin of a histogram, `bits` bits wide, in which the sum from the top reaches the goal. */
void descend(uint step, uint search, uint bits, bool begins)
{
    U32x4 bins = U32x4(histogram_at(step));
    uint lane = gl_LocalInvocationID.x, count = 0u, counts[BINS_A_LANE];
    uint64_t mass = 0ul, masses[BINS_A_LANE];
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++) {
        uvec4 bin = bins.at[K3_SAMPLE_BINS - 1u - BINS_A_LANE * lane - j];
        count += counts[j] = bin.x;
        mass += masses[j] = mass_of(bin);
    }
    uint64_t mass_to = mass;
    uint count_to = count;
    uint64_t all = scan_lanes(mass_to, count_to); /* with barriers in it */
    uint64_t kept = min(now_kept, all), goal = begins ? begin_search(search, kept) : now_goal;
    uint64_t above = (begins ? 0ul : now_above) + mass_to - mass;
    uint n_above = (begins ? 0u : now_n_above) + count_to - count, prefix = begins ? 0u : now_prefix;
    bool by_count = search == K3_SAMPLE_TOP_K;
    barrier();
    bool done = (by_count ? uint64_t(n_above) : above) >= goal; /* a lane before this one has it */
    [[unroll]] for (uint j = 0u; j < BINS_A_LANE; j++) {
        if (!done && (by_count ? uint64_t(n_above + counts[j]) : above + masses[j]) >= goal) {
            now_above = above;
            now_n_above = n_above;
            now_prefix = prefix << bits | (K3_SAMPLE_BINS - 1u - BINS_A_LANE * lane - j);
            done = true;
        }
        above += masses[j];
        n_above += counts[j];
    }
    if (begins && lane == LANES - 1u) {
        now_kept = kept;
        now_goal = goal;
        if (!done) { /* no lane has it */
            now_above = 0ul;
            now_n_above = now_prefix = 0u;
        }
    }
    barrier();
}

/* The search has come down to one key: how much its prefix keeps, or which of the ids with that key is drawn. */
void finish_search(uint search)
{
    uint64_t weight = weight_of(distance_of(now_prefix, now_best));
    if (search == K3_SAMPLE_TOP_K) {
        now_kept = min(now_kept, now_above + (now_goal - now_n_above) * weight);
    } else {
        uint64_t ids = (now_goal - now_above + weight - 1ul) / max(weight, 1ul);
        if (search == K3_SAMPLE_TOP_P)
            now_kept = min(now_kept, now_above + ids * weight);
        else
            now_rank = uint(ids) - 1u;
    }
}

bool wanted(uint search)
{
    Draws draws = Draws(a.draws);
    uint t = gl_WorkGroupID.y;
    if (search == K3_SAMPLE_NONE || !has_distribution(now_best) || draws.at[t].greedy != 0u)
        return false;
    return search == K3_SAMPLE_TOP_K ? draws.at[t].top_k != 0u : search == K3_SAMPLE_TOP_P ? draws.at[t].top_p != 0ul : true;
}

/* The bits of the key that are known. The best of a greedy row is what its search would find. */
uint known_prefix()
{
    return a.step == 0u ? now_best : now_prefix;
}

/* The state of this step out of the one before and its histogram. All workgroups of a row compute the same; the first leaves it to the next
 * step. */
void advance()
{
    States states = States(a.states);
    U32 maxima = U32(a.maxima + 4ul * a.groups * gl_WorkGroupID.y);
    uint at = K3_SAMPLE_STEPS * gl_WorkGroupID.y + a.step, own = 0u;
    bool first_lane = gl_LocalInvocationID.x == 0u;
    if (first_lane && a.step == 0u) {
        now_kept = ~0ul;
        now_goal = now_above = 0ul;
        now_n_above = now_prefix = now_rank = 0u;
    } else if (first_lane) {
        now_kept = states.at[at - 1u].kept;
        now_goal = states.at[at - 1u].goal;
        now_above = states.at[at - 1u].above;
        now_n_above = states.at[at - 1u].n_above;
        now_prefix = states.at[at - 1u].prefix;
        now_rank = states.at[at - 1u].rank;
    }
    for (uint g = gl_LocalInvocationID.x; g < a.groups; g += LANES)
        own = max(own, maxima.at[g]);
    now_best = group_most(own);
    if (wanted(a.finish)) {
        descend(a.step - 1u, a.finish, 10u, false);
        if (first_lane)
            finish_search(a.finish);
    }
    if (wanted(a.search))
        descend(a.digit == 1u ? 0u : a.step - 1u, a.search, 11u, a.digit == 1u);
    if (gl_WorkGroupID.x == 0u && first_lane) {
        states.at[at].kept = now_kept;
        states.at[at].goal = now_goal;
        states.at[at].above = now_above;
        states.at[at].n_above = now_n_above;
        states.at[at].prefix = known_prefix();
        states.at[at].best = now_best;
        states.at[at].rank = now_rank;
    }
}

#endif
