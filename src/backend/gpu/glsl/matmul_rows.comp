/* y[t][r] = sum_c W[r, c] x[t][c] for 1 to 8 rows t, weights decoded once for all of them. Bound by memory: a lane reads 16 bytes of each of
 * R rows at a time, the lanes of a subgroup side by side, and the next 16 before it uses these. x goes through shared memory, a section of
 * columns at a time, since the same 16 bytes stand for up to 64 floats. */
#version 450
#include "backend/gpu/glsl/decode.glsl"
#include "backend/gpu/glsl/matmul.glsl"

layout(local_size_x = 256, local_size_x_id = 4) in;
layout(constant_id = 4) const uint THREADS = 256;
layout(constant_id = 0) const uint TYPE = 0;
layout(constant_id = 1) const uint T = 1;
layout(constant_id = 2) const uint R = 1; /* rows of W in a block, which is a subgroup's work */
const uint MAX_T = 8, MAX_R = 4;

/* Columns that a lane reads of a row at once, in 16 bytes, or 32 of f32, or 24 of int3_g64. */
layout(constant_id = 3) const uint UNIT = 8;

/* Codes of int4 are multiplied as 0 .. 15 and eight times the sum of x subtracted, once for all rows of a block: fewer operations where x is
 * one row or two. */
const bool IS_UINT4 = (TYPE == K3_INT4 || TYPE == K3_INT4_G64) && T <= 2;

/* x, sections of T rows; one float4 in nine is left out, so that lanes 2, 4, 8 or 16 apart meet different banks. */
const uint SHARED_COLS = 7168, SECTION = SHARED_COLS / T / 64 * 64, PITCH = SECTION / 4 + SECTION / 32;
shared vec4 x_shared[SHARED_COLS / 4 + SHARED_COLS / 32];

void stage(uint first, uint n)
{
    for (uint t = 0; t < T; t++)
        for (uint v = gl_LocalInvocationID.x; v < n / 4; v += THREADS)
            x_shared[t * PITCH + v + v / 8] = F32x4(a.x + 4ul * (uint64_t(t) * a.cols + first)).at[v];
}

/* As it comes from memory: nothing is computed from it before it is used, a step later. */
struct unit {
    uvec4 low, high; /* high: the second half of 32 bytes, words 4 and 5 of 24 */
    uint scale;      /* f32 bits of the group's scale, or the word around its e8m0 byte */
};

unit load_unit(uint64_t row, uint64_t scale, uint i)
{
    unit u;
    u.high = uvec4(0);
    u.scale = 0;
    if (TYPE == K3_F32) {
        u.low = U32x4(row).at[2 * i];
        u.high = U32x4(row).at[2 * i + 1];
    } else if (TYPE == K3_INT3_G64) {
        u.low = uvec4(U32x2(row).at[3 * i], U32x2(row).at[3 * i + 1]);
        u.high.xy = U32x2(row).at[3 * i + 2];
    } else {
        u.low = U32x4(row).at[i];
    }
    if (TYPE == K3_MXFP4)
        u.scale = k3_word_around(scale + i);
    else if (TYPE == K3_INT4_G64)
        u.scale = U32(scale).at[i / 2];
    else if (TYPE == K3_INT3_G64)
        u.scale = U32(scale).at[i];
    return u;
}

/* What the sum of a unit's products is multiplied by, if that is not the whole row's. */
float scale_of(unit u, uint64_t scale, uint i)
{
    if (TYPE == K3_MXFP4)
        return k3_e8m0(k3_byte_in(u.scale, scale + i));
    return TYPE == K3_INT4_G64 || TYPE == K3_INT3_G64 ? uintBitsToFloat(u.scale) : 1.0;
}

/* Columns 8j .. 8j+7 of a unit. */
void decode_chunk(unit u, uint j, out vec4 first, out vec4 second)
{
    if (TYPE == K3_F32) {
        first = uintBitsToFloat(u.low);
        second = uintBitsToFloat(u.high);
    } else if (TYPE == K3_BF16) {
        k3_decode8(TYPE, u.low, first, second);
    } else if (TYPE == K3_INT8) {
        k3_decode8(TYPE, uvec4(u.low[2 * j], u.low[2 * j + 1], 0, 0), first, second);
    } else if (TYPE == K3_INT2) {
        k3_decode8(TYPE, uvec4(u.low[j / 2] >> (16 * (j % 2))), first, second);
    } else if (TYPE == K3_INT3_G64) {
        uint word = 3 * j / 4, shift = 24 * j % 32, next = word + 1;
        uint bits = (word < 4 ? u.low[word] : u.high[word - 4]) >> shift;
        if (shift > 8)
            bits |= (next < 4 ? u.low[next] : u.high[next - 4]) << (32 - shift);
        k3_decode8(TYPE, uvec4(bits), first, second);
    } else if (IS_UINT4) {
        k3_uint4x8(u.low[j], first, second);
    } else {
        k3_decode8(TYPE, uvec4(u.low[j]), first, second);
    }
}

/* Adds the products of a unit of R rows with T rows of x; `at` is the unit's place in the section. */
void add_unit(unit u[MAX_R], float scale[MAX_R], uint at, inout float sum[MAX_R * MAX_T])
{
    vec4 four[MAX_R * MAX_T], x_sum[MAX_T];
    uint v = at * (UNIT / 4);
    v += v / 8;
    [[unroll]] for (uint j = 0; j < UNIT / 8; j++) {
        vec4 first[MAX_R], second[MAX_R];
        [[unroll]] for (uint r = 0; r < R; r++)
            decode_chunk(u[r], j, first[r], second[r]);
        [[unroll]] for (uint t = 0; t < T; t++) {
            uint place = t * PITCH + v + 2 * j + j / 4;
            vec4 x0 = x_shared[place], x1 = x_shared[place + 1];
            if (IS_UINT4)
                x_sum[t] = j == 0 ? x0 + x1 : x_sum[t] + (x0 + x1);
            [[unroll]] for (uint r = 0; r < R; r++) {
                uint i = r * MAX_T + t;
                four[i] = j == 0 ? first[r] * x0 : fma(first[r], x0, four[i]);
                four[i] = fma(second[r], x1, four[i]);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < R; r++)
        [[unroll]] for (uint t = 0; t < T; t++) {
            vec4 p = four[r * MAX_T + t] * (IS_UINT4 ? K3_UINT4_UNIT : k3_unit(TYPE));
            if (IS_UINT4)
                p -= 8.0 * x_sum[t];
            sum[r * MAX_T + t] = fma((p.x + p.y) + (p.z + p.w), scale[r], sum[r * MAX_T + t]);
        }
}

/* One block of rows a subgroup. All subgroups of a workgroup take part in the barriers; those past the last block repeat it and keep quiet.
 * x that fits shared memory whole stays there after the first. */
void block_of_rows(uint block, bool is_first)
{
    bool live = block < a.blocks;
    block = min(block, a.blocks - 1);
    k3_matmul_part part = part_of(block);
    k3_mat_args w = part.w;
    uint row = (block - part.first_block) * R;
    uint64_t codes[MAX_R], scales[MAX_R];
    float sum[MAX_R * MAX_T];
    [[unroll]] for (uint r = 0; r < R; r++) {
        codes[r] = k3_row_at(w, min(row + r, w.rows - 1));
        scales[r] = k3_scale_at(w, min(row + r, w.rows - 1));
        [[unroll]] for (uint t = 0; t < T; t++)
            sum[r * MAX_T + t] = 0.0;
    }
    for (uint first = 0; first < a.cols; first += SECTION) {
        uint n = min(SECTION, a.cols - first), from = first / UNIT, units = n / UNIT, at = gl_SubgroupInvocationID;
        unit now[MAX_R], next[MAX_R];
        float scale[MAX_R];
        [[unroll]] for (uint r = 0; r < R; r++)
            next[r] = load_unit(codes[r], scales[r], from + min(at, units - 1));
        if (a.cols > SECTION || is_first) {
            barrier();
            stage(first, n);
            barrier();
        }
        for (; at < units; at += gl_SubgroupSize) {
            [[unroll]] for (uint r = 0; r < R; r++) {
                now[r] = next[r];
                scale[r] = scale_of(now[r], scales[r], from + at);
                next[r] = load_unit(codes[r], scales[r], from + min(at + gl_SubgroupSize, units - 1));
            }
            add_unit(now, scale, at, sum);
        }
    }
    [[unroll]] for (uint r = 0; r < R; r++)
        [[unroll]] for (uint t = 0; t < T; t++) {
            float y = subgroupAdd(sum[r * MAX_T + t]);
            if (live && subgroupElect() && row + r < w.rows)
                F32(part.y + 4ul * t * part.stride).at[row + r] = y * k3_row_scale(TYPE, scales[r]);
        }
}

void main()
{
    uint groups = (a.blocks + gl_NumSubgroups - 1) / gl_NumSubgroups;
    for (uint g = gl_WorkGroupID.x; g < groups; g += gl_NumWorkGroups.x)
        block_of_rows(g * gl_NumSubgroups + gl_SubgroupID, g == gl_WorkGroupID.x);
}
