/* The second stage of mla_attend on matrix units, for kv_lora 512, rope 64 and a bf16 cache: softmax over a part of the cache for PAIRS
 * pairs of one run (specification 3.5). Queries (each divided by a power of two) and cache values are f16, all sums f32.
 *
 * A query is 36 fragments, the context of 16 pairs 32 of them. Queries stay in registers, those of 16 pairs in half of the channels a
 * subgroup. Subgroups 0 to 3 have the first 32 pairs, and compute their half of the scores of all rows of a step; 4 to 7 share the last 16
 * pairs, and have 16 rows each. So the four schedulers of a core, to which subgroups go in turn, have the same number of products. The
 * context stays in registers too: subgroup s sums channels 64 s .. 64 s + 63 of all pairs. Cache rows are taken STEP at a time; between
 * barriers come
 *   scores = queries x rows;
 *   the two halves' sum, and weights from it: 16 pairs and 16 rows a subgroup, the other half of which came from another;
 *   context += weights x rows, while the next rows are on their way from memory;
 *   the next rows to shared memory.
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
const uint FETCHERS = 256 / STEP;            /* invocations that fetch a row */
const uint FETCHES = ROW / FETCHERS;         /* of such units an invocation */
const uint COLUMNS = 4;                      /* fragments across the channels of a subgroup's context */
const uint HALF = WIDTH / 32;                /* fragments along half of the channels */
const uint SCORES = TILES * 8 + 2;           /* four scores each, of 16 pairs' six tiles and more, so that loads meet no bank conflicts */
const float SLACK = 8.0;

/* 48484 of 49152 bytes, with that of mla.glsl. */
shared uvec4 rows[STEP * PITCH];
shared uvec4 scores[16 * SCORES];                                       /* f32 [pair of a tile, tile and half of a step, row] */
shared uvec4 weights[PAIRS * 5];                                        /* f16 [pair, row], 8 values between pairs are not used */
shared uvec4 references[PAIRS / 4], keep[PAIRS / 4], scales[PAIRS / 4]; /* f32 [pair]; keep divides what was summed before */
/* 1 + the last step that is weighed again; with a new reference. */
shared uint slow, rescaled;

K3_MATRIX_SUM context[TILES][COLUMNS], score;
K3_MATRIX_A queries[HALF];
uvec4 fetched[FETCHES];

uint me = gl_SubgroupID * 32u + gl_SubgroupInvocationID, fetch_row = me / FETCHERS, fetch_unit = me % FETCHERS;

/* The subgroup's 16 pairs, its half of their channels, and the half of a step's rows that it weighs, or computes scores of for another. */
bool has_both = gl_SubgroupID < 4u;
uint tile_of = min(gl_SubgroupID / 2u, TILES - 1u), half_of = has_both ? gl_SubgroupID % 2u : gl_SubgroupID / 2u - 2u;
uint rows_of = gl_SubgroupID % 2u;
bool weighs = rows_of == half_of;

/* Step j into registers; the tile's last row past its end. */
void fetch(k3_tile tile, uint j)
{
    uint row = tile.begin + min(j * STEP + fetch_row, tile.end - tile.begin - 1u);
    U32x4 from = U32x4(tile.run.cache + 2ul * WIDTH * row + 16ul * fetch_unit);
    [[unroll]] for (uint k = 0u; k < FETCHES; k++)
        fetched[k] = from.at[FETCHERS * k];
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

void store()
{
    [[unroll]] for (uint k = 0u; k < FETCHES; k++)
        rows[fetch_row * PITCH + fetch_unit + FETCHERS * k] = fetched[k];
}

/* The tile's queries to f16, 16 at a time through shared memory to the subgroups that hold them. 16 lanes a query, each 9 times 4
 * channels: its largest value is brought to 2^14 .. 2^15; what the scores are to be multiplied by is left in `scales`. */
void load_queries(k3_tile tile)
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
        if (tile_of == m)
            [[unroll]] for (uint k = 0u; k < HALF; k++)
                K3_LOAD_A(queries[k], rows, half_of * (ROW / 2u) + 2u * k, PITCH);
        barrier();
    }
}

/* Divides every pair's context by its number in `keep`. */
void rescale()
{
    K3_MATRIX_SUM divisor;
    [[unroll]] for (uint m = 0u; m < TILES; m++) {
        K3_LOAD_SUM_COLUMNS(divisor, keep, m * 4u, 0u);
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            context[m][c] = context[m][c] / divisor;
    }
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
    }
}

/* The running softmax of a pair, four lanes side by side. */
struct softmax {
    float reference, scale, sum;
    uint limit; /* cache rows that the pair sees */
};

/* My eight weights of a step. */
void add_weights(inout softmax s)
{
    uvec4 words = weights[me / 4u * 5u + me % 4u];
    vec2 x = unpackHalf2x16(words.x) + unpackHalf2x16(words.y), y = unpackHalf2x16(words.z) + unpackHalf2x16(words.w);
    s.sum += (x.x + x.y) + (y.x + y.y);
}

/* Where the scores of 16 pairs and half of a step's rows are. */
uint scores_at(uint m, uint h)
{
    return 4u * (2u * m + h);
}

/* Step j, whose rows begin at `base`, with masks and new references: my eight scores to weights. */
void weigh(inout softmax s, uint j, uint base)
{
    vec4 x[2];
    float most = K3_LOWEST, kept = 1.0;
    [[unroll]] for (uint h = 0u; h < 2u; h++) {
        uint n = base + 16u * h + me % 4u * 4u;
        bvec4 seen = lessThan(uvec4(n, n + 1u, n + 2u, n + 3u), uvec4(s.limit));
        x[h] = mix(vec4(K3_LOWEST), uintBitsToFloat(scores[me / 4u % 16u * SCORES + scores_at(me / 64u, h) + me % 4u]) * s.scale, seen);
        most = max(most, max(max(x[h].x, x[h].y), max(x[h].z, x[h].w)));
    }
    most = max(most, subgroupShuffleXor(most, 1u));
    most = max(most, subgroupShuffleXor(most, 2u));
    if (most > s.reference + SLACK) {
        kept = exp2(s.reference - most);
        s.reference = most;
        s.sum *= kept;
        rescaled = j + 1u;
    }
    if (me % 4u == 0u) {
        keep[me / 16u][me / 4u % 4u] = floatBitsToUint(1.0 / kept);
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

/* The subgroup's half of the scores: those that it weighs stay here, others go to `scores`. */
void compute_scores()
{
    uint at = half_of * (ROW / 2u), mine = at + rows_of * (16u * PITCH), others = at + (1u - rows_of) * (16u * PITCH);
    score = K3_MATRIX_SUM(0.0);
    if (has_both) {
        K3_MATRIX_SUM other = K3_MATRIX_SUM(0.0);
        [[unroll]] for (uint k = 0u; k < HALF; k++) {
            K3_MATRIX_B x, y;
            K3_LOAD_B(x, rows, mine + 2u * k, PITCH);
            K3_LOAD_B(y, rows, others + 2u * k, PITCH);
            score = K3_MULTIPLY_ADD(queries[k], x, score);
            other = K3_MULTIPLY_ADD(queries[k], y, other);
        }
        K3_STORE_SUM(other, scores, scores_at(tile_of, 1u - rows_of), SCORES);
    } else {
        [[unroll]] for (uint k = 0u; k < HALF; k++) {
            K3_MATRIX_B x;
            K3_LOAD_B(x, rows, mine + 2u * k, PITCH);
            score = K3_MULTIPLY_ADD(queries[k], x, score);
        }
        if (!weighs)
            K3_STORE_SUM(score, scores, scores_at(tile_of, rows_of), SCORES);
    }
}

/* Adds the other half of the channels to the scores and makes weights of them. False if a reference is too low for that. */
bool weigh_fast()
{
    K3_MATRIX_SUM part, reference, scale, weight;
    K3_LOAD_SUM_COLUMNS(reference, references, tile_of * 4u, 0u);
    K3_LOAD_SUM_COLUMNS(scale, scales, tile_of * 4u, 0u);
    K3_LOAD_SUM(part, scores, scores_at(tile_of, rows_of), SCORES);
    score += part;
    float most = K3_LOWEST;
    for (int e = 0; e < K3_LENGTH(score); e++) {
        float x = score[e] * scale[e] - reference[e];
        most = max(most, x);
        weight[e] = exp2(x);
    }
    K3_STORE_SUM(K3_MATRIX_HALF(weight), weights, tile_of * 80u + 2u * rows_of, 5u);
    return !subgroupAny(most > SLACK);
}

/* Stats and context of the tile; with one part only the context is divided by the sum here. */
void finish(k3_tile tile, softmax s)
{
    float sum = s.sum;
    sum += subgroupShuffleXor(sum, 1u);
    sum += subgroupShuffleXor(sum, 2u);
    if (me % 4u == 0u && me / 4u < tile.n)
        F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me / 4u)] = vec2(s.reference, sum);
    if (a.parts == 1u) {
        if (me < PAIRS * 4u && me % 4u == 0u)
            keep[me / 16u][me / 4u % 4u] = floatBitsToUint(sum);
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
    if (tile.begin >= tile.end) {
        if (me < tile.n)
            F32x2(a.stats + 8ul * gl_WorkGroupID.y * a.pairs).at[k3_tile_pair(tile, a.heads, me)] = vec2(K3_LOWEST, 0.0);
        return;
    }
    softmax s = softmax(K3_LOWEST, 0.0, 0.0, k3_tile_limit(tile, a.heads, min(me / 4u, tile.n - 1u)));
    uint unmasked = k3_tile_limit(tile, a.heads, 0u);
    uint steps = (tile.end - tile.begin + STEP - 1u) / STEP;
    fetch(tile, 0u);
    load_queries(tile);
    if (me < PAIRS * 4u)
        s.scale = uintBitsToFloat(scales[me / 16u][me / 4u % 4u]);
    if (me < PAIRS)
        references[me / 4u][me % 4u] = floatBitsToUint(K3_LOWEST);
    if (me == 0u)
        rescaled = slow = 0u;
    convert();
    store();
    [[unroll]] for (uint m = 0u; m < TILES; m++)
        [[unroll]] for (uint c = 0u; c < COLUMNS; c++)
            context[m][c] = K3_MATRIX_SUM(0.0);
    barrier();

    for (uint j = 0u; j < steps; j++) {
        uint base = tile.begin + j * STEP;
        compute_scores();
        fetch(tile, j + 1u);
        barrier();
        if (weighs && (!weigh_fast() || base + STEP > unmasked))
            slow = j + 1u;
        barrier();
        if (slow == j + 1u) {
            if (weighs)
                K3_STORE_SUM(score, scores, scores_at(tile_of, rows_of), SCORES);
            barrier();
            if (me < PAIRS * 4u)
                weigh(s, j, base);
            barrier();
            if (rescaled == j + 1u)
                rescale();
        }
        if (me < PAIRS * 4u)
            add_weights(s);
        add_context();
        convert();
        barrier();
        store();
        barrier();
    }
    finish(tile, s);
}
