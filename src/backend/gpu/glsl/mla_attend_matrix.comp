/* The second stage of mla_attend on matrix units, for kv_lora 512, rope 64 and a bf16 cache: softmax over a part of the cache for PAIRS
 * pairs of one run (specification 3.5). Queries (each divided by a power of two) and cache values are f16, all sums f32.
 *
 * A query is 36 fragments, the context of 16 pairs 32 of them. Queries stay in registers: subgroup s < 6 holds those of pairs 16 (s / 2) ..
 * in channels 288 (s % 2) .., and computes their half of the scores. The context stays in registers too: subgroup s sums channels
 * 64 s .. 64 s + 63 of all pairs. Cache rows are taken STEP at a time; between barriers come
 *   scores = queries x rows, of which each of the two subgroups of 16 pairs gives the other's rows away;
 *   the two halves' sum, and weights from it, for 16 rows a subgroup;
 *   context += weights x rows, while the next rows are fetched;
 *   those rows to shared memory.
 *
 * The reference of the exponents follows the largest score only when that is more than 2^8 above it: rarely after the first steps. Weights
 * are at most 2^8 then, and come straight from the scores' registers. A step that changes a reference, or has rows that not all pairs see,
 * makes its weights again with the scores in shared memory.
 *
 * Error: f16 keeps bf16 cache values exactly from 2^-14 to 65504; smaller ones are off by 2^-25 at most, larger ones are taken as 65504.
 * Queries and weights are rounded to 11 bits, a score is off by about 2^-12 of the root of the sum of its squared terms. */
#version 450
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_vote : require
#define K3_WITHOUT_GROUP_SUMS
#include "mla.glsl"
#include "matrix.glsl"

layout(local_size_x = 256) in; /* 8 subgroups of 32 */
layout(push_constant, std430) uniform Push { k3_mla_attend_args a; };

const uint LATENT = 512, WIDTH = 576;
const uint TILES = 3, PAIRS = 16 * TILES;
const uint STEP = 32;
const uint ROW = WIDTH / 8, PITCH = ROW + 1; /* a cache row in units of 8 channels */
const uint FETCHES = STEP * ROW / 256;       /* of such units a thread */
const uint COLUMNS = 4;                      /* fragments across the channels of a subgroup's context */
const uint HALF = WIDTH / 32;                /* fragments along half of the channels */
const uint SUMMING = 5;                      /* subgroups from here on sum the weights of 16 pairs each: those with the least else to do */
const float SLACK = 8.0;

/* 47972 of 49152 bytes, with that of mla.glsl. */
shared uvec4 rows[STEP * PITCH];
shared uvec4 scores[2 * TILES * 64];                                    /* f32 [16 pairs, 16 rows] [pair, row] */
shared uvec4 weights[PAIRS * 5];                                        /* f16 [pair, row], 8 values between pairs are not used */
shared uvec4 references[PAIRS / 4], keep[PAIRS / 4], scales[PAIRS / 4]; /* f32 [pair] */
/* 1 + the last step that is weighed again; with a new reference. */
shared uint slow, rescaled;

K3_MATRIX_SUM context[TILES][COLUMNS], total, score;
K3_MATRIX_A queries[HALF];
uvec4 fetched[FETCHES];

/* Step j into registers; the tile's last row past its end. */
void fetch(k3_tile tile, uint me, uint j)
{
    U32x4 from = U32x4(tile.run.cache + 2ul * WIDTH * tile.begin);
    uint last = (tile.end - tile.begin) * ROW - 1u;
    [[unroll]] for (uint k = 0u; k < FETCHES; k++)
        fetched[k] = from.at[min(j * (STEP * ROW) + me + 256u * k, last)];
}

/* Two bf16 as two f16. */
uint half2_of(uint word)
{
    f16vec2 x = unpackFloat2x16(packHalf2x16(vec2(uintBitsToFloat(word << 16), uintBitsToFloat(word & 0xffff0000u))));
    return packFloat2x16(clamp(x, f16vec2(-65504.0), f16vec2(65504.0)));
}

void convert()
{
    [[unroll]] for (uint k = 0u; k < FETCHES; k++)
        fetched[k] = uvec4(half2_of(fetched[k].x), half2_of(fetched[k].y), half2_of(fetched[k].z), half2_of(fetched[k].w));
}

void store(uint me)
{
    [[unroll]] for (uint k = 0u; k < FETCHES; k++) {
        uint i = me + 256u * k;
        rows[i + i / ROW] = fetched[k];
    }
}

/* The tile's queries to f16, 16 at a time through shared memory to the two subgroups that hold them. 16 lanes a query, each 9 times 4
 * channels: its largest value is brought to 2^14 .. 2^15; what the scores are to be multiplied by is left in `scales`. */
void load_queries(k3_tile tile, uint me)
{
    uint lane = me % 16u;
    vec4 x[TILES][9];
    [[unroll]] for (uint m = 0u; m < TILES; m++) {
        F32x4 from = F32x4(a.query + 4ul * WIDTH * k3_tile_pair(tile, a.heads, min(16u * m + me / 16u, tile.n - 1u)));
        [[unroll]] for (uint k = 0u; k < 9u; k++)
            x[m][k] = from.at[lane + 16u * k];
    }
    [[unroll]] for (uint m = 0u; m < TILES; m++) {
        vec4 most = vec4(0.0);
        [[unroll]] for (uint k = 0u; k < 9u; k++)
            most = max(most, abs(x[m][k]));
        most.x = max(max(most.x, most.y), max(most.z, most.w));
        [[unroll]] for (uint step = 1u; step < 16u; step *= 2u)
            most.x = max(most.x, subgroupShuffleXor(most.x, step));
        uint exponent = clamp(floatBitsToUint(most.x) >> 23, 15u, 254u);
        float scale = uintBitsToFloat(268u - exponent << 23);
        [[unroll]] for (uint k = 0u; k < 9u; k++) {
            uint at = me / 16u * PITCH + lane / 2u + 8u * k, half_at = lane % 2u * 2u;
            rows[at][half_at] = packHalf2x16(x[m][k].xy * scale);
            rows[at][half_at + 1u] = packHalf2x16(x[m][k].zw * scale);
        }
        if (lane == 0u)
            scales[4u * m + me / 64u][me / 16u % 4u] = exponent - 14u << 23;
        barrier();
        if (gl_SubgroupID / 2u == m)
            [[unroll]] for (uint k = 0u; k < HALF; k++)
                K3_LOAD_A(queries[k], rows, gl_SubgroupID % 2u * (ROW / 2u) + 2u * k, PITCH);
        barrier();
    }
}

/* Multiplies every pair's context and sum of weights by its number in `keep`. */
void rescale()
{
    K3_MATRIX_SUM factor;
    [[unroll]] for (uint m = 0u; m < TILES; m++) {
        K3_LOAD_SUM_COLUMNS(factor, keep, m * 4u, 0u);
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            for (int e = 0; e < K3_LENGTH(factor); e++)
                context[m][c][e] *= factor[e];
    }
    K3_LOAD_SUM_COLUMNS(factor, keep, gl_SubgroupID % TILES * 4u, 0u);
    for (int e = 0; e < K3_LENGTH(factor); e++)
        total[e] *= factor[e];
}

void add_context()
{
    [[unroll]] for (uint k = 0u; k < STEP / 16u; k++) {
        K3_MATRIX_A weight[TILES];
        [[unroll]] for (uint m = 0u; m < TILES; m++)
            K3_LOAD_A(weight[m], weights, m * 80u + 2u * k, 5u);
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
            K3_MATRIX_B values;
            K3_LOAD_B_ROWS(values, rows, k * (16u * PITCH) + gl_SubgroupID * 8u + 2u * c, PITCH);
            [[unroll]] for (uint m = 0u; m < TILES; m++)
                context[m][c] = K3_MULTIPLY_ADD(weight[m], values, context[m][c]);
        }
        if (gl_SubgroupID >= SUMMING) {
            K3_MATRIX_A w;
            K3_LOAD_A(w, weights, gl_SubgroupID % TILES * 80u + 2u * k, 5u);
            total = K3_MULTIPLY_ADD(w, K3_MATRIX_B(1.0), total);
        }
    }
}

/* The running softmax of a pair, four lanes side by side. */
struct softmax {
    float reference, scale;
    uint limit; /* cache rows that the pair sees */
};

/* Step j, whose rows begin at `base`, with masks and new references: my eight scores to weights. */
void weigh(inout softmax s, uint me, uint j, uint base)
{
    vec4 x[2];
    float most = K3_LOWEST, kept = 1.0;
    [[unroll]] for (uint h = 0u; h < 2u; h++) {
        uint n = base + 16u * h + me % 4u * 4u;
        bvec4 seen = lessThan(uvec4(n, n + 1u, n + 2u, n + 3u), uvec4(s.limit));
        x[h] = mix(vec4(K3_LOWEST), uintBitsToFloat(scores[me / 64u * 128u + h * 64u + me % 64u]) * s.scale, seen);
        most = max(most, max(max(x[h].x, x[h].y), max(x[h].z, x[h].w)));
    }
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    if (most > s.reference + SLACK) {
        kept = exp2(s.reference - most);
        s.reference = most;
        rescaled = j + 1u;
    }
    if (me % 4u == 0u) {
        keep[me / 16u][me / 4u % 4u] = floatBitsToUint(kept);
        references[me / 16u][me / 4u % 4u] = floatBitsToUint(s.reference);
    }
    [[unroll]] for (uint h = 0u; h < 2u; h++) {
        uint n = base + 16u * h + me % 4u * 4u;
        bvec4 seen = lessThan(uvec4(n, n + 1u, n + 2u, n + 3u), uvec4(s.limit));
        vec4 w = mix(vec4(0.0), exp2(x[h] - s.reference), seen);
        uint at = me / 4u * 5u + 2u * h + me % 4u / 2u, half_at = me % 2u * 2u;
        weights[at][half_at] = packHalf2x16(w.xy);
        weights[at][half_at + 1u] = packHalf2x16(w.zw);
    }
}

/* Scores of the subgroup's 16 pairs in its half of the channels: those of 16 rows stay here, those of the other 16 go to `scores`. */
void compute_scores()
{
    uint half_at = gl_SubgroupID % 2u, m = gl_SubgroupID / 2u, at = half_at * (ROW / 2u);
    uint my_at = at + half_at * (16u * PITCH), other_at = at + (1u - half_at) * (16u * PITCH);
    K3_MATRIX_SUM other = K3_MATRIX_SUM(0.0);
    score = K3_MATRIX_SUM(0.0);
    [[unroll]] for (uint k = 0u; k < HALF; k++) {
        K3_MATRIX_B first, second;
        K3_LOAD_B(first, rows, my_at + 2u * k, PITCH);
        K3_LOAD_B(second, rows, other_at + 2u * k, PITCH);
        score = K3_MULTIPLY_ADD(queries[k], first, score);
        other = K3_MULTIPLY_ADD(queries[k], second, other);
    }
    K3_STORE_SUM(other, scores, (2u * m + 1u - half_at) * 64u, 4u);
}

/* Adds the other half of the channels to the scores and makes weights of them. False if a reference is too low for that. */
bool weigh_fast()
{
    uint half_at = gl_SubgroupID % 2u, m = gl_SubgroupID / 2u;
    K3_MATRIX_SUM part, reference, scale, weight;
    K3_LOAD_SUM(part, scores, gl_SubgroupID * 64u, 4u);
    score += part;
    K3_LOAD_SUM_COLUMNS(reference, references, m * 4u, 0u);
    K3_LOAD_SUM_COLUMNS(scale, scales, m * 4u, 0u);
    float most = K3_LOWEST;
    for (int e = 0; e < K3_LENGTH(score); e++) {
        float x = score[e] * scale[e] - reference[e];
        most = max(most, x);
        weight[e] = exp2(x);
    }
    K3_STORE_SUM(K3_MATRIX_HALF(weight), weights, m * 80u + 2u * half_at, 5u);
    return !subgroupAny(most > SLACK);
}

/* Stats and context of the tile; with one part only the context is divided by the sum here. */
void finish(k3_tile tile, softmax s, uint me)
{
    if (gl_SubgroupID >= SUMMING)
        K3_STORE_SUM(total, scores, gl_SubgroupID % TILES * 64u, 4u);
    barrier();
    float sum = uintBitsToFloat(scores[me / 4u * 4u % (TILES * 64u)].x);
    if (me % 4u == 0u && me / 4u < tile.n)
        F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me / 4u)] = vec2(s.reference, sum);
    if (a.parts == 1u) {
        if (me < PAIRS * 4u && me % 4u == 0u)
            keep[me / 16u][me / 4u % 4u] = floatBitsToUint(1.0 / sum);
        barrier();
        rescale();
    }
    [[unroll]] for (uint m = 0u; m < TILES; m++)
        if (16u * m < tile.n) {
            uint64_t pair = gl_WorkGroupID.y * uint64_t(a.pairs) + k3_tile_pair(tile, a.heads, 16u * m);
            U32x4 to = U32x4(a.context + 4ul * LATENT * pair);
            [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
                K3_STORE_SUM(context[m][c], to.at, gl_SubgroupID * 16u + 4u * c, LATENT / 4u);
        }
}

void main()
{
    k3_tile tile = k3_tile_of(a, PAIRS);
    uint me = gl_SubgroupID * 32u + gl_SubgroupInvocationID;
    if (tile.begin >= tile.end) {
        if (me < tile.n)
            F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me)] = vec2(K3_LOWEST, 0.0);
        return;
    }
    softmax s = softmax(K3_LOWEST, 0.0, k3_tile_limit(tile, a.heads, min(me / 4u, tile.n - 1u)));
    uint unmasked = k3_tile_limit(tile, a.heads, 0u);
    fetch(tile, me, 0u);
    load_queries(tile, me);
    if (me < PAIRS * 4u)
        s.scale = uintBitsToFloat(scales[me / 16u][me / 4u % 4u]);
    if (me < PAIRS)
        references[me / 4u][me % 4u] = floatBitsToUint(K3_LOWEST);
    if (me == 0u)
        rescaled = slow = 0u;
    convert();
    store(me);
    [[unroll]] for (uint m = 0u; m < TILES; m++)
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            context[m][c] = K3_MATRIX_SUM(0.0);
    total = K3_MATRIX_SUM(0.0);
    barrier();

    uint steps = (tile.end - tile.begin + STEP - 1u) / STEP;
    bool has_queries = gl_SubgroupID < 2u * TILES;
    for (uint j = 0u; j < steps; j++) {
        uint base = tile.begin + j * STEP;
        if (has_queries)
            compute_scores();
        barrier();
        if (has_queries && (!weigh_fast() || base + STEP > unmasked))
            slow = j + 1u;
        barrier();
        if (slow == j + 1u) {
            if (has_queries)
                K3_STORE_SUM(score, scores, gl_SubgroupID * 64u, 4u);
            barrier();
            if (me < PAIRS * 4u)
                weigh(s, me, j, base);
            barrier();
            if (rescaled == j + 1u)
                rescale();
        }
        fetch(tile, me, j + 1u);
        add_context();
        convert();
        barrier();
        store(me);
        barrier();
    }
    finish(tile, s, me);
}
