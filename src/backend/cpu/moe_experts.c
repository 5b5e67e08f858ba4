#include "backend/cpu/cpu.h"

#include <string.h>

/* y[t] = sum_k weights[t,k] W2_e situ(W1_e z[t], W3_e z[t]),  e = ids[t,k], k = 0..K-1 in that order
 * z, y [T, L] f32; W1 (gate), W3 (up) [I, L], W2 (down) [L, I], MXFP4. The work is expert by expert, so that an expert's bytes are read
 * once for all rows that want it; each (t, k) has a slot of its own and the slots are added in rank order, so neither the order of experts
 * nor the threads reach the sum. The kernels are those of matmul, situ_glu and mix: this file holds no arithmetic of its own. */

enum { INNER_ROWS = 64, LATENT_ROWS = 64, SUM_COLUMNS = 512 };

/* One expert and the pairs (t, k) that want it: places first .. first+n-1 of the sorted pairs. */
typedef struct moe_job {
    k3_cpu_mat w1, w3, w2;
    int first, n;
} moe_job;

typedef struct moe_args {
    const k3_cpu *cpu;
    float *y;
    const float *z, *weights;
    int T, K, L, I;
    float b1, b2;
    int n_jobs;
    moe_job *jobs;
    int *count; /* [ids]: pairs of each id, then its next place */
    /* By place: the rows of z, of the gate and up results [I], and the slot (in order t, k) [L]. */
    const float **z_row;
    float **gate_row, **up_row, **slot_row;
    float *gate, *up, *slots;
} moe_args;

/* Item i is block i % blocks of the inner rows of job i / blocks. */
static void inner_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const moe_args *a = arg;
    int blocks = (a->I + INNER_ROWS - 1) / INNER_ROWS;
    for (int64_t i = first; i < last; i++) {
        const moe_job *job = &a->jobs[i / blocks];
        int r0 = (int)(i % blocks) * INNER_ROWS, r1 = r0 + INNER_ROWS < a->I ? r0 + INNER_ROWS : a->I;
        float *const *gate = a->gate_row + job->first, *const *up = a->up_row + job->first;
        a->cpu->k.matmul(gate, a->z_row + job->first, job->n, &job->w1, r0, r1);
        a->cpu->k.matmul(up, a->z_row + job->first, job->n, &job->w3, r0, r1);
        for (int p = 0; p < job->n; p++)
            a->cpu->k.situ_glu(gate[p] + r0, gate[p] + r0, up[p] + r0, r1 - r0, a->b1, a->b2);
    }
}

/* Item i is block i % blocks of the output rows of job i / blocks. */
static void down_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const moe_args *a = arg;
    int blocks = (a->L + LATENT_ROWS - 1) / LATENT_ROWS;
    for (int64_t i = first; i < last; i++) {
        const moe_job *job = &a->jobs[i / blocks];
        int r0 = (int)(i % blocks) * LATENT_ROWS, r1 = r0 + LATENT_ROWS < a->L ? r0 + LATENT_ROWS : a->L;
        a->cpu->k.matmul(a->slot_row + job->first, (const float *const *)a->gate_row + job->first, job->n, &job->w2, r0, r1);
    }
}

/* Item i is block i % blocks of the columns of row i / blocks. */
static void sum_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const moe_args *a = arg;
    int blocks = (a->L + SUM_COLUMNS - 1) / SUM_COLUMNS;
    for (int64_t i = first; i < last; i++) {
        int64_t t = i / blocks;
        int c0 = (int)(i % blocks) * SUM_COLUMNS, n = a->L - c0 < SUM_COLUMNS ? a->L - c0 : SUM_COLUMNS;
        a->cpu->k.mix_f32(a->y + t * a->L + c0, a->L, NULL, a->weights + t * a->K, a->K, a->slots + t * a->K * a->L + c0, a->L, 1, a->K, n);
    }
}

/* Largest id, or -1 and a kept failure if an id is negative or has no expert. */
static int largest_id(k3_cpu *cpu, const int32_t *ids, const k3_expert *const *experts, int n)
{
    int largest = -1;
    for (int i = 0; i < n; i++) {
        if (ids[i] < 0 || !experts[ids[i]]) {
            k3_cpu_fail(cpu, K3_E_INVALID, "moe_experts: expert %d is asked for and not there", (int)ids[i]);
            return -1;
        }
        largest = ids[i] > largest ? ids[i] : largest;
    }
    return largest;
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

/* Scratch of one call: `count` has n_ids entries, everything else one a pair. */
static int lay_out(k3_cpu *cpu, moe_args *a, int n_ids)
{
    size_t pairs = (size_t)a->T * (size_t)a->K, n_jobs = pairs < (size_t)n_ids ? pairs : (size_t)n_ids;
    size_t bytes[9] = {n_jobs * sizeof *a->jobs,
                       (size_t)n_ids * sizeof *a->count,
                       pairs * sizeof *a->z_row,
                       pairs * sizeof *a->gate_row,
                       pairs * sizeof *a->up_row,
                       pairs * sizeof *a->slot_row,
                       pairs * (size_t)a->I * sizeof(float),
                       pairs * (size_t)a->I * sizeof(float),
                       pairs * (size_t)a->L * sizeof(float)};
    size_t total = 0;
    for (int i = 0; i < 9; i++)
        total += k3_round64(bytes[i]);
    char *at = k3_cpu_scratch(cpu, total);
    if (!at)
        return 0;
    void *part[9];
    for (int i = 0; i < 9; i++) {
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
    a->slots = part[8];
    return 1;
}

/* Sorts the pairs by expert (a counting sort, stable) and fills jobs and row tables. */
static int sort_pairs(k3_cpu *cpu, moe_args *a, const int32_t *ids, const k3_expert *const *experts, int n_ids)
{
    int pairs = a->T * a->K, place = 0;
    memset(a->count, 0, (size_t)n_ids * sizeof *a->count);
    for (int p = 0; p < pairs; p++)
        a->count[ids[p]]++;
    for (int id = 0; id < n_ids; id++) {
        int n = a->count[id];
        a->count[id] = place;
        if (!n)
            continue;
        moe_job *job = &a->jobs[a->n_jobs++];
        job->first = place;
        job->n = n;
        if (!take_expert(cpu, a, job, experts[id], id))
            return 0;
        place += n;
    }
    for (int p = 0; p < pairs; p++) {
        int at = a->count[ids[p]]++;
        a->z_row[at] = a->z + (int64_t)(p / a->K) * a->L;
        a->gate_row[at] = a->gate + (int64_t)at * a->I;
        a->up_row[at] = a->up + (int64_t)at * a->I;
        a->slot_row[at] = a->slots + (int64_t)p * a->L;
    }
    return 1;
}

void k3_cpu_moe_experts(k3_backend *be, k3_ref y, k3_ref z, const int32_t *ids, k3_ref weights, const k3_expert *const *experts, int T,
                        int K, float b1, float b2)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    if (T < 1 || K < 1)
        return;
    int n_ids = largest_id(cpu, ids, experts, T * K) + 1;
    if (!n_ids)
        return;
    const k3_expert *one = experts[ids[0]];
    moe_args a = {.cpu = cpu, .y = k3_host(y), .z = k3_host(z), .weights = k3_host(weights), .T = T, .K = K};
    a.L = one->w1.cols;
    a.I = one->w1.rows;
    a.b1 = b1;
    a.b2 = b2;
    if (!lay_out(cpu, &a, n_ids) || !sort_pairs(cpu, &a, ids, experts, n_ids))
        return;
    int64_t inner_blocks = (a.I + INNER_ROWS - 1) / INNER_ROWS, down_blocks = (a.L + LATENT_ROWS - 1) / LATENT_ROWS;
    int64_t rows = ((int64_t)T * K + a.n_jobs - 1) / a.n_jobs;
    k3_pool_run(cpu->pool, inner_task, &a, a.n_jobs * inner_blocks, k3_cpu_grain(rows * INNER_ROWS * a.L));
    k3_pool_run(cpu->pool, down_task, &a, a.n_jobs * down_blocks, k3_cpu_grain(rows * LATENT_ROWS * a.I));
    k3_pool_run(cpu->pool, sum_task, &a, T * (int64_t)((a.L + SUM_COLUMNS - 1) / SUM_COLUMNS), k3_cpu_grain((int64_t)K * SUM_COLUMNS));
    uint64_t bytes = k3_cpu_mat_bytes(&one->w1) + k3_cpu_mat_bytes(&one->w3) + k3_cpu_mat_bytes(&one->w2);
    k3_cpu_end(cpu, K3_OP_MOE_EXPERTS, t0, bytes * (uint64_t)a.n_jobs);
}
