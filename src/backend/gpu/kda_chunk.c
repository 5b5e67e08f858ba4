#include "backend/args/kda_chunk.h"
#include "backend/gpu/kda.h"

/* As glsl/kda_chunk*.comp have them. */
enum { CHUNK = 16, MAX_D = 128, COLUMNS_A_GROUP = 32, SHARED_BYTES = 32 << 10 };
/* Shorter runs recur: a chunk costs about as much as this many single rows. */
enum { SHORT = 8 };
/* Rows whose T and BT are in scratch at once: 128 bytes a row and head. */
enum { WINDOW = 1024 };

/* The run's first chunk that begins at row `row` of the call or later; k3_first_chunk of glsl/kda_chunk.glsl. */
static uint32_t first_chunk(const k3_run *run, uint32_t row)
{
    uint32_t before = row > (uint32_t)run->row ? row - (uint32_t)run->row : 0, chunks = ((uint32_t)run->n + CHUNK - 1) / CHUNK;
    before = (before + CHUNK - 1) / CHUNK;
    return before < chunks ? before : chunks;
}

static struct k3_kda_chunk_args declare(k3_gpu *gpu, const k3_kda *x, k3_ref pairs, int make_pairs, const k3_run *runs, int n_runs,
                                        uint32_t first)
{
    uint64_t rows = k3_gpu_end_row(runs, n_runs) * (uint64_t)x->H, bytes = 4 * rows * (uint64_t)x->D;
    struct k3_kda_chunk_args args = {0};
    args.q = k3_gpu_read(gpu, x->q, bytes);
    args.k = k3_gpu_read(gpu, x->k, bytes);
    args.g = k3_gpu_read(gpu, x->decay, bytes);
    args.H = (uint32_t)x->H;
    args.first = first;
    args.end = first + WINDOW;
    args.runs = k3_gpu_runs_args(gpu, runs, n_runs, 4 * (uint64_t)x->H * (uint64_t)x->D * (uint64_t)x->D);
    if (make_pairs) {
        args.beta = k3_gpu_read(gpu, x->beta, 4 * rows);
        args.pairs = k3_gpu_write(gpu, pairs, pairs.buf ? pairs.buf->bytes : 0);
    } else {
        args.o = k3_gpu_write(gpu, x->o, bytes);
        args.v = k3_gpu_read(gpu, x->v, bytes);
        args.pairs = k3_gpu_read(gpu, pairs, pairs.buf ? pairs.buf->bytes : 0);
    }
    if (!k3_gpu_aligned(args.o | args.q | args.k | args.v | args.g | args.runs.state))
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "delta rule: a tensor is not at a multiple of 16 bytes");
    return args;
}

/* The matrix kernel where the device has one for it (its shared memory is part of that). */
static void walk(k3_gpu *gpu, const k3_kda *x, const struct k3_kda_chunk_args *args, uint32_t n_runs)
{
    uint32_t dim = (uint32_t)x->D;
    uint64_t groups = (uint64_t)x->H * k3_gpu_groups((uint64_t)x->D, COLUMNS_A_GROUP);
    if (k3_gpu_has_matrix(k3_gpu_limits_of(gpu), K3_GPU_KDA_CHUNK) && x->D % 16 == 0) {
        k3_gpu_dispatch_full(gpu, K3_GPU_SHADER_kda_chunk_matrix, &dim, 1, args, sizeof *args, groups, n_runs, 1);
        return;
    }
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_kda_chunk, &dim, 1, args, sizeof *args, groups, n_runs, 1);
}

/* The chunks that begin in rows first .. first + WINDOW - 1 of the call. */
static void window(k3_gpu *gpu, const k3_kda *x, k3_ref pairs, const k3_run *runs, int n_runs, uint32_t first)
{
    uint32_t chunks = 0, dim = (uint32_t)x->D;
    for (int i = 0; i < n_runs; i++) {
        uint32_t n = first_chunk(&runs[i], first + WINDOW) - first_chunk(&runs[i], first);
        chunks = n > chunks ? n : chunks;
    }
    if (!chunks)
        return;
    double rows = (double)chunks * CHUNK * n_runs * x->H;
    struct k3_kda_chunk_args args = declare(gpu, x, pairs, 1, runs, n_runs, first);
    k3_gpu_work(gpu, rows * 6 * CHUNK * x->D);
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_kda_chunk_pairs, &dim, 1, &args, sizeof args, (uint64_t)x->H, chunks, (uint32_t)n_runs);
    args = declare(gpu, x, pairs, 0, runs, n_runs, first);
    k3_gpu_work(gpu, rows * 6 * x->D * x->D);
    walk(gpu, x, &args, (uint32_t)n_runs);
}

static void chunked(k3_gpu *gpu, const k3_kda *x, const k3_run *runs, int n_runs)
{
    uint64_t end = k3_gpu_end_row(runs, n_runs), rows = (end < WINDOW ? end : WINDOW) + CHUNK;
    k3_ref pairs = k3_gpu_scratch(gpu, rows * (uint64_t)x->H * 2 * CHUNK * 4);
    for (uint64_t first = 0; first < end; first += WINDOW)
        window(gpu, x, pairs, runs, n_runs, (uint32_t)first);
}

void k3_gpu_kda_chunk(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref g, k3_ref beta, const k3_run *runs, int n_runs, int H,
                      int D)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_KDA_CHUNK);
    k3_kda x = {o, q, k, v, g, beta, 1, H, D};
    int in_chunks = D % 8 == 0 && D <= MAX_D && k3_gpu_limits_of(gpu)->shared_bytes >= SHARED_BYTES;
    k3_run parts[2][K3_GPU_KDA_RUNS];
    int n[2] = {0, 0};
    if (n_runs > K3_GPU_KDA_RUNS)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "kda_chunk: %d sequences in one pass, at most %d wanted", n_runs, K3_GPU_KDA_RUNS);
    for (int i = 0; i < n_runs && n_runs <= K3_GPU_KDA_RUNS; i++) {
        int part = in_chunks && runs[i].n >= SHORT;
        parts[part][n[part]++] = runs[i];
    }
    if (n[1])
        chunked(gpu, &x, parts[1], n[1]);
    if (n[0])
        k3_gpu_recur(gpu, &x, parts[0], n[0]);
    k3_gpu_end(gpu, 0);
}
