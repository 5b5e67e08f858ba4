/* `test_metal_barriers [KERNEL]`. Every barrier of every kernel's text is needed: the text without it makes threads race, or diverge, or
 * compute something else, in some job that is silent with the text as it is. Races are seen by ThreadSanitizer, so only its build has this
 * program. */
#include "kernel_jobs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if K3_METAL_HARNESS && defined(MSL_THREAD_SANITIZER)

/* Reports are counted, not read. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "exitcode=0:symbolize=0:suppress_equal_stacks=0:suppress_equal_addresses=0:atexit_sleep_ms=0";
}
enum { MOST_JOBS = 64, SECONDS = 120, LOST = 1 };

static kernel_run unchanged[MOST_JOBS];
static char folder[] = "/tmp/k3-barriers-XXXXXX";

static void path_in_folder(char *path, size_t size, const char *name, const char *suffix)
{
    snprintf(path, size, "%s/%s%s", folder, name, suffix);
}

/* ---- runs, each in a process of its own: the sanitizer sees most when nothing went before ------------------------ */

/* What the program does when it is called with a job's number and two paths: computes it with the kernels of the folder and writes down
 * what came out. */
static int run_to_file(const char *number, const char *kernels_dir, const char *path)
{
    alarm(SECONDS);
    kernel_run run = run_kernel_job(&kernel_jobs[atoi(number)], kernels_dir);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(&run, sizeof run, 1, f) != 1 || fwrite(run.result.values, sizeof(float), run.result.n, f) != run.result.n)
        return LOST;
    return fclose(f) == 0 ? 0 : LOST;
}

static kernel_run read_run(const char *path)
{
    kernel_run run;
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_int_equal(fread(&run, sizeof run, 1, f), 1);
    run.result.values = calloc(run.result.n + 1, sizeof(float));
    assert_non_null(run.result.values);
    assert_int_equal(fread(run.result.values, sizeof(float), run.result.n, f), run.result.n);
    fclose(f);
    unlink(path);
    return run;
}

/* One that dies has the status of a device that is lost. */
static kernel_run run_apart(int job)
{
    char number[16], path[256];
    snprintf(number, sizeof number, "%d", job);
    path_in_folder(path, sizeof path, "result", "");
    pid_t child = fork();
    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        execl("/proc/self/exe", "test_metal_barriers", number, folder, path, (char *)NULL);
        _exit(LOST);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        return (kernel_run){.status = K3_E_DEVICE};
    if (WEXITSTATUS(status) != 0)
        fail_msg("job %d, %s, cannot be run; `test_metal_barriers %d FOLDER FILE` says why", job, kernel_jobs[job].op, job);
    return read_run(path);
}

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* The next statement of a barrier at or after `at`, comments left out; NULL: none. */
static const char *next_barrier(const char *at)
{
    static const char *const words[] = {"threadgroup_barrier(", "simdgroup_barrier("};
    for (; *at; at++) {
        if (strncmp(at, "//", 2) == 0)
            at += strcspn(at, "\n");
        else if (strncmp(at, "/*", 2) == 0)
            at = strstr(at, "*/") + 1;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            if (strncmp(at, words[i], strlen(words[i])) == 0)
                return at;
    }
    return NULL;
}

/* Writes the kernel's file without the barrier at `barrier`, whose statement ends at the next semicolon; NULL: with all of them. */
static void write_without(int shader, const char *barrier)
{
    char path[256];
    const char *text = kernel_text(shader);
    int n = barrier ? (int)(barrier - text) : 0;
    path_in_folder(path, sizeof path, kernel_name(shader), ".metal");
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "%.*s%s", n, text, barrier ? strchr(barrier, ';') : text);
    assert_int_equal(fclose(f), 0);
}

static void remove_file(int shader)
{
    char path[256];
    path_in_folder(path, sizeof path, kernel_name(shader), ".metal");
    unlink(path);
}

/* Whether some job that uses the kernel shows it; the one that showed the last barrier is asked first. */
static int is_seen(int shader, int *last)
{
    for (int i = 0; i < n_kernel_jobs; i++) {
        int j = (*last + i) % n_kernel_jobs;
        if (!unchanged[j].kernels[shader])
            continue;
        kernel_run run = run_apart(j);
        int same = same_run(&run, &unchanged[j]);
        free(run.result.values);
        if (!same) {
            *last = j;
            return 1;
        }
    }
    return 0;
}

static int line_of(const char *text, const char *at)
{
    int line = 1;
    for (; text < at; text++)
        line += *text == '\n';
    return line;
}

static void needs_its_barriers(void **state)
{
    int shader = (int)(intptr_t)*state, n = 0, n_seen = 0, last = 0, n_jobs = 0;
    const char *text = kernel_text(shader);
    for (int i = 0; i < n_kernel_jobs; i++)
        n_jobs += unchanged[i].kernels[shader];
    for (const char *at = text; n_jobs && (at = next_barrier(at)) != NULL; at++, n++) {
        write_without(shader, at);
        int seen = is_seen(shader, &last);
        if (!seen)
            print_error("%s.metal:%d: nobody sees that this barrier is missing\n", kernel_name(shader), line_of(text, at));
        n_seen += seen;
    }
    remove_file(shader);
    print_message("%s: %d jobs, %d barriers removed, %d seen\n", kernel_name(shader), n_jobs, n, n_seen);
    assert_true(n_jobs > 0);
    assert_int_equal(n_seen, n);
}

static void kernels_as_they_are_are_silent(void **state)
{
    (void)state;
    assert_true(n_kernel_jobs <= MOST_JOBS);
    for (int i = 0; i < n_kernel_jobs; i++) {
        unchanged[i] = run_apart(i);
        if (unchanged[i].status != K3_OK || unchanged[i].violations || unchanged[i].races)
            fail_msg("job %d, %s: status %d, %d violations, %d races", i, kernel_jobs[i].op, unchanged[i].status, unchanged[i].violations,
                     unchanged[i].races);
    }
}

/* Nothing is seen of a text that comes from a file and is as it was. */
static void files_alone_change_nothing(void **state)
{
    (void)state;
    int n_seen = 0;
    for (int i = 0; i < K3_GPU_N_SHADERS; i++)
        if (kernel_text(i))
            write_without(i, NULL);
    for (int i = 0; i < n_kernel_jobs; i++) {
        kernel_run run = run_apart(i);
        n_seen += !same_run(&run, &unchanged[i]);
        free(run.result.values);
    }
    for (int i = 0; i < K3_GPU_N_SHADERS; i++)
        if (kernel_text(i))
            remove_file(i);
    assert_int_equal(n_seen, 0);
}

int main(int argc, char **argv)
{
    static char names[K3_GPU_N_SHADERS][80];
    struct CMUnitTest tests[K3_GPU_N_SHADERS + 2] = {cmocka_unit_test(kernels_as_they_are_are_silent),
                                                     cmocka_unit_test(files_alone_change_nothing)};
    size_t n = 2;
    if (argc == 4)
        return run_to_file(argv[1], argv[2], argv[3]);
    for (int i = 0; i < K3_GPU_N_SHADERS; i++) {
        if (!kernel_text(i) || (argc > 1 && strcmp(argv[1], kernel_name(i))))
            continue;
        snprintf(names[i], sizeof names[i], "%s_needs_its_barriers", kernel_name(i));
        tests[n++] = (struct CMUnitTest){names[i], needs_its_barriers, NULL, NULL, (void *)(intptr_t)i};
    }
    if (argc > 1 && n == 2) {
        fprintf(stderr, "no kernel \"%s\"\n", argv[1]);
        return 1;
    }
    if (!mkdtemp(folder))
        return 1;
    int failed = _cmocka_run_group_tests("barriers of Metal's kernels", tests, n, NULL, NULL);
    rmdir(folder);
    return failed;
}

#else
static void metal_kernels_need_their_barriers(void **state)
{
    (void)state;
    print_message("skipped: no clang, or no libobjc, with which kernels of Metal are run\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(metal_kernels_need_their_barriers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
