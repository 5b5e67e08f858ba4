/* The experts of a few rows, pair by pair, in two steps: y = situ(W1 x, W3 x) and, with DOWN, y = W2 x (specification 3.6, 3.7).
 *
 * A team of 16 lanes takes 4 rows of weights: two of W1 with the same two of W3, or four of W2. A lane loads a block of a row, 32 codes in
 * 16 bytes, and the team's next 16 blocks are on their way meanwhile. x lies in shared memory, a block every 36 floats, so that lanes
 * reading 4 floats of different blocks meet different banks. A row's sum is that of its lanes, in their order, whatever the subgroup is. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "moe.glsl"

layout(constant_id = 1) const uint DOWN = 0;
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_gemv_args a;
};

const uint TEAM = 16, TEAMS = 16, ROWS = 4;
const uint X_BLOCKS = 128, X_STRIDE = 9; /* of x in shared memory at once; in vec4 */
const uint PART_STRIDE = TEAM + 1;

shared vec4 x_tile[X_BLOCKS * X_STRIDE];
shared float parts[TEAMS * ROWS * PART_STRIDE];

/* Addresses of two matrices, which with DOWN are one, and the first block of the team's two rows in each. */
uint64_t near, far, near_scale, far_scale;
uint near_first, far_first, n_blocks;

uvec4 code[ROWS];
uint scale[ROWS];

void fetch(uint block)
{
    if (block >= n_blocks)
        return;
    [[unroll]] for (uint r = 0; r < 2u; r++) {
        uint i = near_first + r * n_blocks + block, j = far_first + r * n_blocks + block;
        code[r] = k3_code_block(near, i);
        code[2u + r] = k3_code_block(far, j);
        scale[r] = k3_scale_byte(near_scale, i);
        scale[2u + r] = k3_scale_byte(far_scale, j);
    }
}

float fma8(vec4 a0, vec4 a1, vec4 b0, vec4 b1, float sum)
{
    for (int i = 0; i < 4; i++)
        sum = fma(a0[i], b0[i], sum);
    for (int i = 0; i < 4; i++)
        sum = fma(a1[i], b1[i], sum);
    return sum;
}

/* sum[r] += the part of row r that its block of codes gives with the block at x_tile[x]. */
void add_block(inout float sum[ROWS], uvec4 codes[ROWS], uint scales[ROWS], uint x)
{
    float block[ROWS] = float[](0.0, 0.0, 0.0, 0.0);
    [[unroll]] for (uint w = 0; w < 4u; w++) {
        vec4 x0 = x_tile[x + 2u * w], x1 = x_tile[x + 2u * w + 1u];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            vec4 w0, w1;
            k3_e2m1x8(codes[r][w], w0, w1);
            block[r] = fma8(w0, w1, x0, x1, block[r]);
        }
    }
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        sum[r] = fma(block[r], k3_e8m0(scales[r]), sum[r]);
}

void stage_x(uint64_t x, uint first_block, uint n)
{
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < 8u * n; i += gl_WorkGroupSize.x)
        x_tile[i / 8u * X_STRIDE + i % 8u] = k3_load4(x, 4u * (8u * first_block + i), a.cols);
    barrier();
}

float row_sum(uint row)
{
    float sum = 0.0;
    for (uint i = 0; i < TEAM; i++)
        sum += parts[row * PART_STRIDE + i];
    return sum * K3_E2M1_UNIT;
}

void main()
{
    uint thread = gl_LocalInvocationIndex, lane = thread % TEAM, team = thread / TEAM, pair = gl_WorkGroupID.y;
    uint entry = K3_EXPERT_OF(pair, a);
    if (entry == K3_NO_EXPERT)
        return;
    bool down = DOWN != 0u;
    uint rows_a_team = down ? 4u : 2u, y0 = gl_WorkGroupID.x * rows_a_team * TEAMS;
    uint row = y0 + team * rows_a_team;
    row = row < a.rows ? row : 0u; /* teams past the end compute something and keep it */
    n_blocks = a.cols / 32u;
    near_first = row * n_blocks;
    far_first = near_first + (down ? 2u * n_blocks : 0u);
    near = k3_expert_tensor(a.table, entry, down ? K3_W2 : K3_W1);
    near_scale = k3_expert_tensor(a.table, entry, down ? K3_W2_SCALE : K3_W1_SCALE);
    far = down ? near : k3_expert_tensor(a.table, entry, K3_W3);
    far_scale = down ? near_scale : k3_expert_tensor(a.table, entry, K3_W3_SCALE);

    float sum[ROWS] = float[](0.0, 0.0, 0.0, 0.0);
    uint64_t x = a.x + 4ul * (pair / a.pairs_a_row) * a.cols;
    fetch(lane);
    for (uint x0 = 0; x0 < n_blocks; x0 += X_BLOCKS) {
        uint n = min(X_BLOCKS, n_blocks - x0);
        stage_x(x, x0, n);
        for (uint b = lane; b < n; b += TEAM) {
            uvec4 codes[ROWS] = code;
            uint scales[ROWS] = scale;
            fetch(x0 + b + TEAM);
            add_block(sum, codes, scales, b * X_STRIDE);
        }
    }
    for (uint r = 0; r < ROWS; r++)
        parts[(team * ROWS + r) * PART_STRIDE + lane] = sum[r];
    barrier();
    if (thread >= rows_a_team * TEAMS || y0 + thread >= a.rows)
        return;
    F32 y = F32(a.y + 4ul * pair * a.rows);
    if (down)
        y.at[y0 + thread] = row_sum(thread);
    else {
        uint gate = thread / 2u * ROWS + thread % 2u;
        y.at[y0 + thread] = k3_situ(row_sum(gate), row_sum(gate + 2u), a.b1, a.b2);
    }
}
