/* The first stage of mla_attend: query[t,h] = scale (W_k[h]^T q_nope[t,h], q_rope[t,h]), scale with the factor that makes the exponents
 * powers of two. Workgroup (x, y) takes 4 * QUADS columns of one head for ROWS rows: a thread four columns of every SLICES-th row of W_k,
 * which is coalesced along the columns; then the slices are summed. */
#version 450
#include "mla_weights.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 3) const uint QUADS = 64;
const uint SLICES = 256 / QUADS;
const uint CHUNK = 128; /* rows of W_k whose q is in shared memory */
const uint AT_ONCE = 8; /* rows of W_k whose words a thread waits for together; CHUNK is a multiple of AT_ONCE * SLICES */

/* Both are used two in turn, so that one barrier a turn is enough. */
shared vec4 q_shared[2][CHUNK * 2]; /* [row of W_k, row of activations], times the scales; 0 past the last row of W_k */
shared vec4 sums[2][256];

/* q of ROWS rows of activations for CHUNK rows of W_k from `first` on. */
void stage(uint h, uint t0, uint first, uint set)
{
    for (uint i = gl_LocalInvocationID.x; i < CHUNK * ROWS; i += gl_WorkGroupSize.x) {
        uint r = i % CHUNK, t = i / CHUNK;
        float q = 0.0;
        if (t0 + t < a.T && first + r < a.nope)
            q = F32(a.x + 4ul * ((t0 + t) * a.heads + h) * (a.nope + a.rope)).at[first + r] * a.scale *
                k3_scale_of(k3_row_of(h * (a.nope + a.v) + first + r));
        q_shared[set][r * 2u + t / 4u][t % 4u] = q;
    }
}

uint64_t query_at(uint h, uint t)
{
    return a.y + 4ul * (uint64_t(t) * a.heads + h) * a.stride;
}

/* The channels past the latent ones, and the zeros that fill the row up to its stride. */
void copy_rope(uint h, uint t0)
{
    uint n = a.stride - a.kv;
    for (uint i = gl_LocalInvocationID.x; i < ROWS * n; i += gl_WorkGroupSize.x) {
        uint t = t0 + i / n, d = i % n;
        if (t < a.T)
            F32(query_at(h, t)).at[a.kv + d] =
                d < a.rope ? a.scale * F32(a.x + 4ul * (t * a.heads + h) * (a.nope + a.rope)).at[a.nope + d] : 0.0;
    }
}

void main()
{
    uint blocks = gl_NumWorkGroups.x / a.heads, h = gl_WorkGroupID.x / blocks, block = gl_WorkGroupID.x % blocks;
    uint quad = gl_LocalInvocationID.x % QUADS, slice = gl_LocalInvocationID.x / QUADS;
    uint c = 4u * (block * QUADS + quad), t0 = gl_WorkGroupID.y * ROWS;
    vec4 sum[MAX_ROWS];
    [[unroll]] for (uint t = 0u; t < ROWS; t++)
        sum[t] = vec4(0.0);
    for (uint first = 0u; first < a.nope; first += CHUNK) {
        uint set = first / CHUNK % 2u;
        stage(h, t0, first, set);
        barrier();
        uint n = min(CHUNK, a.nope - first);
        for (uint r = slice; r < n && c < a.kv; r += AT_ONCE * SLICES) {
            vec4 w[AT_ONCE];
            [[unroll]] for (uint i = 0u; i < AT_ONCE; i++)
                w[i] = k3_weights4(k3_row_of(h * (a.nope + a.v) + first + min(r + i * SLICES, n - 1u)), c);
            [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
                [[unroll]] for (uint t = 0u; t < ROWS; t++)
                    sum[t] += q_shared[set][(r + i * SLICES) * 2u + t / 4u][t % 4u] * w[i];
            }
        }
    }
    [[unroll]] for (uint t = 0u; t < ROWS; t++) {
        sums[t % 2u][gl_LocalInvocationID.x] = sum[t];
        barrier();
        if (slice == t % SLICES && t0 + t < a.T && c < a.kv) {
            vec4 y = sums[t % 2u][quad];
            for (uint s = 1u; s < SLICES; s++)
                y += sums[t % 2u][s * QUADS + quad];
            if (c + 4u <= a.kv)
                F32x4(query_at(h, t0 + t)).at[c / 4u] = y;
            else
                for (uint i = 0u; c + i < a.kv; i++)
                    F32(query_at(h, t0 + t)).at[c + i] = y[i];
        }
    }
    if (block == 0u)
        copy_rope(h, t0);
}
