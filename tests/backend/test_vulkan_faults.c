/* Devices that are small, old, odd or broken: reports H of users about a GPU, as far as the backend alone can show them. What an engine
 * does about them is in tests/engine/test_vulkan_model.c. Validation watches what reaches the device. */
#include "fixture.h"
#include "jobs.h"
#include "support/leaks.h"
#include "support/vulkan_layers.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int layers;

static void need_layers(void)
{
    if (!(layers & VULKAN_FAULTS)) {
        print_message("this build has no Vulkan\n");
        skip();
    }
}

static k3_status try_open(k3_backend **be, const char *name, const char *faults, const k3_backend_config *config, k3_error *err)
{
    k3_backend_config with = config ? *config : (k3_backend_config){0};
    need_layers();
    vulkan_faults(faults);
    with.name = name;
    *be = NULL;
    return k3_backend_open(be, &with, NULL, 0, err);
}

static k3_backend *open_device(const char *faults, const k3_backend_config *config)
{
    k3_backend *be;
    k3_error err;
    k3_status status = try_open(&be, "vulkan:0", faults, config, &err);
    if (status == K3_E_NOT_FOUND) {
        print_message("%s\n", err.text);
        skip();
    }
    if (status != K3_OK)
        fail_msg("%s: %s", faults, err.text);
    return be;
}

static void need_device(void)
{
    k3_backend *be = open_device("", NULL);
    be->close(be);
}

static void opens_by_name(const char *name)
{
    k3_backend *be;
    k3_error err;
    if (try_open(&be, name, "", NULL, &err) != K3_OK)
        fail_msg("%s: %s", name, err.text);
    be->close(be);
}

/* Everything asked for has been given back, and validation had nothing to say. */
static void gone_clean(const char *faults)
{
    if (vulkan_count("allocate") < vulkan_count("free") || vulkan_count("live_bytes"))
        fail_msg("%s: %d bytes of device memory are left behind", faults, (int)vulkan_count("live_bytes"));
    vulkan_messages(0);
}

static void fails_with(k3_backend *be, k3_status status, const char *word)
{
    k3_error err = {0};
    k3_status got = be->sync(be, &err);
    if (got != status || !strstr(err.text, word))
        fail_msg("status %d, \"%s\"; wanted %d and \"%s\"", (int)got, err.text, (int)status, word);
}

static const job_op *op_named(const char *name)
{
    for (int i = 0; i < N_JOB_OPS; i++)
        if (strcmp(job_ops[i].name, name) == 0)
            return &job_ops[i];
    fail_msg("no job %s", name);
    return NULL;
}

/* Some of everything: products in two types, attention, the delta rule, experts. Each kernel for one row and for many. */
static job_result compute_some(k3_backend *be)
{
    static const struct {
        const char *op;
        job job;
    } some[] = {
        {"embed", {.seed = 1, .T = 5, .n_sequences = 1, .a = 96, .b = 9, .type = K3_INT4}},
        {"matmul", {.seed = 2, .T = 1, .n_sequences = 1, .a = 192, .b = 33, .type = K3_INT8}},
        {"matmul", {.seed = 3, .T = 40, .n_sequences = 1, .a = 128, .b = 50, .type = K3_MXFP4}},
        {"kda_recur", {.seed = 4, .T = 3, .n_sequences = 2, .a = 64, .b = 2}},
        {"kda_chunk", {.seed = 5, .T = 70, .n_sequences = 1, .a = 64, .b = 1}},
        {"mla", {.seed = 6, .T = 1, .n_sequences = 1, .a = 64, .b = 5, .type = K3_INT8}},
        {"mla", {.seed = 7, .T = 20, .n_sequences = 2, .a = 64, .b = 30, .type = K3_BF16}},
        {"router_topk", {.seed = 8, .T = 6, .n_sequences = 1, .a = 60, .b = 7}},
        {"moe_experts", {.seed = 9, .T = 1, .n_sequences = 1, .a = 1, .b = 3}},
        {"moe_experts", {.seed = 10, .T = 50, .n_sequences = 1, .a = 2, .b = 2}},
    };
    static const int whole[1] = {0};
    job_result out = {NULL, 0};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        op_named(some[i].op)->run(be, &some[i].job, whole, &out);
    return out;
}

static job_result wanted_result(void)
{
    k3_backend *cpu = open_level("scalar+exact", 1);
    job_result want = compute_some(cpu);
    must_sync(cpu);
    cpu->close(cpu);
    return want;
}

/* Every value near the CPU's; one wrong kernel is far off. */
static void same_results(const job_result *got, const job_result *want, const char *faults)
{
    assert_int_equal(got->n, want->n);
    for (size_t i = 0; i < got->n; i++) {
        double error = fabs((double)got->values[i] - (double)want->values[i]);
        if (!(error <= 0.05 + 0.02 * fabs((double)want->values[i])))
            fail_msg("%s: value %zu is %g, wanted %g", faults, i, (double)got->values[i], (double)want->values[i]);
    }
}

/* Opens, computes, compares, closes. */
static void works_with(const char *faults)
{
    job_result want = wanted_result();
    k3_backend *be = open_device(faults, NULL);
    job_result got = compute_some(be);
    must_sync(be);
    same_results(&got, &want, faults);
    be->close(be);
    free(got.values);
    free(want.values);
    gone_clean(faults);
}

/* One line that names each of the words. */
static void refused_with(const char *name, const char *faults, k3_status status, const char *a, const char *b)
{
    k3_backend *be;
    k3_error err = {0};
    k3_status got = try_open(&be, name, faults, NULL, &err);
    if (be)
        be->close(be);
    if (got != status || be || !strstr(err.text, a) || !strstr(err.text, b) || strchr(err.text, '\n'))
        fail_msg("%s: status %d, \"%s\"; wanted %d, one line that names \"%s\" and \"%s\"", faults, (int)got, err.text, (int)status, a, b);
    gone_clean(faults);
}

/* ---- what is not there ------------------------------------------------------------------------------------------- */

static void h07_no_device_is_one_clear_line(void **state)
{
    (void)state;
    need_device();
    refused_with("vulkan", "devices=0", K3_E_NOT_FOUND, "no device", "CPU");
    refused_with("vulkan:0", "devices=0", K3_E_NOT_FOUND, "no device", "CPU");
    refused_with("vulkan:0", "fail_device=1", K3_E_DEVICE, "llvmpipe", "opened");
    char *text = NULL;
    k3_error err = {0};
    vulkan_faults("devices=0");
    assert_true(k3_vulkan_list(&text, &err) != K3_OK || !*text);
    free(text);
}

static void auto_is(const char *faults, const char *name, const char *note_word)
{
    k3_backend *be;
    k3_error err;
    char note[512] = "untouched";
    vulkan_faults(faults);
    if (k3_backend_open(&be, &(k3_backend_config){.name = "auto", .threads = 1}, note, sizeof note, &err) != K3_OK)
        fail_msg("%s", err.text);
    if (strncmp(be->name, name, strlen(name)) != 0 || !strstr(note, note_word) || (!*note_word && *note))
        fail_msg("%s: auto took %s and said \"%s\"; wanted %s and \"%s\"", faults, be->name, note, name, note_word);
    be->close(be);
    gone_clean(faults);
}

static void h08_a_software_device_is_taken_only_when_asked_for(void **state)
{
    (void)state;
    need_layers();
    k3_backend *be = open_device("", NULL);
    int is_software = strstr(be->name, "llvmpipe") != NULL;
    be->close(be);
    if (!is_software) {
        print_message("a real GPU is here\n");
        skip();
    }
    auto_is("", "cpu", "software");
    auto_is("devices=0", "cpu", "no device");
    auto_is("discrete=1", "vulkan:Mock GPU", "");
    auto_is("discrete=1,hide=shaderInt64", "cpu", "shaderInt64");
    auto_is("discrete=1,fail_device=1", "cpu", "opened");
    refused_with("vulkan", "", K3_E_NOT_FOUND, "software", "vulkan:0");
    opens_by_name("vulkan:llvm");
    opens_by_name("vulkan:LLVMpipe");
    opens_by_name("vulkan:0");
    refused_with("vulkan:1", "", K3_E_NOT_FOUND, "\"1\"", "llvmpipe");
    refused_with("vulkan:GeForce", "", K3_E_NOT_FOUND, "\"GeForce\"", "0: llvmpipe");
}

/* ---- features --------------------------------------------------------------------------------------------------- */

static void h18_what_is_optional_can_be_missing(void **state)
{
    (void)state;
    static const char *const names[] = {"shaderFloat16",
                                        "shaderInt8",
                                        "shaderInt16",
                                        "storageBuffer8BitAccess",
                                        "storageBuffer16BitAccess",
                                        "vulkanMemoryModel",
                                        "subgroupSizeControl",
                                        "computeFullSubgroups",
                                        "synchronization2",
                                        "hostQueryReset",
                                        "maintenance4",
                                        "memoryPriority",
                                        "VK_EXT_memory_priority",
                                        "VK_EXT_memory_budget",
                                        "VK_EXT_external_memory_host",
                                        "VK_EXT_subgroup_size_control",
                                        "VK_KHR_cooperative_matrix:VK_NV_cooperative_matrix"};
    char faults[256], all[1024] = "api=2,hide=";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(faults, sizeof faults, "hide=%s", names[i]);
        works_with(faults);
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ":" : "", names[i]);
    }
    works_with(all); /* and all at once, on Vulkan 1.2 */
    works_with("no_timestamps=1");
    works_with("storage_range=134217728");
    works_with("push_constants=128");
    works_with("shared_memory=32768");
    works_with("invocations=256");
    works_with("groups=65535");
    works_with("transfer_queue=1");
}

static void h18_what_is_needed_is_named(void **state)
{
    (void)state;
    need_device();
    refused_with("vulkan:0", "hide=shaderInt64", K3_E_UNSUPPORTED, "llvmpipe", "shaderInt64");
    refused_with("vulkan:0", "hide=bufferDeviceAddress", K3_E_UNSUPPORTED, "llvmpipe", "bufferDeviceAddress");
    refused_with("vulkan:0", "hide=timelineSemaphore", K3_E_UNSUPPORTED, "llvmpipe", "timelineSemaphore");
    refused_with("vulkan:0", "hide=subgroupArithmetic", K3_E_UNSUPPORTED, "llvmpipe", "subgroup");
    refused_with("vulkan:0", "api=1", K3_E_UNSUPPORTED, "llvmpipe", "Vulkan 1.2");
    refused_with("vulkan:0", "shared_memory=16384", K3_E_UNSUPPORTED, "llvmpipe", "shared memory");
    refused_with("vulkan:0", "invocations=128", K3_E_UNSUPPORTED, "llvmpipe", "workgroups");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* A matrix of n_rows in memory that the device may cut at rows. */
static k3_mat rows_in_pieces(k3_backend *be, random_stream *r, k3_type type, int rows, int cols)
{
    size_t row = k3_type_row_bytes(type, cols), scale = k3_type_scale_bytes(type, cols), n = (size_t)rows * row;
    unsigned char *codes = malloc(n);
    float *scales = malloc((size_t)rows * scale + 1);
    for (size_t i = 0; i < n; i++)
        codes[i] = (unsigned char)random_bits(r);
    for (size_t i = 0; i < (size_t)rows * scale / 4; i++)
        scales[i] = 0.01f + 0.02f * fabsf(random_float(r));
    k3_mat mat = {type, rows, cols, {be->memory->alloc_rows(be, (uint64_t)rows, row, "codes"), 0}, {NULL, 0}, 0};
    mat.scale.buf = be->memory->alloc_rows(be, (uint64_t)rows, scale, "scales");
    must_sync(be);
    be->memory->upload(be, mat.data, codes, n);
    be->memory->upload(be, mat.scale, scales, (size_t)rows * scale);
    free(codes);
    free(scales);
    return mat;
}

static void collect(k3_backend *be, job_result *out, k3_ref ref, size_t n)
{
    out->values = realloc(out->values, (out->n + n) * sizeof(float));
    be->memory->download(be, out->values + out->n, ref, n * sizeof(float));
    out->n += n;
}

/* Products with, rows of, and attention through matrices larger than one allocation may be. */
static job_result compute_large(k3_backend *be)
{
    enum { ROWS = 40000, COLS = 1000, HEADS = 80, KV = 512, WIDTH = KV + 16, T = 3 };
    job_result out = {NULL, 0};
    random_stream r = {17};
    float *x = malloc(T * COLS * sizeof *x);
    random_floats(&r, x, T * COLS, 1);
    k3_mat w = rows_in_pieces(be, &r, K3_INT8, ROWS, COLS), kv_b = rows_in_pieces(be, &r, K3_INT8, HEADS * 512, KV);
    k3_ref y = new_floats(be, (size_t)T * ROWS), input = put_floats(be, x, T * COLS);
    static const int32_t ids[4] = {0, 17000, 39999, 16800};
    for (int rows = 1; rows <= T; rows += 2) {
        be->ops->matmul(be, &(k3_proj){&w, y}, 1, input, rows);
        collect(be, &out, y, (size_t)(rows * ROWS));
    }
    be->ops->embed(be, y, &w, put_bytes(be, ids, sizeof ids), 4);
    collect(be, &out, y, (size_t)4 * COLS);
    k3_mla_dims dims = {HEADS, 240, 16, 272, KV, K3_F32};
    k3_run run = {0, 2, 3, put_floats(be, x, (size_t)5 * 500)};
    run.state = new_floats(be, (size_t)5 * WIDTH);
    k3_ref o = new_floats(be, (size_t)2 * HEADS * 272), q = new_floats(be, (size_t)2 * HEADS * 256);
    be->memory->upload(be, run.state, x, (size_t)5 * WIDTH * sizeof *x);
    be->memory->upload(be, q, x, (size_t)T * COLS * sizeof *x);
    be->ops->mla_attend(be, o, q, &kv_b, &run, 1, &dims, 0.06f);
    collect(be, &out, o, (size_t)2 * HEADS * 272);
    must_sync(be);
    free(x);
    return out;
}

static void h01_allocations_stay_below_the_limit(void **state)
{
    (void)state;
    k3_backend *be = open_level("avx2", 2);
    be = be ? be : open_level("scalar", 2);
    job_result want = compute_large(be);
    be->close(be);
    static const char *const limits[] = {"max_allocation=268435456", "max_allocation=16777216", "max_buffer=16777216",
                                         "max_allocation=16777216,storage_range=1048576,heaps=d3000:h3000"};
    for (int i = 0; i < 4; i++) {
        be = open_device(limits[i], NULL);
        job_result got = compute_large(be);
        same_results(&got, &want, limits[i]);
        free(got.values);
        assert_null(be->memory->alloc(be, (uint64_t)300 << 20, "one piece"));
        fails_with(be, K3_E_NOMEM, "one piece");
        be->close(be);
        gone_clean(limits[i]);
    }
    free(want.values);
}

/* Fails the n-th call of a kind, for all n of a whole run: an open that says so, or a kept failure; then all works again. */
static void fail_each(const char *fault, const char *counter, k3_status status)
{
    char faults[64];
    job_result want = wanted_result();
    k3_backend *be = open_device("", NULL);
    job_result clean = compute_some(be);
    must_sync(be);
    be->close(be);
    int n = (int)vulkan_count(counter), failed = 0;
    same_results(&clean, &want, "no fault");
    free(clean.values);
    assert_true(n > 2);
    for (int i = 1; i <= n; i++) {
        k3_error err = {0};
        snprintf(faults, sizeof faults, "%s=%d", fault, i);
        k3_status got = try_open(&be, "vulkan:0", faults, NULL, &err);
        if (got == K3_OK) {
            allow_failures(1);
            job_result out = compute_some(be);
            allow_failures(0);
            got = be->sync(be, &err);
            if (got == K3_OK)
                same_results(&out, &want, faults);
            free(out.values);
            be->close(be);
        }
        if (got != K3_OK && (got != status || !*err.text))
            fail_msg("%s: status %d, \"%s\"; wanted %d", faults, (int)got, err.text, (int)status);
        failed += got != K3_OK;
        gone_clean(faults);
    }
    assert_true(failed > n / 2); /* the others were done without */
    free(want.values);
    works_with("");
}

static void h03_any_allocation_may_fail(void **state)
{
    (void)state;
    fail_each("fail_allocate", "allocate", K3_E_NOMEM);
}

static void h03_any_buffer_may_fail(void **state)
{
    (void)state;
    fail_each("fail_buffer", "buffers", K3_E_NOMEM);
}

static void h03_any_pipeline_may_fail(void **state)
{
    (void)state;
    fail_each("fail_pipeline", "pipelines", K3_E_NOMEM);
}
static void h04_memory_beyond_the_budget_is_not_taken(void **state)
{
    (void)state;
    enum { MOST = 64, BYTES = 10 << 20 };
    static const char faults[] = "discrete=1,heaps=d2000:h2000,budget=125829120:2097152000,overcommit=1";
    k3_backend *be = open_device(faults, NULL);
    k3_ref list[MOST];
    int n = 0;
    be->memory->set_budget(be, 0);
    allow_failures(1);
    while (n < MOST && (list[n] = new_bytes(be, BYTES)).buf)
        n++;
    allow_failures(0);
    fails_with(be, K3_E_NOMEM, "test");
    assert_in_range(n, 8, 12);
    for (int i = 1; i < n; i++)
        be->ops->add(be, list[i], list[0], list[i - 1], BYTES / 4);
    must_sync(be);
    k3_memory_info info;
    be->memory->info(be, &info);
    assert_true(info.free < BYTES);
    be->close(be);
    gone_clean(faults);
}

/* Fills the device with buffers of 4 MiB; returns how many it took. */
static int fill(k3_backend *be)
{
    int n = 0;
    be->memory->set_budget(be, 0);
    allow_failures(1);
    while (n < 4096 && new_bytes(be, 4 << 20).buf)
        n++;
    allow_failures(0);
    fails_with(be, K3_E_NOMEM, "test");
    return n;
}

static void h20_all_heaps_of_the_device_are_used(void **state)
{
    (void)state;
    static const struct {
        const char *faults;
        int total, least, most; /* MiB */
    } cases[] = {
        {"discrete=1,heaps=d320:d640:h300", 960, 900, 960},
        {"discrete=1,heaps=d640:d320:h300", 960, 900, 960},
        {"discrete=1,heaps=d400:h1600:v20", 420, 380, 420},
        {"discrete=1,heaps=v20:h1600:d400", 420, 380, 420},
        {"discrete=1,heaps=h1600:d400,hide=VK_EXT_memory_budget", 400, 360, 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        k3_backend *be = open_device(cases[i].faults, NULL);
        k3_memory_info info;
        be->memory->info(be, &info);
        int n = 4 * fill(be);
        if (info.total != (uint64_t)cases[i].total << 20 || n < cases[i].least || n > cases[i].most)
            fail_msg("%s: %d MiB were had, the device says %d; wanted %d to %d of %d", cases[i].faults, n, (int)(info.total >> 20),
                     cases[i].least, cases[i].most, cases[i].total);
        be->close(be);
        gone_clean(cases[i].faults);
        works_with(cases[i].faults);
    }
}

/* What another program took comes back. */
static void h26_the_budget_may_fall_and_come_back(void **state)
{
    (void)state;
    static const char plenty[] = "discrete=1,heaps=d1000:h1000,budget=1048576000:1048576000,overcommit=1",
                      little[] = "discrete=1,heaps=d1000:h1000,budget=104857600:1048576000,overcommit=1";
    k3_backend *be = open_device(plenty, NULL);
    k3_ref a = new_bytes(be, 4 << 20), b = new_bytes(be, 4 << 20);
    k3_memory_info info;
    must_sync(be);
    vulkan_faults(little);
    be->memory->info(be, &info);
    assert_in_range(info.free, 0, 104857600);
    assert_null(be->memory->alloc(be, 600 << 20, "more than is left"));
    fails_with(be, K3_E_NOMEM, "more than is left");
    vulkan_faults(plenty);
    be->ops->add(be, a, b, b, 1 << 20);
    k3_buf *large = be->memory->alloc(be, 600 << 20, "what is there again");
    must_sync(be);
    assert_non_null(large);
    be->close(be);
    vulkan_messages(0);
}

/* ---- submissions --------------------------------------------------------------------------------------------------- */

/* Work of a second or so on a software device, never waited for by the caller. A software device is judged by the processor's time, since
 * others may use the processor too. */
static void h05_no_submission_is_long(void **state)
{
    (void)state;
    enum { SIZE = 1024, ROWS = 4, N = 600 };
    layers = vulkan_use_layers(VULKAN_FAULTS);
    k3_backend *be = open_device("time=1", NULL);
    random_stream r = {3};
    k3_mat w = random_mat(be, &r, K3_INT8, SIZE, SIZE, 0);
    k3_ref x = new_floats(be, ROWS * SIZE), y = new_floats(be, ROWS * SIZE);
    must_sync(be);
    uint64_t before = vulkan_count("submits");
    for (int i = 0; i < N; i++)
        be->ops->matmul(be, &(k3_proj){&w, i % 2 ? x : y}, 1, i % 2 ? y : x, ROWS);
    must_sync(be);
    int n = (int)(vulkan_count("submits") - before), total = (int)(vulkan_count("total_us") / 1000);
    int most = is_sanitized() ? 5000 : 500,
        longest = (int)(vulkan_count(strstr(be->name, "llvmpipe") ? "longest_cpu_us" : "longest_us") / 1000);
    be->close(be);
    layers = vulkan_use_layers(VULKAN_VALIDATION | VULKAN_FAULTS);
    print_message("           %d submissions in %d ms, the longest %d ms\n", n, total, longest);
    if (longest >= most)
        fail_msg("the longest of %d submissions took %d ms, less than %d wanted", n, longest, most);
}

/* ---- kernels --------------------------------------------------------------------------------------------------------- */

#if __has_include("backend/vulkan/spirv.h")
#include "backend/vulkan/spirv.h"

static uint64_t hash_of(const k3_vk_spirv *spirv)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < spirv->bytes / 4; i++)
        h = (h ^ spirv->words[i]) * 1099511628211u;
    return h;
}

static int is_for_matrices(const char *name)
{
    return strstr(name, "_matrix") || strstr(name, "_half") || strcmp(name, "matmul_sum") == 0;
}

/* Opens with a kernel that does nothing. 1 if the self-test ran it and said what has to be said: a faulty kernel in f16 is done without,
 * any other is the end. *used: it was run at all. */
static int finds_nonsense(const k3_vk_spirv *kernel, int exact, int *used)
{
    char faults[64];
    k3_backend_config config = {.self_test = 1, .exact = exact};
    k3_backend *be;
    k3_error err;
    snprintf(faults, sizeof faults, "falsify=%llu", (unsigned long long)hash_of(kernel));
    k3_status status = try_open(&be, "vulkan:0", faults, &config, &err);
    *used = vulkan_count("falsified") > 0;
    int said = be ? strstr(be->describe(be), "self-test") != NULL : status == K3_E_DEVICE && strstr(err.text, "self-test");
    if (be)
        be->close(be);
    gone_clean(faults);
    int may_go_on = is_for_matrices(kernel->name) || strstr(kernel->name, "_f16");
    if (*used && !(said && may_go_on == (status == K3_OK)))
        print_error("%s does nothing: status %d, \"%s\"\n", kernel->name, (int)status, status ? err.text : "");
    return *used && said && may_go_on == (status == K3_OK);
}

/* Each kernel in turn, in the mode that uses it. Left out: kernels for matrix units where there are none, and the one whose results are
 * places that others read from. What a kernel computes says nothing about memory, so that a sanitizer sees some of them. */
static void h21_a_kernel_that_computes_nonsense_is_found_at_start(void **state)
{
    (void)state;
    k3_backend *be = open_device("", &(k3_backend_config){.self_test = 1});
    int has_matrices = strstr(be->describe(be), "matrix") != NULL, has_halves = strstr(be->describe(be), "f16") != NULL, n_missed = 0;
    be->close(be);
    for (int i = 0; i < K3_GPU_N_SHADERS; i += is_sanitized() ? 8 : 1) {
        const k3_vk_spirv *kernel = &k3_vk_shaders[i];
        int used;
        if (!kernel->words || (is_for_matrices(kernel->name) && !has_matrices) || (strstr(kernel->name, "_f16") && !has_halves) ||
            strcmp(kernel->name, "moe_experts_group") == 0)
            continue;
        int found = finds_nonsense(kernel, 0, &used);
        if (!used)
            found = finds_nonsense(kernel, 1, &used);
        if (!used)
            print_error("the self-test runs no %s\n", kernel->name);
        n_missed += !found;
    }
    assert_int_equal(n_missed, 0);
}
#else
static void h21_a_kernel_that_computes_nonsense_is_found_at_start(void **state)
{
    (void)state;
    need_layers();
}
#endif

static int said_compiling;

static int on_progress(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    said_compiling += strstr(phase, "kernels") != NULL;
    return 0;
}

/* Opens with a cache folder, computes, closes; returns how many caches the driver was shown. */
static int run_cached(const char *folder, const job_result *want)
{
    k3_backend *be = open_device("", &(k3_backend_config){.cache_dir = folder, .progress = on_progress});
    job_result got = compute_some(be);
    must_sync(be);
    same_results(&got, want, folder);
    free(got.values);
    be->close(be);
    int n = (int)vulkan_count("cache_reads");
    gone_clean(folder);
    return n;
}

/* The only file in a folder. */
static void find_cache(char *path, size_t size, const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    *path = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (*e->d_name != '.') {
            assert_int_equal(*path, 0);
            snprintf(path, size, "%s/%s", folder, e->d_name);
        }
    closedir(d);
    assert_true(*path);
}

static void change_file(const char *path, long at, long length)
{
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    if (at >= 0) {
        fseek(f, at, SEEK_SET);
        int c = fgetc(f);
        fseek(f, at, SEEK_SET);
        fputc(c ^ 0x40, f);
    }
    fclose(f);
    if (length >= 0)
        assert_int_equal(truncate(path, length), 0);
}

static void h23_compiled_kernels_are_kept_if_they_can_be_trusted(void **state)
{
    (void)state;
    char folder[] = "/tmp/k3-cache-XXXXXX", path[300], command[160];
    assert_non_null(mkdtemp(folder));
    job_result want = wanted_result();
    said_compiling = 0;
    assert_int_equal(run_cached(folder, &want), 0); /* none yet */
    assert_true(said_compiling > 0);
    assert_int_equal(run_cached(folder, &want), 1);
    find_cache(path, sizeof path, folder);
    change_file(path, 12, -1); /* another device's or driver's */
    assert_int_equal(run_cached(folder, &want), 0);
    assert_int_equal(run_cached(folder, &want), 1); /* written anew */
    change_file(path, -1, 100);                     /* cut */
    assert_int_equal(run_cached(folder, &want), 0);
    change_file(path, -1, 0);
    assert_int_equal(run_cached(folder, &want), 0);
    assert_int_equal(run_cached(folder, &want), 1);
    change_file(path, 90, -1); /* damaged */
    assert_int_equal(run_cached(folder, &want), 0);
    assert_int_equal(run_cached("/nonexistent/folder", &want), 0);
    free(want.values);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- a lost device ---------------------------------------------------------------------------------------------------- */

/* At each submission and each wait of a run: the failure is kept and said, nothing hangs, closing works. */
static void lose_at_each(const char *fault, const char *counter)
{
    char faults[64];
    k3_backend *be = open_device("", NULL);
    job_result clean = compute_some(be);
    must_sync(be);
    be->close(be);
    free(clean.values);
    int n = (int)vulkan_count(counter);
    assert_true(n > 2);
    for (int i = 1; i <= n; i++) {
        k3_error err = {0};
        snprintf(faults, sizeof faults, "%s=%d", fault, i);
        k3_status status = try_open(&be, "vulkan:0", faults, NULL, &err);
        if (status == K3_OK) {
            allow_failures(1);
            job_result out = compute_some(be);
            allow_failures(0);
            free(out.values);
            status = be->sync(be, &err);
            if (status != K3_OK) /* and stays so */
                assert_int_equal(be->sync(be, &err), K3_E_DEVICE);
            be->close(be);
        }
        if (i < n && (status != K3_E_DEVICE || !strstr(err.text, "lost")))
            fail_msg("%s: status %d, \"%s\"", faults, (int)status, err.text);
        gone_clean(faults);
    }
    works_with("");
}

static void h12_a_device_lost_at_any_submission_is_said(void **state)
{
    (void)state;
    lose_at_each("lost_submit", "submits");
}

static void h12_a_device_lost_at_any_wait_is_said(void **state)
{
    (void)state;
    lose_at_each("lost_wait", "waits");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    layers = vulkan_use_layers(VULKAN_VALIDATION | VULKAN_FAULTS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(h01_allocations_stay_below_the_limit),
        cmocka_unit_test(h03_any_allocation_may_fail),
        cmocka_unit_test(h03_any_buffer_may_fail),
        cmocka_unit_test(h03_any_pipeline_may_fail),
        cmocka_unit_test(h04_memory_beyond_the_budget_is_not_taken),
        cmocka_unit_test(h05_no_submission_is_long),
        cmocka_unit_test(h07_no_device_is_one_clear_line),
        cmocka_unit_test(h08_a_software_device_is_taken_only_when_asked_for),
        cmocka_unit_test(h12_a_device_lost_at_any_submission_is_said),
        cmocka_unit_test(h12_a_device_lost_at_any_wait_is_said),
        cmocka_unit_test(h18_what_is_optional_can_be_missing),
        cmocka_unit_test(h18_what_is_needed_is_named),
        cmocka_unit_test(h20_all_heaps_of_the_device_are_used),
        cmocka_unit_test(h21_a_kernel_that_computes_nonsense_is_found_at_start),
        cmocka_unit_test(h23_compiled_kernels_are_kept_if_they_can_be_trusted),
        cmocka_unit_test(h26_the_budget_may_fall_and_come_back),
    };
    return cmocka_run_group_tests_name("Vulkan faults", tests, NULL, NULL);
}
