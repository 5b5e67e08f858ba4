/* The ceiling that decode is measured against: how fast this machine reads memory, with the threads that compute, from pages like those of
 * the weights, with loads as wide as the kernels' and as far ahead. */
#include "backend/cpu/cpu.h"
#include "base/os.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCK = 1 << 20, ROUNDS = 7 };

uint64_t k3_memory_read_scalar(const unsigned char *data, int64_t bytes)
{
    uint64_t sum[4] = {0};
    for (int64_t at = 0; at < bytes; at += 32)
        for (int i = 0; i < 4; i++) {
            uint64_t word;
            memcpy(&word, data + at + 8 * i, 8);
            sum[i] += word;
        }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

typedef struct read_args {
    k3_memory_read_fn *read;
    const unsigned char *data;
    _Atomic uint64_t sum; /* keeps the reads alive */
} read_args;

static void read_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    read_args *a = arg;
    atomic_fetch_add_explicit(&a->sum, a->read(a->data + first * BLOCK, (last - first) * BLOCK), memory_order_relaxed);
}

double k3_cpu_memory_rate(int threads)
{
    k3_pool *pool;
    k3_cpu_kernels k;
    int level = K3_CPU_N_LEVELS - 1;
    if (k3_pool_open(&pool, threads, NULL) != K3_OK)
        return 0;
    while (!k3_cpu_level_here((k3_cpu_level)level))
        level--;
    k3_cpu_kernels_get(&k, (k3_cpu_level)level, 0);
    /* Far beyond any cache, but a small part of what is free. */
    uint64_t bytes = (uint64_t)1 << 30, available = k3_os_memory_available(NULL);
    while (bytes > available / 4 && bytes > (uint64_t)64 << 20)
        bytes /= 2;
    unsigned char *data = k3_cpu_pages(bytes);
    double best = 0;
    if (data) {
        memset(data, 1, bytes);
        read_args a = {k.memory_read, data, 0};
        for (int i = 0; i < ROUNDS; i++) {
            uint64_t start = k3_os_nanoseconds();
            k3_pool_run(pool, read_task, &a, (int64_t)(bytes / BLOCK), 4);
            double rate = (double)bytes / ((double)(k3_os_nanoseconds() - start) * 1e-9);
            best = rate > best ? rate : best;
        }
        munmap(data, bytes);
    }
    k3_pool_close(pool);
    return best;
}
