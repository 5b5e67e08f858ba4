/* The experts of many rows on matrix units: as moe_experts_tile.comp, with f16 factors and f32 sums. A subgroup takes 32 rows of weights
 * (16 of W1 and the same of W3, or 32 of W2), a row a lane, and all rows of x of a job, up to 16 PARTS at a time. It decodes 64 columns into
 * its own place in shared memory and waits for no other; the codes come from memory 128 columns at once, the next ones while these are
 * multiplied. x comes in panels by place; the 4 subgroups of a group find each other's in the cache. Rows beyond a job's are multiplied too,
 * and nothing is made of them.
 *
 * The weights are exact in f16: e2m1 times 2^(scale - largest scale of the row), the largest multiplied into the sum. (A scale less than
 * 2^-28 of the largest gives 0.) */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "halves.glsl"
#include "matrix.glsl"
#include "moe.glsl"

layout(constant_id = 1) const uint DOWN = 0;
layout(constant_id = 2) const uint PARTS = 4; /* of 16 rows of x */
layout(local_size_x = 128) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_tile_args a;
};

const uint MOST_PARTS = 4, SUBGROUPS = 4, ROWS = 32;
const uint PITCH = 9; /* of 64 columns of f16, or 32 sums, in uvec4 */
shared uvec4 tile[SUBGROUPS * ROWS * PITCH];
shared uint top_scale[SUBGROUPS * ROWS];

K3_MATRIX_SUM sum[2u * MOST_PARTS];

/* The first row of y that the subgroup makes. */
uint first_row()
{
    return (gl_WorkGroupID.x * SUBGROUPS + gl_SubgroupID) * (DOWN != 0u ? ROWS : ROWS / 2u);
}

/* The first byte of the lane's row of codes (in 16 bytes a block of 32) or scales: W1 above W3, or W2. */
uint64_t row_address(uint entry, uint lane, uint block_bytes, uint of_scales)
{
    uint tensor = DOWN != 0u ? K3_W2 : lane < ROWS / 2u ? K3_W1 : K3_W3, row = DOWN != 0u ? lane : lane % (ROWS / 2u);
    return k3_expert_tensor(a.table, entry, tensor + of_scales) + uint64_t(first_row() + row) * (a.cols / 32u) * block_bytes;
}

uint largest_byte(uint64_t at, uint n_words)
{
    uint most = 0u;
    for (uint i = 0; i < n_words; i++) {
        uint word = U32(at).at[i];
        most = max(most, max(max(word & 255u, word >> 8 & 255u), max(word >> 16 & 255u, word >> 24)));
    }
    return most;
}

/* 16 rows of x with the subgroup's rows of weights, of which n are there: from sums in its tile to rows place .. of y. */
void write_sums(uint place, uint n)
{
    uint lane = gl_SubgroupInvocationID, own = gl_SubgroupID * ROWS * PITCH, top = gl_SubgroupID * ROWS;
    if (DOWN != 0u) {
        float unit = k3_e8m0(top_scale[top + lane]) * a.inner_unit;
        for (uint r = 0; r < n; r++)
            F32(a.y + 4ul * U32(a.pair_at).at[place + r] * a.rows).at[first_row() + lane] =
                uintBitsToFloat(tile[own + r * PITCH + lane / 4u][lane % 4u]) * unit;
        return;
    }
    for (uint r = lane / 8u; r < n; r += 4u) {
        float x_unit = F32(a.x_unit).at[place + r];
        vec2 y;
        for (uint j = 0; j < 2u; j++) {
            uint c = lane % 8u / 4u * 8u + lane % 4u + 4u * j, up = ROWS / 2u + c; /* the order of halves.glsl */
            float gate_sum = uintBitsToFloat(tile[own + r * PITCH + c / 4u][c % 4u]);
            float up_sum = uintBitsToFloat(tile[own + r * PITCH + up / 4u][up % 4u]);
            y[j] = k3_situ(gate_sum * (k3_e8m0(top_scale[top + c]) * x_unit), up_sum * (k3_e8m0(top_scale[top + up]) * x_unit), a.b1, a.b2) /
                   a.inner_unit;
        }
        U32(a.y + 32ul * (uint64_t(first_row() / 16u) * a.places + place + r)).at[lane % 8u] = packHalf2x16(y);
    }
}

/* 64 columns: two blocks of codes to the tile, and their products with `parts` times 16 rows of x, from an address in the first panel on. */
void multiply(uvec4 code[2], uint scales, uint top, uint64_t x_at, uint parts)
{
    uint own = gl_SubgroupID * ROWS * PITCH, at = own + gl_SubgroupInvocationID * PITCH;
    K3_MATRIX_A x[4u * MOST_PARTS];
    [[unroll]] for (uint p = 0; p < PARTS; p++)
        if (p < parts)
            [[unroll]] for (uint k = 0; k < 4u; k++)
                K3_LOAD_A(x[4u * p + k], U32x4(x_at).at, 2u * (16u * p + a.places * k), 2u);
    subgroupBarrier();
    [[unroll]] for (uint b = 0; b < 2u; b++)
        [[unroll]] for (uint w = 0; w < 4u; w++)
            tile[at + 4u * b + w] = k3_e2m1_halves(code[b][w], int(scales >> 8u * b & 255u) + 29 - int(top));
    subgroupBarrier();
    [[unroll]] for (uint k = 0; k < 4u; k++) {
        K3_MATRIX_B w[2];
        [[unroll]] for (uint j = 0; j < 2u; j++)
            K3_LOAD_B(w[j], tile, own + 16u * j * PITCH + 2u * k, PITCH);
        [[unroll]] for (uint p = 0; p < PARTS; p++)
            if (p < parts)
                [[unroll]] for (uint j = 0; j < 2u; j++)
                    sum[2u * p + j] = K3_MULTIPLY_ADD(x[4u * p + k], w[j], sum[2u * p + j]);
    }
}

void main()
{
    uint lane = gl_SubgroupInvocationID, own = gl_SubgroupID * ROWS * PITCH, steps = a.cols / 128u;
    uvec4 job = U32x4(a.jobs).at[gl_WorkGroupID.y]; /* k3_moe_job */
    if (job.z == 0u)
        return;
    uint64_t codes = row_address(job.x, lane, 16u, 0u), scales = row_address(job.x, lane, 1u, 1u);
    uint top = largest_byte(scales, steps);
    top_scale[gl_SubgroupID * ROWS + lane] = top;
    for (uint x0 = 0; x0 < job.z; x0 += 16u * PARTS) {
        uint parts = min(PARTS, (job.z - x0 + 15u) / 16u);
        uint64_t x_at = a.x + 32ul * (job.y + x0), half_step = 128ul * a.places; /* 4 panels */
        [[unroll]] for (uint p = 0; p < 2u * PARTS; p++)
            sum[p] = K3_MATRIX_SUM(0.0);
        uvec4 next[4];
        [[unroll]] for (uint b = 0; b < 4u; b++)
            next[b] = U32x4(codes).at[b];
        uint next_scale = U32(scales).at[0];
        for (uint step = 0; step < steps; step++) {
            uvec4 low[2] = uvec4[2](next[0], next[1]), high[2] = uvec4[2](next[2], next[3]);
            uint scale = next_scale, ahead = min(step + 1u, steps - 1u);
            [[unroll]] for (uint b = 0; b < 4u; b++)
                next[b] = U32x4(codes).at[4u * ahead + b];
            next_scale = U32(scales).at[ahead];
            multiply(low, scale, top, x_at + 2u * step * half_step, parts);
            multiply(high, scale >> 16, top, x_at + (2u * step + 1u) * half_step, parts);
        }
        [[unroll]] for (uint p = 0; p < PARTS; p++)
            if (p < parts) {
                subgroupBarrier();
                [[unroll]] for (uint j = 0; j < 2u; j++)
                    K3_STORE_SUM(sum[2u * p + j], tile, own + 4u * j, PITCH);
                subgroupBarrier();
                write_sums(job.y + x0 + 16u * p, min(16u, job.z - x0 - 16u * p));
            }
    }
}
