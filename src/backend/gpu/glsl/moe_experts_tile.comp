/* The experts of many rows, expert by expert, in f32: as moe_experts.comp, with a job's rows of x in tiles. A group takes 64 rows of weights
 * (32 of W1 and the same of W3, or 64 of W2), a job, and all rows of x of that job, 32 at a time; a thread sums 4 x 2 products. Every sum
 * runs over the columns in order. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "moe.glsl"

layout(constant_id = 1) const uint DOWN = 0;
layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push
{
    k3_moe_tile_args a;
};

const uint W_ROWS = 64, X_ROWS = 32, COLUMNS = 32, STRIDE = COLUMNS + 1;

shared float w_tile[W_ROWS * STRIDE];
shared float x_tile[X_ROWS * STRIDE];

void put(vec4 v, uint at, bool in_w)
{
    for (int i = 0; i < 4; i++)
        if (in_w)
            w_tile[at + i] = v[i];
        else
            x_tile[at + i] = v[i];
}

/* A quarter of a block of weights a thread, four values of x. */
void load_tiles(uint thread, uint block, uint64_t codes, uint64_t scales, uint scale_at, uint64_t x)
{
    vec4 w0, w1;
    k3_e2m1x8(U32(codes).at[4u * block + thread % 4u], w0, w1);
    float scale = k3_e8m0(k3_scale_byte(scales, scale_at + block)) * K3_E2M1_UNIT;
    uint at = thread / 4u * STRIDE + thread % 4u * 8u;
    put(w0 * scale, at, true);
    put(w1 * scale, at + 4u, true);
    put(k3_load4(x, 32u * block + thread % 8u * 4u, a.cols), thread / 8u * STRIDE + thread % 8u * 4u, false);
}

void main()
{
    uint thread = gl_LocalInvocationIndex;
    bool down = DOWN != 0u;
    uvec4 job = U32x4(a.jobs).at[gl_WorkGroupID.y]; /* k3_moe_job */
    uint y0 = gl_WorkGroupID.x * (down ? W_ROWS : W_ROWS / 2u), n_blocks = a.cols / 32u;
    uint half_row = thread / 4u % 32u;
    bool second = thread / 4u >= 32u && !down;
    uint row = min(y0 + (down ? thread / 4u : half_row), a.rows - 1u);
    uint64_t codes = k3_expert_tensor(a.table, job.x, down ? K3_W2 : second ? K3_W3 : K3_W1) + 16ul * row * n_blocks;
    uint64_t scales = k3_expert_tensor(a.table, job.x, down ? K3_W2_SCALE : second ? K3_W3_SCALE : K3_W1_SCALE);
    uint i = thread % 16u, j = thread / 16u;
    for (uint x0 = 0; x0 < job.z; x0 += X_ROWS) {
        uint place = job.y + min(x0 + thread / 8u, job.z - 1u);
        uint x_row = down ? place : U32(a.pair_at).at[place] / a.pairs_a_row;
        uint64_t x = a.x + 4ul * x_row * a.cols;
        vec2 sum[4];
        [[unroll]] for (uint q = 0; q < 4u; q++)
            sum[q] = vec2(0.0);
        for (uint block = 0; block < n_blocks; block++) {
            barrier();
            load_tiles(thread, block, codes, scales, row * n_blocks, x);
            barrier();
            for (uint c = 0; c < COLUMNS; c++) {
                vec2 xs = vec2(x_tile[j * STRIDE + c], x_tile[(j + 16u) * STRIDE + c]);
                [[unroll]] for (uint q = 0; q < 4u; q++) {
                    float w = w_tile[(i + 16u * q) * STRIDE + c];
                    sum[q] = fma(vec2(w), xs, sum[q]);
                }
            }
        }
        [[unroll]] for (uint h = 0; h < 2u; h++) {
            uint at = x0 + j + 16u * h;
            if (at >= job.z)
                continue;
            uint y_row = down ? U32(a.pair_at).at[job.y + at] : job.y + at;
            F32 y = F32(a.y + 4ul * y_row * a.rows);
            [[unroll]] for (uint q = 0; q < (down ? 4u : 2u); q++)
                if (y0 + i + 16u * q < a.rows)
                    y.at[y0 + i + 16u * q] = down ? sum[q][h] : k3_situ(sum[q][h], sum[q + 2u][h], a.b1, a.b2);
        }
    }
}
