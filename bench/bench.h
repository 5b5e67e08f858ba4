/* The benchmark of a device's operations, through the contract only. A *job* is one operation at one shape with several sets of operands,
 * visited in turn so that no cache holds them. Memory is taken from pools of made-up content that are filled on the device. */
#ifndef K3_BENCH_BENCH_H
#define K3_BENCH_BENCH_H

#include "backend/backend.h"

/* Contents: random bytes; bf16 and f32 near zero; MXFP4 scales near 1; zeros that operations change; outputs. */
typedef enum pool_kind { POOL_CODES, POOL_BF16, POOL_F32, POOL_SCALES, POOL_STATE, POOL_OUT, N_POOLS } pool_kind;

enum { MAX_SETS = 24, MAX_BLOCKS = 40, MAX_ROWS = 160, MAX_ROUNDS = 64, MAX_RUNS = 16, MAX_MATS = 8, MAX_INPUTS = 32 };

/* Blocks used as a ring: tensors lie in one block each, and the first follows the last. */
typedef struct pool {
    k3_buf *blocks[MAX_BLOCKS];
    int n_blocks, block;
    uint64_t at;
} pool;

/* K3's widths, or small ones that a software device computes in seconds. */
typedef struct shape {
    int hidden, inner, dense, shared, latent, expert_inner, heads, head, experts, choices, vocab, prefill, attend_rows, sequences;
    int context[3];
    int nope, rope, v, kv_lora, q_lora;
    uint64_t block; /* bytes of a pool's block */
    int blocks[N_POOLS];
} shape;

typedef struct options {
    const char *backend, *only;
    int rounds, small, json;
} options;

/* Medians over the rounds, in microseconds a call; 0: not measured. */
typedef struct row {
    const char *op;
    char shape[56];
    double device;    /* between the device's time stamps, each call after the one before it */
    double wall;      /* clock time of many such calls in one go, without time stamps */
    double apart;     /* the same for calls that may overlap */
    double recording; /* of `wall`, what the host spent on handing the calls over */
    double bytes, flops;
    int T, calls, ceiling;
    char error[160];
} row;

typedef struct bench {
    k3_backend *be;
    const options *options;
    shape shape;
    pool pools[N_POOLS];
    row rows[MAX_ROWS];
    int n_rows;
    int timing, exact; /* of the backend that is open */
    int overlap;       /* calls have places of their own for their outputs */
    double copy_rate;  /* bytes per second, read and written */
    uint32_t seed;
    char device[256];
} bench;

/* One operation at one shape. `call` records the i-th call on the operands of set i % n_sets. */
typedef struct job {
    const char *op;
    char shape[56];
    void (*call)(bench *b, const struct job *j, int i);
    int n_sets, T, variant;
    double bytes, flops; /* of a call: what has to be read and written, and computed */
    k3_mat mat[MAX_SETS][MAX_MATS];
    int n_mats;
    k3_ref state[MAX_SETS][MAX_RUNS];
    int n_runs, in_order; /* in_order: the calls never overlap */
    int64_t pos;
    k3_ref x[MAX_INPUTS]; /* what all sets share */
    uint64_t out[2];      /* bytes of the outputs */
    k3_moe moe[MAX_SETS];
    k3_draw draw;
} job;

/* measure.c */
double bench_seconds(void);
uint32_t bench_random(bench *b);
k3_status bench_open(bench *b, int timing, int exact, k3_error *err);
void bench_close(bench *b);
/* `bytes` of a pool's ring. */
k3_ref bench_take(bench *b, pool_kind kind, uint64_t bytes);
/* Matrix of a type over the pools' content; adds its bytes to *bytes if that is not NULL. */
k3_mat bench_mat(bench *b, k3_type type, int rows, int cols, double *bytes);
/* Where the i-th call writes its output number `which`. */
k3_ref bench_out(bench *b, const job *j, int i, int which);
void bench_copy_rate(bench *b);
/* Measures the job as the open backend allows (time stamps or clock) and keeps the medians in its row. */
void bench_job(bench *b, const job *j);

/* An int8 head in memory of its own; release its data's buffer. */
k3_mat bench_head_mat(bench *b, double *bytes);

/* experts.c. The experts of a layer, and choices of `rows` rows. */
typedef struct bench_layer {
    k3_expert *experts;
    const k3_expert **list;
    struct k3_expert_address *addresses;
    k3_buf *table, *ids;
    int32_t *host_ids; /* [rows, choices] */
} bench_layer;

int bench_layer_open(bench *b, bench_layer *l, int rows);
void bench_layer_close(bench *b, bench_layer *l);
k3_moe bench_layer_moe(const bench *b, const bench_layer *l, int T, int i, int on_device);
double bench_wanted_bytes(const bench *b, const bench_layer *l, int T);
void bench_moe(bench *b, int T, int on_device);

/* layers.c: whole layers of each kind, and what they say for K3. */
void bench_layers(bench *b);
/* The time of all 93 layers for T rows in microseconds, by the device or by the clock; 0 where a part is missing. */
double bench_extrapolate(const bench *b, int T, int by_clock);

/* ops_large.c and ops_small.c: every operation. */
void bench_large(bench *b);
void bench_small(bench *b);
/* The best product in plain f32: what the vector units give. Wants a backend in exact mode. */
void bench_ceiling(bench *b);

#endif
