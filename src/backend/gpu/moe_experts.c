#include "backend/args/moe.h"
#include "backend/gpu/gpu.h"

#include <math.h>

/* slots[t,k] = W2 situ(W1 z[t], W3 z[t]) of expert ids[t,k] (specification 3.6, 3.7). A few rows go pair by pair; of more, the pairs are
 * sorted by expert on the device, and each expert is read once for all its rows. */

enum {
    ROWS_BY_PAIR = 8,
    MOST_CHOSEN = 64,    /* K */
    MOST_EXPERTS = 4096, /* E: of shared memory in moe_experts_group */
    FEW_ROWS = 16,       /* of an expert: accumulators for 32 rows of x do, else for 64 */
    MOST_PARTS = 4       /* of 16 rows of x, on matrix units */
};

typedef struct moe_call {
    k3_gpu *gpu;
    const k3_moe *moe;
    k3_ref slots, z;
    uint64_t n_pairs;
    uint64_t n_wanted;                  /* experts that are read, at most */
    int aligned;                        /* z and the experts lie at multiples of 16 */
    uint32_t wanted[MOST_EXPERTS / 32]; /* bits by id: asked for and here; only with host_ids */
} moe_call;

static int is_wanted(const moe_call *c, int id)
{
    return (int)(c->wanted[id / 32] >> (id % 32) & 1);
}

static uint64_t codes_bytes(const k3_moe *moe)
{
    return (uint64_t)moe->I * (uint64_t)moe->L / 2;
}

static uint64_t scales_bytes(const k3_moe *moe)
{
    return (uint64_t)moe->I * (uint64_t)moe->L / 32;
}

/* ---- what was asked for ---------------------------------------------------------------------------------------- */

static int check_shapes(k3_gpu *gpu, const k3_moe *moe)
{
    if (moe->L % 32 || moe->I % 32 || moe->L < 32 || moe->I < 32)
        k3_gpu_fail(gpu, K3_E_INVALID, "moe_experts: widths %d and %d, multiples of 32 wanted", moe->L, moe->I);
    else if (moe->E < 1 || moe->E > MOST_EXPERTS || moe->K > MOST_CHOSEN)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "moe_experts: %d of %d experts, at most %d of %d wanted", moe->K, moe->E, (int)MOST_CHOSEN,
                    (int)MOST_EXPERTS);
    else if (!moe->host_ids && !moe->table.buf)
        k3_gpu_fail(gpu, K3_E_INVALID, "moe_experts: the choice is on the device and no table of experts is there");
    return !k3_gpu_failed(gpu);
}

static uint64_t address_of(k3_ref ref)
{
    return ref.buf->address + ref.at;
}

static int check_expert(moe_call *c, int id)
{
    k3_gpu *gpu = c->gpu;
    const k3_moe *moe = c->moe;
    const k3_expert *e = moe->experts[id];
    const k3_mat *mats[3] = {&e->w1, &e->w3, &e->w2};
    static const char *const names[3] = {"w1", "w3", "w2"};
    for (int i = 0; i < 3; i++) {
        const k3_mat *m = mats[i];
        int rows = i < 2 ? moe->I : moe->L, cols = i < 2 ? moe->L : moe->I;
        if (m->type != K3_MXFP4)
            k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "moe_experts: %s of expert %d is %s, mxfp4 wanted", names[i], id, k3_type_name(m->type));
        else if (m->rows != rows || m->cols != cols)
            k3_gpu_fail(gpu, K3_E_INVALID, "moe_experts: %s of expert %d is [%d, %d], [%d, %d] wanted", names[i], id, m->rows, m->cols,
                        rows, cols);
        else if (!m->data.buf || !m->scale.buf)
            k3_gpu_fail(gpu, K3_E_INVALID, "moe_experts: %s of expert %d has no codes or no scales", names[i], id);
        else if (address_of(m->data) % 4 || address_of(m->scale) % 4)
            k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "moe_experts: %s of expert %d is not at a multiple of 4 bytes", names[i], id);
        else
            c->aligned = c->aligned && address_of(m->data) % 16 == 0;
    }
    return !k3_gpu_failed(gpu);
}

/* Finds the wanted experts. Without the host's ids as many as there can be. */
static int find_wanted(moe_call *c)
{
    const k3_moe *moe = c->moe;
    c->aligned = address_of(c->z) % 16 == 0;
    if (!moe->host_ids) {
        c->n_wanted = c->n_pairs < (uint64_t)moe->E ? c->n_pairs : (uint64_t)moe->E;
        return 1;
    }
    for (uint64_t p = 0; p < c->n_pairs; p++) {
        int id = moe->host_ids[p];
        if (id < 0 || id >= moe->E) {
            k3_gpu_fail(c->gpu, K3_E_INVALID, "moe_experts: expert %d of %d is asked for", id, moe->E);
            return 0;
        }
        if (!moe->experts[id] || is_wanted(c, id))
            continue;
        if (!check_expert(c, id))
            return 0;
        c->wanted[id / 32] |= 1u << (id % 32);
        c->n_wanted++;
    }
    return c->n_wanted > 0;
}

/* ---- where the experts are ------------------------------------------------------------------------------------- */

/* Declares what a step reads of the experts: all wanted ones, or the table of those that live on the device. An expert's tensors usually
 * are neighbours, and one range. */
static void read_experts(const moe_call *c)
{
    const k3_moe *moe = c->moe;
    uint64_t codes = codes_bytes(moe), scales = scales_bytes(moe);
    if (!moe->host_ids)
        k3_gpu_read(c->gpu, moe->table, (uint64_t)moe->E * sizeof(struct k3_expert_address));
    for (int id = 0; moe->host_ids && id < moe->E; id++) {
        if (!is_wanted(c, id))
            continue;
        const k3_mat *mats[3] = {&moe->experts[id]->w1, &moe->experts[id]->w3, &moe->experts[id]->w2};
        for (int i = 0; i < 3; i++) {
            k3_gpu_read(c->gpu, mats[i]->data, codes);
            k3_gpu_read(c->gpu, mats[i]->scale, scales);
        }
    }
}

/* 0 for an expert that is not here. */
static struct k3_expert_address find_expert(const moe_call *c, int id)
{
    if (!is_wanted(c, id))
        return (struct k3_expert_address){0};
    const k3_expert *e = c->moe->experts[id];
    return (struct k3_expert_address){address_of(e->w1.data),  address_of(e->w1.scale), address_of(e->w3.data),
                                      address_of(e->w3.scale), address_of(e->w2.data),  address_of(e->w2.scale)};
}

/* The table by id. */
static uint64_t put_table(const moe_call *c)
{
    uint64_t address;
    struct k3_expert_address *table = k3_gpu_table(c->gpu, (size_t)c->moe->E * sizeof *table, &address);
    for (int id = 0; table && id < c->moe->E; id++)
        table[id] = find_expert(c, id);
    return address;
}

/* The table of the pairs whose experts are here, and which those are, in their order: much shorter where few pairs want few of many. */
static void put_pairs(const moe_call *c, struct k3_moe_gemv_args *args)
{
    uint64_t n = c->n_pairs;
    struct k3_expert_address *table = k3_gpu_table(c->gpu, n * sizeof *table, &args->table);
    uint32_t *pair_at = k3_gpu_table(c->gpu, n * sizeof *pair_at, &args->pair_at);
    args->ids = args->table;
    args->n_pairs = 0;
    for (uint32_t p = 0; table && pair_at && p < n; p++) {
        if (!is_wanted(c, c->moe->host_ids[p]))
            continue;
        table[args->n_pairs] = find_expert(c, c->moe->host_ids[p]);
        pair_at[args->n_pairs++] = p;
    }
}

static float cap(float b2)
{
    return isinf(b2) ? 0 : b2;
}

/* ---- pair by pair ---------------------------------------------------------------------------------------------- */

/* x of two pairs lies in shared memory, which is made for MOST_COLS. */
static int fits_by_pair(const k3_moe *moe)
{
    enum { MOST_COLS = 3616 }; /* 32 times MOST_UNITS of glsl/moe_experts.glsl */
    return moe->T <= ROWS_BY_PAIR && moe->L <= MOST_COLS && moe->I <= MOST_COLS;
}

/* The most lanes for which rows of that many units leave the fewest idle, 32 or 16. */
static uint32_t team_of(uint32_t units)
{
    return k3_gpu_groups(units, 32) * 2 == k3_gpu_groups(units, 16) ? 32 : 16;
}

static void step_by_pair(const moe_call *c, struct k3_moe_gemv_args *args, int down, k3_ref y, k3_ref x)
{
    const k3_moe *moe = c->moe;
    const k3_gpu_limits *limits = k3_gpu_limits_of(c->gpu);
    uint64_t x_rows = down ? c->n_pairs : (uint64_t)moe->T;
    args->rows = (uint32_t)(down ? moe->L : moe->I);
    args->cols = (uint32_t)(down ? moe->I : moe->L);
    args->pairs_a_row = down ? 1 : (uint32_t)moe->K;
    args->y = k3_gpu_write(c->gpu, y, 4 * c->n_pairs * args->rows);
    args->x = k3_gpu_read(c->gpu, x, 4 * x_rows * args->cols);
    if (!moe->host_ids)
        args->ids = k3_gpu_read(c->gpu, moe->ids, 4 * c->n_pairs);
    read_experts(c);
    /* A full device. In f16 a lane has four rows of weights, which want more registers than 1024 lanes a core would have; else two. */
    uint32_t most = limits->f16 ? 640 : 1024, threads = most, units = args->cols / 32, team = team_of(units);
    uint64_t lanes = (uint64_t)args->n_pairs * args->rows * team / ((limits->f16 ? 2 : 1) * (down ? 2 : 1));
    while (threads > 64 && (threads > limits->invocations || lanes < (uint64_t)threads * limits->cores))
        threads = threads > 512 ? 512 : threads / 2;
    uint64_t groups = k3_gpu_groups(lanes, threads), at_once = (uint64_t)limits->cores * (most / threads);
    uint32_t spec[] = {(uint32_t)c->aligned, (uint32_t)down, threads, units, team};
    k3_gpu_shader shader = limits->f16 ? K3_GPU_SHADER_moe_experts_f16 : K3_GPU_SHADER_moe_experts;
    k3_gpu_dispatch(c->gpu, shader, spec, 5, args, sizeof *args, groups < at_once ? groups : at_once, 1, 1);
}

static void by_pair(const moe_call *c)
{
    const k3_moe *moe = c->moe;
    k3_ref inner = k3_gpu_scratch(c->gpu, 4 * c->n_pairs * (uint64_t)moe->I);
    struct k3_moe_gemv_args args = {
        .fault = k3_gpu_fault(c->gpu),
        .fault_code = K3_GPU_FAULT_EXPERT_ID,
        .E = (uint32_t)moe->E,
        .missing_is_fault = !moe->host_ids,
        .n_pairs = (uint32_t)c->n_pairs,
        .b1 = moe->b1,
        .b2 = cap(moe->b2),
    };
    if (moe->host_ids)
        put_pairs(c, &args);
    else
        args.table = args.pair_at = k3_gpu_read(c->gpu, moe->table, (uint64_t)moe->E * sizeof(struct k3_expert_address));
    step_by_pair(c, &args, 0, inner, c->z);
    step_by_pair(c, &args, 1, c->slots, inner);
}

/* ---- expert by expert ------------------------------------------------------------------------------------------ */

/* Scratch of one call. */
typedef struct moe_places {
    k3_ref jobs, pair_at, half, half_unit, inner;
} moe_places;

/* In a panel of f16; a job's last tile reads beyond its rows. */
static uint64_t places_of(const moe_call *c)
{
    return c->n_pairs + 16 * MOST_PARTS;
}

static int lay_out(const moe_call *c, moe_places *at, int matrix)
{
    uint64_t L = (uint64_t)c->moe->L, I = (uint64_t)c->moe->I, places = places_of(c);
    uint64_t bytes[5] = {c->n_wanted * sizeof(struct k3_moe_job), 4 * c->n_pairs, matrix ? 2 * places * L : 0, matrix ? 4 * c->n_pairs : 0,
                         matrix ? 2 * places * I : 4 * c->n_pairs * I};
    k3_ref *refs[5] = {&at->jobs, &at->pair_at, &at->half, &at->half_unit, &at->inner};
    uint64_t total = 0;
    for (int i = 0; i < 5; i++)
        total += (bytes[i] + 255) / 256 * 256;
    k3_ref next = k3_gpu_scratch(c->gpu, total);
    for (int i = 0; i < 5; i++) {
        *refs[i] = next;
        next = k3_at(next, (bytes[i] + 255) / 256 * 256);
    }
    return next.buf != NULL;
}

static void group_pairs(const moe_call *c, const moe_places *at, uint64_t table)
{
    struct k3_moe_group_args args = {
        .jobs = k3_gpu_write(c->gpu, at->jobs, c->n_wanted * sizeof(struct k3_moe_job)),
        .pair_at = k3_gpu_write(c->gpu, at->pair_at, 4 * c->n_pairs),
        .table = table,
        .ids = k3_gpu_read(c->gpu, c->moe->ids, 4 * c->n_pairs),
        .fault = k3_gpu_fault(c->gpu),
        .fault_code = K3_GPU_FAULT_EXPERT_ID,
        .E = (uint32_t)c->moe->E,
        .missing_is_fault = !c->moe->host_ids,
        .n_pairs = (uint32_t)c->n_pairs,
        .max_jobs = (uint32_t)c->n_wanted,
    };
    uint32_t aligned = (uint32_t)c->aligned;
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_moe_experts_group, &aligned, 1, &args, sizeof args, 1, 1, 1);
}

static void halve(const moe_call *c, const moe_places *at)
{
    uint64_t L = (uint64_t)c->moe->L;
    struct k3_moe_half_args args = {
        .y = k3_gpu_write(c->gpu, at->half, 2 * places_of(c) * L),
        .unit = k3_gpu_write(c->gpu, at->half_unit, 4 * c->n_pairs),
        .x = k3_gpu_read(c->gpu, c->z, 4 * (uint64_t)c->moe->T * L),
        .pair_at = k3_gpu_read(c->gpu, at->pair_at, 4 * c->n_pairs),
        .cols = (uint32_t)L,
        .pairs_a_row = (uint32_t)c->moe->K,
        .n_pairs = (uint32_t)c->n_pairs,
        .places = (uint32_t)places_of(c),
    };
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_moe_experts_half, NULL, 0, &args, sizeof args, c->n_pairs, 1, 1);
}

/* Whether matrix units can do it: whole tiles, and a bound to what lies between the steps, |situ| <= b1 b2. */
static int use_matrix(const moe_call *c)
{
    const k3_gpu_limits *limits = k3_gpu_limits_of(c->gpu);
    const k3_moe *moe = c->moe;
    return k3_gpu_has_matrix(limits, K3_GPU_MOE_EXPERTS) && limits->f16 && limits->subgroup == 32 && !limits->exact && c->aligned &&
           moe->L % 128 == 0 && moe->I % 128 == 0 && moe->b1 * moe->b2 < 32768 && c->n_pairs <= limits->groups_x;
}

/* The power of two that leaves b1 b2 below 2^15 when it is multiplied by its inverse: small values keep their bits longest. */
static float inner_unit(const k3_moe *moe)
{
    int exponent;
    frexpf(moe->b1 * moe->b2, &exponent);
    return ldexpf(1, exponent - 15);
}

static void step_by_expert(const moe_call *c, const moe_places *at, struct k3_moe_tile_args *args, int down, int matrix)
{
    const k3_moe *moe = c->moe;
    k3_ref y = down ? c->slots : at->inner, x = down ? at->inner : matrix ? at->half : c->z;
    uint64_t y_value = down || !matrix ? 4 : 2, x_value = matrix ? 2 : 4;
    uint64_t x_rows = matrix ? places_of(c) : down ? c->n_pairs : (uint64_t)moe->T, y_rows = !down && matrix ? places_of(c) : c->n_pairs;
    args->rows = (uint32_t)(down ? moe->L : moe->I);
    args->cols = (uint32_t)(down ? moe->I : moe->L);
    args->y = k3_gpu_write(c->gpu, y, y_value * y_rows * args->rows);
    args->x = k3_gpu_read(c->gpu, x, x_value * x_rows * args->cols);
    args->x_unit = matrix && !down ? k3_gpu_read(c->gpu, at->half_unit, 4 * c->n_pairs) : 0;
    args->jobs = k3_gpu_read(c->gpu, at->jobs, c->n_wanted * sizeof(struct k3_moe_job));
    args->pair_at = k3_gpu_read(c->gpu, at->pair_at, 4 * c->n_pairs);
    read_experts(c);
    k3_gpu_work(c->gpu, (down ? 2.0 : 4.0) * (double)c->n_pairs * moe->L * moe->I);
    uint32_t spec[3] = {(uint32_t)c->aligned, (uint32_t)down, c->n_pairs <= FEW_ROWS * c->n_wanted ? 2 : 4};
    uint32_t jobs = (uint32_t)c->n_wanted;
    if (matrix) {
        k3_gpu_dispatch_full(c->gpu, K3_GPU_SHADER_moe_experts_matrix, spec, 3, args, sizeof *args, args->rows / (down ? 128 : 64), jobs,
                             1);
        return;
    }
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_moe_experts_tile, spec, 2, args, sizeof *args, k3_gpu_groups(args->rows, down ? 64 : 32), jobs,
                    1);
}

static void by_expert(const moe_call *c)
{
    const k3_moe *moe = c->moe;
    int matrix = use_matrix(c);
    moe_places at;
    if (!lay_out(c, &at, matrix))
        return;
    struct k3_moe_tile_args args = {
        .table = moe->host_ids ? put_table(c) : k3_gpu_read(c->gpu, moe->table, (uint64_t)moe->E * sizeof(struct k3_expert_address)),
        .pairs_a_row = (uint32_t)moe->K,
        .b1 = moe->b1,
        .b2 = cap(moe->b2),
        .inner_unit = matrix ? inner_unit(moe) : 1,
        .places = (uint32_t)places_of(c),
    };
    group_pairs(c, &at, args.table);
    if (matrix)
        halve(c, &at);
    step_by_expert(c, &at, &args, 0, matrix);
    step_by_expert(c, &at, &args, 1, matrix);
}

void k3_gpu_moe_experts(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe)
{
    moe_call c = {.gpu = k3_gpu_begin(be, K3_GPU_MOE_EXPERTS), .moe = moe, .slots = slots, .z = z};
    c.n_pairs = (uint64_t)moe->T * (uint64_t)moe->K;
    if (moe->T > 0 && moe->K > 0 && check_shapes(c.gpu, moe) && find_wanted(&c)) {
        if (fits_by_pair(moe))
            by_pair(&c);
        else
            by_expert(&c);
    }
    k3_gpu_end(c.gpu, 3 * c.n_wanted * (codes_bytes(moe) + scales_bytes(moe)));
}
