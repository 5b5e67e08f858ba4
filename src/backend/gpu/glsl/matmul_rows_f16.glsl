/* y[t][r] = sum_c W[r, c] x[t][c] for MXFP4 and 1 or 2 rows t: as matmul_rows.comp, with products in f16, which take half the instructions.
 * x lies in shared memory as f16, each block of 32 columns divided by a power of two; a block's products are summed in f16, 8 by 8.
 *
 * What limits it is how much is on its way from memory, also while a launch begins and ends. Therefore a lane loads a block of R rows, 32
 * codes in 16 bytes each, before it computes with the ones that it has, also across the ends of rows; and where x is short, in
 * matmul_rows_f16.comp, a workgroup is small enough for two at once, also of two launches. */
#ifndef K3_MATMUL_ROWS_F16_GLSL
#define K3_MATMUL_ROWS_F16_GLSL

#define K3_WITHOUT_GROUP_SUMS
#include "halves.glsl"
#include "matmul.glsl"

layout(local_size_x_id = 3) in;
layout(constant_id = 3) const uint THREADS = 256;
layout(constant_id = 0) const uint T = 1;
layout(constant_id = 1) const uint R = 1;     /* rows of W that a subgroup makes at once; no part has fewer */
layout(constant_id = 2) const uint UNITS = 4; /* blocks of 32 columns: a multiple of 4 and of the subgroup */
const uint MAX_T = 2, MAX_R = 4;

/* ---- x --------------------------------------------------------------------------------------------------- */

/* MOST_UNITS, of T rows together, and MOST_ROUNDS are those of the file that includes this one. */
shared uvec4 x_tile[MOST_UNITS * 4]; /* columns 8w+i and 8w+4+i of a block as word i of vector w: as k3_e2m1_pairs has them */
shared float x_unit[MOST_UNITS];     /* what a block is divided by, times K3_E2M1_UNIT */

/* The bits of the largest of each eight columns of a block: with K3_TIGHT where its last eight go afterwards. */
#ifdef K3_TIGHT
#define MOST_OF(unit) x_tile[((unit) / UNITS * 4 + 3) * UNITS + (unit) % UNITS]
#else
shared uvec4 x_most[MOST_UNITS];
#define MOST_OF(unit) x_most[unit]
#endif

/* Eight columns a thread and round. A block's largest becomes at least 2^14 and less than 2^15; of blocks below 2^-112, less. */
void stage()
{
    const uint EIGHTS = T * UNITS * 4, ROUNDS = (EIGHTS + THREADS - 1) / THREADS;
    vec4 low[MOST_ROUNDS], high[MOST_ROUNDS];
    uint exponent[MOST_ROUNDS];
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        uint i = k * THREADS + gl_LocalInvocationIndex;
        if (i >= EIGHTS)
            continue;
        low[k] = F32x4(a.x).at[2 * i];
        high[k] = F32x4(a.x).at[2 * i + 1];
        vec4 most = max(abs(low[k]), abs(high[k]));
        MOST_OF(i / 4)[i % 4] = floatBitsToUint(max(max(most.x, most.y), max(most.z, most.w)));
    }
    barrier();
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        uvec4 most = MOST_OF(min(k * THREADS + gl_LocalInvocationIndex, EIGHTS - 1) / 4);
        exponent[k] = max(max(max(most.x, most.y), max(most.z, most.w)) >> 23, 15u);
    }
#ifdef K3_TIGHT
    barrier();
#endif
    [[unroll]] for (uint k = 0; k < ROUNDS; k++) {
        uint i = k * THREADS + gl_LocalInvocationIndex, u = i / 4, w = i % 4;
        if (i >= EIGHTS)
            continue;
        float inverse = uintBitsToFloat((268 - exponent[k]) << 23);
        x_tile[(u / UNITS * 4 + w) * UNITS + u % UNITS] = k3_halves(low[k] * inverse, high[k] * inverse);
        if (w == 0)
            x_unit[u] = uintBitsToFloat(exponent[k] << 23);
    }
    barrier();
}

/* ---- rows ------------------------------------------------------------------------------------------------ */

/* A block of each of R rows as it comes from memory: nothing is computed from it before it is used, a step later. */
struct unit {
    uvec4 codes[MAX_R];
    uint scales[MAX_R]; /* of 4 blocks */
};

/* Where a lane loads from. Rows at the end of a part are made twice where R does not divide them: with the same bits. */
struct place {
    uint64_t codes, scales;
};

place place_of(uint block, out k3_matmul_part part, out uint row)
{
    part = part_of(block);
    row = min((block - part.first_block) * R, part.w.rows - R);
    uint lane = gl_SubgroupInvocationID;
    return place(k3_row_at(part.w, row) + 16 * lane, k3_scale_at(part.w, row) + lane / 4 * 4);
}

unit fetch(place p)
{
    unit u;
    [[unroll]] for (uint r = 0; r < R; r++) {
        u.codes[r] = U32x4(p.codes).at[r * UNITS];
        u.scales[r] = U32(p.scales).at[r * UNITS / 4];
    }
    return u;
}

f16vec2 products(uvec4 x, uvec4 w, f16vec2 sum)
{
    [[unroll]] for (int i = 0; i < 4; i++)
        sum = fma(unpackFloat2x16(w[i]), unpackFloat2x16(x[i]), sum);
    return sum;
}

void add_unit(unit u, uint at, inout float sum[MAX_R * MAX_T])
{
    f16vec2 block[MAX_R * MAX_T];
    [[unroll]] for (uint w = 0; w < 4; w += 2) {
        uvec4 x[2 * MAX_T];
        [[unroll]] for (uint t = 0; t < T; t++) {
            x[2 * t] = x_tile[(4 * t + w) * UNITS + at];
            x[2 * t + 1] = x_tile[(4 * t + w + 1) * UNITS + at];
        }
        [[unroll]] for (uint r = 0; r < R; r++) {
            uvec4 w0 = k3_e2m1_pairs(u.codes[r][w]), w1 = k3_e2m1_pairs(u.codes[r][w + 1]);
            [[unroll]] for (uint t = 0; t < T; t++) {
                uint i = r * MAX_T + t;
                f16vec2 eights = products(x[2 * t + 1], w1, products(x[2 * t], w0, f16vec2(0.0)));
                block[i] = w == 0 ? eights : block[i] + eights;
            }
        }
    }
    uint shift = gl_SubgroupInvocationID % 4 * 8;
    [[unroll]] for (uint r = 0; r < R; r++) {
        float scale = uintBitsToFloat((u.scales[r] >> shift & 255) << 23);
        [[unroll]] for (uint t = 0; t < T; t++) {
            uint i = r * MAX_T + t;
            sum[i] = fma(float(block[i].x) + float(block[i].y), scale * x_unit[t * UNITS + at], sum[i]);
        }
    }
}

/* A workgroup makes blocks begin .. end-1, its subgroups in turn. */
void main()
{
    uint share = a.blocks / gl_NumWorkGroups.x, more = a.blocks % gl_NumWorkGroups.x;
    uint begin = gl_WorkGroupID.x * share + min(gl_WorkGroupID.x, more), end = begin + share + (gl_WorkGroupID.x < more ? 1 : 0);
    uint block = begin + gl_SubgroupID, next_row;
    k3_matmul_part next_part;
    place p = place_of(min(block, end - 1), next_part, next_row);
    unit next = fetch(p);
    stage();
    for (; block < end; block += gl_NumSubgroups) {
        float sum[MAX_R * MAX_T];
        [[unroll]] for (uint i = 0; i < MAX_R * MAX_T; i++)
            sum[i] = 0.0;
        k3_matmul_part part = next_part;
        uint row = next_row;
        for (uint at = gl_SubgroupInvocationID; at < UNITS; at += gl_SubgroupSize) {
            unit now = next;
            if (at + gl_SubgroupSize >= UNITS) {
                p = place_of(min(block + gl_NumSubgroups, end - 1), next_part, next_row);
            } else {
                p.codes += 16 * gl_SubgroupSize;
                p.scales += gl_SubgroupSize;
            }
            next = fetch(p);
            add_unit(now, at, sum);
        }
        [[unroll]] for (uint r = 0; r < R; r++)
            [[unroll]] for (uint t = 0; t < T; t++) {
                float total = subgroupAdd(sum[r * MAX_T + t]);
                if (subgroupElect())
                    F32(part.y + 4ul * t * part.stride).at[row + r] = total;
            }
    }
}

#endif
