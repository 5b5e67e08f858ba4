/* The first and the last stage of mla_attend on matrix units, for many rows of activations and heads of 128 (mla_attend_query.comp and
 * mla_attend_value.comp have the formulas): for each head [M rows, depth] x [depth, N], depth 128 of q_nope or 512 of the context.
 * Workgroup (x, y) makes N of a head's columns for rows M y .. y; 8 subgroups have 16 rows and 64 columns each.
 *
 * Factors are f16, sums f32. The scales of W_k's rows are multiplied into q, and each row of that is brought to 2^14 .. 2^15 by a power of
 * two; the context is an average of cache values, for which mla_attend_matrix.comp has f16 too. Weights whose scale is that of a whole row
 * are exact; others are rounded to 11 bits, below 2^-14 to multiples of 2^-24. */
#version 450
#extension GL_GOOGLE_include_directive : require
#define K3_WITHOUT_GROUP_SUMS
#include "mla_weights.glsl"
#include "matrix.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 3) const uint IS_VALUE = 0;

const uint M = 64, N = 128;
const uint DEEP = 128, HALF = DEEP / 2;                   /* of the depth: rows' and weights' share in shared memory */
const uint ROW = DEEP / 8 + 1;                            /* units of 8 halves, one more than needed */
const uint W_ROW = (IS_VALUE != 0u ? HALF : N) / 8u + 1u; /* [N][HALF] as W_v lies, or [HALF][N] as W_k does */
const uint W_AT = M * ROW, OUT_ROW = N / 4 + 1;

shared uvec4 staged[2240]; /* rows, then weights; then the result in f32 */
shared float factors[M];   /* of the rows of the result */

uint me = gl_SubgroupID * 32u + gl_SubgroupInvocationID;
uint blocks = IS_VALUE != 0u ? 1u : a.kv / N, head = gl_WorkGroupID.x / blocks, first_column = gl_WorkGroupID.x % blocks * N;
uint first_row = gl_WorkGroupID.y * M, first_weight = head * (a.nope + a.v) + (IS_VALUE != 0u ? a.nope : 0u);

uint64_t row_at(uint64_t base, uint row, uint floats)
{
    return base + 4ul * (uint64_t(row) * a.heads + head) * floats;
}

vec4 scales4(uint row)
{
    return vec4(k3_scale_of(k3_row_of(row)), k3_scale_of(k3_row_of(row + 1u)), k3_scale_of(k3_row_of(row + 2u)),
                k3_scale_of(k3_row_of(row + 3u)));
}

void put(uint at, uint four, vec4 x)
{
    staged[at + four / 2u][four % 2u * 2u] = packHalf2x16(x.xy);
    staged[at + four / 2u][four % 2u * 2u + 1u] = packHalf2x16(x.zw);
}

/* Channels deep .. deep + DEEP - 1 of the rows; a subgroup 8 rows, a lane four channels. */
void stage_rows(uint deep)
{
    vec4 x[M / 8], scales = IS_VALUE != 0u ? vec4(1.0) : scales4(first_weight + 4u * gl_SubgroupInvocationID);
    [[unroll]] for (uint i = 0u; i < M / 8u; i++) {
        uint row = min(first_row + gl_SubgroupID * 8u + i, a.T - 1u);
        x[i] = F32x4(row_at(a.x, row, IS_VALUE != 0u ? a.stride : a.nope + a.rope)).at[deep / 4u + gl_SubgroupInvocationID];
    }
    [[unroll]] for (uint i = 0u; i < M / 8u; i++) {
        uint row = gl_SubgroupID * 8u + i;
        vec4 y = x[i] * scales, size = abs(y);
        if (IS_VALUE == 0u) {
            uint exponent = clamp(floatBitsToUint(subgroupMax(max(max(size.x, size.y), max(size.z, size.w)))) >> 23, 15u, 254u);
            y *= uintBitsToFloat(268u - exponent << 23);
            factors[row] = a.scale * uintBitsToFloat(exponent - 14u << 23);
        }
        put(row * ROW, gl_SubgroupInvocationID, clamp(y, -65504.0, 65504.0));
    }
}

void stage_weights(uint deep)
{
    const uint FOURS = HALF * N / 4u / 256u;
    const uint ACROSS = (IS_VALUE != 0u ? HALF : N) / 4u;
    vec4 w[FOURS];
    [[unroll]] for (uint i = 0u; i < FOURS; i++) {
        uint row = (me + 256u * i) / ACROSS, column = 4u * (me % ACROSS);
        w[i] = IS_VALUE != 0u ? k3_weights4(k3_row_of(first_weight + row), deep + column)
                              : k3_weights4(k3_row_of(first_weight + deep + row), first_column + column);
    }
    [[unroll]] for (uint i = 0u; i < FOURS; i++)
        put(W_AT + (me + 256u * i) / ACROSS * W_ROW, me % ACROSS, w[i]);
}

void write_result()
{
    vec4 scales = IS_VALUE != 0u ? scales4(first_weight + 4u * (me % 32u)) : vec4(1.0);
    [[unroll]] for (uint i = 0u; i < M / 8u; i++) {
        uint row = me / 32u + 8u * i, four = me % 32u;
        vec4 y = uintBitsToFloat(staged[row * OUT_ROW + four]) * (IS_VALUE != 0u ? scales : vec4(factors[row]));
        if (first_row + row < a.T)
            F32x4(row_at(a.y, first_row + row, IS_VALUE != 0u ? a.v : a.stride)).at[first_column / 4u + four] = y;
    }
}

/* The channels past the latent ones. */
void copy_rope()
{
    uint n = a.stride - a.kv;
    for (uint i = me; i < M * n; i += 256u) {
        uint row = first_row + i / n, d = i % n;
        if (row < a.T)
            F32(row_at(a.y, row, a.stride)).at[a.kv + d] =
                d < a.rope ? a.scale * F32(row_at(a.x, row, a.nope + a.rope)).at[a.nope + d] : 0.0;
    }
}

void main()
{
    uint tile = gl_SubgroupID / 2u * 16u, side = gl_SubgroupID % 2u * (N / 2u), depth = IS_VALUE != 0u ? a.kv : a.nope;
    K3_MATRIX_SUM sum[4];
    [[unroll]] for (uint n = 0u; n < 4u; n++)
        sum[n] = K3_MATRIX_SUM(0.0);
    for (uint deep = 0u; deep < depth; deep += HALF) {
        if (deep % DEEP == 0u)
            stage_rows(deep);
        stage_weights(deep);
        barrier();
        [[unroll]] for (uint k = 0u; k < HALF; k += 16u) {
            K3_MATRIX_A x;
            K3_LOAD_A(x, staged, tile * ROW + (deep % DEEP + k) / 8u, ROW);
            [[unroll]] for (uint n = 0u; n < 4u; n++) {
                K3_MATRIX_B w;
                if (IS_VALUE != 0u)
                    K3_LOAD_B(w, staged, W_AT + (side + 16u * n) * W_ROW + k / 8u, W_ROW);
                else
                    K3_LOAD_B_ROWS(w, staged, W_AT + k * W_ROW + (side + 16u * n) / 8u, W_ROW);
                sum[n] = K3_MULTIPLY_ADD(x, w, sum[n]);
            }
        }
        barrier();
    }
    [[unroll]] for (uint n = 0u; n < 4u; n++)
        K3_STORE_SUM(sum[n], staged, tile * OUT_ROW + (side + 16u * n) / 4u, OUT_ROW);
    barrier();
    write_result();
    if (IS_VALUE == 0u && first_column == 0u)
        copy_rope();
}
