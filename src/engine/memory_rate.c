/* The ceiling that decode is measured against: how fast this machine reads memory, with the threads that compute. */
#include "base/os.h"
#include "base/pool.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { K3_RATE_BLOCK = 1 << 20, K3_RATE_ROUNDS = 5 };

typedef struct k3_rate_job {
    const uint64_t *data;
    _Atomic uint64_t sum; /* keeps the reads alive */
} k3_rate_job;

static void read_blocks(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    k3_rate_job *job = arg;
    enum { WORDS = K3_RATE_BLOCK / 8 };
    uint64_t s[8] = {0};
    for (const uint64_t *p = job->data + first * WORDS, *end = job->data + last * WORDS; p < end; p += 8)
        for (int i = 0; i < 8; i++)
            s[i] += p[i];
    atomic_fetch_add_explicit(&job->sum, s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7], memory_order_relaxed);
}

double k3_memory_rate(int threads)
{
    k3_pool *pool;
    if (k3_pool_open(&pool, threads, NULL) != K3_OK)
        return 0;
    /* Far beyond any cache, but a small part of what is free. */
    uint64_t bytes = (uint64_t)1 << 30, available = k3_os_memory_available();
    while (bytes > available / 4 && bytes > (uint64_t)64 << 20)
        bytes /= 2;
    char *data = malloc(bytes);
    double best = 0;
    if (data) {
        memset(data, 1, bytes);
        k3_rate_job job = {(const uint64_t *)(const void *)data, 0};
        for (int i = 0; i < K3_RATE_ROUNDS; i++) {
            uint64_t start = k3_os_nanoseconds();
            k3_pool_run(pool, read_blocks, &job, (int64_t)(bytes / K3_RATE_BLOCK), 4);
            double rate = (double)bytes / ((double)(k3_os_nanoseconds() - start) * 1e-9);
            best = rate > best ? rate : best;
        }
    }
    free(data);
    k3_pool_close(pool);
    return best;
}
