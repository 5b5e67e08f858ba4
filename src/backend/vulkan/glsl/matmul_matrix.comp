/* y[t][r] = sum_c W[r, c] x[t][c] on matrix units, f16 factors and f32 sums. A workgroup of eight subgroups makes 128 rows of W by 32 MI rows
 * of x, 32 columns at a time: a tile is decoded into one half of the shared memory while the other is multiplied, and the next tiles' words
 * are on their way. x comes as f16 (matmul_half.comp). The columns may be shared out over several workgroups (matmul_sum.comp).
 *
 * Weights as f16. int8, int4 and int2 codes are exact; the row's scale multiplies the sum. The others are multiplied by 2^-e of their row,
 * which 128 of its columns suggest, such that values up to 2^8 times the largest of those fit; if one does not, the tile is made again with
 * an e from all columns. So bf16 and mxfp4 weights are exact down to 2^-24 of the row's largest, below that the error is at most 2^-25 of it,
 * and nothing overflows. int4_g64 and int3_g64 round scale * code to 11 bits. */
#version 450
#include "backend/vulkan/glsl/decode.glsl"
#include "backend/vulkan/glsl/matmul.glsl"
#include "backend/vulkan/glsl/matrix.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint TYPE = 1;
layout(constant_id = 1) const uint MI = 4; /* 1, 2 or 4: a subgroup makes 16 MI rows of x by 32 rows of W */
const uint MAX_MI = 4, W_ROWS = 128, X_ROWS = 32 * MI, DEPTH = 32;

/* Rows of DEPTH halves, which are 4 elements and one more for the banks; first those of W, then those of x; twice. Sums leave through it. */
const uint PITCH = 5, X_AT = W_ROWS * PITCH, HALF = X_AT + 32 * MAX_MI * PITCH, SUM_PITCH = 9;
shared uvec4 tile[2 * HALF];
shared uint row_peak[W_ROWS];
shared uint too_large;

const bool GROUPED = TYPE == K3_INT4_G64 || TYPE == K3_INT3_G64;
const bool REFERRED = TYPE == K3_BF16 || TYPE == K3_MXFP4 || GROUPED; /* to 2^e of the row */

/* ---- 16 columns of a row of W: invocation i has half i % 2 of row i / 2 -------------------------------- */

/* As it comes from memory: nothing is computed from it before it is stored, a tile later or two. */
struct span {
    uvec4 low, high; /* high: of bf16 only */
    uint scale;      /* f32 bits, or the word around the e8m0 byte */
};

span load_span(uint64_t codes, uint64_t scales, uint k)
{
    uint i = 2 * k + gl_LocalInvocationID.x % 2;
    span s = span(uvec4(0), uvec4(0), 0);
    if (TYPE == K3_BF16) {
        s.low = U32x4(codes).at[2 * i];
        s.high = U32x4(codes).at[2 * i + 1];
    } else if (TYPE == K3_INT8) {
        s.low = U32x4(codes).at[i];
    } else if (TYPE == K3_INT2) {
        s.low.x = U32(codes).at[i];
    } else if (TYPE == K3_INT3_G64) {
        s.low.xy = uvec2(U32(codes).at[3 * i / 2], U32(codes).at[3 * i / 2 + 1]); /* 48 bits of these: i odd begins inside a word */
    } else {
        s.low.xy = U32x2(codes).at[i];
    }
    if (TYPE == K3_MXFP4)
        s.scale = k3_word_around(scales + k);
    else if (GROUPED)
        s.scale = U32(scales).at[k / 2];
    return s;
}

/* The words that begin with columns 8j .. 8j+7 of a span. */
uvec4 words_of(span s, uint j)
{
    if (TYPE == K3_BF16)
        return j == 0 ? s.low : s.high;
    if (TYPE == K3_INT8)
        return j == 0 ? s.low.xyxy : s.low.zwzw;
    if (TYPE == K3_INT2)
        return uvec4(s.low.x >> 16 * j);
    if (TYPE == K3_INT3_G64) {
        bool odd = gl_LocalInvocationID.x % 2 == 1;
        uint low = odd ? s.low.x >> 16 | s.low.y << 16 : s.low.x, high = odd ? s.low.y >> 16 : s.low.y;
        return uvec4(j == 0 ? low : low >> 24 | high << 8);
    }
    return uvec4(s.low[j]);
}

/* What orders spans by magnitude: bf16 bits, scale byte or f32 bits, without sign. */
uint peak_of(span s, uint64_t scale)
{
    if (TYPE == K3_MXFP4)
        return k3_byte_in(s.scale, scale);
    if (GROUPED)
        return s.scale & 0x7fffffffu;
    uint peak = 0;
    [[unroll]] for (uint i = 0; i < 4; i++)
        peak = max(max(peak, max(s.low[i] & 0x7fffu, s.low[i] >> 16 & 0x7fffu)), max(s.high[i] & 0x7fffu, s.high[i] >> 16 & 0x7fffu));
    return peak;
}

/* e of a row with that peak: the largest weight becomes 2^7 to 2^8, of mxfp4 at most 6 * 2^5, of groups at most 2^8. */
int exponent_of(uint peak)
{
    if (TYPE == K3_MXFP4)
        return int(peak) - 132;
    return clamp(GROUPED ? int(peak >> 23) - 127 : int(peak >> 7) - 134, -126, 126);
}

float power_of_two(int exponent)
{
    return uintBitsToFloat(uint(clamp(exponent + 127, 0, 254)) << 23);
}

/* scale: the address of the e8m0 byte. */
void store_span(uint at, span s, uint64_t scale, int e)
{
    float factor = 1.0;
    bool fits = true;
    if (TYPE == K3_MXFP4) {
        int shift = int(k3_byte_in(s.scale, scale)) - 127 - e;
        factor = power_of_two(shift + 14); /* 14: k3_unit */
        fits = shift <= 13;
    } else if (GROUPED) {
        factor = uintBitsToFloat(s.scale) * power_of_two(-e);
        fits = abs(factor) < 256.0;
    } else if (TYPE == K3_BF16) {
        factor = power_of_two(-e);
    }
    [[unroll]] for (uint j = 0; j < 2; j++) {
        vec4 first, second;
        k3_decode8(TYPE, words_of(s, j), first, second);
        if (REFERRED) {
            first *= factor;
            second *= factor;
        }
        if (TYPE == K3_BF16) {
            vec4 most = max(abs(first), abs(second));
            fits = fits && max(max(most.x, most.y), max(most.z, most.w)) < 32768.0;
        }
        tile[at + j] = uvec4(packHalf2x16(first.xy), packHalf2x16(first.zw), packHalf2x16(second.xy), packHalf2x16(second.zw));
    }
    if (REFERRED && !fits)
        too_large = 1;
}

/* e of this invocation's row from tiles first .. last-1. */
int reference(uint64_t codes, uint64_t scales, uint first, uint last)
{
    uint row = gl_LocalInvocationID.x / 2, peak = 0;
    barrier();
    row_peak[row] = 0;
    too_large = 0;
    barrier();
    for (uint k = first; k < last; k++)
        peak = max(peak, peak_of(load_span(codes, scales, k), scales + k));
    atomicMax(row_peak[row], peak);
    barrier();
    return exponent_of(row_peak[row]);
}

/* ---- x ------------------------------------------------------------------------------------------------- */

/* 16 bytes of rows of x that invocation i carries: part i % 4 of row i / 4 and, of the largest tile, of row i / 4 + 64. */
uvec4 load_x(uint64_t at, uint k)
{
    return gl_LocalInvocationID.x < 4 * X_ROWS ? U32x4(at).at[4 * k] : uvec4(0);
}

void store_x(uint at, uvec4 first, uvec4 second)
{
    uint place = at + X_AT + gl_LocalInvocationID.x / 4 * PITCH + gl_LocalInvocationID.x % 4;
    if (gl_LocalInvocationID.x < 4 * X_ROWS)
        tile[place] = first;
    if (MI == 4)
        tile[place + 64 * PITCH] = second;
}

/* ---- the tile ------------------------------------------------------------------------------------------ */

void main()
{
    uint t_tiles = (a.T + X_ROWS - 1) / X_ROWS, t0 = gl_WorkGroupID.x % t_tiles * X_ROWS;
    uint block = gl_WorkGroupID.x / t_tiles % a.blocks, split = gl_WorkGroupID.x / t_tiles / a.blocks;
    k3_matmul_part part = part_of(block);
    k3_mat_args w = part.w;
    uint r0 = (block - part.first_block) * W_ROWS;
    uint first = split * a.depth, last = min(first + a.depth, a.cols / DEPTH);

    uint id = gl_LocalInvocationID.x, row = min(r0 + id / 2, w.rows - 1), w_at = id / 2 * PITCH + id % 2 * 2;
    uint64_t codes = k3_row_at(w, row), scales = k3_scale_at(w, row);
    uint64_t x_first = a.x + 2ul * a.cols * min(t0 + id / 4, a.T - 1) + 16 * (id % 4);
    uint64_t x_second = a.x + 2ul * a.cols * min(t0 + id / 4 + 64, a.T - 1) + 16 * (id % 4);
    uint t_own = gl_SubgroupID % 2 * 16 * MI, r_own = gl_SubgroupID / 2 * 32; /* of this subgroup, in the tile */
    int e = 0;

    K3_MATRIX_SUM sum[2 * MAX_MI];
    for (bool again = false;; again = true) {
        if (REFERRED)
            e = reference(codes, scales, first, again ? last : min(first + 4, last));
        [[unroll]] for (uint i = 0; i < 2 * MI; i++)
            sum[i] = K3_MATRIX_SUM(0.0);
        span near = load_span(codes, scales, first), far = load_span(codes, scales, min(first + 1, last - 1));
        store_span(w_at, near, scales + first, e);
        store_x(0, load_x(x_first, first), load_x(x_second, first));
        near = far;
        far = load_span(codes, scales, min(first + 2, last - 1));
        uvec4 x0 = load_x(x_first, min(first + 1, last - 1)), x1 = load_x(x_second, min(first + 1, last - 1));
        barrier();
        for (uint k = first; k < last; k++) {
            uint from = (k - first) % 2 * HALF, to = HALF - from;
            store_span(to + w_at, near, scales + min(k + 1, last - 1), e);
            store_x(to, x0, x1);
            near = far;
            far = load_span(codes, scales, min(k + 3, last - 1));
            x0 = load_x(x_first, min(k + 2, last - 1));
            x1 = load_x(x_second, min(k + 2, last - 1));
            [[unroll]] for (uint d = 0; d < DEPTH / 16; d++) {
                K3_MATRIX_A xs;
                K3_MATRIX_B ws[2];
                [[unroll]] for (uint j = 0; j < 2; j++)
                    K3_LOAD_B(ws[j], tile, from + (r_own + 16 * j) * PITCH + 2 * d, PITCH);
                [[unroll]] for (uint i = 0; i < MI; i++) {
                    K3_LOAD_A(xs, tile, from + X_AT + (t_own + 16 * i) * PITCH + 2 * d, PITCH);
                    [[unroll]] for (uint j = 0; j < 2; j++)
                        sum[2 * i + j] = K3_MULTIPLY_ADD(xs, ws[j], sum[2 * i + j]);
                }
            }
            barrier();
        }
        if (!REFERRED || again || too_large == 0)
            break;
    }

    /* 16 rows of x by 32 of W at a time; a lane has one row of W. */
    uint own = gl_SubgroupID * 16 * SUM_PITCH, lane = gl_SubgroupInvocationID, r = r0 + r_own + lane;
    float scale = k3_row_scale(TYPE, k3_scale_at(w, min(r, w.rows - 1))) * (TYPE == K3_MXFP4 ? 1.0 : k3_unit(TYPE));
    e = REFERRED ? exponent_of(row_peak[r_own + lane]) : 0;
    [[unroll]] for (uint i = 0; i < MI; i++) {
        barrier();
        [[unroll]] for (uint j = 0; j < 2; j++)
            K3_STORE_SUM(sum[2 * i + j], tile, own + 4 * j, SUM_PITCH);
        barrier();
        for (uint m = 0; m < 16; m++) {
            uint t = t0 + t_own + 16 * i + m;
            if (t >= a.T || r >= w.rows)
                continue;
            float y = uintBitsToFloat(tile[own + m * SUM_PITCH + lane / 4][lane % 4]) * F32(a.x_scale).at[t] * scale;
            y = y * power_of_two(e / 2) * power_of_two(e - e / 2); /* e reaches below the exponents of f32 */
            if (a.splits == 1)
                F32(part.y + 4ul * t * part.stride).at[r] = y;
            else
                F32(a.sums + 4ul * a.rows * (uint64_t(split) * a.T + t)).at[part.first_row + r] = y;
        }
    }
}
