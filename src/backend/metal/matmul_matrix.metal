// y[t][r] = sum_c W[r, c] x[t][c] on matrix units, for many rows t of x: threads 128
/* The counterpart of glsl/matmul_matrix.comp: the same arguments (args/matmul.h), the same x, which matmul_half has made, and the same
 * numbering of groups. Here factors are f32, since Apple's matrix units multiply them as fast as f16: weights need no common exponent, and
 * nothing overflows.
 *
 * A group makes 64 rows of W by 32 MX rows of x, 32 columns at a time; its four simdgroups make a quarter of that each. In threadgroup
 * memory eight columns of a row are a unit, and units lie column by column, [4][rows]: eight of them in a row are a matrix. */
#include <metal_simdgroup_matrix>
#include <metal_stdlib>

using namespace metal;

constant uint TYPE [[function_constant(0)]];
constant uint MX [[function_constant(1)]]; /* 1 or 2 */
constant uint MW [[function_constant(2)]]; /* 1 */

enum { F32, BF16, INT8, INT4, INT4_G64, INT3_G64, INT2, MXFP4 };

struct mat_args {
    ulong data, scale;
    uint rows, cols, row_bytes, scale_bytes;
};

struct part_args {
    mat_args w;
    ulong y;
    uint stride, first_block, first_row, pad;
};

struct matmul_args {
    ulong parts, x, x_scale, sums;
    uint n_parts, T, cols, blocks, rows, whole, split_row, splits;
    part_args only;
};

/* ---- eight columns of a row, in order --------------------------------------------------------------------------- */

struct eight {
    float4 first, second;
};

/* Four codes of that many bits from the low end. */
static inline uint4 codes4(uint word, uint bits)
{
    return (uint4(word) >> (uint4(0, 1, 2, 3) * bits)) & ((1u << bits) - 1u);
}

static inline eight codes8(uint word, uint bits, float zero)
{
    return {float4(codes4(word, bits)) - zero, float4(codes4(word >> 4u * bits, bits)) - zero};
}

static inline float4 bf16x4(uint2 words)
{
    return as_type<float4>(uint4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
}

/* A digit of the constant is twice the magnitude of its place. */
static inline float4 e2m1x4(uint word)
{
    uint4 code = codes4(word, 4);
    float4 size = 0.5f * float4((uint4(0xc8643210u) >> (4u * (code & 7u))) & 15u);
    return select(size, -size, (code & 8u) != 0u);
}

/* 2^(byte - 127) */
static inline float e8m0(uint byte)
{
    return as_type<float>(byte == 0u ? 0x00400000u : byte << 23);
}

/* Unit j of the row whose codes and scales are there; without the scale of the whole row, where the type has one. */
static inline eight weights8(ulong row, ulong scales, uint j)
{
    device const uint* words = reinterpret_cast<device const uint*>(row);
    device const float* scale = reinterpret_cast<device const float*>(scales);
    eight w;
    if (TYPE == F32) {
        device const float4* fours = reinterpret_cast<device const float4*>(row);
        return {fours[2 * j], fours[2 * j + 1]};
    }
    if (TYPE == BF16) {
        uint4 pairs = reinterpret_cast<device const uint4*>(row)[j];
        return {bf16x4(pairs.xy), bf16x4(pairs.zw)};
    }
    if (TYPE == INT8) {
        device const char4* fours = reinterpret_cast<device const char4*>(row);
        return {float4(fours[2 * j]), float4(fours[2 * j + 1])};
    }
    if (TYPE == INT4)
        return codes8(words[j], 4, 8.0f);
    if (TYPE == INT2)
        return codes8(words[j / 2] >> 16 * (j % 2), 2, 2.0f);
    float factor;
    if (TYPE == MXFP4) {
        w = {e2m1x4(words[j]), e2m1x4(words[j] >> 16)};
        factor = e8m0(reinterpret_cast<device const uchar*>(scales)[j / 4]);
    } else if (TYPE == INT4_G64) {
        w = codes8(words[j], 4, 8.0f);
        factor = scale[j / 8];
    } else {
        uint shift = 24 * j % 32, bits = words[3 * j / 4] >> shift;
        if (shift > 8) /* the rest lies in the next word */
            bits |= words[3 * j / 4 + 1] << (32 - shift);
        w = codes8(bits, 3, 4.0f);
        factor = scale[j / 8];
    }
    return {w.first * factor, w.second * factor};
}

/* Unit j of a row of x: its columns come in the order 0 4 1 5 2 6 3 7. */
static inline eight x8(ulong row, uint j)
{
    uint4 pairs = reinterpret_cast<device const uint4*>(row)[j];
    half4 low = as_type<half4>(pairs.xy), high = as_type<half4>(pairs.zw);
    return {float4(half4(low.xz, high.xz)), float4(half4(low.yw, high.yw))};
}

/* ---- tiles ------------------------------------------------------------------------------------------------------- */

/* The part that holds a block. */
static inline part_args part_of(constant matmul_args& a, uint block)
{
    constant part_args& o = a.only;
    if (a.n_parts == 1)
        return {{o.w.data, o.w.scale, o.w.rows, o.w.cols, o.w.row_bytes, o.w.scale_bytes}, o.y, o.stride, o.first_block, o.first_row, o.pad};
    device const part_args* parts = reinterpret_cast<device const part_args*>(a.parts);
    uint p = 0;
    while (p + 1 < a.n_parts && parts[p + 1].first_block <= block)
        p++;
    return parts[p];
}

kernel void matmul_matrix(constant matmul_args& a [[buffer(0)]], uint3 group [[threadgroup_position_in_grid]],
                          uint thread_index [[thread_index_in_threadgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    const uint ROWS = 64, DEPTH = 4, MOST = 4; /* rows of W; units of a tile; matrices of a simdgroup's rows of W, and of x at most */
    threadgroup float4 tile[1024];             /* W [4][64] units, x [4][32 MX] units; then sums [32 MX][64] */
    threadgroup float* w_tile = reinterpret_cast<threadgroup float*>(tile);
    threadgroup float* x_tile = w_tile + 8 * DEPTH * ROWS;

    const uint x_rows = 32 * MX, t_tiles = (a.T + x_rows - 1) / x_rows, t0 = group.x % t_tiles * x_rows;
    uint block = group.x / t_tiles, split = 0, first = 0, last = a.cols / 8; /* units of this group's share of the columns */
    const bool is_whole = block < a.whole;
    if (!is_whole) {
        const uint n = a.blocks - a.whole, depth = (a.cols / 64 + a.splits - 1) / a.splits * 8;
        split = (block - a.whole) / n;
        block = a.whole + (block - a.whole) % n;
        first = split * depth;
        last = min(first + depth, last);
    }
    const part_args part = part_of(a, block);
    const uint r0 = (block - part.first_block) * ROWS;
    const uint r_own = simdgroup / 2 * 32, t_own = simdgroup % 2 * 16 * MX;              /* this simdgroup's rows */

    simdgroup_float8x8 sum[MOST][MOST]; /* [x][W] */
#pragma unroll
    for (uint n = 0; n < MOST; n++)
#pragma unroll
        for (uint m = 0; m < MOST; m++)
            sum[n][m] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);

    for (uint k = first; k < last; k += DEPTH) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        const uint j = thread_index % DEPTH;
        for (uint r = thread_index / DEPTH; r < ROWS; r += 32) {
            const uint row = min(r0 + r, part.w.rows - 1);
            const eight w = weights8(part.w.data + ulong(row) * part.w.row_bytes, part.w.scale + ulong(row) * part.w.scale_bytes, k + j);
            tile[2 * (j * ROWS + r)] = w.first;
            tile[2 * (j * ROWS + r) + 1] = w.second;
        }
        for (uint t = thread_index / DEPTH; t < x_rows; t += 32) {
            const eight x = x8(a.x + 2 * ulong(min(t0 + t, a.T - 1)) * a.cols, k + j);
            tile[2 * (DEPTH * ROWS + j * x_rows + t)] = x.first;
            tile[2 * (DEPTH * ROWS + j * x_rows + t) + 1] = x.second;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint d = 0; d < DEPTH; d++) {
            simdgroup_float8x8 x, w[MOST];
#pragma unroll
            for (uint m = 0; m < MOST; m++)
                simdgroup_load(w[m], w_tile + 8 * (d * ROWS + r_own + 8 * m), 8, ulong2(0, 0), true);
#pragma unroll
            for (uint n = 0; n < MOST; n++) {
                if (n >= 2 * MX)
                    continue;
                simdgroup_load(x, x_tile + 8 * (d * x_rows + t_own + 8 * n), 8);
#pragma unroll
                for (uint m = 0; m < MOST; m++)
                    simdgroup_multiply_accumulate(sum[n][m], x, w[m], sum[n][m]);
            }
        }
    }

    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint n = 0; n < MOST; n++)
#pragma unroll
        for (uint m = 0; m < MOST; m++)
            if (n < 2 * MX)
                simdgroup_store(sum[n][m], w_tile + (t_own + 8 * n) * ROWS + r_own + 8 * m, ROWS);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint r = r0 + thread_index % ROWS;
    if (r >= part.w.rows)
        return;
    const bool scales_rows = TYPE == INT8 || TYPE == INT4 || TYPE == INT2;
    const float scale = scales_rows ? *reinterpret_cast<device const float*>(part.w.scale + ulong(r) * part.w.scale_bytes) : 1.0f;
    for (uint t = thread_index / ROWS; t < x_rows && t0 + t < a.T; t += 2) {
        const float y = w_tile[t * ROWS + r - r0] * reinterpret_cast<device const float*>(a.x_scale)[t0 + t] * scale;
        if (is_whole)
            reinterpret_cast<device float*>(part.y)[ulong(t0 + t) * part.stride + r] = y;
        else
            reinterpret_cast<device float*>(a.sums)[ulong(a.rows - a.split_row) * (split * a.T + t0 + t) + part.first_row + r - a.split_row] = y;
    }
}
