/* The delta rule, row after row (specification 3.4), for every head and run:
 *   S = diag(alpha) S;   e = v - S^T k;   S += beta k e^T;   o = S^T q
 * Columns of S do not meet. A workgroup owns 32 of a head's: a thread keeps four of them (128 bytes of a row for 8 neighbouring threads) at
 * 4 FOURS key rows in registers, so that S is read and written once whatever the number of rows. Since
 *   S_new^T q = (diag(alpha) S)^T q + (k . q) beta e,
 * one exchange a row gives e and o both. The sums over key rows have a fixed order. o may be v: the threads that write it are the only ones
 * that read v. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "runs.glsl"
#include "backend/args/kda_recur.h"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint D = 128; /* a multiple of 4, at most 256 */
layout(push_constant, std430) uniform Push
{
    k3_kda_recur_args a;
};

const uint COLUMNS = 8;   /* fours of columns */
const uint GROUPS = 16;   /* of threads that own the same key rows */
const uint MAX_FOURS = 4; /* of key rows a thread, for D = 256 */
const uint FOURS = (D + 63u) / 64u;

shared vec4 parts[GROUPS][2][COLUMNS];  /* of v - S^T k (group 0 has the v) and of S^T q */
shared vec4 sums[2][2][COLUMNS];        /* the same over groups 0..7 and 8..15 */
shared float products[GROUPS], product; /* parts of k . q, and the whole */

/* What a thread needs of a row of the activations. */
struct Row {
    vec4 q[MAX_FOURS], k[MAX_FOURS], alpha[MAX_FOURS], v;
    float beta;
};

const vec4 ZERO = vec4(0.0);
uint group = gl_LocalInvocationID.x / COLUMNS, column = gl_LocalInvocationID.x % COLUMNS, blocks = (D + 31u) / 32u;
uint head = gl_WorkGroupID.x / blocks, four = gl_WorkGroupID.x % blocks * COLUMNS + column;

/* The j-th four of key rows of this thread. */
uint keys(uint j)
{
    return group + GROUPS * j;
}

Row row_at(uint row)
{
    Row r;
    uint vector = row * a.H + head, at = D / 4u * vector;
    [[unroll]] for (uint j = 0u; j < FOURS; j++) {
        bool mine = keys(j) < D / 4u;
        r.q[j] = mine ? F32x4(a.q).at[at + keys(j)] : ZERO;
        r.k[j] = mine ? F32x4(a.k).at[at + keys(j)] : ZERO;
        r.alpha[j] = mine ? F32x4(a.decay).at[at + keys(j)] : ZERO;
    }
    r.v = group == 0u && four < D / 4u ? F32x4(a.v).at[at + four] : ZERO;
    r.beta = F32(a.beta).at[vector];
    return r;
}

/* Adds e, p and k . q over the threads of a column. */
void exchange(inout vec4 e, inout vec4 p, inout float qk)
{
    uint i = gl_LocalInvocationID.x;
    parts[group][0][column] = e;
    parts[group][1][column] = p;
    if (column == 0u)
        products[group] = qk;
    barrier();
    if (i < 4u * COLUMNS) {
        uint side = i / (2u * COLUMNS), which = i / COLUMNS % 2u;
        vec4 sum = ZERO;
        [[unroll]] for (uint g = 0u; g < GROUPS / 2u; g++)
            sum += parts[side * (GROUPS / 2u) + g][which][column];
        sums[side][which][column] = sum;
    } else if (i == 4u * COLUMNS) {
        float sum = 0.0;
        [[unroll]] for (uint g = 0u; g < GROUPS; g++)
            sum += products[g];
        product = sum;
    }
    barrier();
    e = sums[0][0][column] + sums[1][0][column];
    p = sums[0][1][column] + sums[1][1][column];
    qk = product;
}

void main()
{
    Run run = k3_run_of(a.runs, gl_WorkGroupID.y);
    F32x4 state = F32x4(run.state + 4ul * (head * D * D));
    bool in_columns = four < D / 4u;
    vec4 S[4 * MAX_FOURS];
    [[unroll]] for (uint i = 0u; i < 4u * FOURS; i++)
        S[i] = in_columns && keys(i / 4u) < D / 4u ? state.at[(4u * keys(i / 4u) + i % 4u) * (D / 4u) + four] : ZERO;
    Row next = row_at(run.row);
    for (uint t = 0u; t < run.n; t++) {
        Row r = next;
        vec4 e = r.v, p = ZERO;
        float qk = 0.0;
        [[unroll]] for (uint j = 0u; j < FOURS; j++) {
            vec4 alpha = a.decay_is_log != 0u ? exp(r.alpha[j]) : r.alpha[j];
            [[unroll]] for (uint i = 0u; i < 4u; i++) {
                S[4u * j + i] *= alpha[i];
                e -= r.k[j][i] * S[4u * j + i];
                p += r.q[j][i] * S[4u * j + i];
            }
            qk += dot(r.q[j], r.k[j]);
        }
        if (t + 1u < run.n)
            next = row_at(run.row + t + 1u);
        exchange(e, p, qk);
        e *= r.beta;
        [[unroll]] for (uint i = 0u; i < 4u * FOURS; i++)
            S[i] += r.k[i / 4u][i % 4u] * e;
        if (group == 0u && in_columns)
            F32x4(a.o).at[D / 4u * ((run.row + t) * a.H + head) + four] = p + qk * e;
    }
    [[unroll]] for (uint i = 0u; i < 4u * FOURS; i++)
        if (in_columns && keys(i / 4u) < D / 4u)
            state.at[(4u * keys(i / 4u) + i % 4u) * (D / 4u) + four] = S[i];
}
