/* A model on drives of different kinds and rates: what the plan makes of them, and what is said of them. The drives are those of the
 * machine with another face (faults/io): their time is a clock that reads put forward. */
#include "engine/engine.h"
#include "engine/tiny_runs.h"
#include "faults/io/io_faults.h"
#include "k3.h"
#include "support/tiny_checkpoint.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IDS = 8 };

#define TWO_DRIVES "files=model-,other=00002-of,"

static uint64_t least; /* bytes of memory that the model runs in */
static const k3_config plain = {.backend = "cpu", .trunk = "bf16", .threads = 2, .chunk_rows = 16};

static k3_engine *open_with(uint64_t ram, double disk_rate)
{
    k3_engine *engine;
    k3_error err;
    k3_config config = plain;
    config.ram = ram;
    config.disk_rate = disk_rate;
    if (k3_engine_open(&engine, tiny_model, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

static void run(k3_engine *engine, float *logits)
{
    k3_session *session;
    k3_error err;
    k3_status status = k3_session_open(&session, engine, &err);
    for (int i = 0; status == K3_OK && i < N_IDS; i++)
        status = k3_session_append(session, &(int32_t){(5 + 73 * i) % TINY_VOCAB}, 1, &err);
    if (status != K3_OK)
        fail_msg("%s", err.text);
    memcpy(logits, k3_session_logits(session), TINY_VOCAB * sizeof *logits);
    k3_session_close(session);
}

/* Valid until the next call. */
static const char *plan_of(uint64_t ram, int as_json)
{
    static char kept[16384];
    char *text;
    k3_error err;
    k3_config config = plain;
    config.ram = ram;
    if (k3_plan(&text, tiny_model, &config, as_json, &err) != K3_OK)
        fail_msg("%s", err.text);
    snprintf(kept, sizeof kept, "%s", text);
    free(text);
    return kept;
}

/* Of the drive i. */
static double number_of(const char *json, int i, const char *name)
{
    char key[64];
    const char *at = strstr(json, "\"drives\": [");
    snprintf(key, sizeof key, "\"%s\": ", name);
    for (i++; at && i; i--)
        at = strchr(at + 1, '{');
    at = at ? strstr(at, key) : NULL;
    if (!at)
        fail_msg("the plan lacks \"%s\": %s", name, json);
    return strtod(at + strlen(key), NULL);
}

static void must_have(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is missing in: %s", part, text);
}

/* ---- F18 ---------------------------------------------------------------------------------------------------------------- */

/* Case F18: the trunk lies on one drive, the experts on another. */
static void F18_memory_goes_where_the_slow_drive_is(void **state)
{
    (void)state;
    static const char *const faults[] = {TWO_DRIVES "rate=4000000,other_rate=40000", TWO_DRIVES "rate=40000,other_rate=4000000"};
    float whole[TINY_VOCAB], part[TINY_VOCAB];
    int pinned[2], slots[2];
    k3_io_faults("", 0);
    k3_engine *engine = open_with(0, 0);
    run(engine, whole);
    k3_engine_close(engine);
    uint64_t ram = least + least / 4;
    for (int i = 0; i < 2; i++) {
        k3_io_faults(faults[i], 0);
        engine = open_with(ram, 0);
        const double *rates = engine->planning->facts.rates;
        assert_non_null(rates);
        assert_true(rates[i] <= 4.1e6 && rates[i] > 8e5 && rates[!i] <= 4.1e4 && rates[!i] > 3e4); /* real time comes on top */
        must_have(k3_engine_info(engine)->plan, ", drives at 0.00 and 0.00 GB/s");
        pinned[i] = engine->budget.trunk_plan.n_pinned;
        slots[i] = engine->budget.n_slots;
        assert_int_equal(engine->weights->late->first_layer, pinned[i]);
        assert_int_equal(k3_experts_room(engine->experts), slots[i]);
        run(engine, part);
        assert_memory_equal(part, whole, sizeof whole);
        k3_engine_close(engine);
    }
    if (slots[0] <= slots[1] || pinned[0] >= pinned[1])
        fail_msg("%d slots and %d layers with slow experts, %d and %d with a slow trunk", slots[0], pinned[0], slots[1], pinned[1]);
    k3_io_faults("", 0);
}

/* A rate is asked for where it decides something, and not if it was stated. */
static void F18_a_start_measures_only_what_decides(void **state)
{
    (void)state;
    k3_io_faults("files=model-", 0);
    k3_engine *engine = open_with(least, 0);
    assert_null(engine->planning->facts.rates); /* one drive */
    k3_engine_close(engine);
    k3_io_faults(TWO_DRIVES, 0);
    engine = open_with(0, 0);
    assert_null(engine->planning->facts.rates); /* nothing is left to be read */
    assert_int_equal(engine->planning->drives.n, 2);
    k3_engine_close(engine);
    engine = open_with(least, 5e8);
    assert_true(engine->planning->facts.rates[0] >= 5e8 && engine->planning->facts.rates[1] <= 5e8);
    assert_false(engine->planning->drives.is_measured);
    k3_engine_close(engine);
    k3_io_faults("", 0);
}

static void F18_the_plan_has_each_drive(void **state)
{
    (void)state;
    k3_io_faults(TWO_DRIVES "rate=4000000,other_rate=40000", 0);
    const char *json = plan_of(least, 1);
    assert_true(number_of(json, 0, "bytes_per_s") > 8e5 && number_of(json, 1, "bytes_per_s") < 4.1e4);
    assert_true(number_of(json, 0, "bytes_per_token") > 0 && number_of(json, 1, "bytes_per_token") > 0);
    must_have(json, "\"disk_seconds_per_token\": ");
    must_have(json, "\"file_system\": ");
    must_have(json, "\"is_shared\": false, \"shards\": 1, ");
    k3_io_faults("", 0);
}

/* ---- G14 ---------------------------------------------------------------------------------------------------------------- */

/* Case G14. */
static void G14_file_systems_are_named_and_shared_ones_warned_of(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *name;
        int is_shared;
    } kinds[] = {{0xEF53, "ext4", 0},      {0x58465342, "xfs", 0},     {0x9123683E, "btrfs", 0}, {0x2FC12FC1, "zfs", 0},
                 {0x01021994, "tmpfs", 0}, {0x794C7630, "overlay", 0}, {0x2011BAB0, "exfat", 0}, {0x4D44, "vfat", 0},
                 {0x01021997, "9p", 1},    {0x6969, "nfs", 1},         {0xFF534D42, "cifs", 1},  {0xFE534D42, "smb3", 1},
                 {0x00C36400, "ceph", 1}};
    char faults[64], want[128], warning[256];
    k3_drives drives;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        k3_ckpt *ckpt;
        k3_error err;
        snprintf(faults, sizeof faults, "files=model-,fs=%u", (unsigned)kinds[i].type);
        k3_io_faults(faults, 0);
        if (k3_ckpt_open(&ckpt, tiny_model, &err) != K3_OK)
            fail_msg("%s", err.text);
        k3_drives_find(&drives, ckpt);
        k3_ckpt_close(ckpt);
        assert_int_equal(drives.n, 1);
        assert_string_equal(drives.list[0].fs.name, kinds[i].name);
        assert_int_equal(drives.list[0].fs.is_shared, kinds[i].is_shared);
        snprintf(want, sizeof want, "%s is a network or shared mount; a copy on a local drive is faster", kinds[i].name);
        assert_int_equal(k3_drives_warning(warning, sizeof warning, &drives, 0), kinds[i].is_shared);
        assert_string_equal(warning, kinds[i].is_shared ? want : "");
    }
    k3_drives_state(&drives, 9e6); /* who states a rate knows it */
    drives.list[0].fs.is_shared = 0;
    assert_false(k3_drives_warning(warning, sizeof warning, &drives, 0));
    drives.is_measured = 1;
    assert_true(k3_drives_warning(warning, sizeof warning, &drives, 0));
    assert_string_equal(warning, "0.009 GB/s is far below what a local SSD gives, 0.4 and more");
    k3_io_faults("", 0);
}

/* Case G14: the shared folder of a virtual machine. */
static void G14_the_plan_tells_kind_and_rate_of_each_drive(void **state)
{
    (void)state;
    k3_io_faults(TWO_DRIVES "fs=16914839,rate=90000000,other_rate=9000000", 0);
    const char *text = plan_of(least, 0);
    must_have(text, "\ndrive          9p, 1 shard in ");
    must_have(text, " GB/s, measured now\n               warning: 9p is a network or shared mount, and 0.0");
    must_have(text, " GB/s is far below what a local SSD gives, 0.4 and more; a copy on a local drive is faster\n");
    must_have(text, "\ndrives         0.00");
    k3_io_faults("", 0);
}

/* ---- G19 ---------------------------------------------------------------------------------------------------------------- */

/* Passes until the drive was busy for so many seconds more. */
static void read_for(k3_engine *engine, double seconds)
{
    k3_session *session;
    k3_error err;
    int32_t ids[16];
    uint64_t device = k3_ckpt_drive_device(engine->ckpt, 0), bytes, start, now;
    for (int i = 0; i < 16; i++)
        ids[i] = (5 + 73 * i) % TINY_VOCAB;
    k3_io_meter_read(engine->meter, device, &bytes, &start);
    do {
        k3_status status = k3_session_open(&session, engine, &err);
        if (status == K3_OK)
            status = k3_session_append(session, ids, 16, &err);
        if (status != K3_OK)
            fail_msg("%s", err.text);
        k3_session_close(session);
        k3_io_meter_read(engine->meter, device, &bytes, &now);
    } while ((double)(now - start) * 1e-9 < seconds);
}

/* An hour in which nothing is read: what is read ahead has come, and reads that are not the engine's put the clock forward. */
static void idle(const k3_engine *engine)
{
    uint64_t device = k3_ckpt_drive_device(engine->ckpt, 0), bytes, before, now;
    k3_trunk_stat trunk;
    char byte;
    do
        k3_late_stats(engine->weights->late, &trunk, 0);
    while (trunk.io.reads < trunk.reads);
    k3_io_meter_read(engine->meter, device, &bytes, &before);
    k3_io_faults("files=model-,rate=1", 1);
    for (int i = 0; i < 3600; i++)
        assert_int_equal(pread(k3_ckpt_shard_fd(engine->ckpt, 0), &byte, 1, 0), 1);
    k3_io_meter_read(engine->meter, device, &bytes, &now);
    assert_true(now == before);
}

/* Case G19: a drive that is slowed in the middle of a run. */
static void G19_a_drive_that_becomes_slower_is_said_once(void **state)
{
    (void)state;
    char text[16384];
    k3_io_faults("files=model-,rate=2000000", 0);
    k3_engine *engine = open_with(least, 0);
    const k3_info *info = k3_engine_info(engine);
    read_for(engine, 70);
    idle(engine);
    k3_io_faults("files=model-,rate=1600000", 1);
    read_for(engine, 40);
    assert_null(info->drive_notice);
    k3_io_faults("files=model-,rate=1000000", 1);
    read_for(engine, 50);
    assert_non_null(info->drive_notice);
    assert_null(info->notice);
    must_have(info->drive_notice, " delivers 0.001 GB/s, ");
    must_have(info->drive_notice, " % less than the 0.002 GB/s of its first 30 s of reading");
    snprintf(text, sizeof text, "%s", info->drive_notice);
    k3_io_faults("files=model-,rate=400000", 1);
    read_for(engine, 50);
    assert_string_equal(info->drive_notice, text);
    k3_engine_stats(engine, text, sizeof text, 1);
    must_have(text, ": 0.002 GB/s in the first 3");
    must_have(text, " s of reading, 0.000 in the last 3");
    k3_engine_close(engine);
    k3_io_faults("", 0);
}

/* ---- I03, I04, I05, I15 ------------------------------------------------------------------------------------------------- */

static double seconds_of(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run_alone(void *engine)
{
    float logits[TINY_VOCAB];
    run(engine, logits);
    return NULL;
}

/* Case I03: while a drive that answers nothing is waited for, no thread computes: some stretch has less than a tenth of one core. Reads are
 * by threads here: a ring whose results are held back looks ready to those who poll it. */
static void I03_threads_sleep_while_the_drive_is_waited_for(void **state)
{
    (void)state;
    pthread_t thread;
    k3_io_faults("files=00002-of,no_uring=38", 0); /* the experts' */
    k3_engine *engine = open_with(least, 0);
    k3_io_faults("files=00002-of,hold=1", 0);
    assert_int_equal(pthread_create(&thread, NULL, run_alone, engine), 0);
    while (!k3_io_faults_count("reads"))
        sched_yield();
    double share = 1;
    for (int n = 0; n < 40 && share >= 0.1; n++) { /* what is computed before the first wait may take a while where others compute */
        double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), wall = seconds_of(CLOCK_MONOTONIC);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        share = (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (seconds_of(CLOCK_MONOTONIC) - wall);
    }
    k3_io_faults("", 0);
    pthread_join(thread, NULL);
    k3_engine_close(engine);
    if (share >= 0.1)
        fail_msg("%.2f of a core while nothing comes", share);
}

/* Case I04: more memory reads no more, and all of it next to nothing; what is read as a guess differs from run to run. I05: what is missing
 * is read past the page cache, an expert or a matrix at a time, several at once, and the share of what the drive can do is told. */
static void I04_I05_more_memory_reads_less_and_reads_are_large(void **state)
{
    (void)state;
    uint64_t before = UINT64_MAX, first = 0;
    float logits[TINY_VOCAB];
    for (int i = 0; i < 6; i++) {
        char text[16384];
        k3_io_faults("files=model-", 0);
        k3_engine *engine = open_with(i < 5 ? least + least * (uint64_t)i / 16 : 0, 1e9);
        run(engine, logits); /* experts settle */
        k3_io_faults("files=model-", 0);
        run(engine, logits);
        uint64_t bytes = k3_io_faults_count("bytes"), reads = k3_io_faults_count("reads"), direct = k3_io_faults_count("direct");
        if (bytes > before + before / 4)
            fail_msg("%llu bytes are read with more memory, %llu with less", (unsigned long long)bytes, (unsigned long long)before);
        before = bytes;
        first = i ? first : bytes;
        assert_true(2 * direct >= reads || !direct); /* rows of the embedding are not; or the file system has no such reads */
        assert_true(bytes >= reads * 8192);
        k3_engine_stats(engine, text, sizeof text, 1);
        must_have(text, " % of the 1.000 GB/s that it gives");
        k3_engine_close(engine);
    }
    assert_true(before < first / 4);
}

/* Case I15: the plan says what binds, and what more of each would bring. Here the disk binds until nothing is left to be read. */
static void I15_the_plan_says_what_binds_and_what_would_help(void **state)
{
    (void)state;
    static const char *const names[] = {"memory", "disk_rate", "memory_rate"};
    k3_io_faults("files=model-,rate=2000000", 0);
    must_have(plan_of(least, 0), "; the disk is what limits it\n               ");
    for (int i = 0; i < 3; i++) {
        uint64_t ram = i < 2 ? least + least * (uint64_t)i / 4 : 0;
        const char *json = plan_of(ram, 1), *with = strstr(json, "\"tokens_per_s_with_twice\": {");
        double tokens = strtod(strstr(json, "\"tokens_per_s\": ") + strlen("\"tokens_per_s\": "), NULL), gain[3];
        assert_non_null(with);
        for (int k = 0; k < 3; k++)
            gain[k] = strtod(strchr(strstr(with, names[k]), ':') + 1, NULL) / tokens;
        if (i < 2 ? !(gain[0] > 1.1 && fabs(gain[1] - 2) < 0.01 && fabs(gain[2] - 1) < 0.01)
                  : !(fabs(gain[0] - 1) < 0.01 && fabs(gain[1] - 1) < 0.01 && fabs(gain[2] - 2) < 0.01))
            fail_msg("budget %d: %s", i, json);
    }
    k3_io_faults("", 0);
}

/* ---- set-up -------------------------------------------------------------------------------------------------------------- */

static int write_model(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(2);
    for (size_t i = 0; i < tiny->n_tensors; i++)
        tiny->tensors[i].shard = strstr(tiny->tensors[i].name, ".experts.") != NULL;
    tiny_model = tiny_settle(tiny);
    least = run_least_ram(tiny_model, plain);
    return !least;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F18_memory_goes_where_the_slow_drive_is),
        cmocka_unit_test(F18_a_start_measures_only_what_decides),
        cmocka_unit_test(F18_the_plan_has_each_drive),
        cmocka_unit_test(G14_file_systems_are_named_and_shared_ones_warned_of),
        cmocka_unit_test(G14_the_plan_tells_kind_and_rate_of_each_drive),
        cmocka_unit_test(G19_a_drive_that_becomes_slower_is_said_once),
        cmocka_unit_test(I03_threads_sleep_while_the_drive_is_waited_for),
        cmocka_unit_test(I04_I05_more_memory_reads_less_and_reads_are_large),
        cmocka_unit_test(I15_the_plan_says_what_binds_and_what_would_help),
    };
    return cmocka_run_group_tests(tests, write_model, tiny_teardown);
}
