/* The whole model on the Metal of tests/metal, which executes the kernels' text as it ships: the CPU's logits and tokens in exact mode, in
 * one submission a token, from a part of the experts, after a failure. `test_metal_model [PATTERN]` runs some of the tests. */
#include "engine/greedy.h"
#include "metal/fake.h"
#include "store/views.h"
#include "support/metal_harness.h"
#include "support/tiny_checkpoint.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static const k3_config exact = {.backend = "metal", .exact = 1, .threads = 1};

static k3_engine *open_engine(const k3_config *config)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, TINY, config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return engine;
}

/* Every object and every byte goes back, and nothing was asked of Metal that it does not promise. */
static void close_clean(k3_engine *engine)
{
    k3_engine_close(engine);
    assert_int_equal(k3_fake_metal_live(NULL), 0);
    assert_int_equal(k3_fake_metal_allocated(), 0);
    metal_was_used_well();
}

static int fresh(void **state)
{
    (void)state;
    k3_fake_metal_reset();
    return 0;
}

/* ---- exact mode -------------------------------------------------------------------------------------------------- */

static void compare(const k3_config *config, int n_new)
{
    const run *want = cpu_run(TINY);
    k3_engine *engine = open_engine(config);
    run got = {.scores = room_for_scores(engine)};
    must_generate(&got, engine, PROMPT, n_new);
    double worst = difference(&got, want);
    free(got.scores);
    print_message("           %d rows a pass: %.2g\n", config->chunk_rows, worst);
    if (!(worst <= 1e-4))
        fail_msg("%d rows a pass: logits differ by %.3g, at most 1e-4 wanted", config->chunk_rows, worst);
    same_ids(&got, want, "metal");
    close_clean(engine);
}

static void exact_mode_meets_the_cpu(void **state)
{
    (void)state;
    compare(&exact, NEW);
}

static void exact_mode_meets_the_cpu_in_any_chunks(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        k3_config config = exact;
        config.chunk_rows = (int[]){1, 7, 64}[i];
        compare(&config, 2);
    }
}

/* The default mode against the same trunk and cache with exact products on the CPU: the same tokens, and logits that are far nearer to each
 * other than those of this checkpoint are to the exact mode's, which differ by 0.46. */
static void default_mode_is_near_the_cpus(void **state)
{
    (void)state;
    static const double tolerance = 0.15;
    k3_engine *engine[2] = {open_wide(TINY, NULL), open_engine(&(k3_config){.backend = "metal", .threads = 1})};
    run runs[2];
    for (int i = 0; i < 2; i++) {
        runs[i].scores = room_for_scores(engine[i]);
        must_generate(&runs[i], engine[i], PROMPT, 16);
    }
    double worst = difference(&runs[1], &runs[0]);
    print_message("           %.2g\n", worst);
    if (!(worst <= tolerance))
        fail_msg("logits differ by %.3g, at most %.3g wanted", worst, tolerance);
    same_ids(&runs[1], &runs[0], "the default mode");
    free(runs[0].scores);
    free(runs[1].scores);
    k3_engine_close(engine[0]);
    close_clean(engine[1]);
}

/* Simdgroups of another width, threads and dispatches in another order: what no kernel may depend on. */
static void neither_width_nor_order_matters(void **state)
{
    (void)state;
    static const uint32_t widths[] = {8, 64};
    for (int i = 0; i < 2; i++) {
        k3_fake_metal_reset();
        k3_fake_metal_set()->width = widths[i];
        k3_fake_metal_set()->dispatch_order = k3_fake_metal_set()->thread_order = 7 + (uint32_t)i;
        compare(&exact, 4);
    }
}

/* ---- submissions ------------------------------------------------------------------------------------------------- */

static void append(k3_session *session, int32_t id)
{
    k3_error err;
    if (k3_session_append(session, &id, 1, &err) != K3_OK)
        fail_msg("%s", err.text);
}

/* Every expert is resident: a token is one command buffer with one encoder. */
static void whole_layers_go_in_one_command_buffer(void **state)
{
    (void)state;
    k3_session *session;
    k3_error err;
    k3_engine *engine = open_engine(&exact);
    assert_int_equal(k3_session_open(&session, engine, &err), K3_OK);
    append(session, 1); /* compiles and learns */
    for (int i = 1; i < 6; i++) {
        uint64_t runs = k3_fake_metal_count(K3_FAKE_RUN), encoders = k3_fake_metal_count(K3_FAKE_ENCODER);
        append(session, 7 * i + 1);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_RUN) - runs, 1);
        assert_int_equal(k3_fake_metal_count(K3_FAKE_ENCODER) - encoders, 1);
    }
    k3_session_close(session);
    close_clean(engine);
}

/* Room for a part of the experts: the CPU computes the rest meanwhile, and the tokens stay. */
static void a_part_of_the_experts_changes_no_token(void **state)
{
    (void)state;
    const run *want = cpu_run(TINY);
    k3_config config = exact;
    k3_memory_info info;
    int n, n_slots, all;
    k3_engine *engine = open_engine(&config);
    engine->be->memory->info(engine->be, &info);
    k3_experts_resident(engine->experts, &n, &n_slots, &all);
    assert_int_equal(n, all);
    config.vram = info.used + k3_machine_reserved_bytes(engine) - k3_experts_slot_bytes(engine->hp) * (uint64_t)all / 2;
    close_clean(engine);
    engine = open_engine(&config);
    run got = {.scores = NULL};
    must_generate(&got, engine, PROMPT, 8);
    same_ids(&got, want, "half of the experts");
    k3_experts_resident(engine->experts, &n, &n_slots, &all);
    assert_true(n > 0 && n_slots < all);
    close_clean(engine);
}

/* The experts of a checkpoint whose tensors lie where vector loads can begin: in place, or in slots. The same tokens either way. */
static void check_mapped(int in_place)
{
    k3_error err;
    k3_memory_info info;
    k3_engine *engine = NULL, *cpu = NULL;
    tiny_checkpoint *tiny = tiny_new(3);
    char *folder = tiny_folder();
    int n, n_slots, all, n_tiers, i_main;
    run got = {.scores = NULL}, want = {.scores = NULL};
    tiny->align = 64;
    tiny_write(tiny, folder);
    if (k3_engine_open(&cpu, folder, &(k3_config){.backend = "cpu", .exact = 1}, &err) != K3_OK ||
        k3_engine_open(&engine, folder, &exact, &err) != K3_OK)
        fail_msg("%s", err.text);
    must_generate(&want, cpu, PROMPT, 8);
    must_generate(&got, engine, PROMPT, 8);
    same_ids(&got, &want, "mapped experts");
    k3_experts_resident(engine->experts, &n, &n_slots, &all);
    assert_int_equal(n, all);
    n_slots = k3_experts_tiers(engine->experts, &n_tiers, &i_main)[i_main].n_slots;
    assert_int_equal(n_slots, in_place ? 0 : all);
    engine->be->memory->info(engine->be, &info);
    assert_true(info.used > k3_experts_one_bytes(engine->hp) * (uint64_t)all); /* the pages count */
    k3_engine_close(cpu);
    close_clean(engine);
    tiny_free(tiny);
    tiny_remove_folder(folder);
}

/* Files are read where they are mapped: no slot, no copy. */
static void mapped_experts_are_not_copied(void **state)
{
    (void)state;
    check_mapped(1);
}

static void experts_that_cannot_be_viewed_go_into_slots(void **state)
{
    (void)state;
    k3_fake_metal_set()->no_pages = true;
    check_mapped(0);
}

/* Whole pages behind the end of a file are taken by no device, and nobody may read them for a copy: the windows before go back. */
static void pages_behind_the_end_of_a_file_are_not_touched(void **state)
{
    (void)state;
    enum { PAGE = K3_VIEW_ALIGN, TENSOR = 1024 };
    k3_backend *be;
    k3_views views;
    k3_memory_info before, after;
    FILE *file = tmpfile();
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), 3 * PAGE), 0);
    char *room = mmap(NULL, 8 * PAGE, PROT_READ, MAP_SHARED, fileno(file), 0);
    char *at = mmap(room + (PAGE - (uintptr_t)room % PAGE) % PAGE, 6 * PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, fileno(file), 0);
    assert_true(room != MAP_FAILED && at != MAP_FAILED);
    assert_int_equal(k3_backend_open(&be, &(k3_backend_config){.name = "metal"}, NULL, 0, NULL), K3_OK);
    be->memory->info(be, &before);
    assert_true(k3_views_open(&views, be, at, 3 * PAGE, TENSOR));
    k3_views_close(&views);
    assert_false(k3_views_open(&views, be, at, 6 * PAGE, TENSOR));
    assert_int_equal(be->sync(be, NULL), K3_OK);
    be->memory->info(be, &after);
    assert_int_equal(after.n_buffers, before.n_buffers);
    assert_int_equal(after.used, before.used);
    be->close(be);
    munmap(room, 8 * PAGE);
    fclose(file);
    assert_int_equal(k3_fake_metal_live(NULL), 0);
    metal_was_used_well();
}

/* y = x + x for the floats at that byte of a viewed file. */
static void check_view(k3_backend *be, const k3_views *views, const char *file, uint64_t offset, uint64_t bytes)
{
    k3_buf *y = be->memory->alloc(be, bytes, "sum");
    float *got = malloc(bytes);
    k3_ref x = k3_views_ref(views, offset);
    assert_non_null(y);
    be->ops->add(be, (k3_ref){y, 0}, x, x, (int64_t)bytes / 4);
    be->memory->download(be, got, (k3_ref){y, 0}, bytes);
    assert_int_equal(be->sync(be, NULL), K3_OK);
    for (uint64_t i = 0; i < bytes / 4; i++) {
        float want;
        memcpy(&want, file + offset + 4 * i, 4);
        if (got[i] != 2 * want)
            fail_msg("byte %llu of the file: %g, %g wanted", (unsigned long long)(offset + 4 * i), (double)got[i], 2 * (double)want);
    }
    free(got);
    be->memory->release(be, y);
}

/* A file larger than any buffer may be is seen through windows that overlap, so that each tensor lies whole in one. */
static void h15_a_file_larger_than_a_buffer_is_seen_through_several(void **state)
{
    (void)state;
    enum { MB = 1 << 20, FILE_BYTES = 23 * MB, TENSOR = 3 * MB, LARGEST = 8 * MB };
    k3_backend *be;
    k3_views views;
    k3_fake_metal_set()->max_buffer_length = LARGEST;
    assert_int_equal(k3_backend_open(&be, &(k3_backend_config){.name = "metal"}, NULL, 0, NULL), K3_OK);
    char *room = mmap(NULL, FILE_BYTES + K3_VIEW_ALIGN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *file = room + (K3_VIEW_ALIGN - (uintptr_t)room % K3_VIEW_ALIGN) % K3_VIEW_ALIGN;
    for (uint32_t i = 0; i < FILE_BYTES / 4; i++) {
        float value = (float)(i % 65521);
        memcpy(file + 4 * (size_t)i, &value, 4);
    }
    assert_true(k3_views_open(&views, be, file, FILE_BYTES, TENSOR));
    assert_int_equal(views.n, 5); /* every 5 MB one of 8 MB */
    for (uint64_t i = 1; i < 5; i++) {
        check_view(be, &views, file, i * views.stride - 16, TENSOR);
        check_view(be, &views, file, i * views.stride, i < 4 ? TENSOR : FILE_BYTES - 4 * views.stride);
    }
    k3_views_close(&views);
    assert_false(k3_views_open(&views, be, file, FILE_BYTES, LARGEST)); /* no window has room for such a tensor */
    be->close(be);
    munmap(room, FILE_BYTES + K3_VIEW_ALIGN);
    assert_int_equal(k3_fake_metal_live(NULL), 0);
    metal_was_used_well();
}

/* ---- the working set --------------------------------------------------------------------------------------------- */

static void refuses(const k3_config *config, const char *first, const char *second)
{
    k3_engine *engine;
    k3_error err;
    if (k3_engine_open(&engine, TINY, config, &err) == K3_OK)
        fail_msg("it opened");
    if (!strstr(err.text, first) || !strstr(err.text, second))
        fail_msg("\"%s\": \"%s\" and \"%s\" wanted", err.text, first, second);
    assert_int_equal(k3_fake_metal_live(NULL), 0);
    metal_was_used_well();
}

/* More than a Mac recommends is refused before anything is loaded, with what to do about it. */
static void h13_the_recommended_working_set_is_respected(void **state)
{
    (void)state;
    k3_config config = exact;
    k3_fake_metal_set()->working_set = (uint64_t)18 << 20; /* less than the tables and the self-test */
    refuses(&config, "answered beyond its recommended working set", "iogpu.wired_limit_mb");
    k3_fake_metal_set()->working_set = (uint64_t)1 << 30;
    config.vram = (uint64_t)2 << 30;
    refuses(&config, "--vram is 2.15 GB", "iogpu.wired_limit_mb");
    /* At every size in between it either opens and stays below, or says what it lacks. */
    config.vram = 0;
    for (uint64_t set = (uint64_t)20 << 20; set <= (uint64_t)26 << 20; set += (uint64_t)1 << 20) {
        k3_engine *engine;
        k3_error err;
        k3_fake_metal_set()->working_set = set;
        if (k3_engine_open(&engine, TINY, &config, &err) != K3_OK) {
            assert_int_equal(err.status, K3_E_NOMEM);
            continue;
        }
        run got = {.scores = NULL};
        if (generate(&got, engine, PROMPT, 2, &err) == K3_OK)
            same_ids(&got, cpu_run(TINY), "a small working set");
        else
            assert_int_equal(err.status, K3_E_NOMEM);
        assert_true(k3_fake_metal_allocated() <= set);
        close_clean(engine);
    }
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* The GPU goes away in the middle of a request: the run goes on with the same tokens. */
static void h26_a_lost_device_changes_no_token(void **state)
{
    (void)state;
    enum { DEVICE_REMOVED = 11 };
    const run *want = cpu_run(TINY);
    k3_engine *engine = open_engine(&exact);
    run got = {.scores = NULL};
    k3_fake_metal_fail(K3_FAKE_RUN, 3, DEVICE_REMOVED);
    must_generate(&got, engine, PROMPT, 8);
    same_ids(&got, want, "a lost device");
    assert_non_null(k3_engine_info(engine)->notice);
    close_clean(engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(exact_mode_meets_the_cpu, fresh),
        cmocka_unit_test_setup(exact_mode_meets_the_cpu_in_any_chunks, fresh),
        cmocka_unit_test_setup(default_mode_is_near_the_cpus, fresh),
        cmocka_unit_test_setup(neither_width_nor_order_matters, fresh),
        cmocka_unit_test_setup(whole_layers_go_in_one_command_buffer, fresh),
        cmocka_unit_test_setup(a_part_of_the_experts_changes_no_token, fresh),
        cmocka_unit_test_setup(mapped_experts_are_not_copied, fresh),
        cmocka_unit_test_setup(experts_that_cannot_be_viewed_go_into_slots, fresh),
        cmocka_unit_test_setup(pages_behind_the_end_of_a_file_are_not_touched, fresh),
        cmocka_unit_test_setup(h15_a_file_larger_than_a_buffer_is_seen_through_several, fresh),
        cmocka_unit_test_setup(h13_the_recommended_working_set_is_respected, fresh),
        cmocka_unit_test_setup(h26_a_lost_device_changes_no_token, fresh),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    metal_harness();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
