#include "process.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chatty.h"
#include "support/golden.h"
#include "support/leaks.h"
#include "support/tiny_checkpoint.h"

#define TINY "tests/golden/tiny"

static int has_full_device(void)
{
    struct stat status;
    return stat("/dev/full", &status) == 0 && S_ISCHR(status.st_mode);
}

static char *join_ids(const int32_t *ids, size_t n)
{
    char *text = calloc(n, 12);
    assert_non_null(text);
    for (size_t i = 0, at = 0; i < n; i++)
        at += (size_t)sprintf(text + at, "%s%d", i ? "," : "", ids[i]);
    return text;
}

static void check(process_result r, int status, const char *out, const char *err)
{
    if (r.status != status || (out && strcmp(r.out, out) != 0) || !strstr(r.err, err))
        fail_msg("status %d, stdout \"%s\", stderr \"%s\"; wanted %d, \"%s\", \"%s\"", r.status, r.out, r.err, status,
                 out ? out : "anything", err);
    process_free(&r);
}

/* ---- run ------------------------------------------------------------------------------------------------------------- */

static void ids_in_ids_out_equal_the_reference(void **state)
{
    (void)state;
    golden *g = golden_open("tests/golden/tiny.safetensors");
    for (int i = 0; i < golden_n_cases(g); i++) {
        const char *name = golden_case(g, i);
        const golden_tensor *prompt = golden_get(g, name, "ids"), *greedy = golden_get(g, name, "greedy");
        char *ids = join_ids(golden_ints(g, name, "ids"), prompt->n), *want = join_ids(golden_ints(g, name, "greedy"), greedy->n), n[16];
        char *line = calloc(strlen(want) + 2, 1);
        snprintf(n, sizeof n, "%zu", greedy->n);
        strcat(strcpy(line, want), "\n");
        check(RUN("run", TINY, "--ids", ids, "--temp", "0", "-n", n, "--exact", "--print-ids"), 0, line, "exact");
        free(ids);
        free(want);
        free(line);
    }
    golden_close(g);
}

static void without_a_tokenizer_text_is_refused_and_ids_are_printed(void **state)
{
    (void)state;
    check(RUN("run", TINY, "-p", "Hello"), 1, "", "tiktoken.model: not there");
    process_result plain = RUN("run", TINY, "--ids", "1,2,3", "--temp", "0", "-n", "4");
    check(RUN("run", TINY, "--ids", "1,2,3", "--temp", "0", "-n", "4", "--print-ids"), 0, plain.out, "");
    process_free(&plain);
}

static void a_seed_fixes_the_answer(void **state)
{
    (void)state;
    process_result a = RUN("run", TINY, "--ids", "5,6", "--seed", "7", "-n", "20", "--print-ids");
    process_result b = RUN("run", TINY, "--ids", "5,6", "--seed", "7", "-n", "20", "--print-ids", "--chunk", "1", "--threads", "1");
    process_result c = RUN("run", TINY, "--ids", "5,6", "--seed", "8", "-n", "20", "--print-ids");
    assert_int_equal(a.status, 0);
    assert_string_equal(a.out, b.out);
    assert_string_not_equal(a.out, c.out);
    process_free(&a);
    process_free(&b);
    process_free(&c);
}

static void an_id_outside_the_vocabulary_is_refused_by_number(void **state)
{
    (void)state;
    check(RUN("run", TINY, "--ids", "1,256", "-n", "1"), 1, "", "id 256");
}

static void a_wrong_model_is_explained(void **state)
{
    (void)state;
    check(RUN("run", "tests/golden/no-such-model", "--ids", "1"), 1, "", "tests/golden/no-such-model");
    check(RUN("inspect", "tests/golden/no-such-model"), 1, "", "tests/golden/no-such-model");
    check(RUN("run", TINY, "--ids", "1", "--backend", "abacus"), 1, "", "abacus");
}

static void a_cut_file_is_explained_in_one_line(void **state)
{
    (void)state;
    char *folder = chatty_folder(), path[600];
    struct stat status;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(truncate(path, status.st_size - 1000), 0);
    process_result r = RUN("inspect", folder);
    assert_int_equal(r.status, 1);
    assert_non_null(strstr(r.err, "model.safetensors"));
    assert_ptr_equal(strchr(r.err, '\n'), r.err + strlen(r.err) - 1);
    process_free(&r);
    check(RUN("run", folder, "--ids", "1"), 1, "", "model.safetensors");
    tiny_remove_folder(folder);
}

/* Case F12: under a limit of the process's addresses (ulimit -v) less is kept in memory, or the error has numbers; nothing is killed. */
static void F12_a_limit_of_addresses_is_planned_with(void **state)
{
    (void)state;
    struct rlimit before, limit;
    int n_right = 0, n_refused = 0;
    if (is_sanitized()) /* which takes terabytes of addresses */
        skip();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    for (rlim_t mib = 40; mib <= 160; mib += 15) {
        limit = (struct rlimit){mib << 20, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
        process_result r =
            RUN("run", "models/k3-mini", "--backend", "cpu", "--threads", "1", "--chat", "--temp", "0", "-p", "What is 58 plus 67?");
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        if (r.status == 0 && strcmp(r.out, "58 + 67 = 125\n") == 0)
            n_right++;
        else if (r.status == 1 && strstr(r.err, "of memory may be used and at least"))
            n_refused++;
        else
            fail_msg("%d MiB: status %d, \"%s\", \"%s\"", (int)mib, r.status, r.out, r.err);
        process_free(&r);
    }
    assert_true(n_right > 0 && n_refused > 0);
}

/* Case F13: at the end of the context the answer ends, and says why. */
static void F13_an_answer_ends_with_the_context(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(1);
    tiny_replace(&tiny->config, "\"max_position_embeddings\": 1048576", "\"max_position_embeddings\": 16");
    char *folder = tiny_settle(tiny);
    process_result r =
        RUN("run", folder, "--backend", "cpu", "--temp", "0", "--ids", "1,2,3", "--print-ids", "-n", "100", "--stats", "--disk-rate", "1G");
    int n_ids = 1;
    for (const char *at = r.out; *at; at++)
        n_ids += *at == ',';
    assert_int_equal(r.status, 0);
    assert_int_equal(n_ids, 14); /* the last one is drawn from what the full context gives */
    assert_non_null(strstr(r.err, "finish length"));
    process_free(&r);
    check(RUN("run", folder, "--backend", "cpu", "--ids", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "--print-ids"), 1, "",
          "the context of 16");
    tiny_remove_folder(folder);
}

static void inspect_describes_the_model(void **state)
{
    (void)state;
    check(RUN("inspect", TINY), 0, NULL, "");
    process_result r = RUN("inspect", TINY);
    assert_non_null(strstr(r.out, "13: 9 KDA, 4 MLA"));
    process_free(&r);
}

/* ---- standard output --------------------------------------------------------------------------------------------------- */

static void text_is_data_on_stdout_and_talk_on_stderr(void **state)
{
    char **folder = (char **)state;
    process_result r = RUN("run", *folder, "-p", "Hello", "--temp", "0", "-n", "12", "--stats");
    assert_int_equal(r.status, 0);
    assert_int_equal(strspn(r.out, "abcdefghijklmnopqrstuvwxyz"), 12);
    assert_string_equal(r.out + 12, "\n");
    assert_non_null(strstr(r.err, "tokens/s"));
    assert_null(strchr(r.err, '\033'));
    process_free(&r);
    r = RUN("run", *folder, "-p", "Hello", "--temp", "0", "-n", "12", "--quiet");
    assert_string_equal(r.err, "");
    process_free(&r);
}

static void a_stop_string_ends_the_text_before_it(void **state)
{
    char **folder = (char **)state;
    process_result whole = RUN("run", *folder, "-p", "Hello", "--temp", "0", "-n", "40", "--quiet");
    assert_int_equal(whole.n_out, 41);
    char stop[5] = "", want[48] = "";
    memcpy(stop, whole.out + 20, 4);
    memcpy(want, whole.out, (size_t)(strstr(whole.out, stop) - whole.out));
    if (*want)
        strcat(want, "\n");
    check(RUN("run", *folder, "-p", "Hello", "--temp", "0", "-n", "40", "--stop", "0123", "--stop", stop), 0, want, "");
    process_free(&whole);
}

static void a_prompt_may_come_from_a_file_or_standard_input(void **state)
{
    char **folder = (char **)state;
    char path[600];
    tiny_put_file(*folder, "prompt.txt", "Hello", 5);
    snprintf(path, sizeof path, "%s/prompt.txt", *folder);
    process_result r = RUN("run", *folder, "-p", "Hello", "--temp", "0", "-n", "9");
    check(RUN("run", *folder, "--prompt-file", path, "--temp", "0", "-n", "9"), 0, r.out, "");
    process_place typed = {.input = "Hello"};
    check(RUN_AT(&typed, "run", *folder, "--prompt-file", "-", "--temp", "0", "-n", "9"), 0, r.out, "");
    process_free(&r);
    check(RUN("run", *folder, "--prompt-file", "/no/such/prompt"), 1, "", "/no/such/prompt: No such file");
    check(RUN("run", *folder, "-p", ""), 2, "", "the prompt is empty");
}

static void a_reader_that_leaves_ends_the_answer_quietly(void **state)
{
    char **folder = (char **)state;
    /* Without a limit the answer would run into the million tokens of the context. */
    process_place gone = {.reader_leaves = 1};
    check(RUN_AT(&gone, "run", *folder, "-p", "Hello", "--temp", "0", "--quiet"), 0, "", "");
    process_result r = RUN_AT(&gone, "run", *folder, "-p", "Hello", "--temp", "0", "--quiet");
    assert_string_equal(r.err, "");
    process_free(&r);
    check(RUN_AT(&gone, "inspect", TINY), 0, "", "");
}

static void a_closed_standard_output_is_an_error(void **state)
{
    char **folder = (char **)state;
    process_place closed = {.close_output = 1};
    check(RUN_AT(&closed, "run", *folder, "-p", "Hello", "--temp", "0"), 1, "", "standard output: Bad file descriptor");
    check(RUN_AT(&closed, "run", TINY, "--ids", "1", "--temp", "0", "-n", "2", "--print-ids"), 1, "", "standard output");
    check(RUN_AT(&closed, "help"), 1, "", "standard output");
}

static void a_full_disk_under_standard_output_is_an_error(void **state)
{
    char **folder = (char **)state;
    if (!has_full_device()) {
        print_message("SKIP: this system has no /dev/full\n");
        skip();
    }
    process_place full = {.output = "/dev/full"};
    check(RUN_AT(&full, "run", *folder, "-p", "Hello", "--temp", "0"), 1, "", "standard output: No space left on device");
    check(RUN_AT(&full, "help"), 1, "", "standard output: No space left on device");
}

/* ---- eval -------------------------------------------------------------------------------------------------------------- */

static void logits_are_written_as_npy_and_equal_the_reference(void **state)
{
    (void)state;
    golden *g = golden_open("tests/golden/tiny.safetensors");
    const char *name = golden_case(g, 0);
    const golden_tensor *want = golden_get(g, name, "logits");
    size_t n_rows = golden_get(g, name, "ids")->n, n_bytes = 0;
    char *ids = join_ids(golden_ints(g, name, "ids"), n_rows), *folder = tiny_folder(), path[600];
    snprintf(path, sizeof path, "%s/out.npy", folder);
    process_result r = RUN("eval", TINY, "--ids", ids, "--logits", path, "--exact");
    assert_int_equal(r.status, 0);

    char *npy = tiny_get_file(folder, "out.npy", &n_bytes), shape[32];
    assert_int_equal(n_bytes, 128 + want->n * 4);
    assert_memory_equal(npy, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(shape, sizeof shape, "'shape': (%zu, 256), ", n_rows);
    npy[127] = 0;
    assert_non_null(strstr(npy + 10, shape));
    assert_non_null(strstr(npy + 10, "'descr': '<f4', 'fortran_order': False"));
    float *got = malloc(want->n * sizeof *got);
    memcpy(got, npy + 128, want->n * sizeof *got);
    assert_true(golden_error(got, golden_floats(g, name, "logits"), want->n) < 1e-4);

    /* Perplexity from the reference's logits. */
    double nll = 0, printed = 0, printed_nll = 0;
    size_t n_tokens = 0;
    for (size_t t = 0; t + 1 < n_rows; t++) {
        const float *x = golden_floats(g, name, "logits") + t * 256;
        double sum = 0;
        for (int i = 0; i < 256; i++)
            sum += exp((double)x[i]);
        nll += log(sum) - (double)x[golden_ints(g, name, "ids")[t + 1]];
    }
    nll /= (double)(n_rows - 1);
    assert_int_equal(sscanf(r.out, "perplexity %lf  nll %lf  tokens %zu", &printed, &printed_nll, &n_tokens), 3);
    assert_int_equal(n_tokens, n_rows - 1);
    assert_true(fabs(printed_nll - nll) < 1e-4 && fabs(printed - exp(nll)) < 1e-4 * exp(nll));
    process_free(&r);
    free(got);
    free(npy);
    free(ids);
    tiny_remove_folder(folder);
    golden_close(g);
}

static void lists_of_ids_are_scored_one_by_one(void **state)
{
    (void)state;
    char *folder = tiny_folder(), path[600], bad[600];
    static const char lists[] = " [[1, 2, 3],\n [7,8] ]\n", one[] = "[1,2,3]", mixed[] = "[[1], 2]", broken[] = "[1, 2";
    double a, b, all, unused;
    size_t n;
    tiny_put_file(folder, "lists.json", lists, sizeof lists - 1);
    snprintf(path, sizeof path, "%s/lists.json", folder);
    process_result r = RUN("eval", TINY, "--file", path), r1 = RUN("eval", TINY, "--ids", "1,2,3"), r2 = RUN("eval", TINY, "--ids", "7,8");
    assert_int_equal(sscanf(r.out, "perplexity %lf  nll %lf  tokens %zu", &unused, &all, &n), 3);
    assert_int_equal(n, 3);
    assert_int_equal(sscanf(r1.out, "perplexity %lf  nll %lf  tokens %zu", &unused, &a, &n), 3);
    assert_int_equal(sscanf(r2.out, "perplexity %lf  nll %lf  tokens %zu", &unused, &b, &n), 3);
    assert_true(fabs((2 * a + b) / 3 - all) < 1e-6);
    tiny_put_file(folder, "lists.json", one, sizeof one - 1);
    check(RUN("eval", TINY, "--file", path), 0, r1.out, "");
    snprintf(bad, sizeof bad, "lists.json: lists and other things mixed");
    tiny_put_file(folder, "lists.json", mixed, sizeof mixed - 1);
    check(RUN("eval", TINY, "--file", path), 1, "", bad);
    tiny_put_file(folder, "lists.json", broken, sizeof broken - 1);
    check(RUN("eval", TINY, "--file", path), 1, "", "lists.json: no JSON at byte 5");
    process_free(&r);
    process_free(&r1);
    process_free(&r2);
    tiny_remove_folder(folder);
}

static void logits_that_cannot_be_written_are_an_error_that_names_the_file(void **state)
{
    (void)state;
    check(RUN("eval", TINY, "--ids", "1,2,3", "--logits", "/no/such/folder/x.npy"), 1, "",
          "/no/such/folder/x.npy: cannot write: No such file");
    if (!has_full_device()) {
        print_message("SKIP: this system has no /dev/full\n");
        skip();
    }
    check(RUN("eval", TINY, "--ids", "1,2,3", "--logits", "/dev/full"), 1, "", "/dev/full: cannot write: No space left on device");
}

static void a_text_is_tokenized_and_scored(void **state)
{
    char **folder = (char **)state;
    char path[600];
    tiny_put_file(*folder, "text.txt", "Hello, world", 12);
    snprintf(path, sizeof path, "%s/text.txt", *folder);
    process_result r = RUN("eval", *folder, "--ids", "72,101,108,108,111,44,32,119,111,114,108,100");
    assert_non_null(strstr(r.out, "tokens 11\n"));
    check(RUN("eval", *folder, "--file", path), 0, r.out, "");
    process_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_in_ids_out_equal_the_reference),
        cmocka_unit_test(without_a_tokenizer_text_is_refused_and_ids_are_printed),
        cmocka_unit_test(a_seed_fixes_the_answer),
        cmocka_unit_test(an_id_outside_the_vocabulary_is_refused_by_number),
        cmocka_unit_test(a_wrong_model_is_explained),
        cmocka_unit_test(a_cut_file_is_explained_in_one_line),
        cmocka_unit_test(F12_a_limit_of_addresses_is_planned_with),
        cmocka_unit_test(F13_an_answer_ends_with_the_context),
        cmocka_unit_test(inspect_describes_the_model),
        cmocka_unit_test(text_is_data_on_stdout_and_talk_on_stderr),
        cmocka_unit_test(a_stop_string_ends_the_text_before_it),
        cmocka_unit_test(a_prompt_may_come_from_a_file_or_standard_input),
        cmocka_unit_test(a_reader_that_leaves_ends_the_answer_quietly),
        cmocka_unit_test(a_closed_standard_output_is_an_error),
        cmocka_unit_test(a_full_disk_under_standard_output_is_an_error),
        cmocka_unit_test(logits_are_written_as_npy_and_equal_the_reference),
        cmocka_unit_test(lists_of_ids_are_scored_one_by_one),
        cmocka_unit_test(logits_that_cannot_be_written_are_an_error_that_names_the_file),
        cmocka_unit_test(a_text_is_tokenized_and_scored),
    };
    return cmocka_run_group_tests(tests, chatty_setup, chatty_teardown);
}
