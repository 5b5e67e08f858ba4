/* The experts of many rows on matrix units: as moe_experts_tile.comp, with f16 factors and f32 sums. A group of 4 subgroups takes 128 rows
 * of weights (64 of W1 and the same of W3, or 128 of W2) and all rows of x of a job, up to 64 at a time; a subgroup takes two times 16 of
 * the weights' rows with all of x.
 *
 * The weights are exact in f16: e2m1 times 2^(scale - largest scale of the row), the largest multiplied into the sum. (A scale less than
 * 2^-28 of the largest gives 0.) Decoded words hold the columns of every 8 in the order 0 4 1 5 2 6 3 7, and so does x. 64 columns are in
 * shared memory while the next are on their way; codes come 128 columns at once. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "matrix.glsl"
#include "moe.glsl"

layout(constant_id = 1) const uint DOWN = 0;
layout(constant_id = 2) const uint PARTS = 4; /* of 16 rows of x */
layout(local_size_x = 128) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_tile_args a;
};

const uint MOST_PARTS = 4, W_ROWS = 128, W_HALF = 64;
const uint STRIDE = 9;       /* of 64 columns of f16, in uvec4 */
const uint SUM_STRIDE = 132; /* of 16 rows of sums */

shared uvec4 w_tile[W_ROWS * STRIDE];
shared uvec4 x_tile[16 * MOST_PARTS * STRIDE];
shared float sums[16 * SUM_STRIDE];
shared uint top_scale[W_ROWS];

/* The thread's block of every two: of row thread / 2 of either half of the weights' rows. */
uint64_t codes[2], scales[2];
uvec4 next_code[2][2]; /* [half][64 columns] */
uint next_scale[2];
uint top[2];

uint x_at[MOST_PARTS];
uvec4 next_x[MOST_PARTS];

/* The first byte of a tile row's codes (in 16 bytes a block) or scales: W1 above W3, or W2. */
uint64_t row_address(uint entry, uint tile_row, uint block_bytes, bool of_scales)
{
    bool down = DOWN != 0u, upper = tile_row < W_HALF;
    uint tensor = (down ? K3_W2 : upper ? K3_W1 : K3_W3) + (of_scales ? 1u : 0u);
    uint row = gl_WorkGroupID.x * (down ? W_ROWS : W_HALF) + (down ? tile_row : tile_row % W_HALF);
    return k3_expert_tensor(a.table, entry, tensor) + uint64_t(row) * (a.cols / 32u) * block_bytes;
}

/* The codes and scales of columns 128 step .. 128 step + 127. */
void fetch_codes(uint step, uint thread)
{
    [[unroll]] for (uint h = 0; h < 2u; h++) {
        next_scale[h] = U32(scales[h]).at[step];
        [[unroll]] for (uint m = 0; m < 2u; m++)
            next_code[h][m] = U32x4(codes[h]).at[4u * step + 2u * m + thread % 2u];
    }
}

void fetch_x(uint step, uint parts)
{
    [[unroll]] for (uint p = 0; p < PARTS; p++)
        if (p < parts)
            next_x[p] = U32x4(a.x).at[x_at[p] + 8u * step];
}

uint times(uint pair, f16vec2 scale)
{
    return packFloat2x16(unpackFloat2x16(pair) * scale);
}

/* A block of 32 weights to w_tile. The factor makes up for K3_E2M1_UNIT = 2^14, whose exponent in f16 is 29. */
void put_block(uvec4 code, uint scale, uint top, uint at)
{
    uint exponent = 29u + scale >= top ? 29u + scale - top : 0u;
    f16vec2 factor = unpackFloat2x16((exponent << 10) * 0x10001u);
    [[unroll]] for (uint w = 0; w < 4u; w++) {
        uint even = k3_e2m1_even(code[w]), odd = k3_e2m1_odd(code[w]);
        w_tile[at + w] = uvec4(times(even << 8 & 0xff00ff00u, factor), times(odd << 8 & 0xff00ff00u, factor),
                               times(even & 0xff00ff00u, factor), times(odd & 0xff00ff00u, factor));
    }
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

/* 16 rows of x with the group's rows of weights, from sums: row r is that at `place` + r, of which n are there. */
void write_sums(uint thread, uint place, uint n)
{
    U32 pair_at = U32(a.pair_at);
    if (DOWN != 0u) {
        float unit = k3_e8m0(top_scale[thread]) * a.inner_unit;
        for (uint r = 0; r < n; r++)
            F32(a.y + 4ul * pair_at.at[place + r] * a.rows).at[gl_WorkGroupID.x * W_ROWS + thread] = sums[r * SUM_STRIDE + thread] * unit;
        return;
    }
    for (uint i = thread; i < n * W_HALF / 2u; i += 128u) {
        uint r = i / 32u, word = i % 32u;
        float x_unit = F32(a.x_unit).at[pair_at.at[place + r] / a.pairs_a_row];
        vec2 y;
        for (uint j = 0; j < 2u; j++) {
            uint c = word / 4u * 8u + word % 4u + 4u * j;
            float gate = sums[r * SUM_STRIDE + c] * (k3_e8m0(top_scale[c]) * x_unit);
            float up = sums[r * SUM_STRIDE + W_HALF + c] * (k3_e8m0(top_scale[W_HALF + c]) * x_unit);
            y[j] = k3_situ(gate, up, a.b1, a.b2) / a.inner_unit;
        }
        U32(a.y + 2ul * (place + r) * a.rows).at[gl_WorkGroupID.x * W_HALF / 2u + word] = packHalf2x16(y);
    }
}

/* Columns 64 step .. 64 step + 63 to shared memory: an odd step takes the second half of what fetch_codes brought. */
void put_tiles(uvec4 code[2][2], uint scale[2], uint odd, uint thread, uint parts)
{
    uint at = thread / 2u * STRIDE + thread % 2u * 4u, shift = 8u * (2u * odd + thread % 2u);
    [[unroll]] for (uint h = 0; h < 2u; h++)
        put_block(code[h][odd], scale[h] >> shift & 255u, top[h], at + h * W_HALF * STRIDE);
    [[unroll]] for (uint p = 0; p < PARTS; p++)
        if (p < parts)
            x_tile[(thread / 8u + 16u * p) * STRIDE + thread % 8u] = next_x[p];
}

/* Finds rows x0 .. of a job's x; those past the end repeat the last one. */
void find_x(uvec4 job, uint x0, uint thread)
{
    [[unroll]] for (uint p = 0; p < PARTS; p++) {
        uint place = job.y + min(x0 + 16u * p + thread / 8u, job.z - 1u);
        uint x_row = DOWN != 0u ? place : U32(a.pair_at).at[place] / a.pairs_a_row;
        x_at[p] = x_row * (a.cols / 8u) + thread % 8u;
    }
}

/* Finds the thread's weights and the largest scale of each row. */
void find_weights(uint entry, uint thread)
{
    top_scale[thread] = largest_byte(row_address(entry, thread, 1u, true), a.cols / 128u);
    barrier();
    [[unroll]] for (uint h = 0; h < 2u; h++) {
        uint tile_row = thread / 2u + h * W_HALF;
        codes[h] = row_address(entry, tile_row, 16u, false);
        scales[h] = row_address(entry, tile_row, 1u, true);
        top[h] = top_scale[tile_row];
    }
}

void main()
{
    uint thread = gl_LocalInvocationIndex, w_at = 16u * gl_SubgroupID, steps = a.cols / 64u;
    uvec4 job = U32x4(a.jobs).at[gl_WorkGroupID.y]; /* k3_moe_job */
    if (job.z == 0u)
        return;
    find_weights(job.x, thread);
    for (uint x0 = 0; x0 < job.z; x0 += 16u * PARTS) {
        uint parts = min(PARTS, (job.z - x0 + 15u) / 16u);
        K3_MATRIX_SUM sum[2u * MOST_PARTS];
        [[unroll]] for (uint p = 0; p < 2u * PARTS; p++)
            sum[p] = K3_MATRIX_SUM(0.0);
        find_x(job, x0, thread);
        fetch_codes(0, thread);
        fetch_x(0, parts);
        for (uint step = 0; step < steps; step += 2u) {
            uvec4 code[2][2] = next_code;
            uint scale[2] = next_scale;
            if (step + 2u < steps)
                fetch_codes(step / 2u + 1u, thread);
            [[unroll]] for (uint odd = 0; odd < 2u; odd++) {
                barrier();
                put_tiles(code, scale, odd, thread, parts);
                if (step + odd + 1u < steps)
                    fetch_x(step + odd + 1u, parts);
                barrier();
                [[unroll]] for (uint k = 0; k < 4u; k++) {
                    K3_MATRIX_B w0, w1;
                    K3_LOAD_B(w0, w_tile, w_at * STRIDE + 2u * k, STRIDE);
                    K3_LOAD_B(w1, w_tile, (w_at + W_HALF) * STRIDE + 2u * k, STRIDE);
                    [[unroll]] for (uint p = 0; p < PARTS; p++)
                        if (p < parts) {
                            K3_MATRIX_A x;
                            K3_LOAD_A(x, x_tile, 16u * p * STRIDE + 2u * k, STRIDE);
                            sum[2u * p] = K3_MULTIPLY_ADD(x, w0, sum[2u * p]);
                            sum[2u * p + 1u] = K3_MULTIPLY_ADD(x, w1, sum[2u * p + 1u]);
                        }
                }
            }
        }
        [[unroll]] for (uint p = 0; p < PARTS; p++)
            if (p < parts) {
                barrier();
                K3_STORE_SUM(sum[2u * p], sums, w_at, SUM_STRIDE);
                K3_STORE_SUM(sum[2u * p + 1u], sums, w_at + W_HALF, SUM_STRIDE);
                barrier();
                write_sums(thread, job.y + x0 + 16u * p, min(16u, job.z - x0 - 16u * p));
            }
    }
}
