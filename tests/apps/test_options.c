#include "process.h"

#include <stdio.h>
#include <string.h>

#define TINY "tests/golden/tiny"

static void check_usage(process_result r, const char *message)
{
    if (r.status != 2 || strcmp(r.err, message) != 0 || r.n_out)
        fail_msg("status %d, stdout \"%s\", stderr \"%s\"; wanted 2, nothing, \"%s\"", r.status, r.out, r.err, message);
    process_free(&r);
}

static void an_unknown_option_is_named_with_its_nearest(void **state)
{
    (void)state;
    check_usage(RUN("run", TINY, "--tmp", "0"), "k3 run: unknown option --tmp; did you mean --temp?\n");
    check_usage(RUN("run", TINY, "--temperature", "0"), "k3 run: unknown option --temperature; did you mean --temp?\n");
    check_usage(RUN("run", TINY, "--print_ids"), "k3 run: unknown option --print_ids; did you mean --print-ids?\n");
    check_usage(RUN("eval", TINY, "--zzzzzzzz"), "k3 eval: unknown option --zzzzzzzz; `k3 eval --help` lists them\n");
    check_usage(RUN("eval", TINY, "--temperature", "0"), "k3 eval: unknown option --temperature; `k3 eval --help` lists them\n");
}

static void an_unknown_verb_is_named_with_its_nearest(void **state)
{
    (void)state;
    check_usage(RUN("rnu", TINY), "k3: unknown verb rnu; did you mean run?\n");
    check_usage(RUN("frobnicate"),
                "k3: unknown verb frobnicate; chat, run, serve, eval, bench, devices, inspect, plan, pack, pull, help or version wanted\n");
}

static void a_value_out_of_range_is_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value, *message;
    } cases[] = {
        {"--temp", "-1", "k3 run: --temp -1: a number from 0 to 1e+06 wanted\n"},
        {"--temp", "nan", "k3 run: --temp nan: a number from 0 to 1e+06 wanted\n"},
        {"--temp", "0x", "k3 run: --temp 0x: a number from 0 to 1e+06 wanted\n"},
        {"--temp", "", "k3 run: --temp : a number from 0 to 1e+06 wanted\n"},
        {"--top-p", "1.01", "k3 run: --top-p 1.01: a number from 0 to 1 wanted\n"},
        {"--min-p", "-0.1", "k3 run: --min-p -0.1: a number from 0 to 1 wanted\n"},
        {"--top-k", "2.5", "k3 run: --top-k 2.5: a whole number from 0 to 1e+09 wanted\n"},
        {"-n", "99999999999999999999", "k3 run: -n 99999999999999999999: a whole number from 0 to 1e+09 wanted\n"},
        {"--threads", "two", "k3 run: --threads two: a whole number from 0 to 4096 wanted\n"},
        {"--seed", "-1", "k3 run: --seed -1: a whole number from 0 to 18446744073709551615 wanted\n"},
        {"--seed", "18446744073709551616", "k3 run: --seed 18446744073709551616: a whole number from 0 to 18446744073709551615 wanted\n"},
        {"--trunk", "int3", "k3 run: --trunk int3: auto or bf16 or int8 or int4 wanted\n"},
        {"--effort", "max or", "k3 run: --effort max or: low or high or max wanted\n"},
        {"--vram", "4X", "k3 run: --vram 4X: a size such as 512M or 4G wanted\n"},
        {"--vram", "-1", "k3 run: --vram -1: a size such as 512M or 4G wanted\n"},
        {"--vram", "G", "k3 run: --vram G: a size such as 512M or 4G wanted\n"},
        {"--vram", "4GB", "k3 run: --vram 4GB: a size such as 512M or 4G wanted\n"},
        {"--stop", "", "k3 run: --stop \"\": a text that is not empty wanted\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_usage(RUN("run", TINY, "--ids", "1", cases[i].option, cases[i].value), cases[i].message);
    check_usage(RUN("run", TINY, "--exact=1"), "k3 run: --exact 1: no value wanted\n");
}

static void a_missing_value_model_or_prompt_is_said(void **state)
{
    (void)state;
    check_usage(RUN("run", TINY, "--temp"), "k3 run: --temp wants a value, T\n");
    check_usage(RUN("inspect"), "k3 inspect: no model folder given; usage: k3 inspect MODEL\n");
    check_usage(RUN("run", TINY), "k3 run: no prompt; -p TEXT, --prompt-file F, --ids 1,2,3, --request F or --chat wanted\n");
    check_usage(RUN("run", TINY, "Hello"), "k3 run: Hello: unexpected; one model folder is wanted, and a text goes after -p\n");
    check_usage(RUN("run", TINY, "-p", "a", "--ids", "1"), "k3 run: more than one of -p, --prompt-file, --ids, --request; one wanted\n");
    check_usage(RUN("run", TINY, "-p", "a", "--system", "b"), "k3 run: --system, --no-think and --effort belong to --chat; add it\n");
    check_usage(RUN("eval", TINY), "k3 eval: exactly one of --ids, --file and --tasks wanted\n");
}

static void wrong_ids_are_shown(void **state)
{
    (void)state;
    check_usage(RUN("run", TINY, "--quiet", "--ids", "1,x,3"),
                "k3 run: --ids \"1,x,3\": ids separated by commas wanted, such as 1,2,3; \"x,3\" is not one\n");
    check_usage(RUN("run", TINY, "--quiet", "--ids", "1,2,"),
                "k3 run: --ids \"1,2,\": ids separated by commas wanted, such as 1,2,3; \"\" is not one\n");
    check_usage(RUN("eval", TINY, "--quiet", "--ids", "-5"),
                "k3 eval: --ids \"-5\": ids separated by commas wanted, such as 1,2,3; \"-5\" is not one\n");
}

static void help_goes_to_stdout_and_names_every_option_with_its_default(void **state)
{
    (void)state;
    static const char *const options[] = {"-p TEXT",
                                          "--prompt-file F",
                                          "--ids 1,2,3",
                                          "--chat",
                                          "--system S",
                                          "-n N",
                                          "--temp T",
                                          "--top-p P",
                                          "--top-k K",
                                          "--min-p P",
                                          "--seed S",
                                          "--stop TEXT",
                                          "--exact",
                                          "--backend NAME",
                                          "--threads N",
                                          "--trunk T",
                                          "--lock",
                                          "--vram SIZE",
                                          "--expert-devices LIST",
                                          "--kernel-cache DIR",
                                          "--print-ids",
                                          "--stats",
                                          "[0.95]",
                                          "[auto]"};
    process_result r = RUN("run", "--help"), same = RUN("help", "run");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    assert_string_equal(r.out, same.out);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (!strstr(r.out, options[i]))
            fail_msg("the help of run lacks %s", options[i]);
    process_free(&r);
    process_free(&same);
    r = RUN("version");
    assert_int_equal(r.status, 0);
    assert_memory_equal(r.out, "k3 ", 3);
    process_free(&r);
}

static void devices_are_listed_and_a_wrong_one_is_an_error(void **state)
{
    (void)state;
    process_result r = RUN("devices");
    assert_int_equal(r.status, 0);
    assert_string_equal(r.err, "");
    if (!strstr(r.out, "\ncpu  cpu:"))
        fail_msg("%s", r.out);
    process_free(&r);
    check_usage(RUN("devices", TINY), "k3 devices: " TINY ": unexpected\n");
    r = RUN("run", TINY, "--ids", "1", "-n", "1", "--backend", "vulkan:no such device");
    assert_int_equal(r.status, 1);
    assert_string_equal(r.out, "");
    assert_memory_equal(r.err, "k3: ", 4);
    assert_non_null(strstr(r.err, "vulkan"));
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    process_free(&r);
    r = RUN("run", TINY, "--ids", "1", "-n", "1", "--expert-devices", "cpu");
    assert_int_equal(r.status, 1);
    assert_string_equal(r.err, "k3: expert devices: \"cpu\" is no device; the CPU computes what devices do not hold anyway\n");
    process_free(&r);
}

static void options_take_their_value_after_an_equals_sign_too(void **state)
{
    (void)state;
    process_result a = RUN("run", TINY, "--ids=1,2,3", "--temp=0", "-n", "5", "--print-ids");
    process_result b = RUN("run", "--ids", "1,2,3", "--print-ids", "--temp", "0", "-n", "5", TINY);
    assert_int_equal(a.status, 0);
    assert_int_equal(b.status, 0);
    assert_string_equal(a.out, b.out);
    process_free(&a);
    process_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_option_is_named_with_its_nearest),
        cmocka_unit_test(an_unknown_verb_is_named_with_its_nearest),
        cmocka_unit_test(a_value_out_of_range_is_refused_by_name),
        cmocka_unit_test(a_missing_value_model_or_prompt_is_said),
        cmocka_unit_test(wrong_ids_are_shown),
        cmocka_unit_test(help_goes_to_stdout_and_names_every_option_with_its_default),
        cmocka_unit_test(devices_are_listed_and_a_wrong_one_is_an_error),
        cmocka_unit_test(options_take_their_value_after_an_equals_sign_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
