/* y[t][r] = sum_c W[r, c] x[t][c] on matrix units, f16 factors and f32 sums. A workgroup of 2 x 4 subgroups makes 64 MW rows of W by 32 MX
 * rows of x, a subgroup 16 MW by 16 MX of them, 64 columns at a time: while the tile in shared memory is multiplied, the words of the next
 * one are on their way to registers. x comes as f16 (matmul_half.comp). The columns of the last blocks of rows may be shared out over
 * several workgroups (matmul_sum.comp).
 *
 * Weights as f16. int8, int4 and int2 codes are exact; the row's scale multiplies the sum. The others are multiplied by 2^-e of their row.
 * e comes from 64 columns here and there, such that values up to 2^8 times the largest of those fit, of mxfp4 scales up to 2^5 times. What
 * does not fit becomes infinite, and so do the sums; then the tile is made again with e from all columns. So nothing finite overflows in
 * the end. bf16 weights are exact down to 2^-24 of the row's largest, below that the error is at most 2^-25 of it; mxfp4 weights are exact
 * where their scale is at least 2^-19 of the largest, below that the error is at most 2^-21 of that scale. int4_g64 and int3_g64 round
 * scale * code to 11 bits. */
#version 450
#include "backend/gpu/glsl/halves.glsl"
#include "backend/gpu/glsl/matmul.glsl"
#include "backend/gpu/glsl/matrix.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint TYPE = 1;
layout(constant_id = 1) const uint MX = 4; /* 1, 2 or 4 */
layout(constant_id = 2) const uint MW = 2; /* 2 or 3 */
const uint MAX_MX = 4, MAX_MW = 3, X_ROWS = 32 * MX, W_ROWS = 64 * MW, DEPTH = 64;

/* Rows of 8 units, of 8 halves each, and one more for the banks; first those of W, then those of x. Sums leave through it. Of a unit of
 * columns in every 32 rows, which is at invocation / 8, an invocation carries number invocation % 8. */
const uint PITCH = 9, X_AT = 64 * MAX_MW * PITCH, SUM_PITCH = 4 * MAX_MW + 1;
shared uvec4 tile[X_AT + 32 * MAX_MX * PITCH];
shared uint row_peak[64 * MAX_MW];
shared uint too_large;

const bool GROUPED = TYPE == K3_INT4_G64 || TYPE == K3_INT3_G64;
const bool REFERRED = TYPE == K3_BF16 || TYPE == K3_MXFP4 || GROUPED; /* to 2^e of the row */

/* As it comes from memory: nothing is computed from it before it is stored, a tile later. */
struct unit {
    uvec4 words; /* that begin with its columns, or of int3 and int2 lie around them */
    uint scale;  /* f32 bits, or the word around the e8m0 byte */
};

uint64_t w_at[2 * MAX_MW], scale_at[2 * MAX_MW], x_at[MAX_MX]; /* the rows of this invocation */
unit w_next[2 * MAX_MW];
uvec4 x_next[MAX_MX];
int w_exponent[2 * MAX_MW]; /* e */
K3_MATRIX_SUM sum[MAX_MX * MAX_MW];

uint own_row(uint n)
{
    return gl_LocalInvocationID.x / 8 + 32 * n;
}

/* This invocation's unit of all units of the row, in tile k. */
uint own_unit(uint k)
{
    return 8 * k + gl_LocalInvocationID.x % 8;
}

/* ---- weights ------------------------------------------------------------------------------------------- */

unit load_unit(uint n, uint k)
{
    uint j = own_unit(k);
    unit u = unit(uvec4(0), 0);
    if (TYPE == K3_BF16)
        u.words = U32x4(w_at[n]).at[j];
    else if (TYPE == K3_INT8)
        u.words.xy = U32x2(w_at[n]).at[j];
    else if (TYPE == K3_INT3_G64)
        u.words.xy = uvec2(U32(w_at[n]).at[3 * j / 4], U32(w_at[n]).at[3 * j / 4 + 1]);
    else
        u.words.x = U32(w_at[n]).at[TYPE == K3_INT2 ? j / 2 : j];
    if (TYPE == K3_MXFP4)
        u.scale = k3_word_around(scale_at[n] + j / 4);
    else if (GROUPED)
        u.scale = U32(scale_at[n]).at[j / 8];
    return u;
}

uint scale_byte(unit u, uint n, uint k)
{
    return k3_byte_in(u.scale, scale_at[n] + own_unit(k) / 4);
}

/* What orders units by magnitude: bf16 bits, scale byte or f32 bits, without sign. */
uint peak_of(uint n, uint k)
{
    unit u = load_unit(n, k);
    if (TYPE == K3_MXFP4)
        return scale_byte(u, n, k);
    if (GROUPED)
        return u.scale & 0x7fffffffu;
    uint peak = 0;
    [[unroll]] for (uint i = 0; i < 4; i++)
        peak = max(peak, max(u.words[i] & 0x7fffu, u.words[i] >> 16 & 0x7fffu));
    return peak;
}

/* e of a row with that peak: the largest weight becomes 2^7 to 2^8, of mxfp4 at most 6 * 2^-4, of groups at most 2^4. */
int exponent_of(uint peak)
{
    return TYPE == K3_MXFP4 ? int(peak) - 123 : clamp(GROUPED ? int(peak >> 23) - 127 : int(peak >> 7) - 134, -126, 126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(clamp(exponent + 127, 0, 254)) << 23);
}

uvec4 halves_of(unit u, uint n, uint k)
{
    uint word = u.words.x;
    if (TYPE == K3_MXFP4)
        return k3_e2m1_halves(word, int(scale_byte(u, n, k)) - 127 - w_exponent[n] + 29);
    if (TYPE == K3_INT8)
        return k3_int8_halves(u.words.xy);
    if (TYPE == K3_INT4)
        return k3_code_halves(word, 4, 8.0);
    if (TYPE == K3_INT2) {
        word >>= own_unit(k) % 2 * 16;
        return k3_code_halves(word & 0xffu | word << 8 & 0xff0000u, 2, 2.0);
    }
    if (TYPE == K3_INT3_G64) {
        uint shift = own_unit(k) * 24 % 32;
        u.words.x = shift == 0 ? word : word >> shift | u.words.y << 32 - shift;
    }
    vec4 first, second;
    k3_decode8(TYPE, u.words, first, second);
    float factor = power_of_two(-w_exponent[n]) * (GROUPED ? uintBitsToFloat(u.scale) : 1.0);
    return k3_halves(first * factor, second * factor);
}

/* The rows' e from every `step`th tile of first .. last-1. */
void refer(uint first, uint last, uint step)
{
    barrier();
    if (gl_LocalInvocationID.x < W_ROWS)
        row_peak[gl_LocalInvocationID.x] = 0;
    too_large = 0;
    barrier();
    [[unroll]] for (uint n = 0; n < 2 * MW; n++) {
        uint peak = 0;
        for (uint k = first; k < last; k += step)
            peak = max(peak, peak_of(n, k));
        atomicMax(row_peak[own_row(n)], peak);
    }
    barrier();
    [[unroll]] for (uint n = 0; n < 2 * MW; n++)
        w_exponent[n] = exponent_of(row_peak[own_row(n)]);
}

/* ---- the tile ------------------------------------------------------------------------------------------ */

void load_tile(uint k)
{
    [[unroll]] for (uint n = 0; n < 2 * MW; n++)
        w_next[n] = load_unit(n, k);
    [[unroll]] for (uint n = 0; n < MX; n++)
        x_next[n] = U32x4(x_at[n]).at[own_unit(k)];
}

void store_tile(uint k)
{
    uint at = own_row(0) * PITCH + gl_LocalInvocationID.x % 8;
    [[unroll]] for (uint n = 0; n < 2 * MW; n++)
        tile[at + 32 * n * PITCH] = halves_of(w_next[n], n, k);
    [[unroll]] for (uint n = 0; n < MX; n++)
        tile[at + X_AT + 32 * n * PITCH] = x_next[n];
}

/* The subgroup's rows from r and t on. */
void multiply(uint r, uint t)
{
    [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
        K3_MATRIX_A x;
        K3_MATRIX_B w[MAX_MW];
        [[unroll]] for (uint j = 0; j < MW; j++)
            K3_LOAD_B(w[j], tile, (r + 16 * j) * PITCH + 2 * d, PITCH);
        [[unroll]] for (uint i = 0; i < MX; i++) {
            K3_LOAD_A(x, tile, X_AT + (t + 16 * i) * PITCH + 2 * d, PITCH);
            [[unroll]] for (uint j = 0; j < MW; j++)
                sum[MW * i + j] = K3_MULTIPLY_ADD(x, w[j], sum[MW * i + j]);
        }
    }
}

/* The subgroup's sums, 16 rows of x at a time, to memory: row 0 of x and of the workgroup's rows of W at to_at. */
void write_sums(k3_matmul_part part, uint64_t to_at, uint stride, uint r0, uint r_own, uint t0, uint t_own)
{
    uint own = gl_SubgroupID * 16 * SUM_PITCH;
    [[unroll]] for (uint i = 0; i < MX; i++) {
        barrier();
        [[unroll]] for (uint j = 0; j < MW; j++)
            K3_STORE_SUM(sum[MW * i + j], tile, own + 4 * j, SUM_PITCH);
        barrier();
        for (uint c = gl_SubgroupInvocationID; c < 16 * MW; c += gl_SubgroupSize) {
            uint r = r0 + r_own + c, t = t_own + 16 * i;
            if (r >= part.w.rows)
                continue;
            int e = REFERRED ? exponent_of(row_peak[r_own + c]) : 0; /* reaches below the exponents of f32 */
            float low = power_of_two(e / 2) * k3_row_scale(TYPE, k3_scale_at(part.w, r)), high = power_of_two(e - e / 2);
            for (uint m = 0; m < 16 && t0 + t + m < a.T; m++) {
                uint bits = tile[own + m * SUM_PITCH + c / 4][c % 4];
                if (REFERRED && (bits & 0x7f800000u) == 0x7f800000u)
                    too_large = 1;
                F32(to_at + 4ul * (t + m) * stride).at[r_own + c] = uintBitsToFloat(bits) * F32(a.x_scale).at[t0 + t + m] * low * high;
            }
        }
    }
    barrier();
}

void main()
{
    uint t_tiles = (a.T + X_ROWS - 1) / X_ROWS, t0 = gl_WorkGroupID.x % t_tiles * X_ROWS;
    uint block = gl_WorkGroupID.x / t_tiles, split = 0, first = 0, last = a.cols / DEPTH;
    bool is_whole = block < a.whole;
    if (!is_whole) {
        uint n = a.blocks - a.whole, depth = (last + a.splits - 1) / a.splits;
        split = (block - a.whole) / n;
        block = a.whole + (block - a.whole) % n;
        first = split * depth;
        last = min(first + depth, last);
    }
    k3_matmul_part part = part_of(block);
    uint r0 = (block - part.first_block) * W_ROWS, stride = is_whole ? part.stride : a.rows - a.split_row;
    uint64_t to_at = is_whole ? part.y + 4ul * (uint64_t(t0) * stride + r0)
                              : a.sums + 4ul * ((uint64_t(split) * a.T + t0) * stride + part.first_row + r0 - a.split_row);
    uint t_own = gl_SubgroupID % 2 * 16 * MX, r_own = gl_SubgroupID / 2 * 16 * MW;
    [[unroll]] for (uint n = 0; n < 2 * MW; n++) {
        uint row = min(r0 + own_row(n), part.w.rows - 1);
        w_at[n] = k3_row_at(part.w, row);
        scale_at[n] = k3_scale_at(part.w, row);
    }
    [[unroll]] for (uint n = 0; n < MX; n++)
        x_at[n] = a.x + 2ul * a.cols * min(t0 + own_row(n), a.T - 1);

    for (bool again = false;; again = true) {
        if (REFERRED && again)
            refer(first, last, 1);
        else if (REFERRED)
            refer(first + gl_LocalInvocationID.x % 8 * (last - first) / 8, last, last);
        [[unroll]] for (uint i = 0; i < MX * MW; i++)
            sum[i] = K3_MATRIX_SUM(0.0);
        load_tile(first);
        for (uint k = first; k < last; k++) {
            barrier();
            store_tile(k);
            barrier();
            load_tile(min(k + 1, last - 1));
            multiply(r_own, t_own);
        }
        write_sums(part, to_at, stride, r0, r_own, t0, t_own);
        if (!REFERRED || again || too_large == 0)
            break;
    }
}
