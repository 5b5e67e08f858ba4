/* What a user sees of GPUs: which there are, which one is taken, what happens where there is none and when one fails. */
#include "process.h"
#include "support/leaks.h"
#include "support/vulkan_layers.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TINY "tests/golden/tiny"
#define ASK "run", TINY, "--ids", "1,2,3,200,9", "-n", "6", "--temp", "0", "--print-ids", "--exact", "--threads", "1"

static char report[64];

/* The device of later runs; how often the driver was called goes to a file. */
static void set_faults(const char *faults)
{
    char text[512];
    if (!(vulkan_use_layers(VULKAN_FAULTS) & VULKAN_FAULTS)) {
        print_message("this build has no Vulkan\n");
        skip();
    }
    snprintf(report, sizeof report, "/tmp/k3-report-%ld", (long)getpid());
    unlink(report);
    snprintf(text, sizeof text, "report=%s%s%s", report, *faults ? "," : "", faults);
    setenv("K3_FAULTS", text, 1);
}

static long reported(const char *counter)
{
    char name[64];
    long value, found = -1;
    FILE *f = fopen(report, "r");
    while (f && fscanf(f, "%63s %ld", name, &value) == 2)
        found = strcmp(name, counter) == 0 ? value : found;
    if (f)
        fclose(f);
    return found;
}

static int reset(void **state)
{
    (void)state;
    if (*report)
        unlink(report);
    unsetenv("K3_FAULTS");
    unsetenv("VK_INSTANCE_LAYERS");
    unsetenv("VK_LAYER_PATH");
    unsetenv("VK_ICD_FILENAMES");
    unsetenv("VK_DRIVER_FILES");
    unsetenv("LD_PRELOAD");
    return 0;
}

/* Skips where there is no driver at all. */
static void need_device(void)
{
    set_faults("");
    process_result r = RUN("devices");
    int is_there = strstr(r.out, "vulkan:0") != NULL;
    if (!is_there)
        print_message("%s", r.out);
    process_free(&r);
    if (!is_there)
        skip();
}

static void contains(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" is not in \"%s\"", part, text);
}

static int n_lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

static const char *ids_of_the_cpu(void)
{
    static char ids[256];
    if (!*ids) {
        process_result r = RUN(ASK, "--backend", "cpu");
        assert_int_equal(r.status, 0);
        snprintf(ids, sizeof ids, "%s", r.out);
        process_free(&r);
    }
    return ids;
}

/* The CPU's ids on standard output, and on standard error one line that holds these words. */
static void answers(process_result r, const char *a, const char *b)
{
    if (r.status || strcmp(r.out, ids_of_the_cpu()) != 0)
        fail_msg("status %d, \"%s\", \"%s\"; wanted \"%s\"", r.status, r.out, r.err, ids_of_the_cpu());
    contains(r.err, a);
    contains(r.err, b);
    process_free(&r);
}

/* Nothing on standard output, one line that holds these words on standard error, after those that a slow machine sees of the progress. */
static void refuses(process_result r, const char *a, const char *b)
{
    static const char progress[] = "compiling kernels: ";
    const char *said = r.err;
    while (strncmp(said, progress, sizeof progress - 1) == 0 && strchr(said, '\n'))
        said = strchr(said, '\n') + 1;
    if (r.status != 1 || r.n_out || n_lines(said) != 1)
        fail_msg("status %d, \"%s\", \"%s\"; wanted 1 and one line", r.status, r.out, r.err);
    contains(r.err, a);
    contains(r.err, b);
    process_free(&r);
}

/* ---- none ------------------------------------------------------------------------------------------------------------ */

static void h07_without_a_loader_the_cpu_answers(void **state)
{
    (void)state;
    if (!vulkan_hider()) {
        print_message("the library that hides the loader is not built\n");
        skip();
    }
    setenv("LD_PRELOAD", vulkan_hider(), 1);
    answers(RUN(ASK), "no GPU", "no Vulkan loader");
    refuses(RUN(ASK, "--backend", "vulkan"), "no Vulkan loader", "CPU");
    process_result r = RUN("devices");
    assert_int_equal(r.status, 0);
    contains(r.out, "no Vulkan loader");
    contains(r.out, "\ncpu  ");
    process_free(&r);
}

static void h07_without_a_driver_the_cpu_answers(void **state)
{
    (void)state;
    setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
    setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
    answers(RUN(ASK), "no GPU", "vulkan");
    refuses(RUN(ASK, "--backend", "vulkan"), "vulkan", "driver");
}

static void h07_without_a_device_the_cpu_answers(void **state)
{
    (void)state;
    need_device();
    set_faults("devices=0");
    answers(RUN(ASK), "no GPU", "no device");
    refuses(RUN(ASK, "--backend", "vulkan"), "no device", "CPU");
}

/* ---- choosing --------------------------------------------------------------------------------------------------------- */

static void h08_h27_devices_are_taken_by_preference_number_or_name(void **state)
{
    (void)state;
    need_device();
    process_result r = RUN("devices");
    int is_software = strstr(r.out, "software") != NULL;
    process_free(&r);
    answers(RUN(ASK, "--backend", "vulkan:0"), "vulkan:", "in device memory");
    refuses(RUN(ASK, "--backend", "vulkan:17"), "\"17\"", "0: ");
    refuses(RUN(ASK, "--backend", "vulkan:no such card"), "\"no such card\"", "0: ");
    if (!is_software) {
        print_message("the rest needs a machine with software devices only\n");
        skip();
    }
    answers(RUN(ASK), "cpu:", "software");
    refuses(RUN(ASK, "--backend", "vulkan"), "software", "vulkan:0");
    answers(RUN(ASK, "--backend", "vulkan:LLVM"), "vulkan:llvmpipe", "in device memory");
    set_faults("discrete=1");
    r = RUN("devices");
    contains(r.out, "vulkan:0  Mock GPU  discrete");
    process_free(&r);
    answers(RUN(ASK), "vulkan:Mock GPU", "in device memory");
    answers(RUN(ASK, "--backend", "vulkan"), "vulkan:Mock GPU", "in device memory");
    answers(RUN(ASK, "--backend", "cpu"), "cpu:", "in memory once read");
}

/* ---- in use ------------------------------------------------------------------------------------------------------------ */

static void h11_the_statistics_say_who_computed(void **state)
{
    (void)state;
    need_device();
    process_result r = RUN(ASK, "--backend", "vulkan:0", "--stats");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.out, ids_of_the_cpu());
    contains(r.err, "dispatches");
    contains(r.err, "100.0 %");
    contains(r.err, "experts on cpu");
    contains(r.err, "slots used");
    contains(r.err, "memory ");
    process_free(&r);
    assert_true(reported("dispatches") > 100);
    assert_int_equal(reported("live_bytes"), 0);
}

static void a_second_device_takes_experts(void **state)
{
    (void)state;
    need_device();
    answers(RUN(ASK, "--backend", "cpu", "--expert-devices", "vulkan:0"), "cpu:", "in device memory");
    assert_true(reported("dispatches") > 0);
    refuses(RUN(ASK, "--backend", "cpu", "--expert-devices", "vulkan:17"), "\"17\"", "0: ");
}

/* Lost at the start, while a token is computed, or while waiting for it: the same ids, and a line that says what was done. */
static void h12_h26_a_lost_device_changes_no_token(void **state)
{
    (void)state;
    need_device();
    answers(RUN(ASK, "--backend", "vulkan:0"), "vulkan:", "in device memory");
    long n_submits = reported("submits"), n_waits = reported("waits");
    assert_true(n_submits > 8 && n_waits > 8);
    for (int i = 1; i <= 3; i++) {
        char faults[64];
        snprintf(faults, sizeof faults, "lost_submit=%ld", n_submits - i);
        set_faults(faults);
        answers(RUN(ASK, "--backend", "vulkan:0"), "device lost", "opened again");
        assert_int_equal(reported("devices"), 2);
        assert_int_equal(reported("live_bytes"), 0);
        snprintf(faults, sizeof faults, "lost_wait=%ld", n_waits - i);
        set_faults(faults);
        answers(RUN(ASK, "--backend", "vulkan:0"), "device lost", "opened again");
    }
    set_faults("discrete=1,lost_submit=2");
    answers(RUN(ASK), "no GPU", "device lost");
    set_faults("lost_submit=2");
    refuses(RUN(ASK, "--backend", "vulkan:0"), "device lost", "vulkan:");
}

/* A bench ends where the device is lost: what follows would be figures of another. */
static void a_lost_device_ends_a_bench(void **state)
{
    (void)state;
    char faults[64];
    need_device();
    answers(RUN(ASK, "--backend", "vulkan:0"), "vulkan:", "in device memory");
    snprintf(faults, sizeof faults, "lost_submit=%ld", reported("submits") - 1);
    set_faults(faults);
    process_result r = RUN("bench", TINY, "--backend", "vulkan:0", "--exact", "--prompt", "8", "--context", "0", "--repeats", "1");
    assert_true(r.status == 1 && !r.n_out);
    contains(r.err, "k3: bench: a device failed in use: ");
    contains(r.err, "device lost");
    process_free(&r);
}

static void h03_too_little_memory_is_one_line(void **state)
{
    (void)state;
    need_device();
    set_faults("discrete=1,fail_allocate_from=3");
    answers(RUN(ASK), "no GPU", "out of device memory");
    refuses(RUN(ASK, "--backend", "vulkan"), "out of device memory", "--vram");
    assert_int_equal(reported("live_bytes"), 0);
    set_faults("");
    refuses(RUN(ASK, "--backend", "vulkan:0", "--vram", "1M"), "trunk", "--backend cpu");
    assert_int_equal(reported("live_bytes"), 0);
}

static void everything_goes_back_on_every_exit(void **state)
{
    (void)state;
    need_device();
    process_result r = RUN("run", TINY, "--ids", "1,2,99999", "--backend", "vulkan:0", "--threads", "1"); /* no such id */
    assert_true(r.status != 0);
    process_free(&r);
    assert_int_equal(reported("live_bytes"), 0);
    set_faults("");
    r = RUN("eval", TINY, "--ids", "1,2,3,4", "--backend", "vulkan:0", "--threads", "1");
    assert_int_equal(r.status, 0);
    process_free(&r);
    assert_int_equal(reported("live_bytes"), 0);
    assert_int_equal(reported("allocate"), reported("free"));
}

static void h23_compiled_kernels_are_kept_where_one_says(void **state)
{
    (void)state;
    char dir[64], option[96], path[128] = "";
    need_device();
    snprintf(dir, sizeof dir, "/tmp/k3-kernels-%ld", (long)getpid());
    snprintf(option, sizeof option, "--kernel-cache=%s", dir);
    for (int i = 0; i < 2; i++)
        answers(RUN(ASK, "--backend", "vulkan:0", option), "vulkan:", "device memory");
    DIR *files = opendir(dir);
    assert_non_null(files);
    for (const struct dirent *entry; (entry = readdir(files));)
        if (strncmp(entry->d_name, "vulkan-", 7) == 0)
            snprintf(path, sizeof path, "%s/%.40s", dir, entry->d_name);
    closedir(files);
    assert_true(*path);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    refuses(RUN(ASK, "--backend", "vulkan:0", "--kernel-cache", "/nowhere/at/all"), "/nowhere/at/all", "No such file");
    refuses(RUN(ASK, "--backend", "vulkan:0", "--kernel-cache", "README.md"), "README.md", "a folder wanted");
}

int main(int argc, char **argv)
{
    children_may_leak();
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(h03_too_little_memory_is_one_line, reset),
        cmocka_unit_test_teardown(h07_without_a_loader_the_cpu_answers, reset),
        cmocka_unit_test_teardown(h07_without_a_driver_the_cpu_answers, reset),
        cmocka_unit_test_teardown(h07_without_a_device_the_cpu_answers, reset),
        cmocka_unit_test_teardown(h08_h27_devices_are_taken_by_preference_number_or_name, reset),
        cmocka_unit_test_teardown(h11_the_statistics_say_who_computed, reset),
        cmocka_unit_test_teardown(h12_h26_a_lost_device_changes_no_token, reset),
        cmocka_unit_test_teardown(a_lost_device_ends_a_bench, reset),
        cmocka_unit_test_teardown(a_second_device_takes_experts, reset),
        cmocka_unit_test_teardown(h23_compiled_kernels_are_kept_where_one_says, reset),
        cmocka_unit_test_teardown(everything_goes_back_on_every_exit, reset),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
