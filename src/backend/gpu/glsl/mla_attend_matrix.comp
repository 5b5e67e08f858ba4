/* The second stage of mla_attend on matrix units, for kv_lora 512, rope 64 and a bf16 cache: softmax over a part of the cache for PAIRS
 * pairs of one run (specification 3.5). Queries (each divided by a power of two) and cache values are f16, all sums f32.
 *
 * A query is 36 fragments, the context of 16 pairs 32 of them. Queries stay in registers: subgroup s < 6 holds those of pairs 16 (s / 2) ..
 * in channels 288 (s % 2) .., and computes their half of the scores. The context stays in registers too: subgroup s sums channels
 * 64 s .. 64 s + 63 of all pairs. Cache rows are taken STEP at a time through two buffers; between two barriers the matrix units do
 *   context += weights of step j-1 x rows of step j-1;   scores of step j = queries x rows of step j
 * and after the second the weights of step j come from the scores, while step j+1, fetched meanwhile, goes to the buffer that is free.
 *
 * The reference of the exponents follows the largest score only when that is more than 2^8 above it: rarely after the first steps, so that
 * multiplying the whole context by its change is rare. Weights are at most 2^8 then.
 *
 * Error: f16 keeps bf16 cache values exactly from 2^-14 to 65504; smaller ones are off by 2^-25 at most, larger ones are taken as 65504.
 * Queries and weights are rounded to 11 bits, a score is off by about 2^-12 of the root of the sum of its squared terms. */
#version 450
#extension GL_KHR_shader_subgroup_shuffle : require
#define K3_WITHOUT_GROUP_SUMS
#include "mla.glsl"
#include "matrix.glsl"

layout(local_size_x = 256) in; /* 8 subgroups of 32 */
layout(push_constant, std430) uniform Push { k3_mla_attend_args a; };

const uint LATENT = 512, WIDTH = 576;
const uint TILES = 3, PAIRS = 16 * TILES;
const uint STEP = 16;
const uint ROW = WIDTH / 8, PITCH = ROW + 1; /* a cache row in units of 8 channels */
const uint FETCHES = 5;                      /* of such units a thread: 16 * 72 / 256, rounded up */
const uint COLUMNS = 4;                      /* fragments across the channels of a subgroup's context */
const uint HALF = WIDTH / 32;                /* fragments along half of the channels */
const float SLACK = 8.0;

/* 48904 of 49152 bytes, with that of mla.glsl. */
shared uvec4 rows[2 * STEP * PITCH];
shared uvec4 scores[2 * PAIRS * STEP / 4]; /* f32 [half of the channels, pair, row] */
shared uvec2 weights[PAIRS * 6];           /* f16 [pair, row], 8 values between pairs are not used */
shared uvec4 keep[PAIRS * STEP / 4];       /* f32 [pair, row]: the same for all rows */
shared uint rescaled;                      /* 1 + the last step at which a reference changed */

K3_MATRIX_SUM context[TILES][COLUMNS];
K3_MATRIX_A queries[HALF];
uvec4 fetched[FETCHES];

/* Step j into registers; zeros past the end of the tile. */
void fetch(k3_tile tile, uint me, uint j)
{
    uint base = tile.begin + j * STEP, n = base < tile.end ? min(STEP, tile.end - base) * ROW : 0u;
    U32x4 from = U32x4(tile.run.cache + 2ul * WIDTH * base);
    [[unroll]] for (uint k = 0u; k < FETCHES; k++)
        fetched[k] = me + 256u * k < n ? from.at[me + 256u * k] : uvec4(0u);
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

void store(uint me, uint j)
{
    [[unroll]] for (uint k = 0u; k < FETCHES; k++) {
        uint i = me + 256u * k;
        if (i < STEP * ROW)
            rows[j % 2u * (STEP * PITCH) + i + i / ROW] = fetched[k];
    }
}

/* The tile's queries to f16, 16 at a time through shared memory to the two subgroups that hold them. 16 lanes a query, each 9 times 4
 * channels: its largest value is brought to 2^14 .. 2^15; what the scores are to be multiplied by is left in `keep`. */
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
            keep[(16u * m + me / 16u) * 4u].x = exponent - 14u << 23;
        barrier();
        if (gl_SubgroupID / 2u == m)
            [[unroll]] for (uint k = 0u; k < HALF; k++)
                K3_LOAD_A(queries[k], rows, gl_SubgroupID % 2u * (ROW / 2u) + 2u * k, PITCH);
        barrier();
    }
}

/* Multiplies every pair's context by its number in `keep`. */
void rescale()
{
    [[unroll]] for (uint m = 0u; m < TILES; m++) {
        K3_MATRIX_SUM factor;
        K3_LOAD_SUM(factor, keep, m * 64u, 4u);
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            for (int e = 0; e < K3_LENGTH(factor); e++)
                context[m][c][e] *= factor[e];
    }
}

void add_context(uint j)
{
    if (rescaled == j + 1u)
        rescale();
    K3_MATRIX_A weight[TILES];
    [[unroll]] for (uint m = 0u; m < TILES; m++)
        K3_LOAD_A(weight[m], weights, m * 96u, 6u);
    [[unroll]] for (uint c = 0u; c < COLUMNS; c++) {
        K3_MATRIX_B values;
        K3_LOAD_B_ROWS(values, rows, j % 2u * (STEP * PITCH) + gl_SubgroupID * 8u + 2u * c, PITCH);
        [[unroll]] for (uint m = 0u; m < TILES; m++)
            context[m][c] = K3_MULTIPLY_ADD(weight[m], values, context[m][c]);
    }
}

/* Two chains of sums, so that a product does not wait for the one before it. */
void compute_scores(uint j)
{
    K3_MATRIX_SUM even = K3_MATRIX_SUM(0.0), odd = K3_MATRIX_SUM(0.0);
    uint half_at = gl_SubgroupID % 2u, at = j % 2u * (STEP * PITCH) + half_at * (ROW / 2u);
    [[unroll]] for (uint k = 0u; k < HALF; k += 2u) {
        K3_MATRIX_B first, second;
        K3_LOAD_B(first, rows, at + 2u * k, PITCH);
        K3_LOAD_B(second, rows, at + 2u * k + 2u, PITCH);
        even = K3_MULTIPLY_ADD(queries[k], first, even);
        odd = K3_MULTIPLY_ADD(queries[k + 1u], second, odd);
    }
    even += odd;
    K3_STORE_SUM(even, scores, half_at * (PAIRS * 4u) + gl_SubgroupID / 2u * 64u, 4u);
}

/* The running softmax of a pair, four lanes side by side; `sum` is over the lane's own rows. */
struct softmax {
    float reference, sum, scale;
    uint limit; /* cache rows that the pair sees */
};

/* Step j, whose rows begin at `base`: my four scores to weights. */
void weigh(inout softmax s, uint me, uint j, uint base)
{
    vec4 score = (uintBitsToFloat(scores[me]) + uintBitsToFloat(scores[PAIRS * 4u + me])) * s.scale;
    uint n = base + me % 4u * 4u;
    bvec4 seen = lessThan(uvec4(n, n + 1u, n + 2u, n + 3u), uvec4(s.limit));
    score = mix(vec4(K3_LOWEST), score, seen);
    float most = max(max(score.x, score.y), max(score.z, score.w)), kept = 1.0;
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    if (most > s.reference + SLACK) {
        kept = exp2(s.reference - most);
        s.reference = most;
        rescaled = j + 1u;
    }
    vec4 weight = mix(vec4(0.0), exp2(score - s.reference), seen);
    s.sum = s.sum * kept + (weight.x + weight.y + weight.z + weight.w);
    weights[me / 4u * 6u + me % 4u] = uvec2(packHalf2x16(weight.xy), packHalf2x16(weight.zw));
    keep[me] = uvec4(floatBitsToUint(kept));
}

/* Stats and context of the tile; with one part only the context is divided by the sum here. */
void finish(k3_tile tile, softmax s, uint me)
{
    s.sum += subgroupShuffleXor(s.sum, 1u);
    s.sum += subgroupShuffleXor(s.sum, 2u);
    if (me % 4u == 0u && me / 4u < tile.n)
        F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me / 4u)] = vec2(s.reference, s.sum);
    if (a.parts == 1u) {
        if (me < PAIRS * 4u)
            keep[me] = uvec4(floatBitsToUint(1.0 / s.sum));
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
    softmax s = softmax(K3_LOWEST, 0.0, 0.0, me / 4u < tile.n ? k3_tile_limit(tile, a.heads, me / 4u) : 0u);
    if (tile.begin >= tile.end) {
        if (me < tile.n)
            F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me)] = vec2(K3_LOWEST, 0.0);
        return;
    }
    fetch(tile, me, 0u);
    load_queries(tile, me);
    if (me < PAIRS * 4u)
        s.scale = uintBitsToFloat(keep[me / 4u * 4u].x);
    if (me == 0u)
        rescaled = 0u;
    convert();
    store(me, 0u);
    [[unroll]] for (uint m = 0u; m < TILES; m++)
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            context[m][c] = K3_MATRIX_SUM(0.0);
    barrier();

    uint steps = (tile.end - tile.begin + STEP - 1u) / STEP;
    for (uint j = 0u; j <= steps; j++) {
        fetch(tile, me, j + 1u);
        if (j > 0u)
            add_context(j - 1u);
        if (j < steps && gl_SubgroupID < 2u * TILES)
            compute_scores(j);
        convert();
        barrier();
        if (j < steps && me < PAIRS * 4u)
            weigh(s, me, j, tile.begin + j * STEP);
        store(me, j + 1u);
        barrier();
    }
    finish(tile, s, me);
}
