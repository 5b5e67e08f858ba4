/* `k3 pack`: the one line at the end, exit statuses, and options. */
#include "process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "support/tiny_checkpoint.h"

#define TINY "tests/golden/tiny"

static void check(process_result r, int status, const char *out, const char *err)
{
    if (r.status != status || !strstr(r.out, out) || !strstr(r.err, err))
        fail_msg("status %d, stdout \"%s\", stderr \"%s\"; wanted %d, \"%s\", \"%s\"", r.status, r.out, r.err, status, out, err);
    process_free(&r);
}

static void a_model_is_packed_and_runs(void **state)
{
    (void)state;
    static const char *const trunks[] = {"bf16", "int8", "int4"};
    for (int i = 0; i < 3; i++) {
        char *folder = tiny_folder();
        check(RUN("pack", TINY, folder, "--trunk", trunks[i]), 0, " GB written, 0.00", "");
        check(RUN("pack", TINY, folder, "--trunk", trunks[i]), 0, ": 0.000 GB written, 0.000 GB verified against " TINY, "");
        process_result a =
            RUN("run", TINY, "--ids", "1,2,3", "--temp", "0", "-n", "8", "--print-ids", "--trunk", trunks[i], "--backend", "cpu");
        process_result b =
            RUN("run", folder, "--ids", "1,2,3", "--temp", "0", "-n", "8", "--print-ids", "--backend", "cpu", "--trunk", trunks[i]);
        assert_int_equal(a.status, 0);
        assert_int_equal(b.status, 0);
        assert_string_equal(a.out, b.out);
        process_free(&a);
        process_free(&b);
        tiny_remove_folder(folder);
    }
}

static void int8_is_the_trunk_unless_said(void **state)
{
    (void)state;
    char *folder = tiny_folder();
    check(RUN("pack", TINY, folder, "--quiet"), 0, "GB verified against " TINY, "");
    check(RUN("inspect", folder), 0, "trunk int8, by k3 pack", "");
    check(RUN("run", folder, "--ids", "1", "--exact"), 1, "", "k3: ");
    check(RUN("run", folder, "--ids", "1", "--trunk", "int4"), 1, "", "holds an int8 trunk and no other, int4 was asked for");
    check(RUN("pack", folder, "elsewhere"), 1, "", "is packed already");
    tiny_remove_folder(folder);
}

static void wrong_usage_is_told(void **state)
{
    (void)state;
    check(RUN("pack", TINY), 2, "", "k3 pack: no folder to write given; usage: k3 pack MODEL OUT [--trunk T]");
    check(RUN("pack"), 2, "", "k3 pack: no model given");
    check(RUN("pack", TINY, "a", "b"), 2, "", "k3 pack: b: unexpected");
    check(RUN("pack", TINY, "a", "--trunk", "int2"), 2, "", "k3 pack: --trunk int2: bf16 or int8 or int4 wanted");
    check(RUN("pack", TINY, "a", "--trunk", "auto"), 2, "", "k3 pack: --trunk auto: bf16 or int8 or int4 wanted");
    check(RUN("pack", TINY, TINY), 1, "", "own folder");
    check(RUN("pack", TINY, TINY "/packed"), 1, "", "own folder");
    check(RUN("pack", "/nowhere/model", "a"), 1, "", "/nowhere/model");
}

static void a_limit_on_files_is_an_error_and_no_signal(void **state)
{
    (void)state;
    struct rlimit before;
    char *folder = tiny_folder();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = {100000, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    process_result r = RUN("pack", TINY, folder);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    check(r, 1, "", "the same command goes on");
    check(RUN("pack", TINY, folder), 0, "GB verified against " TINY, "");
    tiny_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_packed_and_runs),
        cmocka_unit_test(int8_is_the_trunk_unless_said),
        cmocka_unit_test(wrong_usage_is_told),
        cmocka_unit_test(a_limit_on_files_is_an_error_and_no_signal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
