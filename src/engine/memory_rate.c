#include "engine/engine.h"

#include <time.h>

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The best of several copies of `bytes`, more than any cache holds; a device that has no room for two such blocks answers 0. */
static double copy_rate(k3_backend *be, uint64_t bytes)
{
    enum { ROUNDS = 4, MOST_COPIES = 16 };
    const double round_seconds = 0.1;
    const k3_memory_ops *memory = be->memory;
    k3_error unused;
    double best = 0;
    k3_buf *from = memory->alloc(be, bytes, "measuring"), *to = from ? memory->alloc(be, bytes, "measuring") : NULL;
    k3_status status = be->sync(be, &unused);
    /* The first round is one copy and says how many make a round: a software device takes long for each. */
    for (int r = 0, copies = 1; to && status == K3_OK && r < ROUNDS; r++) {
        double started = seconds();
        for (int i = 0; i < copies; i++)
            memory->copy(be, (k3_ref){to, 0}, (k3_ref){from, 0}, bytes);
        status = be->sync(be, &unused);
        double took = seconds() - started, rate = 2.0 * copies * (double)bytes / took;
        best = status == K3_OK && rate > best ? rate : best;
        copies = copies * round_seconds > MOST_COPIES * took ? MOST_COPIES : (int)(copies * round_seconds / took);
        copies = copies < 1 ? 1 : copies;
    }
    if (to)
        memory->release(be, to);
    if (from)
        memory->release(be, from);
    return best;
}

double k3_memory_rate(k3_engine *engine)
{
    if (!engine->be)
        return 0;
    if (!engine->be->is_device)
        return k3_cpu_memory_rate(engine->config.threads);
    double rate = copy_rate(engine->be, (uint64_t)256 << 20);
    return rate > 0 ? rate : copy_rate(engine->be, (uint64_t)64 << 20);
}
