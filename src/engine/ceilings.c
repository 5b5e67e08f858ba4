/* What the machine can do at most, for figures to stand beside. */
#include "engine/engine.h"

#include <math.h>
#include <stdlib.h>
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

double k3_machine_memory_rate(k3_engine *engine)
{
    if (!engine->be->is_device)
        return k3_cpu_memory_rate(engine->config.threads);
    double rate = copy_rate(engine->be, (uint64_t)256 << 20);
    return rate > 0 ? rate : copy_rate(engine->be, (uint64_t)64 << 20);
}

double k3_engine_disk_rate(k3_engine *engine)
{
    const k3_drives *drives = &engine->planning->drives;
    double bytes = 0, seconds = 0;
    if (k3_machine_rates(engine, NULL) != K3_OK)
        return 0;
    for (int d = 0; d < drives->n; d++) {
        bytes += (double)engine->watched[d].bytes;
        seconds = fmax(seconds, (double)engine->watched[d].bytes / drives->rates[d]);
    }
    return drives->n == 1 ? drives->rates[0] : seconds > 0 ? bytes / seconds : 0;
}

struct k3_memory_meter {
    k3_engine *engine;
    k3_cpu_meter *host; /* NULL: not read so far, or a device computes */
};

k3_status k3_memory_meter_open(k3_memory_meter **out, k3_engine *engine, k3_error *err)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return k3_fail(err, K3_E_NOMEM, "memory meter: out of memory");
    (*out)->engine = engine;
    return K3_OK;
}

k3_status k3_memory_meter_read(k3_memory_meter *meter, double *bytes_per_s, k3_error *err)
{
    *bytes_per_s = 0;
    K3_TRY(k3_machine_ready(meter->engine, err));
    if (meter->engine->be->is_device) {
        *bytes_per_s = k3_machine_memory_rate(meter->engine);
        return K3_OK;
    }
    if (!meter->host)
        meter->host = k3_cpu_meter_open(meter->engine->config.threads);
    if (meter->host)
        *bytes_per_s = k3_cpu_meter_read(meter->host);
    return K3_OK;
}

void k3_memory_meter_close(k3_memory_meter *meter)
{
    if (!meter)
        return;
    k3_cpu_meter_close(meter->host);
    free(meter);
}

k3_status k3_engine_ceilings(k3_ceilings *out, k3_engine *engine, k3_error *err)
{
    uint64_t read = 0;
    *out = (k3_ceilings){0};
    K3_TRY(k3_machine_ready(engine, err));
    out->memory_bytes_per_s = k3_machine_memory_rate(engine);
    if (!engine->be->is_device) {
        k3_cpu_peaks peaks = k3_cpu_peak(engine->config.threads);
        out->int8_macs_per_s = peaks.int8;
        out->bf16_macs_per_s = peaks.bf16;
        out->f32_macs_per_s = peaks.f32;
    }
    for (int d = 0; d < engine->planning->drives.n; d++)
        read += engine->watched[d].bytes;
    if (read)
        out->disk_bytes_per_s = k3_engine_disk_rate(engine);
    return K3_OK;
}
