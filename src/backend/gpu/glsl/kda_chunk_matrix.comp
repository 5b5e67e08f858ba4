/* kda_chunk on matrix units. The two products with the state's D x D are made of f16 factors with f32 sums, each factor as the sum of two
 * halves (high + low, 22 bits), so that the result is that of f32 kernels to about 1e-6; the state itself, the solve and the rest stay f32.
 * State and E are scaled by the power of two that brings the largest of the workgroup's to 16..32; q and k, which are normalised, by 64
 * (values up to 1000 fit). The order of work is that of kda_chunk.comp; kda_chunk.glsl has the formulas. */
#version 450
#extension GL_GOOGLE_include_directive : require
#define K3_WITHOUT_GROUP_SUMS
#include "kda_chunk.glsl"
#include "matrix.glsl"

const uint COLUMNS = 8; /* fours of columns */
const uint KEYS = 4;    /* rows of the state a thread, 8 columns of each */
const float FACTOR = 64.0;

/* Lengths of rows in fours of words: a row of halves or floats and 16 bytes more. */
const uint X_ROW = 5, S_ROW = 5, LEFT_ROW = 3, E_ROW = 5, SUM_ROW = 9;

/* [high, low] of K exp(G), Q exp(G) as [D][32 rows]; then the change of the state as f32 [D][32 columns]. */
const uint X_LOW = MAX_D * X_ROW;
shared uvec4 xs[2 * X_LOW];
/* [high, low] of the state before the chunk as [D][32 columns]; then of K exp(G_last - G) as [D][16 rows], and of E as [16 rows][32]. */
const uint S_LOW = MAX_D * S_ROW, E_AT = MAX_D * LEFT_ROW;
shared uvec4 ss[2 * S_LOW];
/* f32 of [K exp(G); Q exp(G)] S0 as [32 rows][32 columns]; then R in its first half. */
shared uvec4 sums[2 * CHUNK * SUM_ROW];
shared vec4 lasts[FOURS]; /* exp(G_last) */
shared float largest[32]; /* one a subgroup */

uint i = gl_LocalInvocationID.x, blocks = (D + 31u) / 32u;
uint head = gl_WorkGroupID.x / blocks;
/* What thread i owns of R, E and o: row t, one four of columns; of the state: rows key .. key + KEYS - 1, two fours of columns. */
uint t = i / COLUMNS, column = i % COLUMNS, first_four = gl_WorkGroupID.x % blocks * COLUMNS, four = first_four + column;
uint key = i / 4u * KEYS, pair = i % 4u;

/* x as the sum of two halves each: its upper 11 bits, and what they leave. */
void split(vec4 x, out uvec2 high, out uvec2 low)
{
    vec4 upper = uintBitsToFloat(floatBitsToUint(x) & 0xffffe000u), rest = x - upper;
    high = uvec2(packHalf2x16(upper.xy), packHalf2x16(upper.zw));
    low = uvec2(packHalf2x16(rest.xy), packHalf2x16(rest.zw));
}

void split8(vec4 x, vec4 y, out uvec4 high, out uvec4 low)
{
    uvec2 x_high, x_low, y_high, y_low;
    split(x, x_high, x_low);
    split(y, y_high, y_low);
    high = uvec4(x_high, y_high);
    low = uvec4(x_low, y_low);
}

/* This subgroup's largest value goes where scale_of_largest, after a barrier, finds it. */
void put_largest(vec4 size)
{
    float most = subgroupMax(max(max(size.x, size.y), max(size.z, size.w)));
    if (subgroupElect())
        largest[gl_SubgroupID] = most;
}

/* The power of two that brings the workgroup's largest to 16..32. */
float scale_of_largest()
{
    float most = largest[0];
    for (uint s = 1u; s < gl_NumSubgroups; s++)
        most = max(most, largest[s]);
    int exponent = int(floatBitsToUint(most) >> 23) - 127;
    return uintBitsToFloat(uint(clamp(127 + 4 - exponent, 1, 227)) << 23);
}

/* Thread i is channel i: scales its q and k of n rows; rows past them have no effect. What stays in `left` is k exp(G_last - G). Loads have
 * no conditions, so that all of them are on their way together. */
void stage_rows(uint row, uint n, out vec4 left[CHUNK / 4])
{
    float decay[CHUNK], total = FACTOR, after = FACTOR;
    vec4 x[2 * CHUNK / 4];
    uint at = (row * a.H + head) * D + min(i, D - 1u), step = a.H * D;
    [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
        uint from = at + min(s, n - 1u) * step;
        left[s / 4u][s % 4u] = F32(a.k).at[from];
        decay[s] = F32(a.g).at[from];
        x[(CHUNK + s) / 4u][s % 4u] = F32(a.q).at[from];
    }
    [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
        bool there = s < n && i < D;
        left[s / 4u][s % 4u] = there ? left[s / 4u][s % 4u] : 0.0;
        decay[s] = there ? exp(decay[s]) : 1.0;
        total *= decay[s];
        x[s / 4u][s % 4u] = left[s / 4u][s % 4u] * total;
        x[(CHUNK + s) / 4u][s % 4u] = there ? x[(CHUNK + s) / 4u][s % 4u] * total : 0.0;
    }
    [[unroll]] for (uint back = 1u; back <= CHUNK; back++) {
        uint s = CHUNK - back;
        left[s / 4u][s % 4u] *= after;
        after *= decay[s];
    }
    [[unroll]] for (uint j = 0u; j < 4u; j++)
        split8(x[2u * j], x[2u * j + 1u], xs[i * X_ROW + j], xs[X_LOW + i * X_ROW + j]);
    lasts[i / 4u][i % 4u] = total / FACTOR;
}

void stage_state(vec4 S[2 * KEYS], float scale)
{
    [[unroll]] for (uint j = 0u; j < KEYS; j++) {
        uint place = (key + j) * S_ROW + pair;
        split8(S[2u * j] * scale, S[2u * j + 1u] * scale, ss[place], ss[S_LOW + place]);
    }
}

void stage_left(vec4 left[CHUNK / 4])
{
    [[unroll]] for (uint j = 0u; j < CHUNK / 8u; j++) {
        uint place = i * LEFT_ROW + j;
        split8(left[2u * j], left[2u * j + 1u], ss[place], ss[S_LOW + place]);
    }
}

void stage_e(vec4 e, float scale)
{
    uvec2 high, low;
    uint place = E_AT + t * E_ROW + column / 2u;
    split(e * scale, high, low);
    [[unroll]] for (uint j = 0u; j < 2u; j++) {
        ss[place][column % 2u * 2u + j] = high[j];
        ss[S_LOW + place][column % 2u * 2u + j] = low[j];
    }
}

/* sums = [K exp(G); Q exp(G)] S0, still scaled. */
void multiply_state()
{
    for (uint tile = gl_SubgroupID; tile < 4u; tile += gl_NumSubgroups) {
        uint rows = tile / 2u, columns = tile % 2u;
        K3_MATRIX_SUM sum = K3_MATRIX_SUM(0.0), rest = K3_MATRIX_SUM(0.0);
        for (uint d = 0u; d < D; d += 16u) {
            K3_MATRIX_A x_high, x_low;
            K3_MATRIX_B s_high, s_low;
            K3_LOAD_A_COLUMNS(x_high, xs, d * X_ROW + 2u * rows, X_ROW);
            K3_LOAD_A_COLUMNS(x_low, xs, X_LOW + d * X_ROW + 2u * rows, X_ROW);
            K3_LOAD_B_ROWS(s_high, ss, d * S_ROW + 2u * columns, S_ROW);
            K3_LOAD_B_ROWS(s_low, ss, S_LOW + d * S_ROW + 2u * columns, S_ROW);
            sum = K3_MULTIPLY_ADD(x_high, s_high, sum);
            rest = K3_MULTIPLY_ADD(x_high, s_low, rest);
            rest = K3_MULTIPLY_ADD(x_low, s_high, rest);
        }
        sum = sum + rest;
        K3_STORE_SUM(sum, sums, 16u * rows * SUM_ROW + 4u * columns, SUM_ROW);
    }
}

/* xs = (K exp(G_last - G))^T E, still scaled. */
void multiply_left()
{
    for (uint tile = gl_SubgroupID; tile < D / 8u; tile += gl_NumSubgroups) {
        uint d = tile / 2u * 16u, columns = tile % 2u;
        K3_MATRIX_A left_high, left_low;
        K3_MATRIX_B e_high, e_low;
        K3_LOAD_A(left_high, ss, d * LEFT_ROW, LEFT_ROW);
        K3_LOAD_A(left_low, ss, S_LOW + d * LEFT_ROW, LEFT_ROW);
        K3_LOAD_B_ROWS(e_high, ss, E_AT + 2u * columns, E_ROW);
        K3_LOAD_B_ROWS(e_low, ss, S_LOW + E_AT + 2u * columns, E_ROW);
        K3_MATRIX_SUM sum = K3_MULTIPLY_ADD(left_high, e_low, K3_MATRIX_SUM(0.0));
        sum = K3_MULTIPLY_ADD(left_low, e_high, sum);
        sum = K3_MULTIPLY_ADD(left_high, e_high, sum);
        K3_STORE_SUM(sum, xs, d * SUM_ROW + 4u * columns, SUM_ROW);
    }
}

/* S = diag(exp G_last) S + the change, and how large it is now. */
void update(inout vec4 S[2 * KEYS], float scale)
{
    vec4 size = ZERO;
    [[unroll]] for (uint j = 0u; j < 2u * KEYS; j++) {
        vec4 change = uintBitsToFloat(xs[(key + j / 2u) * SUM_ROW + 2u * pair + j % 2u]);
        S[j] = key < D ? S[j] * lasts[key / 4u][j / 2u] + change * scale : ZERO;
        size = max(size, abs(S[j]));
    }
    put_largest(size);
}

/* Rows t of E and of o from that of (Q exp G) S0. */
void solve(vec4 T[CHUNK / 4], vec4 BT[CHUNK / 4], out vec4 e, inout vec4 o)
{
    e = ZERO;
    [[unroll]] for (uint s = 0u; s < CHUNK; s++) {
        vec4 r = uintBitsToFloat(sums[s * SUM_ROW + column]);
        e += T[s / 4u][s % 4u] * r;
        o += BT[s / 4u][s % 4u] * r;
    }
}

void do_chunk(uint row, uint n, inout vec4 S[2 * KEYS])
{
    uint at = ((row + min(t, n - 1u)) * a.H + head) * (D / 4u) + min(four, D / 4u - 1u);
    bool mine = t < n && four < D / 4u;
    vec4 v = F32x4(a.v).at[at], T[CHUNK / 4], BT[CHUNK / 4], left[CHUNK / 4], e;
    float scale = scale_of_largest();
    stage_rows(row, n, left);
    stage_state(S, scale);
    [[unroll]] for (uint s = 0u; s < CHUNK / 4u; s++) {
        uint from = k3_pairs_at(row + min(t, n - 1u), head) + s;
        T[s] = F32x4(a.pairs).at[from];
        BT[s] = F32x4(a.pairs).at[from + CHUNK / 4u];
    }
    barrier();
    multiply_state();
    barrier();
    stage_left(left);
    uint place = t * SUM_ROW + column;
    float back = 1.0 / (FACTOR * scale);
    vec4 o = uintBitsToFloat(sums[place + CHUNK * SUM_ROW]) * back;
    sums[place] = floatBitsToUint(v - uintBitsToFloat(sums[place]) * back);
    barrier();
    solve(T, BT, e, o);
    if (mine)
        F32x4(a.o).at[at] = o;
    e = t < n ? e : ZERO; /* rows past the end were read as its last */
    put_largest(abs(e));
    barrier();
    scale = scale_of_largest();
    stage_e(e, scale);
    barrier();
    multiply_left();
    barrier();
    update(S, 1.0 / (FACTOR * scale));
    barrier();
}

/* The j-th four that this thread owns of the state, [D][D / 4]. */
uint state_at(uint j)
{
    return (key + j / 2u) * (D / 4u) + first_four + 2u * pair + j % 2u;
}

bool in_state(uint j)
{
    return key < D && first_four + 2u * pair + j % 2u < D / 4u;
}

void main()
{
    Run run = k3_run_of(a.runs, gl_WorkGroupID.y);
    F32x4 state = F32x4(run.state + 4ul * (head * D * D));
    vec4 S[2 * KEYS], size = ZERO;
    [[unroll]] for (uint j = 0u; j < 2u * KEYS; j++) {
        S[j] = in_state(j) ? state.at[state_at(j)] : ZERO;
        size = max(size, abs(S[j]));
    }
    put_largest(size);
    barrier();
    for (uint chunk = k3_first_chunk(run, a.first), end = k3_first_chunk(run, a.end); chunk < end; chunk++)
        do_chunk(run.row + CHUNK * chunk, min(CHUNK, run.n - CHUNK * chunk), S);
    [[unroll]] for (uint j = 0u; j < 2u * KEYS; j++)
        if (in_state(j))
            state.at[state_at(j)] = S[j];
}
