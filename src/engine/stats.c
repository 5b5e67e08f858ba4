/* Figures of a run, as lines of text and as JSON. */
#include "engine/engine.h"
#include "engine/printer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Where the time of all passes went, in parts whose sum it is. A device computes while the host does something else, so that what it does
 * is no part of the host's time. */
typedef struct k3_shares {
    k3_forward_stat pass;
    double all, arithmetic, attention, head, other; /* seconds; of a device all it does is arithmetic */
    double for_experts, for_trunk;                  /* waited */
    uint64_t wanted, hits, bytes;                   /* experts; read from disk */
    double busy;                                    /* seconds of the drives */
} k3_shares;

/* The experts' part is reset by k3_experts_report. */
static k3_shares shares_of(k3_engine *engine, int reset)
{
    k3_shares s = {0};
    k3_stream_stat experts;
    k3_trunk_stat trunk;
    double others;
    k3_forward_stats(engine->forward, &s.pass, reset);
    k3_experts_stream_stats(engine->experts, &experts);
    k3_late_stats(engine->weights->late, &trunk, reset);
    ops_of(engine->be, &s.attention, &others);
    s.all = (double)s.pass.ns * 1e-9;
    s.head = (double)s.pass.head_ns * 1e-9;
    s.for_experts = (double)experts.wait_ns * 1e-9;
    s.for_trunk = (double)trunk.wait_ns * 1e-9;
    s.arithmetic = others - (double)s.pass.head_ops_ns * 1e-9;
    s.other = fmax(s.all - s.arithmetic - s.attention - s.head - s.for_experts - s.for_trunk, 0);
    if (engine->be->is_device) {
        s.arithmetic = s.all - s.for_experts - s.for_trunk;
        s.attention = s.head = s.other = 0;
    }
    /* Readers of both share the drives, whose time is counted once. */
    s.busy = (double)(experts.io.drive_ns > trunk.io.drive_ns ? experts.io.drive_ns : trunk.io.drive_ns) * 1e-9;
    s.bytes = experts.io.bytes + experts.io.guess_bytes + trunk.bytes;
    s.wanted = experts.wanted;
    s.hits = experts.hits;
    return s;
}

static size_t print_shares(k3_engine *engine, char *text, size_t size, int reset)
{
    k3_shares s = shares_of(engine, reset);
    if (!s.pass.passes)
        return 0;
    size_t at = (size_t)snprintf(text, size, "%llu passes of %llu rows took %.6f s: ", (unsigned long long)s.pass.passes,
                                 (unsigned long long)s.pass.rows, s.all);
    if (at < size && engine->be->is_device)
        at += (size_t)snprintf(text + at, size - at, "computing %.6f", s.arithmetic);
    else if (at < size)
        at += (size_t)snprintf(text + at, size - at, "arithmetic %.6f, attention %.6f, head %.6f, other %.6f", s.arithmetic, s.attention,
                               s.head, s.other);
    if (at < size)
        at += (size_t)snprintf(text + at, size - at, ", waiting for experts %.6f, waiting for the trunk %.6f", s.for_experts, s.for_trunk);
    if (at < size && s.wanted)
        at += (size_t)snprintf(text + at, size - at, "; hit rate %.1f %%", 100.0 * (double)s.hits / (double)s.wanted);
    if (at < size)
        at += (size_t)snprintf(text + at, size - at, "; %.6f GB from disk in %.6f s of a busy drive", (double)s.bytes * 1e-9, s.busy);
    double ceiling = at < size && s.busy > 0 ? k3_engine_disk_rate(engine) : 0;
    if (ceiling > 0)
        at += (size_t)snprintf(text + at, size - at, ", %.1f %% of the %.3f GB/s that it gives to nothing but such reads",
                               100.0 * (double)s.bytes / s.busy / ceiling, ceiling * 1e-9);
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

/* ---- as JSON ------------------------------------------------------------------------------------------------------------- */

static void say_json_ops(k3_printer *p, k3_backend *be, int *n_said, int reset)
{
    k3_op_stat stats[64];
    int n = be->stats(be, stats, 64, reset);
    for (int i = 0; i < n && i < 64; i++) {
        if (!stats[i].calls)
            continue;
        k3_say(p, "%s{\"backend\": ", (*n_said)++ ? ", " : "");
        k3_say_string(p, be->name);
        k3_say(p, ", \"name\": \"%s\", \"calls\": %llu, \"seconds\": %.9f, \"bytes\": %llu}", stats[i].name,
               (unsigned long long)stats[i].calls, (double)stats[i].nanoseconds * 1e-9, (unsigned long long)stats[i].bytes);
    }
}

char *k3_engine_stats_json(k3_engine *engine, int reset)
{
    typedef unsigned long long ull;
    enum { SIZE = 1 << 16 };
    int n = 0, i_main = 0, n_said = 0;
    k3_printer p = {calloc(1, SIZE), 0, SIZE};
    k3_shares s = {0};
    char none[1];
    if (!p.text)
        return NULL;
    if (engine->be)
        s = shares_of(engine, reset);
    k3_say(&p, "{\"passes\": %llu, \"rows\": %llu, \"seconds\": %.9f, ", (ull)s.pass.passes, (ull)s.pass.rows, s.all);
    k3_say(&p, "\"parts\": {\"arithmetic\": %.9f, \"attention\": %.9f, \"head\": %.9f, \"other\": %.9f, ", s.arithmetic, s.attention,
           s.head, s.other);
    k3_say(&p, "\"waiting_for_experts\": %.9f, \"waiting_for_trunk\": %.9f}, ", s.for_experts, s.for_trunk);
    k3_say(&p, "\"experts_wanted\": %llu, \"expert_hits\": %llu, \"disk_bytes\": %llu, \"disk_busy_seconds\": %.9f, \"operations\": [",
           (ull)s.wanted, (ull)s.hits, (ull)s.bytes, s.busy);
    if (engine->be) {
        const k3_tier *tiers = k3_experts_tiers(engine->experts, &n, &i_main);
        say_json_ops(&p, engine->be, &n_said, reset);
        for (int i = 0; i < n; i++)
            if (i != i_main)
                say_json_ops(&p, tiers[i].be, &n_said, reset);
        k3_experts_report(engine->experts, none, sizeof none, reset);
    }
    k3_say(&p, "]}");
    return p.text;
}
