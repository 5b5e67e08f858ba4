/* What surrounds the operations on a Metal device, on the fake one: opening, memory, pages of the host, failures of every call, a device
 * that is lost, kernels from a folder. The fake notes what Apple does not promise to work; each test ends without such a note and with
 * nothing left alive. */
#include "backend/fixture.h"
#include "metal/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SLAB = 16 << 20, PAGE = 16384, N = 300 };
/* Errors of command buffers, as Apple numbers them. */
enum { INTERNAL = 1, OUT_OF_MEMORY = 8, REMOVED = 11 };

/* A device with small slabs, so that there are several. */
static k3_fake_metal_options *fresh_device(void)
{
    k3_fake_metal_reset();
    k3_fake_metal_set()->max_buffer_length = SLAB;
    return k3_fake_metal_set();
}

static int fresh_setup(void **state)
{
    (void)state;
    fresh_device();
    return 0;
}

static k3_backend *open_device(const k3_backend_config *config)
{
    static const k3_backend_config plain;
    k3_backend *be;
    k3_error err;
    if (k3_metal_open(&be, "", config ? config : &plain, &err) != K3_OK)
        fail_msg("%s", err.text);
    return be;
}

/* Nothing is left behind, and the fake has nothing to say. */
static void gone_clean(const char *what)
{
    if (k3_fake_metal_violations())
        fail_msg("%s: %s", what, k3_fake_metal_violation(0));
    if (k3_fake_metal_live(NULL) || k3_fake_metal_allocated())
        fail_msg("%s: %d objects and %d bytes are left behind", what, k3_fake_metal_live(NULL), (int)k3_fake_metal_allocated());
}

static void close_clean(k3_backend *be)
{
    be->close(be);
    gone_clean("closed");
}

static void fails_with(k3_backend *be, k3_status status, const char *a, const char *b)
{
    k3_error err = {0};
    k3_status got = be->sync(be, &err);
    if (got != status || !strstr(err.text, a) || !strstr(err.text, b) || strchr(err.text, '\n'))
        fail_msg("status %d, \"%s\"; wanted %d, one line with \"%s\" and \"%s\"", (int)got, err.text, (int)status, a, b);
}

/* One line that names both words, and no device. */
static void refused_with(const char *name, k3_status status, const char *a, const char *b)
{
    k3_backend *be;
    k3_error err = {0};
    k3_status got = k3_metal_open(&be, name, &(k3_backend_config){0}, &err);
    if (be)
        be->close(be);
    if (be || got != status || !strstr(err.text, a) || !strstr(err.text, b) || strchr(err.text, '\n'))
        fail_msg("status %d, \"%s\"; wanted %d, one line with \"%s\" and \"%s\"", (int)got, err.text, (int)status, a, b);
    gone_clean(a);
}

/* Several submissions with a bit of everything that is the host's. values[i] is (i + 2i) / 2 if all went well. */
static void compute_some(k3_backend *be, float values[N])
{
    float a[N], b[N];
    for (int i = 0; i < N; i++) {
        a[i] = (float)i;
        b[i] = (float)(2 * i);
    }
    k3_ref x = put_floats(be, a, N), y = put_floats(be, b, N), sum = new_floats(be, N), zero = new_floats(be, N);
    k3_ref half = new_floats(be, N), odd = new_floats(be, N + 1);
    be->ops->add(be, sum, x, y, N);
    be->submit(be);
    be->ops->gate_mul(be, half, sum, zero, N);
    be->memory->copy(be, k3_at(odd, 3), half, sizeof a);
    be->submit(be);
    be->memory->copy(be, sum, k3_at(odd, 3), sizeof a);
    be->memory->upload(be, x, "x", 1); /* after all that reads it */
    be->memory->download(be, values, sum, sizeof a);
    be->memory->release(be, odd.buf);
}

static void are_right(const float values[N])
{
    for (int i = 0; i < N; i++)
        if (values[i] != 1.5f * (float)i)
            fail_msg("value %d is %g, wanted %g", i, (double)values[i], 1.5 * i);
}

static void computes(k3_backend *be)
{
    float values[N];
    compute_some(be, values);
    must_sync(be);
    are_right(values);
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

static void it_opens_and_closes_at_any_time(void **state)
{
    (void)state;
    close_clean(open_device(NULL));
    k3_backend *be = open_device(NULL); /* work recorded, work under way, a failure kept */
    k3_ref a = new_floats(be, N);
    be->ops->add(be, a, a, a, N);
    be->submit(be);
    be->ops->add(be, a, a, a, N);
    assert_null(be->memory->alloc(be, UINT64_MAX / 4, "too much"));
    close_clean(be);
    be = open_device(NULL);
    computes(be);
    close_clean(be);
}

static void devices_are_found_by_number_and_name(void **state)
{
    (void)state;
    static const struct {
        const char *wish, *name;
    } cases[] = {
        {"", "metal:Fake GPU"}, {"0", "metal:Fake GPU"}, {"1", "metal:Second"}, {"second", "metal:Second"}, {"GPU", "metal:Fake GPU"}};
    k3_fake_metal_set()->devices = 2;
    k3_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        k3_backend *be;
        if (k3_metal_open(&be, cases[i].wish, &(k3_backend_config){0}, &err) != K3_OK)
            fail_msg("%s", err.text);
        if (strncmp(be->name, cases[i].name, strlen(cases[i].name)) != 0 || !strstr(be->describe(be), be->name))
            fail_msg("\"%s\" opened %s, wanted %s", cases[i].wish, be->name, cases[i].name);
        close_clean(be);
    }
    refused_with("2", K3_E_NOT_FOUND, "\"2\"", "0: Fake GPU, 1: Second fake GPU");
    refused_with("GeForce", K3_E_NOT_FOUND, "\"GeForce\"", "1: Second");
    char *text = NULL;
    assert_int_equal(k3_metal_list(&text, &err), K3_OK);
    assert_non_null(strstr(text, "metal:0  Fake GPU  unified memory  2.1 GB\n"));
    assert_non_null(strstr(text, "metal:1  Second fake GPU"));
    free(text);
    gone_clean("list");
}

/* A Mac with two processors for graphics, the first with memory of its own: who names none is given the other. */
static void a_device_that_serves_is_chosen(void **state)
{
    (void)state;
    k3_backend *be;
    k3_error err;
    k3_fake_metal_set()->devices = 2;
    k3_fake_metal_set()->first_apart = true;
    assert_int_equal(k3_metal_open(&be, "", &(k3_backend_config){0}, &err), K3_OK);
    assert_int_equal(strncmp(be->name, "metal:Second", 12), 0);
    close_clean(be);
    refused_with("0", K3_E_UNSUPPORTED, "Fake GPU", "memory of its own");
    k3_fake_metal_set()->devices = 1;
    refused_with("", K3_E_UNSUPPORTED, "Fake GPU", "memory of its own");
}

static void two_devices_work_side_by_side(void **state)
{
    (void)state;
    k3_fake_metal_set()->devices = 2;
    k3_backend *be[2];
    k3_error err;
    for (int i = 0; i < 2; i++)
        assert_int_equal(k3_metal_open(&be[i], i ? "1" : "0", &(k3_backend_config){0}, &err), K3_OK);
    for (int i = 0; i < 4; i++)
        computes(be[i % 2]);
    be[0]->close(be[0]);
    computes(be[1]);
    close_clean(be[1]);
}

static void what_a_device_lacks_is_named(void **state)
{
    (void)state;
    fresh_device()->devices = 0;
    refused_with("", K3_E_NOT_FOUND, "no device", "CPU");
    refused_with("0", K3_E_NOT_FOUND, "no device", "CPU");
    fresh_device()->unified = false;
    refused_with("", K3_E_UNSUPPORTED, "Fake GPU", "memory of its own");
    fresh_device()->metal3 = false;
    refused_with("", K3_E_UNSUPPORTED, "Fake GPU", "Metal 3");
    fresh_device()->max_threadgroup_memory = 16384;
    refused_with("", K3_E_UNSUPPORTED, "Fake GPU", "32 KiB");
    fresh_device()->max_threads = 256;
    refused_with("", K3_E_UNSUPPORTED, "Fake GPU", "512");
    fresh_device()->working_set = 1 << 20;
    refused_with("", K3_E_NOMEM, "Fake GPU", "working set");
    char folder[2000];
    memset(folder, 'x', sizeof folder - 1);
    folder[sizeof folder - 1] = 0;
    fresh_device();
    k3_backend *be;
    k3_error err;
    assert_int_equal(k3_metal_open(&be, "", &(k3_backend_config){.kernels_dir = folder}, &err), K3_E_INVALID);
    gone_clean("long name");
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void memory_is_zeroed_and_seen_by_the_host(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4096, 1 << 20, (5 << 20) + 3, SLAB};
    k3_backend *be = open_device(NULL);
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
    assert_null(be->memory->alloc(be, SLAB + 1, "one piece"));
    fails_with(be, K3_E_NOMEM, "one piece", "allocation");
    k3_buf *rows = be->memory->alloc_rows(be, 5, SLAB / 2 - 4096, "rows"); /* in three pieces */
    must_sync(be);
    be->memory->release(be, rows);
    close_clean(be);
}

static void bytes_are_copied_at_any_address(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 5, 255, 1024, 5000};
    unsigned char data[5000 + 8];
    random_stream r = {7};
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)random_bits(&r);
    k3_backend *be = open_device(NULL);
    k3_ref from = put_bytes(be, data, sizeof data), to = new_bytes(be, sizeof data);
    for (int i = 0; i < 8; i++) {
        int src = random_below(&r, 8), dst = random_below(&r, 8);
        be->memory->copy(be, k3_at(to, (uint64_t)dst), k3_at(from, (uint64_t)src), (uint64_t)sizes[i]);
        unsigned char *got = get_bytes(be, k3_at(to, (uint64_t)dst), (size_t)sizes[i]);
        assert_memory_equal(got, data + src, (size_t)sizes[i]);
        free(got);
    }
    close_clean(be);
}

static void a_buffer_made_amid_commands_is_known_to_them(void **state)
{
    (void)state;
    k3_backend *be = open_device(NULL);
    k3_ref a = new_floats(be, N), large[3];
    must_sync(be);
    be->ops->add(be, a, a, a, N);
    for (int i = 0; i < 3; i++) {
        large[i] = new_bytes(be, SLAB); /* a slab each */
        be->ops->add(be, large[i], a, a, N);
    }
    be->memory->release(be, large[0].buf); /* while commands are recorded */
    be->ops->add(be, large[1], large[2], a, N);
    must_sync(be);
    close_clean(be);
}

static void the_working_set_is_respected(void **state)
{
    (void)state;
    enum { MOST = 64 };
    k3_fake_metal_set()->working_set = 6 * SLAB;
    k3_backend *be = open_device(NULL);
    k3_memory_info info;
    be->memory->info(be, &info);
    assert_int_equal(info.total, 6 * SLAB);
    assert_in_range(info.free, SLAB, 6 * SLAB);
    assert_int_equal(info.budget, info.free);
    be->memory->set_budget(be, 0);
    int n = 0;
    k3_buf *list[MOST];
    while (n < MOST && (list[n] = be->memory->alloc(be, SLAB, "a slab")))
        n++;
    fails_with(be, K3_E_NOMEM, "a slab", "working set");
    assert_in_range(n, 2, 5);
    be->memory->release(be, list[0]);
    assert_non_null(be->memory->alloc(be, SLAB, "in its place"));
    assert_true(k3_fake_metal_allocated() <= 6 * SLAB);
    void *pages = mmap(NULL, 2 * SLAB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_null(be->memory->wrap(be, pages, SLAB, "pages")); /* no view, and no room for a copy */
    fails_with(be, K3_E_NOMEM, "pages", "working set");
    computes(be);
    be->memory->info(be, &info);
    assert_true(info.free < SLAB);
    close_clean(be);
    munmap(pages, 2 * SLAB);
}

/* ---- pages of the host ------------------------------------------------------------------------------------------- */

/* y = pages + pages, on the device. */
static void doubles(k3_backend *be, k3_buf *buf, const float *pages, size_t n)
{
    k3_ref y = new_floats(be, n);
    be->ops->add(be, y, (k3_ref){buf, 0}, (k3_ref){buf, 0}, (int64_t)n);
    float *got = get_floats(be, y, n);
    for (size_t i = 0; i < n; i++)
        assert_true(got[i] == 2 * pages[i]);
    free(got);
    be->memory->release(be, y.buf);
}

static void host_pages_are_seen_without_a_copy(void **state)
{
    (void)state;
    enum { BYTES = 4 * PAGE, FLOATS = PAGE / 4 };
    char *mapped = mmap(NULL, BYTES + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    float *pages = (float *)(void *)(mapped + (PAGE - (uintptr_t)mapped % PAGE) % PAGE);
    for (int i = 0; i < 4 * FLOATS; i++)
        pages[i] = (float)(i % 1000);
    k3_backend *be = open_device(NULL);
    k3_memory_info before, after;
    be->memory->info(be, &before);
    k3_buf *whole = be->memory->wrap(be, pages, BYTES, "whole"), *part = be->memory->wrap(be, pages + FLOATS, 2 * PAGE, "part");
    assert_non_null(whole);
    assert_non_null(part);
    assert_ptr_equal(whole->host, pages);
    assert_ptr_equal(part->host, pages + FLOATS);
    be->memory->info(be, &after);
    assert_int_equal(after.used, before.used + BYTES + 2 * PAGE); /* one budget: the device may use them like its own */
    assert_int_equal(after.n_slabs, before.n_slabs + 2);
    doubles(be, whole, pages, 4 * FLOATS);
    pages[FLOATS] = 77; /* the next command sees it through both */
    doubles(be, whole, pages, 2 * FLOATS);
    doubles(be, part, pages + FLOATS, FLOATS);
    be->ops->add(be, (k3_ref){part, 0}, (k3_ref){part, 0}, (k3_ref){part, 0}, FLOATS); /* and writes it */
    must_sync(be);
    assert_true(pages[FLOATS] == 154);
    be->memory->release(be, part);
    be->memory->release(be, whole);
    for (int i = 0; i < 2; i++) { /* no page border, no whole pages: a copy */
        k3_buf *copy = be->memory->wrap(be, pages + (i ? 0 : 4), i ? PAGE + 4096 : PAGE, "copy");
        assert_non_null(copy);
        assert_true(copy->host != pages);
        doubles(be, copy, pages + (i ? 0 : 4), FLOATS);
        be->memory->release(be, copy);
    }
    close_clean(be);
    munmap(mapped, BYTES + PAGE);
}

/* Pages may go away as soon as they are released, though commands that do not use them are under way. */
static void host_pages_may_go_once_released(void **state)
{
    (void)state;
    char *mapped = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *pages = mapped + (PAGE - (uintptr_t)mapped % PAGE) % PAGE;
    k3_backend *be = open_device(NULL);
    k3_ref a = new_floats(be, N);
    k3_buf *view = be->memory->wrap(be, pages, PAGE, "pages");
    assert_ptr_equal(view->host, pages);
    be->ops->add(be, a, a, a, N);
    be->submit(be);
    be->ops->add(be, a, a, a, N);
    be->memory->release(be, view);
    munmap(mapped, 2 * PAGE);
    be->ops->add(be, a, a, a, N);
    must_sync(be);
    close_clean(be);
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

/* Opens and computes while the n-th call of a kind fails: an open that says so, or a kept failure, or right values. */
static k3_status try_with(k3_fake_metal_call call, uint64_t n, int code, k3_error *err)
{
    k3_backend *be;
    float values[N];
    fresh_device();
    k3_fake_metal_fail(call, n, code);
    k3_status status = k3_metal_open(&be, "", &(k3_backend_config){0}, err);
    if (status != K3_OK)
        return status;
    allow_failures(1);
    compute_some(be, values);
    allow_failures(0);
    status = be->sync(be, err);
    if (status == K3_OK)
        are_right(values);
    be->close(be);
    return status;
}

static void fail_each(k3_fake_metal_call call, const char *what, k3_status status)
{
    k3_error err;
    assert_int_equal(try_with(K3_FAKE_CALLS - 1, 0, 0, &err), K3_OK);
    int n = (int)k3_fake_metal_count(call), failed = 0;
    assert_true(n > 0);
    for (int i = 1; i <= n; i++) {
        err = (k3_error){0};
        k3_status got = try_with(call, (uint64_t)i, 0, &err);
        if (got != K3_OK && (got != status || !*err.text || strchr(err.text, '\n')))
            fail_msg("%s %d of %d: status %d, \"%s\"; wanted %d and one line", what, i, n, (int)got, err.text, (int)status);
        failed += got != K3_OK;
        gone_clean(what);
    }
    if (!failed)
        fail_msg("%s: no failure was noticed", what);
}

static void any_call_may_fail(void **state)
{
    (void)state;
    fail_each(K3_FAKE_QUEUE, "queue", K3_E_DEVICE);
    fail_each(K3_FAKE_EVENT, "event", K3_E_DEVICE);
    fail_each(K3_FAKE_ALLOCATION, "allocation", K3_E_NOMEM);
    fail_each(K3_FAKE_LIBRARY, "library", K3_E_DEVICE);
    fail_each(K3_FAKE_FUNCTION, "function", K3_E_DEVICE);
    fail_each(K3_FAKE_PIPELINE, "pipeline", K3_E_DEVICE);
    fail_each(K3_FAKE_COMMAND_BUFFER, "command buffer", K3_E_NOMEM);
    fail_each(K3_FAKE_ENCODER, "encoder", K3_E_NOMEM);
}

static void any_submission_may_run_out_of_memory(void **state)
{
    (void)state;
    k3_backend *be = open_device(NULL);
    computes(be);
    int n = (int)k3_fake_metal_count(K3_FAKE_RUN);
    close_clean(be);
    assert_true(n > 2);
    for (int i = 1; i <= n; i++) {
        float values[N];
        fresh_device();
        be = open_device(NULL);
        k3_fake_metal_fail(K3_FAKE_RUN, (uint64_t)i, OUT_OF_MEMORY);
        compute_some(be, values);
        fails_with(be, K3_E_NOMEM, "Fake GPU", "error 8");
        computes(be); /* and is done with it */
        close_clean(be);
    }
}

static void a_device_lost_at_any_submission_is_said(void **state)
{
    (void)state;
    k3_error err;
    assert_int_equal(try_with(K3_FAKE_CALLS - 1, 0, 0, &err), K3_OK);
    int n = (int)k3_fake_metal_count(K3_FAKE_RUN);
    for (int i = 1; i <= 2 * n; i++) {
        float values[N];
        fresh_device();
        k3_backend *be = open_device(NULL);
        k3_fake_metal_fail(K3_FAKE_RUN, (uint64_t)(i + 1) / 2, i % 2 ? INTERNAL : REMOVED);
        compute_some(be, values);
        fails_with(be, K3_E_DEVICE, "Fake GPU", "lost");
        k3_ref a = new_floats(be, 1); /* memory is still there */
        be->ops->add(be, a, a, a, 1);
        fails_with(be, K3_E_DEVICE, "Fake GPU", "lost"); /* but it stays lost */
        close_clean(be);
    }
    fresh_device();
    k3_backend *be = open_device(NULL);
    computes(be);
    close_clean(be);
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static char said[1000];

static int on_progress(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
    snprintf(said, sizeof said, "%s", phase);
    return 0;
}

static void write_kernel(const char *folder, const char *text)
{
    char path[300], beside[320];
    snprintf(path, sizeof path, "%s/add.metal", folder);
    snprintf(beside, sizeof beside, "%s.new", path);
    if (!text) {
        assert_int_equal(unlink(path), 0);
        return;
    }
    FILE *f = fopen(beside, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(rename(beside, path), 0);
}

/* What y[i] = a[i] + a[i] gives for a[0] = 3. */
static float sum_of_threes(k3_backend *be)
{
    static const float three = 3;
    k3_ref a = put_floats(be, &three, 1), y = new_floats(be, 1);
    be->ops->add(be, y, a, a, 1);
    float *got = get_floats(be, y, 1), sum = *got;
    free(got);
    be->memory->release(be, a.buf);
    be->memory->release(be, y.buf);
    return sum;
}

#define ADD_KERNEL(formula)                                                                                                                \
    "#include <metal_stdlib>\nusing namespace metal;\n"                                                                                    \
    "struct args { ulong y, a, b; uint n; float b1, b2; uint pad; };\n"                                                                    \
    "kernel void add(constant args& p [[buffer(0)]], uint3 i [[thread_position_in_grid]])\n"                                               \
    "{\n    float a = *reinterpret_cast<device float*>(p.a);\n"                                                                            \
    "    if (i.x == 0u)\n        *reinterpret_cast<device float*>(p.y) = " formula ";\n}\n"

static void kernels_are_read_anew_while_it_runs(void **state)
{
    (void)state;
    char folder[] = "/tmp/k3-kernels-XXXXXX";
    assert_non_null(mkdtemp(folder));
    k3_backend_config config = {.kernels_dir = folder, .progress = on_progress};
    k3_backend *be = open_device(&config);
    assert_true(sum_of_threes(be) == 6); /* the program's own */
    write_kernel(folder, ADD_KERNEL("a * 10.0f"));
    assert_true(sum_of_threes(be) == 30);
    write_kernel(folder, ADD_KERNEL("a * 100.0f"));
    *said = 0;
    assert_true(sum_of_threes(be) == 300);
    assert_string_equal(said, "compiling kernels");
    write_kernel(folder, ADD_KERNEL("a * nonsense"));
    assert_true(sum_of_threes(be) == 300); /* the last good one */
    if (!strstr(said, "add.metal is left out: ") || strchr(said, '\n'))
        fail_msg("\"%s\"; wanted one line about add.metal", said);
    *said = 0;
    assert_true(sum_of_threes(be) == 300);
    assert_string_equal(said, ""); /* once is enough */
    uint64_t n = k3_fake_metal_count(K3_FAKE_LIBRARY);
    assert_true(sum_of_threes(be) == 300);
    assert_int_equal(k3_fake_metal_count(K3_FAKE_LIBRARY), n);
    write_kernel(folder, ADD_KERNEL("a * 7.0f"));
    assert_true(sum_of_threes(be) == 21);
    write_kernel(folder, NULL);
    assert_true(sum_of_threes(be) == 6);
    computes(be);
    close_clean(be);
    write_kernel(folder, ADD_KERNEL("a * nonsense")); /* bad from the start */
    be = open_device(&config);
    assert_true(sum_of_threes(be) == 6);
    assert_non_null(strstr(said, "add.metal is left out: "));
    write_kernel(folder, ADD_KERNEL("a * 5.0f"));
    assert_true(sum_of_threes(be) == 15);
    close_clean(be);
    write_kernel(folder, NULL);
    assert_int_equal(rmdir(folder), 0);
}

static void operations_are_timed(void **state)
{
    (void)state;
    k3_op_stat stats[64];
    k3_backend *be = open_device(&(k3_backend_config){.timing = 1});
    computes(be);
    int n = be->stats(be, stats, 64, 1), found = 0;
    for (int i = 0; i < n; i++)
        if (strcmp(stats[i].name, "add") == 0 || strcmp(stats[i].name, "gate_mul") == 0)
            found += stats[i].calls == 1 && stats[i].dispatches == 1 && stats[i].nanoseconds > 0;
    assert_int_equal(found, 2);
    be->stats(be, stats, 64, 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(stats[i].calls + stats[i].nanoseconds, 0);
    close_clean(be);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(it_opens_and_closes_at_any_time, fresh_setup),
        cmocka_unit_test_setup(devices_are_found_by_number_and_name, fresh_setup),
        cmocka_unit_test_setup(a_device_that_serves_is_chosen, fresh_setup),
        cmocka_unit_test_setup(two_devices_work_side_by_side, fresh_setup),
        cmocka_unit_test_setup(what_a_device_lacks_is_named, fresh_setup),
        cmocka_unit_test_setup(memory_is_zeroed_and_seen_by_the_host, fresh_setup),
        cmocka_unit_test_setup(bytes_are_copied_at_any_address, fresh_setup),
        cmocka_unit_test_setup(a_buffer_made_amid_commands_is_known_to_them, fresh_setup),
        cmocka_unit_test_setup(the_working_set_is_respected, fresh_setup),
        cmocka_unit_test_setup(host_pages_are_seen_without_a_copy, fresh_setup),
        cmocka_unit_test_setup(host_pages_may_go_once_released, fresh_setup),
        cmocka_unit_test_setup(any_call_may_fail, fresh_setup),
        cmocka_unit_test_setup(any_submission_may_run_out_of_memory, fresh_setup),
        cmocka_unit_test_setup(a_device_lost_at_any_submission_is_said, fresh_setup),
        cmocka_unit_test_setup(kernels_are_read_anew_while_it_runs, fresh_setup),
        cmocka_unit_test_setup(operations_are_timed, fresh_setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
