#include "backend/cpu/cpu.h"

#include <string.h>

/* slots[t,k] = W2_e situ(W1_e z[t], W3_e z[t]),  e = ids[t,k]
 * z [T, L], slots [T, K, L] f32; W1 (gate), W3 (up) [I, L], W2 (down) [L, I], MXFP4. The work is expert by expert, so that an expert's
 * bytes are read once for all rows that want it. Pairs whose expert is not here are left out. The kernels are those of matmul and situ_glu:
 * this file holds no arithmetic of its own. Where products are of integers, z and the inner activations are rounded to 8 bits. */

/* An item is BLOCK rows of an expert or a multiple; what a thread has of one expert is one run of memory. */
enum { BLOCK = 64, ITEMS_A_THREAD = 32 };

/* One expert and the pairs (t, k) that want it: places first .. first+n-1 of the sorted pairs. */
typedef struct moe_job {
    k3_cpu_mat w1, w3, w2;
    int first, n;
} moe_job;

typedef struct moe_args {
    const k3_cpu *cpu;
    const k3_moe *moe;
    const float *z;
    int L, I;
    float b1, b2;
    int n_jobs, inner_rows, down_rows; /* rows of an item */
    moe_job *jobs;
    int n_pairs; /* those whose expert is here */
    int *count;  /* [E]: pairs of each id, then its next place */
    /* By place: the rows of z, of the gate and up results [I], and the slot (in order t, k) [L]. */
    const float **z_row;
    float **gate_row, **up_row, **slot_row;
    float *gate, *up;
    /* For integer products: z and the inner activations, and where in them a place's row is. */
    int is_q8;
    k3_q8 z_q8, inner_q8;
    int32_t *row_of_z, *place_of;
} moe_args;

static void multiply(const moe_args *a, float *const *y, const float *const *x, const k3_q8 *q8, const int32_t *row_of, const moe_job *job,
                     k3_cpu_mat w, int r0, int r1)
{
    if (a->is_q8)
        a->cpu->k.matmul_q8(y + job->first, q8, row_of + job->first, job->n, &w, r0, r1);
    else
        a->cpu->k.matmul(y + job->first, x + job->first, job->n, &w, r0, r1);
}

/* Of items first .. last-1, each `rows` of a job's n rows: the job of the first, and its rows that they have. Returns the item after them.
 */
static int64_t take_rows(const moe_args *a, const moe_job **job, int *r0, int *r1, int64_t first, int64_t last, int rows, int n)
{
    int64_t blocks = (n + rows - 1) / rows, end = (first / blocks + 1) * blocks;
    *job = &a->jobs[first / blocks];
    *r0 = (int)(first % blocks) * rows;
    *r1 = last < end ? (int)(last - first / blocks * blocks) * rows : n;
    return last < end ? last : end;
}

/* What the thread does next, with items first .. last-1 of its piece left: a job, and the row it begins with. NULL: not known. */
static const moe_job *next_rows(const moe_args *a, int *row, int64_t first, int64_t last, int thread, int rows, int n)
{
    int64_t next = first < last ? first : k3_pool_coming(a->cpu->pool, thread), blocks = (n + rows - 1) / rows;
    if (next < 0)
        return NULL;
    *row = (int)(next % blocks) * rows;
    return &a->jobs[next / blocks];
}

static void inner_task(void *arg, int64_t first, int64_t last, int thread)
{
    const moe_args *a = arg;
    const moe_job *job, *next;
    for (int r0, r1, row; first < last;) {
        first = take_rows(a, &job, &r0, &r1, first, last, a->inner_rows, a->I);
        next = next_rows(a, &row, first, last, thread, a->inner_rows, a->I);
        float *const *gate = a->gate_row + job->first, *const *up = a->up_row + job->first;
        multiply(a, a->gate_row, a->z_row, &a->z_q8, a->row_of_z, job, k3_cpu_followed(job->w1, &job->w3, r0), r0, r1);
        multiply(a, a->up_row, a->z_row, &a->z_q8, a->row_of_z, job, next ? k3_cpu_followed(job->w3, &next->w1, row) : job->w3, r0, r1);
        for (int p = 0; p < job->n; p++) {
            a->cpu->k.situ_glu(gate[p] + r0, gate[p] + r0, up[p] + r0, r1 - r0, a->b1, a->b2);
            if (a->is_q8)
                a->cpu->k.quantize_q8(&a->inner_q8, job->first + p, gate[p], r0, r1);
        }
    }
}

static void down_task(void *arg, int64_t first, int64_t last, int thread)
{
    const moe_args *a = arg;
    const moe_job *job, *next;
    for (int r0, r1, row; first < last;) {
        first = take_rows(a, &job, &r0, &r1, first, last, a->down_rows, a->L);
        next = next_rows(a, &row, first, last, thread, a->down_rows, a->L);
        multiply(a, a->slot_row, (const float *const *)a->gate_row, &a->inner_q8, a->place_of, job,
                 next ? k3_cpu_followed(job->w2, &next->w2, row) : job->w2, r0, r1);
    }
}

/* The number of pairs whose expert is here; -1 and a kept failure if an id is outside the table. */
static int count_pairs(k3_cpu *cpu, const k3_moe *moe, const int32_t *ids)
{
    int n = 0;
    for (int i = 0; i < moe->T * moe->K; i++) {
        if (ids[i] < 0 || ids[i] >= moe->E) {
            k3_cpu_fail(cpu, K3_E_INVALID, "moe_experts: expert %d is asked for, 0 to %d exist", (int)ids[i], moe->E - 1);
            return -1;
        }
        n += moe->experts[ids[i]] != NULL;
    }
    return n;
}

static int take_expert(k3_cpu *cpu, const moe_args *a, moe_job *job, const k3_expert *e, int id)
{
    const k3_mat *mats[3] = {&e->w1, &e->w3, &e->w2};
    k3_cpu_mat *out[3] = {&job->w1, &job->w3, &job->w2};
    static const char *const names[3] = {"w1", "w3", "w2"};
    for (int i = 0; i < 3; i++) {
        int rows = i < 2 ? a->I : a->L, cols = i < 2 ? a->L : a->I;
        if (mats[i]->type != K3_MXFP4) {
            k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "moe_experts: %s of expert %d is %s, mxfp4 wanted", names[i], id,
                        k3_type_name(mats[i]->type));
            return 0;
        }
        if (mats[i]->rows != rows || mats[i]->cols != cols) {
            k3_cpu_fail(cpu, K3_E_INVALID, "moe_experts: %s of expert %d is [%d, %d], [%d, %d] wanted", names[i], id, mats[i]->rows,
                        mats[i]->cols, rows, cols);
            return 0;
        }
        if (!k3_cpu_mat_of(cpu, out[i], mats[i], "moe_experts"))
            return 0;
    }
    return 1;
}

/* Scratch of one call: `count` has E entries, everything else one a pair. */
static int lay_out(k3_cpu *cpu, moe_args *a)
{
    size_t pairs = (size_t)a->n_pairs, n_ids = (size_t)a->moe->E, n_jobs = pairs < n_ids ? pairs : n_ids;
    size_t index_bytes = a->is_q8 ? pairs * sizeof *a->row_of_z : 0;
    size_t bytes[12] = {n_jobs * sizeof *a->jobs,
                        n_ids * sizeof *a->count,
                        pairs * sizeof *a->z_row,
                        pairs * sizeof *a->gate_row,
                        pairs * sizeof *a->up_row,
                        pairs * sizeof *a->slot_row,
                        pairs * (size_t)a->I * sizeof(float),
                        pairs * (size_t)a->I * sizeof(float),
                        index_bytes,
                        index_bytes,
                        a->is_q8 ? k3_cpu_q8_bytes(a->moe->T, a->L, 1) : 0,
                        a->is_q8 ? k3_cpu_q8_bytes(a->n_pairs, a->I, 1) : 0};
    enum { PARTS = sizeof bytes / sizeof *bytes };
    size_t total = 0;
    for (int i = 0; i < PARTS; i++)
        total += k3_round64(bytes[i]);
    char *at = k3_cpu_scratch(cpu, total);
    if (!at)
        return 0;
    void *part[PARTS];
    for (int i = 0; i < PARTS; i++) {
        part[i] = at;
        at += k3_round64(bytes[i]);
    }
    a->jobs = part[0];
    a->count = part[1];
    a->z_row = part[2];
    a->gate_row = part[3];
    a->up_row = part[4];
    a->slot_row = part[5];
    a->gate = part[6];
    a->up = part[7];
    if (a->is_q8) {
        a->row_of_z = part[8];
        a->place_of = part[9];
        a->z_q8 = k3_cpu_q8_at(part[10], a->moe->T, a->L, 0, 1);
        a->inner_q8 = k3_cpu_q8_at(part[11], a->n_pairs, a->I, 0, 1);
    }
    return 1;
}

/* Sorts the pairs by expert (a counting sort, stable) and fills jobs and row tables. */
static int sort_pairs(k3_cpu *cpu, moe_args *a, const int32_t *ids, float *slots)
{
    const k3_moe *moe = a->moe;
    int pairs = moe->T * moe->K, place = 0;
    memset(a->count, 0, (size_t)moe->E * sizeof *a->count);
    for (int p = 0; p < pairs; p++)
        a->count[ids[p]]++;
    for (int id = 0; id < moe->E; id++) {
        int n = a->count[id];
        a->count[id] = place;
        if (!n || !moe->experts[id])
            continue;
        moe_job *job = &a->jobs[a->n_jobs++];
        job->first = place;
        job->n = n;
        if (!take_expert(cpu, a, job, moe->experts[id], id))
            return 0;
        place += n;
    }
    for (int p = 0; p < pairs; p++) {
        if (!moe->experts[ids[p]])
            continue;
        int at = a->count[ids[p]]++;
        a->z_row[at] = a->z + (int64_t)(p / moe->K) * a->L;
        a->gate_row[at] = a->gate + (int64_t)at * a->I;
        a->up_row[at] = a->up + (int64_t)at * a->I;
        a->slot_row[at] = slots + (int64_t)p * a->L;
        if (a->is_q8) {
            a->row_of_z[at] = p / moe->K;
            a->place_of[at] = at;
        }
    }
    return 1;
}

/* Of `rows` rows of each of n_jobs experts. */
static int item_rows(const k3_cpu *cpu, int n_jobs, int rows)
{
    int pieces = (ITEMS_A_THREAD * cpu->n_threads + n_jobs - 1) / n_jobs, piece = (rows + pieces - 1) / pieces;
    return (piece + BLOCK - 1) / BLOCK * BLOCK;
}

void k3_cpu_moe_experts(k3_backend *be, k3_ref slots, k3_ref z, const k3_moe *moe)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    if (moe->T < 1 || moe->K < 1)
        return;
    const int32_t *ids = moe->host_ids ? moe->host_ids : k3_host(moe->ids);
    moe_args a = {.cpu = cpu, .moe = moe, .z = k3_host(z), .L = moe->L, .I = moe->I, .b1 = moe->b1, .b2 = moe->b2};
    a.is_q8 = cpu->k.matmul_q8 != NULL;
    a.n_pairs = count_pairs(cpu, moe, ids);
    if (a.n_pairs < 1 || !lay_out(cpu, &a) || !sort_pairs(cpu, &a, ids, k3_host(slots)))
        return;
    if (a.is_q8)
        k3_cpu_quantize(cpu, &a.z_q8, a.z, moe->T);
    a.inner_rows = item_rows(cpu, a.n_jobs, a.I);
    a.down_rows = item_rows(cpu, a.n_jobs, a.L);
    int64_t inner_blocks = (a.I + a.inner_rows - 1) / a.inner_rows, down_blocks = (a.L + a.down_rows - 1) / a.down_rows;
    int64_t rows = ((int64_t)a.n_pairs + a.n_jobs - 1) / a.n_jobs;
    k3_pool_run(cpu->pool, inner_task, &a, a.n_jobs * inner_blocks, k3_cpu_grain(rows * a.inner_rows * a.L));
    k3_pool_run(cpu->pool, down_task, &a, a.n_jobs * down_blocks, k3_cpu_grain(rows * a.down_rows * a.I));
    uint64_t bytes = 3 * (uint64_t)a.I * (k3_type_row_bytes(K3_MXFP4, a.L) + k3_type_scale_bytes(K3_MXFP4, a.L));
    k3_cpu_end(cpu, K3_OP_MOE_EXPERTS, t0, bytes * (uint64_t)a.n_jobs);
}
