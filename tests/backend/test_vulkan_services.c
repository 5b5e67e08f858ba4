/* What surrounds the operations on a Vulkan device: opening, memory, uploads, budget, statistics, submissions, barriers. With validation,
 * and on two devices: the one that is there, and one made of it by the fault layer that looks like a card of its own, with memory that the
 * host does not see and a queue for transfers. */
#include "fixture.h"
#include "refusals.h"
#include "support/vulkan_layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char card[] = "heaps=d3000:h3000,transfer_queue=1,discrete=1";
static int layers;

/* Skips the test where the layers, or every device, are missing. */
static k3_backend *open_device(const char *faults, const k3_backend_config *config)
{
    k3_backend_config with = config ? *config : (k3_backend_config){0};
    k3_backend *be = NULL;
    k3_error err;
    if (!(layers & VULKAN_FAULTS)) {
        print_message("this build has no Vulkan\n");
        skip();
    }
    vulkan_faults(faults);
    with.name = "vulkan:0";
    k3_status status = k3_backend_open(&be, &with, NULL, 0, &err);
    if (status == K3_E_NOT_FOUND) {
        print_message("%s\n", err.text);
        skip();
    }
    if (status != K3_OK)
        fail_msg("%s", err.text);
    return be;
}

/* Everything the device was asked for has been given back, and validation had nothing to say. */
static void close_clean(k3_backend *be)
{
    be->close(be);
    assert_int_equal(vulkan_count("allocate"), vulkan_count("free"));
    assert_int_equal(vulkan_count("live_bytes"), 0);
    vulkan_messages(0);
}

/* Runs a check on both devices. */
static void on_devices(void (*check)(k3_backend *be))
{
    for (int i = 0; i < 2; i++) {
        k3_backend *be = open_device(i ? card : "", NULL);
        check(be);
        close_clean(be);
    }
}

/* ---- validation ------------------------------------------------------------------------------------------------- */

static void copies_in_a_row(k3_backend *be)
{
    char got[64] = {0};
    k3_ref a = put_bytes(be, "from here to there, and on", 27), b = new_bytes(be, 64), c = new_bytes(be, 64);
    must_sync(be);
    be->memory->copy(be, b, a, 27);
    be->memory->copy(be, c, b, 27);
    be->memory->download(be, got, c, 27);
    must_sync(be);
    assert_string_equal(got, "from here to there, and on");
}

/* The barrier between a copy and the copy of its result is dropped, each in turn; what stays silent then proves nothing. */
static void validation_sees_a_missing_barrier(void **state)
{
    (void)state;
    int n = 0;
    if (!(layers & VULKAN_VALIDATION)) {
        print_message("the validation layers are not installed\n");
        skip();
    }
    on_devices(copies_in_a_row);
    for (int i = 1; i <= 6 && !n; i++) {
        char faults[128];
        snprintf(faults, sizeof faults, "%s,drop_barrier=%d", card, i);
        k3_backend *be = open_device(faults, NULL);
        copies_in_a_row(be);
        be->close(be);
        n = vulkan_messages(1);
    }
    assert_true(n > 0);
}

/* ---- opening and closing ---------------------------------------------------------------------------------------- */

static void it_opens_and_closes_at_any_time(void **state)
{
    (void)state;
    close_clean(open_device("", NULL));
    close_clean(open_device(card, NULL));
    k3_backend *be = open_device(card, NULL); /* work recorded, work under way, an upload under way, a failure kept */
    float *data = calloc(1 << 20, sizeof *data);
    k3_ref a = put_floats(be, data, 1 << 20), b = new_floats(be, 1 << 20);
    free(data);
    be->ops->add(be, b, a, a, 1 << 20);
    be->submit(be);
    be->ops->add(be, b, b, a, 1 << 20);
    assert_null(be->memory->alloc(be, UINT64_MAX / 4, "too much"));
    close_clean(be);
}

static void the_list_names_each_device(void **state)
{
    (void)state;
    close_clean(open_device("", NULL));
    char *text = NULL;
    k3_error err;
    assert_int_equal(k3_vulkan_list(&text, &err), K3_OK);
    assert_non_null(strstr(text, "vulkan:0"));
    free(text);
    vulkan_faults("discrete=1");
    assert_int_equal(k3_vulkan_list(&text, &err), K3_OK);
    assert_non_null(strstr(text, "Mock GPU"));
    assert_non_null(strstr(text, "discrete"));
    free(text);
    vulkan_messages(0);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void check_zeroed(k3_backend *be)
{
    static const size_t sizes[] = {0, 1, 63, 4096, (size_t)1 << 20, ((size_t)5 << 20) + 3};
    for (int round = 0; round < 2; round++) /* the second time over what the first left */
        for (int i = 0; i < 6; i++) {
            k3_ref ref = new_bytes(be, sizes[i]);
            assert_int_equal(ref.buf->address % 256, 0);
            unsigned char *got = get_bytes(be, ref, sizes[i]);
            for (size_t b = 0; b < sizes[i]; b++)
                assert_int_equal(got[b], 0);
            memset(got, 1, sizes[i]);
            be->memory->upload(be, ref, got, sizes[i]);
            be->memory->release(be, ref.buf);
            free(got);
        }
    be->memory->release(be, NULL);
}

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    on_devices(check_zeroed);
}

/* Sizes around those where small uploads travel with the commands, and where one stage is full. */
static void check_transfers(k3_backend *be)
{
    static const size_t sizes[] = {1, 3, 4, 255, 16384, 16385, 100003, ((size_t)16 << 20) + 5, (size_t)40 << 20};
    size_t most = ((size_t)40 << 20) + 16;
    random_stream r = {7};
    unsigned char *data = malloc(most), *kept = malloc(most);
    for (size_t i = 0; i < most; i++)
        data[i] = (unsigned char)(random_bits(&r) >> 11);
    k3_ref a = new_bytes(be, most), b = new_bytes(be, most);
    for (int i = 0; i < 9; i++) {
        uint64_t at = (uint64_t)random_below(&r, 16);
        memcpy(kept, data, sizes[i]);
        be->memory->upload(be, k3_at(a, at), data, sizes[i]);
        memset(data, 0, sizes[i]); /* the source may change after the call */
        be->memory->copy(be, k3_at(b, 16 - at), k3_at(a, at), sizes[i]);
        memcpy(data, kept, sizes[i]);
        data[0]++;
        be->memory->upload(be, k3_at(a, at), data, 1); /* after the copy */
        unsigned char *got = get_bytes(be, k3_at(b, 16 - at), sizes[i]), *first = get_bytes(be, k3_at(a, at), 1);
        assert_memory_equal(got, kept, sizes[i]);
        assert_int_equal(*first, data[0]);
        free(got);
        free(first);
    }
    free(data);
    free(kept);
}

static void uploads_copies_and_downloads_keep_their_order(void **state)
{
    (void)state;
    on_devices(check_transfers);
}

static void check_bounds(k3_backend *be)
{
    char text[16];
    k3_ref a = put_bytes(be, "abcdefgh", 8), b = new_bytes(be, 8);
    be->memory->upload(be, k3_at(a, 5), "xyzw", 4);
    must_fail(be, K3_E_INVALID, "upload", "8");
    be->memory->download(be, text, k3_at(a, 9), 1);
    must_fail(be, K3_E_INVALID, "download", "8");
    be->memory->copy(be, b, k3_at(a, 1), 8);
    must_fail(be, K3_E_INVALID, "copy", "8");
    be->memory->upload(be, (k3_ref){NULL, 0}, "x", 1);
    must_fail(be, K3_E_INVALID, "upload", "0");
    be->ops->add(be, k3_at(b, 8), a, a, 1);
    must_fail(be, K3_E_INVALID, "add", "8");
    be->memory->download(be, text, a, 8);
    must_sync(be);
    assert_memory_equal(text, "abcdefgh", 8);
}

static void nothing_reaches_outside_a_buffer(void **state)
{
    (void)state;
    on_devices(check_bounds);
}

static void check_budget(k3_backend *be)
{
    k3_memory_info before, info;
    be->memory->info(be, &before);
    assert_true(before.budget > 0 && before.total >= before.free && before.free > 0);
    be->memory->set_budget(be, before.used + 10240);
    k3_ref a = new_bytes(be, 6144);
    assert_null(be->memory->alloc(be, 4097, "the second buffer"));
    must_fail(be, K3_E_NOMEM, "the second buffer", "4097");
    k3_ref b = new_bytes(be, 4096);
    be->memory->info(be, &info);
    assert_int_equal(info.used, before.used + 10240);
    assert_int_equal(info.budget, before.used + 10240);
    assert_int_equal(info.n_buffers, before.n_buffers + 2);
    assert_true(info.n_slabs > 0);
    be->memory->release(be, a.buf);
    be->memory->set_budget(be, before.used + 300); /* below what is in use: nothing new, nothing lost */
    assert_null(be->memory->alloc(be, 1, "one byte"));
    must_fail(be, K3_E_NOMEM, "one byte", "budget");
    assert_null(be->memory->alloc(be, UINT64_MAX, "everything"));
    must_fail(be, K3_E_NOMEM, "everything", "budget");
    be->memory->set_budget(be, 0);
    assert_null(be->memory->alloc(be, UINT64_MAX - 5, "everything"));
    must_fail(be, K3_E_NOMEM, "everything", "bytes");
    be->memory->set_priority(be, 0.25f);
    be->memory->release(be, b.buf);
    uint64_t priorities = vulkan_count("priorities");
    be->memory->release(be, new_bytes(be, (size_t)300 << 20).buf); /* a slab of its own, with its own priority */
    assert_int_equal(vulkan_count("priorities") - priorities, strstr(be->name, "Mock") != NULL);
    be->memory->info(be, &info);
    assert_int_equal(info.used, before.used);
    assert_int_equal(info.n_buffers, before.n_buffers);
}

static void the_budget_is_kept(void **state)
{
    (void)state;
    on_devices(check_budget);
    k3_backend *be = open_device("", &(k3_backend_config){.vram = (uint64_t)1 << 20});
    k3_memory_info info;
    be->memory->info(be, &info);
    assert_int_equal(info.budget, 1 << 20);
    assert_null(be->memory->alloc(be, 2 << 20, "two MiB"));
    must_fail(be, K3_E_NOMEM, "two MiB", "--vram");
    close_clean(be);
}

enum { PAGES_BYTES = 1 << 20 };

/* y = pages + pages, on the device. */
static void double_pages(k3_backend *be, float *pages, int without_a_copy)
{
    uint64_t live = vulkan_count("live_bytes");
    k3_buf *wrapped = be->memory->wrap(be, pages, PAGES_BYTES, "pages");
    assert_non_null(wrapped);
    if (without_a_copy)
        assert_int_equal(vulkan_count("live_bytes"), live);
    size_t n = PAGES_BYTES / sizeof(float);
    k3_ref y = new_floats(be, n);
    be->ops->add(be, y, (k3_ref){wrapped, 0}, (k3_ref){wrapped, 0}, (int64_t)n);
    float *got = get_floats(be, y, n);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i] == 2 * pages[i]);
    free(got);
    be->memory->release(be, wrapped);
}

static void host_pages_are_wrapped_and_released(void **state)
{
    (void)state;
    float *pages = mmap(NULL, PAGES_BYTES + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    for (size_t i = 0; i < (PAGES_BYTES + 4096) / sizeof *pages; i++)
        pages[i] = (float)(i % 1000);
    k3_backend *be = open_device("", NULL);
    double_pages(be, pages, 1);
    double_pages(be, pages + 1, 0); /* at no page border */
    close_clean(be);
    be = open_device("hide=VK_EXT_external_memory_host", NULL);
    double_pages(be, pages, 0);
    close_clean(be);
    be = open_device(card, NULL);
    double_pages(be, pages, 1);
    close_clean(be);
    munmap(pages, PAGES_BYTES + 4096);
}

/* ---- statistics --------------------------------------------------------------------------------------------------- */

static const k3_op_stat *stat_of(const k3_op_stat *stats, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(stats[i].name, name) == 0)
            return &stats[i];
    fail_msg("no statistics of %s", name);
    return NULL;
}

static void count_adds(const char *faults, int timing, int has_time)
{
    k3_backend *be = open_device(faults, &(k3_backend_config){.timing = timing});
    k3_op_stat stats[32];
    int n = be->stats(be, stats, 32, 1);
    assert_in_range(n, 18, 32);
    assert_int_equal(be->stats(be, stats, 0, 0), n);
    k3_ref x = new_floats(be, 1 << 20);
    for (int i = 0; i < 3; i++)
        be->ops->add(be, x, x, x, 1 << 20);
    must_sync(be);
    be->stats(be, stats, 32, 1);
    const k3_op_stat *add = stat_of(stats, n, "add");
    assert_int_equal(add->calls, 3);
    assert_int_equal(add->dispatches, 3);
    assert_true((add->nanoseconds > 0) == has_time);
    for (int i = 0; i < n; i++)
        assert_true(&stats[i] == add || (!stats[i].calls && !stats[i].dispatches && !stats[i].nanoseconds));
    be->stats(be, stats, 32, 0);
    for (int i = 0; i < n; i++)
        assert_true(!stats[i].calls && !stats[i].dispatches && !stats[i].nanoseconds && !stats[i].bytes);
    close_clean(be);
}

static void statistics_count_and_reset(void **state)
{
    (void)state;
    count_adds("", 1, 1);
    count_adds("", 0, 0);
    count_adds("no_timestamps=1", 1, 0);
}

static void the_weights_read_are_counted(void **state)
{
    (void)state;
    k3_backend *be = open_device("", NULL);
    random_stream r = {1};
    k3_op_stat stats[32];
    k3_mat w = random_mat(be, &r, K3_INT4_G64, 10, 128, 0);
    k3_proj proj = {&w, new_floats(be, 10)};
    be->ops->matmul(be, &proj, 1, new_floats(be, 128), 1);
    must_sync(be);
    int n = be->stats(be, stats, 32, 1);
    assert_int_equal(stat_of(stats, n, "matmul")->bytes, 10 * (64 + 8));
    close_clean(be);
}

/* ---- submissions and barriers -------------------------------------------------------------------------------------- */

static void submit_starts_and_sync_collects(void **state)
{
    (void)state;
    enum { N = 1 << 14 };
    k3_backend *be = open_device("", NULL);
    float *ones = malloc(N * sizeof *ones);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    k3_ref x = put_floats(be, ones, N), y = new_floats(be, N);
    must_sync(be);
    uint64_t submits = vulkan_count("submits"), waits = vulkan_count("waits");
    for (int i = 0; i < 20; i++)
        be->ops->add(be, y, y, x, N);
    assert_int_equal(vulkan_count("submits"), submits); /* recorded only */
    be->submit(be);
    assert_int_equal(vulkan_count("submits"), submits + 1);
    assert_int_equal(vulkan_count("waits"), waits); /* and not waited for */
    for (int i = 0; i < 20; i++)
        be->ops->add(be, y, y, x, N);
    be->submit(be);
    be->submit(be); /* nothing more to submit */
    assert_int_equal(vulkan_count("submits"), submits + 2);
    must_sync(be);
    float *got = get_floats(be, y, N);
    for (int i = 0; i < N; i++)
        assert_true(got[i] == 40);
    free(got);
    free(ones);
    close_clean(be);
}

/* Each pair of operations needs a barrier between them, or none. */
static void barriers_stand_where_ranges_meet(void **state)
{
    (void)state;
    static const struct {
        int y1, x1, y2, x2, barriers;
        const char *what;
    } pairs[] = {
        {0, 1, 2, 3, 0, "nothing shared"},   {0, 1, 2, 1, 0, "read twice"},        {0, 1, 2, 0, 1, "read after write"},
        {0, 1, 1, 2, 1, "write after read"}, {0, 1, 0, 2, 1, "write after write"}, {4, 1, 5, 2, 0, "neighbours in a buffer"},
    };
    k3_backend *be = open_device("", NULL);
    k3_ref place[6];
    for (int i = 0; i < 5; i++)
        place[i] = new_floats(be, 256);
    place[5] = k3_at(place[4], 64 * sizeof(float));
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        be->ops->add(be, place[3], place[3], place[3], 64); /* the batch is begun */
        must_sync(be);
        be->ops->add(be, place[pairs[i].y1], place[pairs[i].x1], place[pairs[i].x1], 64);
        uint64_t before = vulkan_count("barriers");
        be->ops->add(be, place[pairs[i].y2], place[pairs[i].x2], place[pairs[i].x2], 64);
        int n = (int)(vulkan_count("barriers") - before);
        must_sync(be);
        if (n != pairs[i].barriers)
            fail_msg("%s: %d barriers, wanted %d", pairs[i].what, n, pairs[i].barriers);
    }
    close_clean(be);
}

static void a_second_device_works_beside_the_first(void **state)
{
    (void)state;
    enum { N = 5000 };
    k3_backend *a = open_device("", NULL), *b = NULL;
    k3_error err;
    assert_int_equal(k3_backend_open(&b, &(k3_backend_config){.name = "vulkan:0"}, NULL, 0, &err), K3_OK);
    float ones[N];
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    k3_ref xa = put_floats(a, ones, N), xb = put_floats(b, ones, N);
    for (int i = 0; i < 10; i++) {
        a->ops->add(a, xa, xa, xa, N);
        b->ops->add(b, xb, xb, xb, N);
        a->submit(a);
        b->submit(b);
    }
    a->memory->set_budget(a, 1);
    assert_null(a->memory->alloc(a, 1000, "more"));
    must_fail(a, K3_E_NOMEM, "more", "budget");
    float *got_a = get_floats(a, xa, N);
    a->close(a);
    float *got_b = get_floats(b, xb, N);
    for (int i = 0; i < N; i++)
        assert_true(got_a[i] == 1024 && got_b[i] == 1024);
    free(got_a);
    free(got_b);
    close_clean(b);
}

/* ---- failures ------------------------------------------------------------------------------------------------------ */

static void the_first_failure_is_kept(void **state)
{
    (void)state;
    k3_backend *be = open_device("", NULL);
    float rows[4] = {1, 2, 3, 4};
    k3_mat table = {K3_F32, 2, 2, put_floats(be, rows, 4), {NULL, 0}, 0};
    int32_t ids[3] = {1, 2, -1};
    k3_ref y = new_floats(be, 6);
    be->ops->embed(be, y, &table, put_bytes(be, ids, sizeof ids), 3);
    must_fail(be, K3_E_INVALID, "embed", "id");
    be->ops->attnres_mix(be, y, &y, 0, y, 1, 1, 0);
    be->ops->rmsnorm(be, k3_at(y, 4000), y, y, 1, 1, 1, 1, 0);
    must_fail(be, K3_E_UNSUPPORTED, "attnres_mix", "0 sources");
    float *got = get_floats(be, y, 2);
    assert_true(got[0] == 3 && got[1] == 4);
    free(got);
    close_clean(be);
}

/* And leaves the backend usable. */
static void types_and_shapes_are_refused_by_name(void **state)
{
    (void)state;
    k3_backend *be = open_device("", NULL);
    k3_ref x = new_floats(be, 8192), y = new_floats(be, 8192);
    k3_run run = {0, 1, 0, y};
    check_refusals(be);
    be->ops->kda_recur(be, x, x, x, x, x, x, &run, 1, 1, 1000);
    must_fail(be, K3_E_UNSUPPORTED, "delta rule", "1000");
    be->ops->add(be, y, x, x, 8192);
    close_clean(be);
}

static void a_nan_in_the_router_is_said(void **state)
{
    (void)state;
    k3_backend *be = open_device("", NULL);
    float logits[3 * 20] = {0};
    logits[2 * 20 + 19] = NAN;
    k3_ref ids = new_bytes(be, 3 * 4 * 4), weights = new_floats(be, 12), bias = new_floats(be, 20);
    be->ops->router_topk(be, ids, weights, put_floats(be, logits, 60), bias, 3, 20, 4, 1, 1);
    must_fail(be, K3_E_NUMERIC, "router_topk", "NaN");
    int32_t *got = get_bytes(be, ids, 48);
    for (int i = 0; i < 12; i++)
        assert_in_range(got[i], 0, 19);
    free(got);
    close_clean(be);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    layers = vulkan_use_layers(VULKAN_VALIDATION | VULKAN_FAULTS);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validation_sees_a_missing_barrier),
        cmocka_unit_test(it_opens_and_closes_at_any_time),
        cmocka_unit_test(the_list_names_each_device),
        cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(uploads_copies_and_downloads_keep_their_order),
        cmocka_unit_test(nothing_reaches_outside_a_buffer),
        cmocka_unit_test(the_budget_is_kept),
        cmocka_unit_test(host_pages_are_wrapped_and_released),
        cmocka_unit_test(statistics_count_and_reset),
        cmocka_unit_test(the_weights_read_are_counted),
        cmocka_unit_test(submit_starts_and_sync_collects),
        cmocka_unit_test(barriers_stand_where_ranges_meet),
        cmocka_unit_test(a_second_device_works_beside_the_first),
        cmocka_unit_test(the_first_failure_is_kept),
        cmocka_unit_test(types_and_shapes_are_refused_by_name),
        cmocka_unit_test(a_nan_in_the_router_is_said),
    };
    return cmocka_run_group_tests_name("Vulkan services", tests, NULL, NULL);
}
