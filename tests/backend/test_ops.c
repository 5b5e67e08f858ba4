/* Every op on every level against its golden file; `test_ops OP LEVEL` takes one op, and the levels that start so.  Writes coverage-ops.tsv
 * beside the program: op, weight type, level, "one" or "many" rows, cases, largest error, largest tolerance. tools/coverage.py makes
 * docs/coverage.md of it. */
#include "golden_ops.h"

#include "base/os.h"
#include "support/metal_harness.h"
#include "support/vulkan_layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct result {
    const char *op, *type, *level;
    int many, n_cases;
    double error, tolerance;
} result;

static result results[1024];
static int n_results;
static const char *level_prefix = "";
static int layers;

static const char *type_of(const golden *g, const char *c)
{
    const char *name = golden_text(g, c, "type");
    for (int i = 0; name && i < K3_N_TYPES; i++)
        if (strcmp(name, k3_type_name((k3_type)i)) == 0)
            return k3_type_name((k3_type)i);
    return "-";
}

static void record(const char *op, const char *type, const char *level, int many, double error, double tolerance)
{
    int i = 0;
    while (i < n_results &&
           (strcmp(results[i].op, op) || strcmp(results[i].type, type) || strcmp(results[i].level, level) || results[i].many != many))
        i++;
    assert_true(i < 1024);
    if (i == n_results)
        results[n_results++] = (result){op, type, level, many, 0, 0, 0};
    results[i].n_cases++;
    results[i].error = fmax(results[i].error, error);
    results[i].tolerance = fmax(results[i].tolerance, tolerance);
}

static int wanted(const char *level)
{
    return strncmp(level, level_prefix, strlen(level_prefix)) == 0;
}

/* Matrix units, which many rows go to, round factors to f16; so do routed experts of any number of rows where there is f16 at all. */
static double tolerance_of(k3_backend *be, const golden_op *op, const char *type, const char *level, int T, double tolerance)
{
    static const double half_tolerance = 4e-3, eight_bit_tolerance = 3e-2;
    enum { MOE_EXPERTS = 1 };
    static const char *const on_halves[] = {"matmul", [MOE_EXPERTS] = "moe_experts", "kda_chunk"};
    for (size_t i = 0; i < sizeof on_halves / sizeof *on_halves; i++)
        if (be->is_device && (i == MOE_EXPERTS || T > 8) && strcmp(op->name, on_halves[i]) == 0 &&
            strstr(be->describe(be), i == MOE_EXPERTS ? "f16" : "f16 matrix"))
            return fmax(tolerance, half_tolerance);
    /* The CPU multiplies integer weights with x rounded to 8 bits, a scale for 32 columns. Where products cancel, that is most of the
     * error of a sum. */
    static const char *const integers[] = {"int8", "int4", "int4_g64", "int2", "mxfp4"};
    int is_integer = 0;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        is_integer |= strcmp(type, integers[i]) == 0;
    if (!be->is_device && !strchr(level, '+') && strcmp(op->name, "moe_experts") == 0)
        return fmax(tolerance, eight_bit_tolerance);
    if (!be->is_device && !strchr(level, '+') && strcmp(op->name, "matmul") == 0 && is_integer)
        return fmax(tolerance, eight_bit_tolerance);
    return tolerance;
}

/* The structure of ops is pointers to functions only, so a NULL among them is an op that is not there. Their order is that of golden_ops.
 */
static int is_left_out(const k3_backend *be, const golden_op *op)
{
    void *entries[sizeof(k3_ops) / sizeof(void *)];
    memcpy(entries, be->ops, sizeof entries);
    assert_int_equal(sizeof entries / sizeof *entries, N_GOLDEN_OPS);
    return !entries[op - golden_ops];
}

static int check_case(k3_backend *be, const golden_op *op, const golden *g, const char *c, const char *level, int rows)
{
    int T = rows;
    double error = op->run(be, g, c, &T), tolerance = tolerance_of(be, op, type_of(g, c), level, T, golden_number(g, c, "tol"));
    record(op->name, type_of(g, c), level, T > 1, error, tolerance);
    if (error <= tolerance)
        return 1;
    print_error("%s %s on %s: error %.3g, allowed %.3g\n", op->name, c, be->name, error, tolerance);
    return 0;
}

static void check_op(const golden_op *op)
{
    char path[128];
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", op->name);
    golden *g = golden_open(path);
    int n_wrong = 0, n_levels = 0;
    for (int l = 0; l < N_LEVELS; l++) {
        if (!wanted(level_names[l]))
            continue;
        k3_backend *be = open_level(level_names[l], 2);
        if (!be) {
            print_message("%s: skipped on %s, which this machine lacks\n", op->name, level_names[l]);
            continue;
        }
        n_levels++;
        if (is_left_out(be, op)) {
            n_wrong += be->is_device || !op->optional;
            be->close(be);
            continue;
        }
        for (int i = 0; i < golden_n_cases(g); i++)
            for (int rows = 0; rows <= op->by_row; rows++)
                n_wrong += !check_case(be, op, g, golden_case(g, i), level_names[l], rows);
        be->close(be);
    }
    golden_close(g);
    assert_true(n_levels >= 1);
    assert_int_equal(n_wrong, 0);
}

static void op_meets_its_golden_file(void **state)
{
    check_op(*state);
}

static void no_op_is_missing(void **state)
{
    (void)state;
    for (int l = 0; l < N_LEVELS; l++) {
        k3_backend *be = wanted(level_names[l]) ? open_level(level_names[l], 1) : NULL;
        if (!be)
            continue;
        for (int i = 0; i < N_GOLDEN_OPS; i++)
            if (is_left_out(be, &golden_ops[i]) && (be->is_device || !golden_ops[i].optional))
                fail_msg("%s has no %s", be->name, golden_ops[i].name);
        be->close(be);
    }
}

/* Cells of a line of a table that begin with "native". */
static int n_native(const char *line, size_t length)
{
    int n = 0;
    for (const char *at = line; (at = strstr(at, "| native")) && at < line + length; at++)
        n++;
    return n;
}

/* docs/coverage.md is made of this program's results; an op or a type that it leaves out has been forgotten there. */
static void coverage_page_lists_every_op_and_type(void **state)
{
    (void)state;
    char *text, name[64];
    size_t n;
    k3_error err;
    if (k3_os_read_file(&text, &n, "docs/coverage.md", 1 << 20, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < N_GOLDEN_OPS + K3_N_TYPES; i++) {
        snprintf(name, sizeof name, "`%s`", i < N_GOLDEN_OPS ? golden_ops[i].name : k3_type_name((k3_type)(i - N_GOLDEN_OPS)));
        int listed = 0;
        for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
            size_t length = strcspn(line, "\n");
            const char *found = strstr(line, name);
            listed |= *line == '|' && found && found < line + length && n_native(line, length) >= 3;
        }
        if (!listed)
            fail_msg("docs/coverage.md does not list %s as native on the CPU, Vulkan and Metal; tools/coverage.py writes it", name);
    }
    free(text);
}

static void metal_was_silent(void **state)
{
    (void)state;
    metal_was_used_well();
}

static void validation_was_silent(void **state)
{
    (void)state;
    if (!layers) {
        print_message("the Vulkan validation layers are not installed\n");
        skip();
    }
    vulkan_messages(0);
}

static void write_results(const char *program)
{
    char path[4096];
    const char *slash = strrchr(program, '/');
    snprintf(path, sizeof path, "%.*scoverage-ops.tsv", slash ? (int)(slash - program + 1) : 0, program);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    for (int i = 0; i < n_results; i++)
        fprintf(f, "%s\t%s\t%s%s\t%s\t%d\t%.3g\t%.3g\n", results[i].op, results[i].type,
                strncmp(results[i].level, "vulkan", 6) && strncmp(results[i].level, "metal", 5) ? "cpu:" : "", results[i].level,
                results[i].many ? "many" : "one", results[i].n_cases, results[i].error, results[i].tolerance);
    fclose(f);
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[N_GOLDEN_OPS + 4] = {cmocka_unit_test(no_op_is_missing),
                                                 cmocka_unit_test(coverage_page_lists_every_op_and_type)};
    int n = argc < 2 ? 2 : 0;
    layers = vulkan_use_layers(VULKAN_VALIDATION);
    if (argc > 2)
        level_prefix = argv[2];
    for (int i = 0; i < N_GOLDEN_OPS; i++)
        if (argc < 2 || strcmp(argv[1], golden_ops[i].name) == 0)
            tests[n++] = (struct CMUnitTest){golden_ops[i].name, op_meets_its_golden_file, NULL, NULL, (void *)(uintptr_t)&golden_ops[i]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(validation_was_silent);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(metal_was_silent);
    int failed = _cmocka_run_group_tests("ops against golden files", tests, (size_t)n, NULL, NULL);
    if (argc < 2)
        write_results(argv[0]);
    return failed;
}
