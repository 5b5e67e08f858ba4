/* The ceilings that prefill is measured against: how many multiply-adds a second this machine makes out of registers, with the threads that
 * compute. */
#include "backend/cpu/cpu.h"
#include "base/os.h"

#include <stdatomic.h>

enum { PIECES_A_THREAD = 8, TRIES = 5, PIECE_NS = 1000000 };

/* Scalar kernels are what the compiler makes of them, which has no ceiling of its own. */
k3_cpu_peak_kernels k3_cpu_peak_kernels_get(k3_cpu_level level)
{
    k3_cpu_peak_kernels k = {NULL, NULL, NULL};
#if K3_HAVE_AVX2
    if (level >= K3_CPU_AVX2 && level < K3_CPU_NEON) {
        k.int8 = k3_peak_int8_avx2;
        k.f32 = k3_peak_f32_avx2;
    }
#endif
#if K3_HAVE_AVX512
    if (level >= K3_CPU_AVX512 && level < K3_CPU_NEON) {
        k.f32 = k3_peak_f32_avx512;
        if (__builtin_cpu_supports("avx512vnni"))
            k.int8 = k3_peak_int8_avx512;
    }
#endif
#if K3_HAVE_AVX512BF16
    if (level >= K3_CPU_AVX512BF16 && level < K3_CPU_NEON)
        k.bf16 = k3_peak_bf16_avx512bf16;
#endif
#if K3_HAVE_AMX
    if (level == K3_CPU_AMX) {
        k.int8 = k3_peak_int8_amx;
        k.bf16 = k3_peak_bf16_amx;
    }
#endif
#if K3_HAVE_NEON
    if (level == K3_CPU_NEON) {
        k.int8 = k3_peak_int8_neon;
        k.f32 = k3_peak_f32_neon;
    }
#endif
    return k;
}

typedef struct peak_args {
    k3_peak_fn *peak;
    int64_t rounds; /* of a piece */
    _Atomic uint64_t macs;
    _Atomic uint32_t result; /* keeps the products alive */
} peak_args;

static void peak_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    peak_args *a = arg;
    for (int64_t i = first; i < last; i++) {
        float result;
        uint64_t macs = a->peak(&result, a->rounds);
        atomic_fetch_add_explicit(&a->macs, macs, memory_order_relaxed);
        atomic_fetch_add_explicit(&a->result, result > 0, memory_order_relaxed);
    }
}

/* The best of a few short rounds, of pieces of about a millisecond. */
static double rate_of(k3_pool *pool, k3_peak_fn *peak)
{
    peak_args a = {.peak = peak, .rounds = 1000};
    double best = 0;
    if (!peak)
        return 0;
    for (uint64_t took = 0; took < PIECE_NS; a.rounds *= 2) {
        uint64_t start = k3_os_nanoseconds();
        peak_task(&a, 0, 1, 0);
        took = k3_os_nanoseconds() - start;
    }
    for (int i = 0; i < TRIES; i++) {
        atomic_store(&a.macs, 0);
        uint64_t start = k3_os_nanoseconds();
        k3_pool_run(pool, peak_task, &a, (int64_t)k3_pool_threads(pool) * PIECES_A_THREAD, 1);
        double rate = (double)a.macs / ((double)(k3_os_nanoseconds() - start) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}

k3_cpu_peaks k3_cpu_peak(int threads)
{
    k3_pool *pool;
    int level = K3_CPU_N_LEVELS - 1;
    if (k3_pool_open(&pool, threads, NULL) != K3_OK)
        return (k3_cpu_peaks){0};
    while (!k3_cpu_level_here((k3_cpu_level)level))
        level--;
    k3_cpu_peak_kernels k = k3_cpu_peak_kernels_get((k3_cpu_level)level);
    k3_cpu_peaks out = {rate_of(pool, k.int8), rate_of(pool, k.bf16), rate_of(pool, k.f32)};
    k3_pool_close(pool);
    return out;
}
