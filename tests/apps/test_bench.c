/* `k3 bench`: what is counted must be right; of what is timed, only ratios are looked at. */
#include "process.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "support/leaks.h"
#include "support/tiny_checkpoint.h"

#define MINI "models/k3-mini"

static const k3_json *parsed(const char *text)
{
    const k3_json *root;
    k3_error err;
    if (k3_json_parse(&root, text, strlen(text), K3_JSON_UNIQUE_KEYS, &err) != K3_OK)
        fail_msg("%s: %s", err.text, text);
    return root;
}

static double number(const k3_json *object, const char *name)
{
    double x = 0;
    if (!k3_json_double(k3_json_get(object, name), &x))
        fail_msg("\"%s\" is no number", name);
    return x;
}

static int is_null(const k3_json *object, const char *name)
{
    const k3_json *value = k3_json_get(object, name);
    assert_non_null(value);
    return value->type == K3_JSON_NULL;
}

static int is_true(const k3_json *object, const char *name)
{
    return k3_json_get(object, name)->type == K3_JSON_TRUE;
}

static double bytes_of_plan(void)
{
    process_result r = RUN("plan", MINI, "--backend", "cpu", "--json");
    const k3_json *plan = parsed(r.out);
    double bytes = number(plan, "memory_bytes_per_token");
    k3_json_free(plan);
    process_free(&r);
    return bytes;
}

/* Case I11: what the statistics call parts is all of the time, and operations and waits no more than that. Whether these are the most of
 * it: a busy machine may stop a thread between any two of them, so not in every row. */
static int parts_sum_to_the_total(const k3_json *row, int passes)
{
    const k3_json *stats = k3_json_get(row, "stats"), *parts = k3_json_get(stats, "parts"), *ops = k3_json_get(stats, "operations");
    double seconds = number(stats, "seconds"), sum = 0, of_ops = 0;
    assert_int_equal((int)number(stats, "passes"), passes);
    for (const k3_json *part = parts->first; part; part = part->next)
        sum += number(parts, part->key);
    for (const k3_json *op = ops->first; op; op = op->next)
        of_ops += number(op, "seconds");
    assert_true(number(parts, "arithmetic") > 0 && number(parts, "attention") > 0 && number(parts, "head") > 0);
    of_ops += number(parts, "waiting_for_experts") + number(parts, "waiting_for_trunk");
    if (fabs(sum - seconds) > 0.05 * seconds || of_ops > 1.05 * seconds)
        fail_msg("parts %f, operations and waits %f, in all %f s", sum, of_ops, seconds);
    return of_ops > 0.5 * seconds;
}

/* Memory that is busy with other work when it is measured gives a share above 1, and so does a model that lies in the cache. */
static void is_a_share(const k3_json *row, const char *name)
{
    double share = number(row, name);
    if (!(share > 0 && share < 1000))
        fail_msg("\"%s\" is %f", name, share);
}

/* Multiply-adds of a decoded token of the bundled model, from its dimensions. */
static double macs_of_mini(void)
{
    double kda = 5 * 256 * 256 + 2 * 64 * 256 + 4 * 256 + 4 * 3 * 64 * 64;
    double mla = 128 * 256 + 192 * 128 + 112 * 256 + 384 * 96 + 2 * 256 * 256;
    double dense = 3 * 768 * 256, moe = 32 * 256 + 2 * 128 * 256 + 3 * 192 * 256 + 4 * 3 * 96 * 128;
    return 6 * kda + 3 * mla + dense + 8 * moe + 2048 * 256;
}

/* Case I12: bytes and multiply-adds of a token are what the model's dimensions say, and what `k3 plan` says. */
static void counts_are_the_models(const k3_json *bench)
{
    assert_float_equal(number(bench, "macs_per_token"), macs_of_mini(), 0);
    assert_float_equal(number(bench, "macs_per_context_token"), 3 * 4 * (96 + 16 + 96), 0);
    assert_float_equal(number(bench, "bytes_per_context_token"), 3 * (96 + 16) * 2, 0);
    assert_float_equal(number(bench, "bytes_per_token"), bytes_of_plan(), 0);
    assert_float_equal(number(bench, "state_bytes_per_token"), 2 * 6 * 4 * 4 * (64 * 64 + 3 * 3 * 64), 0); /* f32, read and written */
}

static void a_row_is_consistent(const k3_json *bench, const k3_json *row, int is_decode)
{
    double rate = number(row, "tokens_per_s"), macs = number(bench, "macs_per_token"), n = number(row, "tokens");
    double seen = is_decode ? number(row, "context") + (n + 1) / 2 : (n + 1) / 2; /* cached rows a token, on average */
    macs += seen * number(bench, "macs_per_context_token") - (is_decode ? 0 : (n - 1) / n * 2048 * 256);
    assert_float_equal(number(row, "macs_per_token"), macs, 1e-6 * macs);
    assert_float_equal(rate * number(row, "seconds"), n, 1e-6 * n);
    assert_float_equal(number(row, "macs_per_s"), rate * macs, 1e-6 * rate * macs);
    if (!is_null(row, "arithmetic_share"))
        is_a_share(row, "arithmetic_share");
    if (!is_decode)
        return;
    double bytes =
        number(bench, "bytes_per_token") + number(bench, "state_bytes_per_token") + seen * number(bench, "bytes_per_context_token");
    assert_float_equal(number(row, "bytes_per_token"), bytes, 1e-6 * bytes);
    assert_float_equal(number(row, "memory_share") * number(row, "memory_bytes_per_s"), rate * bytes, 1e-6 * rate * bytes);
    is_a_share(row, "memory_share");
}

/* Case I10: the first run stands apart and has read what the others find in memory. */
static void the_first_run_stands_apart(const k3_json *rows)
{
    int n = 0;
    for (const k3_json *row = rows->first; row; row = row->next, n++)
        assert_int_equal(is_true(row, "is_cold"), n == 0);
}

/* Contexts come in rising order, and no token of a prompt is computed twice to get to them. */
static void contexts_are_reached_one_from_another(const k3_json *decode)
{
    static const double contexts[] = {64, 0, 100, 150}, tokens[] = {0, 0, 100, 50};
    int i = 0;
    for (const k3_json *row = decode->first; row; row = row->next, i++) {
        assert_float_equal(number(row, "context"), contexts[i], 0);
        assert_int_equal(is_null(row, "prompt_seconds"), tokens[i] <= 0);
        if (tokens[i] > 0)
            assert_float_equal(number(row, "prompt_tokens"), tokens[i], 0);
    }
}

static void the_plot_is_whole(const char *path)
{
    char folder[600], *name = strrchr(strcpy(folder, path), '/');
    size_t n;
    *name = 0;
    char *svg = tiny_get_file(folder, name + 1, &n);
    static const char *const has[] = {"<svg xmlns",
                                      "@media(prefers-color-scheme:dark)",
                                      ">k3 &lt;mini> &amp; co<",
                                      "cpu:",
                                      ">Decode<",
                                      ">Prefill<",
                                      "tokens of context",
                                      "rows of a prompt",
                                      ">64<",
                                      "memory, "};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(svg, has[i]))
            fail_msg("the plot lacks \"%s\": %s", has[i], svg);
    assert_string_equal(svg + n - 7, "</svg>\n");
    assert_true(!strstr(svg, "nan") && !strstr(svg, "inf,"));
    int dots = 0;
    for (const char *at = svg; (at = strstr(at, "<circle class=\"d\"")); at++)
        dots++;
    assert_int_equal(dots, 2 + 3 + 1); /* one a warm row, and the legend's */
    free(svg);
}

/* Cases I10, I11, I12. */
static void rows_ceilings_and_the_plot_agree(void **state)
{
    (void)state;
    char *folder = tiny_folder(), model[600], svg[600], *real = realpath(MINI, NULL);
    snprintf(model, sizeof model, "%s/k3 <mini> & co", folder);
    snprintf(svg, sizeof svg, "%s/plot.svg", folder);
    assert_non_null(real);
    assert_int_equal(symlink(real, model), 0);
    process_result r = RUN("bench", model, "--backend", "cpu", "--json", "--svg", svg, "--prompt", "8,64", "--context", "150,0,100,32768",
                           "-n", "4", "--repeats", "3");
    if (r.status)
        fail_msg("status %d: %s", r.status, r.err);
    const k3_json *bench = parsed(r.out), *prefill = k3_json_get(bench, "prefill"), *decode = k3_json_get(bench, "decode");
    int n_told = 0;
    counts_are_the_models(bench);
    assert_int_equal(prefill->n_children, 3);
    assert_int_equal(decode->n_children, 4);
    the_first_run_stands_apart(prefill);
    the_first_run_stands_apart(decode);
    assert_true(number(prefill->first, "disk_bytes") > 1e6 && number(prefill->first, "disk_share") > 0);
    for (const k3_json *row = prefill->first; row; row = row->next) {
        a_row_is_consistent(bench, row, 0);
        n_told += parts_sum_to_the_total(row, (int)number(row, "runs"));
        assert_true(row == prefill->first || number(row, "disk_bytes") < number(prefill->first, "disk_bytes") / 2);
    }
    for (const k3_json *row = decode->first; row; row = row->next) {
        a_row_is_consistent(bench, row, 1);
        n_told += parts_sum_to_the_total(row, 4 * (int)number(row, "runs"));
    }
    assert_true(n_told > 0);
    const k3_json *left = k3_json_get(bench, "left_out")->first;
    assert_true(left && !left->next && number(left, "tokens") == 32768 && strstr(k3_json_get(left, "why")->text, "16384"));
    contexts_are_reached_one_from_another(decode);
    the_plot_is_whole(svg);
    k3_json_free(bench);
    process_free(&r);
    free(real);
    tiny_remove_folder(folder);
}

/* Case I18: a fallback is named where the figures are. Case I10: of a model that does not fit every row says what it read. */
static void text_names_the_path_and_what_each_row_read(void **state)
{
    (void)state;
    static const char *const has[] = {"ceilings   memory ",
                                      "a token    ",
                                      "\nprefill        rows ",
                                      "\nfirst run        32 ",
                                      "macs/s",
                                      "of memory",
                                      "from disk",
                                      "prefill of 32",
                                      "decode at 0",
                                      "\nmatmul ",
                                      "\nmoe_experts ",
                                      "\nwaiting for trunk ",
                                      "\nother ",
                                      "\ncontext 256 is left out: "};
    process_result r = RUN("bench", MINI, "--backend", "cpu:scalar", "--exact", "--ram", "32M", "--prompt", "32", "--context", "0,256",
                           "--limit", "0", "-n", "4", "--repeats", "1", "--stats");
    if (r.status)
        fail_msg("status %d: %s", r.status, r.err);
    for (size_t i = 0; i < sizeof has / sizeof *has; i++)
        if (!strstr(r.out, has[i]))
            fail_msg("the text lacks \"%s\": %s", has[i], r.out);
    assert_true(strstr(r.out, "of f32") || strstr(r.out, "int8 -, bf16 -, f32 -"));
    assert_non_null(strstr(r.err, "k3: cpu:scalar, "));
    assert_non_null(strstr(r.err, "prefill of 1 x 32 tokens, first run\n"));
    assert_non_null(strstr(r.err, "decode of 1 x 4 tokens at context 0\n"));
    const char *at = strstr(r.out, "\ndecode ");
    for (int i = 0; i < 2; i++) {
        double megabytes = 0;
        at = strchr(at + 1, '\n');
        if (sscanf(at + 1 + 10, "%*d %*f %*f %*s %*f %*s %lf MB", &megabytes) != 1 || megabytes < 1)
            fail_msg("nothing was read: %s", at);
    }
    process_free(&r);
}

/* A conversation that outgrows the plan for memory, which has room for 16384 tokens, is no reason to throw figures away. The notice comes
 * when the bench ends. */
static void a_context_beyond_the_plan_is_measured(void **state)
{
    (void)state;
    if (is_sanitized()) /* 9000 tokens take long */
        skip();
    process_result r =
        RUN("bench", "tests/golden/tiny", "--backend", "cpu", "--json", "--prompt", "8", "--context", "9000", "-n", "2", "--repeats", "1");
    if (r.status)
        fail_msg("status %d: %s", r.status, r.err);
    assert_non_null(strstr(r.err, "k3: conversations hold "));
    const k3_json *bench = parsed(r.out), *decode = k3_json_get(bench, "decode");
    assert_int_equal(decode->n_children, 2);
    assert_float_equal(number(decode->first->next, "prompt_tokens"), 9000, 0);
    k3_json_free(bench);
    process_free(&r);
}

static void refused(const char *option, const char *value, const char *found)
{
    char wanted[128];
    process_result r = RUN("bench", "tests/golden/no-such-model", option, value);
    snprintf(wanted, sizeof wanted, "k3 bench: %s %s: ", option, found);
    if (r.status != 2 || strstr(r.err, wanted) != r.err)
        fail_msg("%s %s: status %d, %s", option, value, r.status, r.err);
    process_free(&r);
}

static void lists_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "x", "1,", ",1", "1;2", "-1", "1 2", "1e3", "99999999999999999999", "16777217"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        refused("--context", wrong[i], wrong[i]);
        refused("--prompt", wrong[i], wrong[i]);
    }
    refused("--prompt", "32,0", "32,0");
    refused("--limit", "-1", "-1");
    process_result r =
        RUN("bench", MINI, "--quiet", "--prompt", "1", "--context", "0", "-n", "1", "--repeats", "1", "--svg", "/no/such/file");
    assert_true(r.status == 1 && strstr(r.err, "/no/such/file: "));
    process_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_ceilings_and_the_plot_agree),
        cmocka_unit_test(text_names_the_path_and_what_each_row_read),
        cmocka_unit_test(a_context_beyond_the_plan_is_measured),
        cmocka_unit_test(lists_that_are_none_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
