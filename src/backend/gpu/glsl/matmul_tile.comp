/* y[t][r] = sum_c W[r, c] x[t][c] in plain f32 for any number of rows, any type and alignment. A workgroup makes a tile of ROWS rows of W by
 * 16 Q rows of x, DEPTH columns at a time: each weight is decoded once for all rows of the tile. */
#version 450
#include "backend/gpu/glsl/decode.glsl"
#include "backend/gpu/glsl/matmul.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint TYPE = 0;
layout(constant_id = 1) const uint Q = 4; /* rows of x an invocation makes: 1 to 4 */
const uint ROWS = 64, DEPTH = 16, MAX_Q = 4;

/* w_tile[column][i] holds rows 4i .. 4i+3; one element a column more than needed, for the banks. */
const uint W_PITCH = ROWS / 4 + 1, X_PITCH = 16 * MAX_Q + 1;
shared vec4 w_tile[DEPTH * W_PITCH];
shared float x_tile[DEPTH * X_PITCH];

void main()
{
    uint t_tiles = (a.T + 16 * Q - 1) / (16 * Q), block = gl_WorkGroupID.x / t_tiles, t0 = gl_WorkGroupID.x % t_tiles * 16 * Q;
    k3_matmul_part part = part_of(block);
    k3_mat_args w = part.w;
    uint r0 = (block - part.first_block) * ROWS;
    uint low = gl_LocalInvocationID.x % 16, high = gl_LocalInvocationID.x / 16;

    vec4 sum[MAX_Q], tile_sum[MAX_Q];
    [[unroll]] for (uint q = 0; q < Q; q++)
        sum[q] = vec4(0.0);
    for (uint c0 = 0; c0 < a.cols; c0 += DEPTH) {
        /* loading: `low` is the column, `high` four rows of W and Q of x. Columns past the last are zeros. */
        uint col = c0 + low;
        vec4 four = vec4(0.0);
        if (col < a.cols)
            [[unroll]] for (uint i = 0; i < 4; i++) {
                uint row = min(r0 + 4 * high + i, w.rows - 1);
                four[i] = k3_code(TYPE, k3_row_at(w, row), k3_scale_at(w, row), col);
            }
        w_tile[low * W_PITCH + high] = four;
        [[unroll]] for (uint q = 0; q < Q; q++) {
            uint t = min(t0 + Q * high + q, a.T - 1);
            x_tile[low * X_PITCH + Q * high + q] = col < a.cols ? F32(a.x + 4ul * (uint64_t(t) * a.cols)).at[col] : 0.0;
        }
        barrier();
        /* adding: `low` is four rows of W, `high` is Q rows of x. The sum of DEPTH products first: long rows lose less. */
        [[unroll]] for (uint q = 0; q < Q; q++)
            tile_sum[q] = vec4(0.0);
        for (uint k = 0; k < DEPTH; k++) {
            vec4 weights = w_tile[k * W_PITCH + low];
            [[unroll]] for (uint q = 0; q < Q; q++)
                tile_sum[q] = fma(weights, vec4(x_tile[k * X_PITCH + Q * high + q]), tile_sum[q]);
        }
        [[unroll]] for (uint q = 0; q < Q; q++)
            sum[q] += tile_sum[q];
        barrier();
    }
    [[unroll]] for (uint i = 0; i < 4; i++) {
        uint row = r0 + 4 * low + i;
        if (row >= w.rows)
            continue;
        float scale = k3_row_scale(TYPE, k3_scale_at(w, row));
        [[unroll]] for (uint q = 0; q < Q; q++) {
            uint t = t0 + Q * high + q;
            if (t < a.T)
                F32(part.y + 4ul * t * part.stride).at[row] = sum[q][i] * scale;
        }
    }
}
