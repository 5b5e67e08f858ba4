/* The experts of a few rows, pair by pair, in two steps: y = situ(W1 x, W3 x) and, with DOWN, y = W2 x (specification 3.6, 3.7).
 *
 * One large workgroup a core goes through its share of all pairs' rows, pair after pair. A team of lanes takes ROWS rows of weights at
 * once: half of them of W1 with the same ones of W3, or all of W2. A lane loads a unit of each, 32 codes in 16 bytes, before it computes
 * with the ones that it has, also across the ends of rows. x of two pairs lies in shared memory. With K3_HALF it lies there as f16, each
 * unit divided by a power of two, and products of 16 columns are summed in f16: half the instructions. A row's sum is that of its lanes. */
#ifndef K3_MOE_EXPERTS_GLSL
#define K3_MOE_EXPERTS_GLSL

#define K3_WITHOUT_GROUP_SUMS
#include "moe.glsl"

layout(constant_id = 1) const uint DOWN = 0;
layout(local_size_x = 256, local_size_x_id = 2) in;
layout(constant_id = 2) const uint THREADS = 256;
layout(constant_id = 3) const uint UNITS = 1; /* of a row of weights */
layout(constant_id = 4) const uint TEAM = 16; /* lanes, a multiple of 4, if a subgroup has as many */
layout(push_constant, std430) uniform Push
{
    k3_moe_gemv_args a;
};

/* With four, what is done once a unit of x or a place counts for twice as many products; the codes of more want more registers. */
#ifdef K3_HALF
#define ROWS 4
#define rows_t vec4
#else
#define ROWS 2
#define rows_t vec2
#endif

const bool FULL_WORDS = UNITS % 4u == 0u; /* a row's scales are whole words */
const uint SLOTS = 2; /* pairs at once, whose x lies in shared memory */
const uint MOST_UNITS = 113; /* MOST_COLS of moe_experts.c: shared arrays are not sized by constants of a specialization */
shared uint pairs[SLOTS];
shared uint64_t tensors[SLOTS * 4]; /* codes and scales of W1 and of W3, or of W2 twice; 0 without an expert */

/* ---- x --------------------------------------------------------------------------------------------------- */

uint64_t x_of(uint pair)
{
    return a.x + 4ul * (pair / a.pairs_a_row) * a.cols;
}

/* One vector in 5 or 9 is left out, so that lanes that read of different units meet different banks. */
#ifdef K3_HALF
const uint PITCH = 5;
shared uvec4 x_tile[SLOTS * MOST_UNITS * PITCH]; /* columns 8w+i and 8w+4+i as word i of vector w: as k3_e2m1_pairs has them */
shared float x_most[SLOTS * MOST_UNITS * 4u];    /* the largest of each 8 columns */
shared float x_unit[SLOTS * MOST_UNITS];         /* what a unit is divided by, times K3_E2M1_UNIT */

void stage_x(uint slot, uint pair)
{
    uint64_t x = x_of(pair);
    for (uint i = gl_LocalInvocationIndex; i < 4u * UNITS; i += THREADS) {
        vec4 most = max(abs(k3_load4(x, 8u * i, a.cols)), abs(k3_load4(x, 8u * i + 4u, a.cols)));
        x_most[slot * UNITS * 4u + i] = max(max(most.x, most.y), max(most.z, most.w));
    }
}

/* After stage_x and a barrier. The largest of a unit becomes at least 2^14 and less than 2^15; of units below 2^-112, less. */
void halve_x(uint slot, uint pair)
{
    uint64_t x = x_of(pair);
    for (uint i = gl_LocalInvocationIndex; i < 4u * UNITS; i += THREADS) {
        uint u = slot * UNITS + i / 4u;
        float most = max(max(x_most[4u * u], x_most[4u * u + 1u]), max(x_most[4u * u + 2u], x_most[4u * u + 3u]));
        uint exponent = max(floatBitsToUint(most) >> 23, 15u);
        float inverse = uintBitsToFloat((268u - exponent) << 23);
        vec4 low = k3_load4(x, 8u * i, a.cols) * inverse, high = k3_load4(x, 8u * i + 4u, a.cols) * inverse;
        x_tile[u * PITCH + i % 4u] = uvec4(packHalf2x16(vec2(low.x, high.x)), packHalf2x16(vec2(low.y, high.y)),
                                           packHalf2x16(vec2(low.z, high.z)), packHalf2x16(vec2(low.w, high.w)));
        if (i % 4u == 0u)
            x_unit[u] = uintBitsToFloat(exponent << 23);
    }
}
#else
const uint PITCH = 9;
shared vec4 x_tile[SLOTS * MOST_UNITS * PITCH];

void stage_x(uint slot, uint pair)
{
    uint64_t x = x_of(pair);
    for (uint i = gl_LocalInvocationIndex; i < 8u * UNITS; i += THREADS)
        x_tile[(slot * UNITS + i / 8u) * PITCH + i % 8u] = k3_load4(x, 4u * i, a.cols);
}
#endif

/* ---- products -------------------------------------------------------------------------------------------- */

/* A unit of each row as it comes from memory: nothing is computed from it before it is used, a step later. */
struct unit {
    uvec4 codes[ROWS];
    uint scales[ROWS]; /* the words around their bytes */
    uint at;           /* with FULL_WORDS, of the bytes in those words; else the first row's place among its tensor's units */
};

/* The products of unit u of x with all rows, without scales. */
#ifdef K3_HALF
f16vec2 products(uvec4 x, uint codes, f16vec2 sum)
{
    uvec4 w = k3_e2m1_pairs(codes);
    [[unroll]] for (int i = 0; i < 4; i++)
        sum = fma(unpackFloat2x16(w[i]), unpackFloat2x16(x[i]), sum);
    return sum;
}

rows_t add_unit(uvec4 codes[ROWS], uint u)
{
    rows_t sum = rows_t(0.0);
    [[unroll]] for (uint w = 0; w < 4u; w += 2u) {
        uvec4 x0 = x_tile[u * PITCH + w], x1 = x_tile[u * PITCH + w + 1u];
        [[unroll]] for (uint r = 0; r < ROWS; r++) {
            f16vec2 p = products(x1, codes[r][w + 1u], products(x0, codes[r][w], f16vec2(0.0)));
            sum[r] += float(p.x) + float(p.y);
        }
    }
    return sum * x_unit[u];
}
#else
float products(vec4 x0, vec4 x1, uint codes, float sum)
{
    vec4 w0, w1;
    k3_e2m1x8(codes, w0, w1);
    for (int i = 0; i < 4; i++)
        sum = fma(w0[i], x0[i], sum);
    for (int i = 0; i < 4; i++)
        sum = fma(w1[i], x1[i], sum);
    return sum;
}

rows_t add_unit(uvec4 codes[ROWS], uint u)
{
    rows_t sum = rows_t(0.0);
    [[unroll]] for (uint w = 0; w < 4u; w++) {
        vec4 x0 = x_tile[u * PITCH + 2u * w], x1 = x_tile[u * PITCH + 2u * w + 1u];
        [[unroll]] for (uint r = 0; r < ROWS; r++)
            sum[r] = products(x0, x1, codes[r][w], sum[r]);
    }
    return sum * K3_E2M1_UNIT;
}
#endif

/* ---- rows ------------------------------------------------------------------------------------------------ */

const uint TEAM_ROWS = DOWN != 0u ? ROWS : ROWS / 2; /* of y */
uint team_size, team, lane, block_rows;              /* rows of y that a subgroup makes at once */

/* Where a lane loads its next units from: addresses of tensors as in `tensors`, and a unit of the first row. */
struct place {
    uint64_t near, near_scale, far, far_scale;
    uint at;
};

/* Of a block that begins at that row; rows past the end compute something. */
place place_of(uint slot, uint row)
{
    row += TEAM_ROWS * team;
    uint at = (row < a.rows ? row : 0u) * UNITS + min(lane, UNITS - 1u);
    return place(tensors[4u * slot], tensors[4u * slot + 1u], tensors[4u * slot + 2u], tensors[4u * slot + 3u], at);
}

/* Row r is that many units behind the first of its tensor's. */
uint behind(uint r)
{
    return r % TEAM_ROWS * UNITS;
}

unit fetch(place p)
{
    unit u;
    uint64_t near = p.near + 16ul * p.at, far = p.far + 16ul * p.at;
    u.at = FULL_WORDS ? p.at % 4u * 8u : p.at;
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        bool is_near = r < TEAM_ROWS;
        u.codes[r] = k3_code_block(is_near ? near : far, behind(r));
        if (FULL_WORDS)
            u.scales[r] = U32((is_near ? p.near_scale : p.far_scale) + 4ul * (p.at / 4u)).at[behind(r) / 4u];
        else
            u.scales[r] = U32(is_near ? p.near_scale : p.far_scale).at[(p.at + behind(r)) / 4u];
    }
    return u;
}

rows_t scales_of(unit u)
{
    rows_t scales;
    [[unroll]] for (uint r = 0; r < ROWS; r++)
        scales[r] = k3_e8m0(u.scales[r] >> (FULL_WORDS ? u.at : (u.at + behind(r)) % 4u * 8u) & 255u);
    return scales;
}

/* Adds up what the lanes of a team have; each of the subgroup's first lanes writes a row. */
void write_rows(rows_t sum, uint pair, uint row)
{
    vec2 mine = vec2(0.0);
    for (uint t = 0; t * team_size < gl_SubgroupSize; t++) {
        rows_t total = subgroupAdd(team == t ? sum : rows_t(0.0));
        [[unroll]] for (uint r = 0; r < TEAM_ROWS; r++)
            if (gl_SubgroupInvocationID == TEAM_ROWS * t + r)
                mine = vec2(total[r], total[(r + TEAM_ROWS) % ROWS]);
    }
    row += gl_SubgroupInvocationID;
    if (gl_SubgroupInvocationID < block_rows && row < a.rows)
        F32(a.y + 4ul * pair * a.rows).at[row] = DOWN != 0u ? mine.x : k3_situ(mine.x, mine.y, a.b1, a.b2);
}

/* Blocks first .. last-1, of which those from `middle` on are of the second slot's pair; the first one's begin at `origin`. */
void make_blocks(uint first, uint last, uint origin, uint middle)
{
    uint block = first + gl_SubgroupID, target = min(block, last - 1u);
    uint slot = target < middle ? 0u : 1u, row = (target - (slot == 0u ? origin : middle)) * block_rows;
    place p = place_of(slot, row);
    unit next = fetch(p);
#ifdef K3_HALF
    halve_x(0u, pairs[0]);
    if (last > middle)
        halve_x(1u, pairs[1]);
    barrier();
#endif
    for (; block < last; block += gl_NumSubgroups) {
        rows_t sum = rows_t(0.0);
        uint now_slot = slot, now_row = row;
        target = min(block + gl_NumSubgroups, last - 1u);
        slot = target < middle ? 0u : 1u;
        row = (target - (slot == 0u ? origin : middle)) * block_rows;
        for (uint u = lane; u < UNITS; u += team_size) {
            unit now = next;
            if (u + team_size >= UNITS)
                p = place_of(slot, row);
            else
                p.at += team_size;
            next = fetch(p);
            sum = fma(add_unit(now.codes, now_slot * UNITS + u), scales_of(now), sum);
        }
        write_rows(sum, pairs[now_slot], now_row);
    }
}

uint pair_at(uint index)
{
    return a.pair_at == a.table ? index : U32(a.pair_at).at[index];
}

/* One of the last invocations, while others have begun with x. */
void find_tensor(uint slot, uint index, uint which)
{
    uint entry = K3_EXPERT_OF(index, a), codes = DOWN != 0u ? K3_W2 : which < 2u ? K3_W1 : K3_W3;
    uint64_t tensor = k3_expert_tensor(a.table, entry == K3_NO_EXPERT ? 0u : entry, codes + which % 2u);
    tensors[4u * slot + which] = entry == K3_NO_EXPERT ? 0ul : tensor;
    if (which == 0u)
        pairs[slot] = pair_at(index);
}

void main()
{
    team_size = min(TEAM, gl_SubgroupSize);
    team = gl_SubgroupInvocationID / team_size;
    lane = gl_SubgroupInvocationID % team_size;
    block_rows = gl_SubgroupSize / team_size * TEAM_ROWS;
    uint a_pair = (a.rows + block_rows - 1u) / block_rows, total = a_pair * a.n_pairs;
    uint share = total / gl_NumWorkGroups.x, more = total % gl_NumWorkGroups.x;
    uint begin = gl_WorkGroupID.x * share + min(gl_WorkGroupID.x, more), end = begin + share + (gl_WorkGroupID.x < more ? 1u : 0u);
    uint thread = gl_LocalInvocationIndex, from_last = THREADS - 1u - thread;
    for (uint index = begin / a_pair; index * a_pair < end; index += SLOTS) {
        uint origin = index * a_pair, middle = origin + a_pair, first = max(begin, origin), last = min(end, middle + a_pair);
        bool two = last > middle;
        barrier();
        if (from_last < (two ? 8u : 4u))
            find_tensor(from_last / 4u, index + from_last / 4u, from_last % 4u);
        stage_x(0u, pair_at(index));
        if (two)
            stage_x(1u, pair_at(index + 1u));
        barrier();
        if (tensors[0] == 0ul)
            first = max(first, middle);
        if (two && tensors[4] == 0ul)
            last = middle;
        if (first < last)
            make_blocks(first, last, origin, middle);
    }
}

#endif
