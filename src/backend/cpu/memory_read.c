/* The ceiling that decode is measured against: how fast this machine reads memory, with the threads that compute, from pages like those of
 * the weights, with loads as wide as the kernels' and as far ahead. */
#include "backend/cpu/cpu.h"
#include "base/os.h"

#include <stdatomic.h>
#include <stdlib.h>
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

struct k3_cpu_meter {
    k3_pool *pool;
    k3_memory_read_fn *read;
    unsigned char *data;
    uint64_t bytes;
    _Atomic uint64_t sum; /* keeps the reads alive */
};

static void read_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    k3_cpu_meter *m = arg;
    atomic_fetch_add_explicit(&m->sum, m->read(m->data + first * BLOCK, (last - first) * BLOCK), memory_order_relaxed);
}

static k3_memory_read_fn *widest_read(void)
{
    k3_cpu_kernels k;
    int level = K3_CPU_N_LEVELS - 1;
    while (!k3_cpu_level_here((k3_cpu_level)level))
        level--;
    k3_cpu_kernels_get(&k, (k3_cpu_level)level, 0);
    return k.memory_read;
}

k3_cpu_meter *k3_cpu_meter_open(int threads)
{
    k3_cpu_meter *m = calloc(1, sizeof *m);
    if (!m)
        return NULL;
    m->read = widest_read();
    /* Far beyond any cache, but a small part of what is free. */
    uint64_t available = k3_os_memory_available(NULL);
    m->bytes = (uint64_t)1 << 30;
    while (m->bytes > available / 4 && m->bytes > (uint64_t)64 << 20)
        m->bytes /= 2;
    if (k3_pool_open(&m->pool, threads, NULL) != K3_OK || !(m->data = k3_cpu_pages(m->bytes))) {
        k3_cpu_meter_close(m);
        return NULL;
    }
    k3_pool_spread(m->pool, m->data, m->bytes);
    memset(m->data, 1, m->bytes);
    return m;
}

void k3_cpu_meter_close(k3_cpu_meter *m)
{
    if (!m)
        return;
    if (m->data)
        munmap(m->data, m->bytes);
    k3_pool_close(m->pool);
    free(m);
}

double k3_cpu_meter_read(k3_cpu_meter *m)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t start = k3_os_nanoseconds();
        k3_pool_run(m->pool, read_task, m, (int64_t)(m->bytes / BLOCK), 4);
        double rate = (double)m->bytes / ((double)(k3_os_nanoseconds() - start) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}

double k3_cpu_memory_rate(int threads)
{
    k3_cpu_meter *m = k3_cpu_meter_open(threads);
    double rate = m ? k3_cpu_meter_read(m) : 0;
    k3_cpu_meter_close(m);
    return rate;
}
