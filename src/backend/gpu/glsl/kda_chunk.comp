/* o and S from chunk to chunk of 16 rows; kda_chunk.glsl has the formulas. A workgroup owns 32 columns of a head's state in f32: a thread
 * keeps 8 key rows x 4 columns of it in registers for the update, and the whole lies in shared memory for the product with the 32 rows of
 * K exp(G) and Q exp(G). Multiplications bind it: 3 D^2 a row and head. The other loads of a chunk are short enough to hide behind the
 * other workgroups of a multiprocessor. o may be v: one thread reads and writes a place. */
#version 450
#extension GL_GOOGLE_include_directive : require
#define K3_WITHOUT_GROUP_SUMS /* all 32 KiB of shared memory are wanted here */
#include "kda_chunk.glsl"

const uint COLUMNS = 8; /* fours of columns */
const uint KEYS = 8;    /* rows of the state a thread */

/* First K exp(G) [16][D] and Q exp(G) [16][D], the fours of a row in a mixed order; then K exp(G_last - G), exp(G_last), R and E. */
shared vec4 rows[2 * CHUNK * FOURS];
const uint LAST = CHUNK * FOURS, R = LAST + FOURS, E = R + CHUNK * COLUMNS;
shared vec4 S0[MAX_D * COLUMNS]; /* the state before the chunk, [D][32] */

uint i = gl_LocalInvocationID.x, blocks = (D + 31u) / 32u;
uint head = gl_WorkGroupID.x / blocks;
/* Of R, E and o: row t; of the state: key rows KEYS * t and on; of all: a four of columns. */
uint t = i / COLUMNS, column = i % COLUMNS, four = gl_WorkGroupID.x % blocks * COLUMNS + column;

/* Where a four of row t of K exp(G) lies; that of Q exp(G) comes CHUNK rows later. Threads that read the same four of neighbouring rows
 * meet different banks. */
uint mixed(uint t, uint of)
{
    return t * FOURS + (of ^ t % 8u);
}

/* Thread i is channel i: scales its q and k of n rows; rows past them have no effect. What stays in `left` is k exp(G_last - G); returns
 * exp(G_last). */
float scale(uint row, uint n, out float left[CHUNK])
{
    float decay[CHUNK], total = 1.0, after = 1.0;
    uint at = (row * a.H + head) * D + i, step = a.H * D;
    [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
        bool there = s < n && i < D;
        left[s] = there ? F32(a.k).at[at + s * step] : 0.0;
        decay[s] = there ? exp(F32(a.g).at[at + s * step]) : 1.0;
        float q = there ? F32(a.q).at[at + s * step] : 0.0;
        total *= decay[s];
        rows[mixed(s, i / 4u)][i % 4u] = left[s] * total;
        rows[mixed(s, i / 4u) + CHUNK * FOURS][i % 4u] = q * total;
    }
    [[unroll]] for (uint back = 1u; back <= CHUNK; back++) {
        left[CHUNK - back] *= after;
        after *= decay[CHUNK - back];
    }
    return total;
}

/* Row t of (K exp G) S0 and of (Q exp G) S0. */
void from_state(out vec4 with_k, out vec4 with_q)
{
    with_k = with_q = ZERO;
    for (uint j = 0u; j < D / 4u; j++) {
        vec4 k = rows[mixed(t, j)], q = rows[mixed(t, j) + CHUNK * FOURS];
        [[unroll]] for (uint d = 0u; d < 4u; d++) {
            vec4 s = S0[(4u * j + d) * COLUMNS + column];
            with_k += k[d] * s;
            with_q += q[d] * s;
        }
    }
}

/* S = diag(exp G_last) S + (K exp(G_last - G))^T E */
void update(inout vec4 S[KEYS])
{
    [[unroll]] for (uint j = 0u; j < KEYS; j++)
        S[j] *= rows[LAST + KEYS / 4u * t + j / 4u][j % 4u];
    [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
        vec4 e = rows[E + s * COLUMNS + column], k0 = rows[s * FOURS + KEYS / 4u * t], k1 = rows[s * FOURS + KEYS / 4u * t + 1u];
        [[unroll]] for (uint j = 0u; j < 4u; j++) {
            S[j] += k0[j] * e;
            S[4u + j] += k1[j] * e;
        }
    }
}

void main()
{
    Run run = k3_run_of(a.runs, gl_WorkGroupID.y);
    F32x4 state = F32x4(run.state + 4ul * (head * D * D));
    bool in_columns = four < D / 4u, in_state = in_columns && KEYS * t < D;
    vec4 S[KEYS];
    [[unroll]] for (uint j = 0u; j < KEYS; j++) {
        S[j] = in_state ? state.at[(KEYS * t + j) * (D / 4u) + four] : ZERO;
        S0[(KEYS * t + j) * COLUMNS + column] = S[j];
    }
    for (uint chunk = k3_first_chunk(run, a.first), end = k3_first_chunk(run, a.end); chunk < end; chunk++) {
        uint row = run.row + CHUNK * chunk, n = min(CHUNK, run.n - CHUNK * chunk), at = ((row + t) * a.H + head) * (D / 4u) + four;
        bool mine = t < n && in_columns;
        vec4 v = mine ? F32x4(a.v).at[at] : ZERO, T[CHUNK / 4], BT[CHUNK / 4], with_k, with_q;
        float left[CHUNK], last = scale(row, n, left);
        [[unroll]] for (uint s = 0u; s < CHUNK / 4u; s++) {
            uint pair = k3_pairs_at(row + t, head) + s;
            T[s] = t < n ? F32x4(a.pairs).at[pair] : ZERO;
            BT[s] = t < n ? F32x4(a.pairs).at[pair + CHUNK / 4u] : ZERO;
        }
        barrier();
        from_state(with_k, with_q);
        barrier();
        [[unroll]] for (uint s = 0u; s < CHUNK; s++)
            rows[s * FOURS + i / 4u][i % 4u] = left[s];
        rows[LAST + i / 4u][i % 4u] = last;
        rows[R + t * COLUMNS + column] = v - with_k;
        barrier();
        vec4 e = ZERO;
        [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
            vec4 r = rows[R + s * COLUMNS + column];
            e += T[s / 4u][s % 4u] * r;
            with_q += BT[s / 4u][s % 4u] * r;
        }
        rows[E + t * COLUMNS + column] = e;
        if (mine)
            F32x4(a.o).at[at] = with_q;
        barrier();
        update(S);
        [[unroll]] for (uint j = 0u; j < KEYS; j++)
            S0[(KEYS * t + j) * COLUMNS + column] = S[j];
        barrier();
    }
    [[unroll]] for (uint j = 0u; j < KEYS; j++)
        if (in_state)
            state.at[(KEYS * t + j) * (D / 4u) + four] = S[j];
}
