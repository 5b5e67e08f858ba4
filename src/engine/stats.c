/* Figures of a run as lines of text. */
#include "engine/engine.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Operations of the main backend: those of attention with state or cache, and all others. */
static void ops_of(k3_backend *be, double *attention, double *others)
{
    static const char *const names[] = {"kda_gate", "kda_recur", "kda_chunk", "mla_append", "mla_attend"};
    k3_op_stat stats[64];
    *attention = *others = 0;
    for (int i = 0, n = be->stats(be, stats, 64, 0); i < n && i < 64; i++) {
        int is_attention = 0;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            is_attention |= strcmp(stats[i].name, names[k]) == 0;
        *(is_attention ? attention : others) += (double)stats[i].nanoseconds * 1e-9;
    }
}

/* What the drives together deliver a second: as stated, or measured now, by reads of the sizes and as
 * many at once as those of a pass. Several drives: by the share that each delivered since the engine was opened. 0: unknown. */
static double ceiling_of(k3_engine *engine)
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

/* Where the time of all passes went, in parts whose sum it is. A device computes while the host does something else, so that what it does
 * is no part of the host's time. */
static size_t print_shares(k3_engine *engine, char *text, size_t size, int reset)
{
    k3_forward_stat pass;
    k3_stream_stat experts;
    k3_trunk_stat trunk;
    double attention, others;
    k3_forward_stats(engine->forward, &pass, reset);
    k3_experts_stream_stats(engine->experts, &experts);
    k3_late_stats(engine->weights->late, &trunk, reset);
    if (!pass.passes)
        return 0;
    ops_of(engine->be, &attention, &others);
    double all = (double)pass.ns * 1e-9, head = (double)pass.head_ns * 1e-9, for_experts = (double)experts.wait_ns * 1e-9;
    double for_trunk = (double)trunk.wait_ns * 1e-9, arithmetic = others - (double)pass.head_ops_ns * 1e-9;
    double waits = for_experts + for_trunk, rest = all - arithmetic - attention - head - waits;
    size_t at = (size_t)snprintf(text, size, "%llu passes of %llu rows took %.6f s: ", (unsigned long long)pass.passes,
                                 (unsigned long long)pass.rows, all);
    if (at < size && engine->be->is_device)
        at += (size_t)snprintf(text + at, size - at, "computing %.6f", all - waits);
    else if (at < size)
        at += (size_t)snprintf(text + at, size - at, "arithmetic %.6f, attention %.6f, head %.6f, other %.6f", arithmetic, attention, head,
                               rest > 0 ? rest : 0);
    if (at < size)
        at += (size_t)snprintf(text + at, size - at, ", waiting for experts %.6f, waiting for the trunk %.6f", for_experts, for_trunk);
    /* Readers of both share the drives, whose time is counted once. */
    uint64_t drive_ns = experts.io.drive_ns > trunk.io.drive_ns ? experts.io.drive_ns : trunk.io.drive_ns;
    double read = (double)(experts.io.bytes + experts.io.guess_bytes + trunk.bytes), busy = (double)drive_ns * 1e-9;
    if (at < size && experts.wanted)
        at += (size_t)snprintf(text + at, size - at, "; hit rate %.1f %%", 100.0 * (double)experts.hits / (double)experts.wanted);
    if (at < size)
        at += (size_t)snprintf(text + at, size - at, "; %.6f GB from disk in %.6f s of a busy drive", read * 1e-9, busy);
    double ceiling = at < size && busy > 0 ? ceiling_of(engine) : 0;
    if (ceiling > 0)
        at += (size_t)snprintf(text + at, size - at, ", %.1f %% of the %.3f GB/s that it gives to nothing but such reads",
                               100.0 * read / busy / ceiling, ceiling * 1e-9);
    return at < size ? at + (size_t)snprintf(text + at, size - at, "\n") : at;
}

/* Appends the operations of one backend that were called; returns the new length. */
static size_t print_ops(k3_backend *be, const char *prefix, char *text, size_t at, size_t size, int reset)
{
    k3_op_stat stats[64];
    int n = be->stats(be, stats, 64, reset);
    uint64_t total = 0;
    for (int i = 0; i < n && i < 64; i++)
        total += stats[i].nanoseconds;
    for (int i = 0; i < n && i < 64 && at < size; i++) {
        const k3_op_stat *s = &stats[i];
        double seconds = (double)s->nanoseconds * 1e-9, gb = (double)s->bytes * 1e-9;
        if (!s->calls)
            continue;
        at += (size_t)snprintf(text + at, size - at, "%s%-14s %9llu calls %10.3f ms %5.1f %%", prefix, s->name,
                               (unsigned long long)s->calls, seconds * 1e3, total ? 100.0 * (double)s->nanoseconds / (double)total : 0.0);
        if (at < size && s->dispatches)
            at += (size_t)snprintf(text + at, size - at, " %9llu dispatches", (unsigned long long)s->dispatches);
        if (at < size && s->bytes)
            at += (size_t)snprintf(text + at, size - at, " %8.3f GB %7.2f GB/s", gb, seconds > 0 ? gb / seconds : 0.0);
        if (at < size)
            at += (size_t)snprintf(text + at, size - at, "\n");
    }
    return at;
}

/* ---- drives ------------------------------------------------------------------------------------------------------------ */

static void tell(k3_engine *engine, int drive)
{
    const k3_drive_watch *watch = &engine->watched[drive].watch;
    k3_watch_sum last = k3_drive_watch_last(watch);
    double then = k3_watch_rate(&watch->start), now = k3_watch_rate(&last);
    snprintf(engine->drive_notice, sizeof engine->drive_notice,
             "the drive of %s delivers %.3f GB/s, %.0f %% less than the %.3f GB/s of its first 30 s of reading; it may be hot, or shared",
             engine->planning->drives.list[drive].folder, now * 1e-9, 100 - 100 * now / then, then * 1e-9);
    engine->info.drive_notice = engine->drive_notice;
}

void k3_engine_watch_drives(k3_engine *engine)
{
    for (int d = 0; d < engine->planning->drives.n; d++) {
        k3_watched *w = &engine->watched[d];
        uint64_t bytes, busy_ns;
        k3_io_meter_read(engine->meter, k3_ckpt_drive_device(engine->ckpt, d), &bytes, &busy_ns);
        k3_drive_watch_add(&w->watch, bytes - w->bytes, busy_ns - w->busy_ns);
        w->bytes = bytes;
        w->busy_ns = busy_ns;
        if (k3_drive_watch_fell(&w->watch))
            tell(engine, d);
    }
}

/* Since the engine was opened, whatever is reset. */
static size_t print_drives(const k3_engine *engine, char *text, size_t at, size_t size)
{
    for (int d = 0; d < engine->planning->drives.n && at < size; d++) {
        const k3_drive_watch *watch = &engine->watched[d].watch;
        k3_watch_sum last = k3_drive_watch_last(watch);
        if (watch->start.busy_ns)
            at += (size_t)snprintf(text + at, size - at, "drive of %s: %.3f GB/s in the first %.1f s of reading, %.3f in the last %.1f s\n",
                                   engine->planning->drives.list[d].folder, k3_watch_rate(&watch->start) * 1e-9,
                                   (double)watch->start.busy_ns * 1e-9, k3_watch_rate(&last) * 1e-9, (double)last.busy_ns * 1e-9);
    }
    return at;
}

void k3_engine_stats(k3_engine *engine, char *text, size_t size, int reset)
{
    int n = 0, i_main = 0;
    char none[1];
    if (!size) /* nobody reads it, but what is counted may be reset */
        text = none;
    else
        *text = 0;
    if (!engine->be)
        return;
    const k3_tier *tiers = k3_experts_tiers(engine->experts, &n, &i_main);
    size_t at = print_shares(engine, text, size, reset);
    at = print_ops(engine->be, "", text, at, size, reset);
    for (int i = 0; i < n; i++) {
        char prefix[80];
        k3_memory_info info = {0};
        k3_backend *be = tiers[i].be;
        snprintf(prefix, sizeof prefix, "%.70s: ", be->name);
        if (i != i_main)
            at = print_ops(be, prefix, text, at, size, reset);
        be->memory->info(be, &info);
        if (be->is_device && at < size)
            at += (size_t)snprintf(text + at, size - at, "%smemory %.3f of %.3f GB, %d tensors in %d slabs\n", prefix,
                                   (double)info.used * 1e-9, (double)info.budget * 1e-9, info.n_buffers, info.n_slabs);
    }
    at = print_drives(engine, text, at, size);
    at = at < size ? at : size;
    k3_experts_report(engine->experts, text + at, size - at, reset);
}
