/* The second stage of mla_attend: softmax over a part of the cache for PAIRS pairs of one run, in f32 (specification 3.5). Cache rows are
 * taken STEP at a time, with a running reference and sum of the exponents:
 *   score[n] = query . cache[n] over all channels, one thread a pair and row, from chunks of both in shared memory;
 *   context  = sum_n 2^(score[n] - reference) cache[n] over the latent channels, four channels of eight pairs a thread.
 * Workgroup (x, y, z) takes tile x, part y and columns 512 z .. of the context. */
#version 450
#include "mla.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint BF16 = 0;
layout(constant_id = 1) const uint ALIGNED = 0; /* cache rows begin at multiples of 16 bytes and have a multiple of 4 channels */
layout(push_constant, std430) uniform Push { k3_mla_attend_args a; };

const uint PAIRS = 16, STEP = 16;
const uint CHUNK = 32, PITCH = CHUNK + 1; /* four channels each */
const uint MINE = 8;                      /* pairs whose context a thread sums */

shared vec4 queries[PAIRS * PITCH], rows[STEP * PITCH];
shared float scores[PAIRS * STEP];
shared vec4 weights[STEP * PAIRS / 4]; /* [row, pair] */
shared float keep[PAIRS];

vec4 context[MINE];

/* Channels 4 four .. of cache row s; zeros past the last. */
vec4 cache4(k3_tile tile, uint s, uint four)
{
    uint width = a.kv + a.rope;
    uint64_t row = tile.run.cache + (BF16 != 0u ? 2ul : 4ul) * width * s;
    vec4 x = vec4(0.0);
    if (ALIGNED != 0u) {
        if (4u * four >= width)
            return x;
        if (BF16 == 0u)
            return F32x4(row).at[four];
        uvec2 words = U32x2(row).at[four];
        return vec4(k3_bf16x2(words.x), k3_bf16x2(words.y));
    }
    for (uint c = 4u * four, i = 0u; i < 4u && c + i < width; i++)
        x[i] = BF16 != 0u ? uintBitsToFloat(k3_load(row + 2ul * (c + i), 2u) << 16) : F32(row).at[c + i];
    return x;
}

/* The product of query i of the tile and cache row base + n. */
float score_of(k3_tile tile, uint base, uint i, uint n)
{
    uint fours = a.query_stride / 4u;
    float score = 0.0;
    for (uint first = 0u; first < fours; first += CHUNK) {
        uint most = min(CHUNK, fours - first);
        for (uint k = gl_LocalInvocationID.x; k < PAIRS * CHUNK; k += gl_WorkGroupSize.x) {
            uint row = k / CHUNK, four = k % CHUNK;
            if (four < most) {
                uint pair = k3_tile_pair(tile, a.heads, min(row, tile.n - 1u));
                queries[row * PITCH + four] = F32x4(a.query + 4ul * pair * a.query_stride).at[first + four];
                rows[row * PITCH + four] = base + row < tile.end ? cache4(tile, base + row, first + four) : vec4(0.0);
            }
        }
        barrier();
        for (uint four = 0u; four < most; four++)
            score += dot(queries[i * PITCH + four], rows[n * PITCH + four]);
        barrier();
    }
    return score;
}

/* Adds cache rows base .. base+n-1. A row that a pair does not see may hold anything. */
void add_rows(k3_tile tile, uint base, uint n, uint four, uint first, bool all_seen)
{
    for (uint s = 0u; s < n; s++) {
        vec4 x = cache4(tile, base + s, four);
        [[unroll]] for (uint i = 0u; i < MINE; i++) {
            float weight = weights[(s * PAIRS + first + i) / 4u][i % 4u];
            if (all_seen || weight != 0.0)
                context[i] += weight * x;
        }
    }
}

void main()
{
    k3_tile tile = k3_tile_of(a, PAIRS);
    uint me = gl_LocalInvocationID.x, n = me % STEP, i = me / STEP;               /* my score */
    uint four = gl_WorkGroupID.z * 128u + me % 128u, first = me / 128u * MINE;    /* my columns, and the first of my pairs */
    uint limit = i < tile.n ? k3_tile_limit(tile, a.heads, i) : 0u, least = k3_tile_limit(tile, a.heads, 0u);
    float reference = K3_LOWEST, sum = 0.0;
    [[unroll]] for (uint k = 0u; k < MINE; k++)
        context[k] = vec4(0.0);

    for (uint base = tile.begin; base < tile.end; base += STEP) {
        float score = score_of(tile, base, i, n), most = reference;
        bool seen = base + n < limit;
        scores[me] = seen ? score : K3_LOWEST;
        barrier();
        for (uint k = 0u; k < STEP; k++)
            most = max(most, scores[i * STEP + k]);
        float kept = most > reference ? exp2(reference - most) : 1.0, weight = seen ? exp2(score - most) : 0.0;
        sum = sum * kept + weight;
        reference = most;
        weights[(n * PAIRS + i) / 4u][i % 4u] = weight;
        if (n == 0u)
            keep[i] = kept;
        barrier();
        if (4u * four < a.context_stride) {
            [[unroll]] for (uint k = 0u; k < MINE; k++)
                context[k] *= keep[first + k];
            if (base + STEP <= least)
                add_rows(tile, base, STEP, four, first, true);
            else
                add_rows(tile, base, min(STEP, tile.end - base), four, first, false);
        }
    }

    scores[me] = sum;
    barrier();
    float total = 0.0;
    for (uint k = 0u; k < STEP; k++)
        total += scores[i * STEP + k];
    if (n == 0u) {
        keep[i] = a.parts == 1u ? 1.0 / total : 1.0;
        if (i < tile.n)
            F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, i)] = vec2(reference, total);
    }
    barrier();
    if (tile.begin < tile.end && 4u * four < a.context_stride)
        for (uint k = 0u; k < MINE && first + k < tile.n; k++) {
            uint64_t pair = gl_WorkGroupID.y * uint64_t(a.pairs) + k3_tile_pair(tile, a.heads, first + k);
            F32x4(a.context + 4ul * pair * a.context_stride).at[four] = context[k] * keep[first + k];
        }
}
