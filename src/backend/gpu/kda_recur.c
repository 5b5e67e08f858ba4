#include "backend/args/kda_recur.h"
#include "backend/gpu/kda.h"

enum { COLUMNS_A_GROUP = 32, MAX_D = 256 }; /* as glsl/kda_recur.comp has them */
/* Rows of a run in one dispatch, so that none takes long. */
enum { ROWS_AT_ONCE = 4096 };

static void recur(k3_gpu *gpu, const k3_kda *x, const k3_run *runs, int n_runs)
{
    uint64_t rows = k3_gpu_end_row(runs, n_runs) * (uint64_t)x->H, D = (uint64_t)x->D, bytes = 4 * rows * D;
    struct k3_kda_recur_args args = {k3_gpu_write(gpu, x->o, bytes),
                                     k3_gpu_read(gpu, x->q, bytes),
                                     k3_gpu_read(gpu, x->k, bytes),
                                     k3_gpu_read(gpu, x->v, bytes),
                                     k3_gpu_read(gpu, x->decay, bytes),
                                     k3_gpu_read(gpu, x->beta, 4 * rows),
                                     k3_gpu_runs_args(gpu, runs, n_runs, 4 * (uint64_t)x->H * D * D),
                                     (uint32_t)x->H,
                                     (uint32_t)x->decay_is_log};
    if (!k3_gpu_aligned(args.o | args.q | args.k | args.v | args.decay | args.runs.state))
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "delta rule: a tensor is not at a multiple of 16 bytes");
    uint32_t dim = (uint32_t)x->D;
    k3_gpu_work(gpu, 8.0 * (double)(rows * D * D));
    k3_gpu_dispatch(gpu, K3_GPU_SHADER_kda_recur, &dim, 1, &args, sizeof args, (uint64_t)x->H * k3_gpu_groups(D, COLUMNS_A_GROUP),
                    (uint32_t)n_runs, 1);
}

void k3_gpu_recur(k3_gpu *gpu, const k3_kda *x, const k3_run *runs, int n_runs)
{
    k3_run parts[K3_GPU_KDA_RUNS];
    int longest = (int)k3_gpu_longest(runs, n_runs);
    if (x->D % 4 || x->D < 4 || x->D > MAX_D) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "delta rule: heads of %d, a multiple of 4 up to %d wanted", x->D, MAX_D);
        return;
    }
    if (n_runs > K3_GPU_KDA_RUNS) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "delta rule: %d sequences in one pass, at most %d wanted", n_runs, K3_GPU_KDA_RUNS);
        return;
    }
    for (int from = 0; from < longest; from += ROWS_AT_ONCE) {
        int n = 0;
        for (int i = 0; i < n_runs; i++) {
            int left = runs[i].n - from;
            if (left > 0)
                parts[n++] = (k3_run){runs[i].row + from, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE, 0, runs[i].state};
        }
        recur(gpu, x, parts, n);
    }
}

void k3_gpu_kda_recur(k3_backend *be, k3_ref o, k3_ref q, k3_ref k, k3_ref v, k3_ref alpha, k3_ref beta, const k3_run *runs, int n_runs,
                      int H, int D)
{
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_KDA_RECUR);
    k3_gpu_recur(gpu, &(k3_kda){o, q, k, v, alpha, beta, 0, H, D}, runs, n_runs);
    k3_gpu_end(gpu, 0);
}
