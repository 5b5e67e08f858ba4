/* T and BT of each chunk of 16 rows, all chunks, heads and runs at once; kda_chunk.glsl has the formulas. Thread (t, slice) holds an eighth
 * of the channels of row t and walks s down from t, multiplying by alpha_s on the way: that makes exp(G_t - G_s) from factors of at most 1,
 * without a difference of sums. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "kda_chunk.glsl"

const uint SLICES = 8;
const uint SLICE = FOURS / SLICES; /* fours of channels a thread */

shared vec4 keys[CHUNK * FOURS];   /* k, then the slices' parts of A [slice][t][s] */
shared vec4 decays[CHUNK * FOURS]; /* alpha, then those of B */
shared vec4 A[CHUNK][CHUNK / 4], B[CHUNK][CHUNK / 4], T[CHUNK][CHUNK / 4];
shared float betas[CHUNK];

uint i = gl_LocalInvocationID.x, t = i / SLICES, slice = i % SLICES;

/* Puts k and alpha of the chunk into shared memory: rows past its end have no effect. */
void stage(uint row, uint n)
{
    for (uint j = i; j < CHUNK * FOURS; j += gl_WorkGroupSize.x) {
        uint s = j / FOURS, four = j % FOURS, at = ((row + s) * a.H + gl_WorkGroupID.x) * (D / 4u) + four;
        bool there = s < n && four < D / 4u;
        keys[j] = there ? F32x4(a.k).at[at] : ZERO;
        decays[j] = there ? exp(F32x4(a.g).at[at]) : vec4(1.0);
    }
    if (i < CHUNK)
        betas[i] = i < n ? F32(a.beta).at[(row + i) * a.H + gl_WorkGroupID.x] : 0.0;
}

/* This thread's share of A (without beta) and of B, to shared memory in place of what they were made of. */
void multiply(uint row, uint n)
{
    vec4 k[SLICE], q[SLICE], pairs_k[CHUNK / 4], pairs_q[CHUNK / 4];
    [[unroll]] for (uint j = 0u; j < SLICE; j++) {
        uint four = slice + SLICES * j;
        k[j] = keys[t * FOURS + four];
        q[j] = t < n && four < D / 4u ? F32x4(a.q).at[((row + t) * a.H + gl_WorkGroupID.x) * (D / 4u) + four] : ZERO;
    }
    [[unroll]] for (uint back = 0u; back < CHUNK; back++) {
        uint s = CHUNK - 1u - back;
        float with_k = 0.0, with_q = 0.0;
        if (s <= t)
            [[unroll]] for (uint j = 0u; j < SLICE; j++) {
                vec4 key = keys[s * FOURS + slice + SLICES * j], decay = decays[s * FOURS + slice + SLICES * j];
                with_k += dot(k[j], key);
                with_q += dot(q[j], key);
                k[j] *= decay;
                q[j] *= decay;
            }
        pairs_k[s / 4u][s % 4u] = s < t ? with_k : 0.0;
        pairs_q[s / 4u][s % 4u] = with_q;
    }
    barrier();
    [[unroll]] for (uint j = 0u; j < CHUNK / 4u; j++) {
        keys[(slice * CHUNK + t) * (CHUNK / 4u) + j] = pairs_k[j];
        decays[(slice * CHUNK + t) * (CHUNK / 4u) + j] = pairs_q[j];
    }
}

/* Column j of T by forward substitution: x_t = [t = j] - sum_{s<t} A[t,s] x_s. */
void solve(uint j)
{
    float x[CHUNK];
    [[unroll]] for (uint r = 0u; r < CHUNK; r++) {
        x[r] = r == j ? 1.0 : 0.0;
        [[unroll]] for (uint s = 0u; s < r; s++)
            x[r] -= A[r][s / 4u][s % 4u] * x[s];
        T[r][j / 4u][j % 4u] = x[r] * betas[j];
    }
}

void main()
{
    Run run = k3_run_of(a.runs, gl_WorkGroupID.z);
    uint chunk = k3_first_chunk(run, a.first) + gl_WorkGroupID.y;
    if (chunk >= k3_first_chunk(run, a.end))
        return;
    uint row = run.row + CHUNK * chunk, n = min(CHUNK, run.n - CHUNK * chunk);
    stage(row, n);
    barrier();
    multiply(row, n);
    barrier();
    /* Thread (row, four of columns): of A in the first half of the workgroup, of B in the other. */
    uint r = i / 4u % CHUNK, four = i % 4u, side = i / 64u;
    vec4 sum = ZERO;
    [[unroll]] for (uint s = 0u; s < SLICES; s++)
        sum += side == 0u ? keys[s * 64u + i % 64u] : decays[s * 64u + i % 64u];
    if (side == 0u)
        A[r][four] = betas[r] * sum;
    else
        B[r][four] = sum;
    barrier();
    if (i < CHUNK)
        solve(i);
    barrier();
    vec4 result = side == 0u ? T[r][four] : ZERO;
    if (side == 1u)
        [[unroll]] for (uint s = 0u; s < CHUNK; s++)
            result += B[r][s / 4u][s % 4u] * T[s][four];
    if (r < n)
        F32x4(a.pairs).at[k3_pairs_at(row + r, gl_WorkGroupID.x) + side * (CHUNK / 4u) + four] = result;
}
