/* What surrounds the ops: opening by name, memory, budget, statistics, kept failures and refusals. */
#include "fixture.h"
#include "refusals.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>

static k3_backend *open_any(void)
{
    k3_backend *be;
    k3_error err;
    if (k3_backend_open(&be, &(k3_backend_config){.name = "cpu", .threads = 2}, NULL, 0, &err) != K3_OK)
        fail_msg("%s", err.text);
    return be;
}

static void refused(const char *name, k3_status status, const char *word)
{
    k3_backend *be = NULL;
    k3_error err = {0};
    assert_int_equal(k3_backend_open(&be, &(k3_backend_config){.name = name, .threads = 1}, NULL, 0, &err), status);
    assert_null(be);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name \"%s\"", err.text, word);
}

static void names_open_what_they_say(void **state)
{
    (void)state;
    static const char *const names[] = {NULL, "auto", "cpu", "cpu:", "cpu:scalar"};
    for (int i = 0; i < 5; i++) {
        k3_backend *be;
        k3_error err;
        assert_int_equal(k3_backend_open(&be, &(k3_backend_config){.name = names[i], .threads = 1}, NULL, 0, &err), K3_OK);
        assert_non_null(strstr(be->describe(be), be->name));
        if (i == 4)
            assert_string_equal(be->name, "cpu:scalar");
        be->close(be);
    }
    k3_backend *be;
    assert_int_equal(k3_backend_open(&be, NULL, NULL, 0, NULL), K3_OK);
    be->close(be);
}

static void unknown_names_list_what_there_is(void **state)
{
    (void)state;
    refused("gpu", K3_E_INVALID, "cpu:avx512");
    refused("cpuscalar", K3_E_INVALID, "\"cpuscalar\"");
    refused("", K3_E_INVALID, "cpu");
    refused("cpu:avx3", K3_E_INVALID, "scalar, avx2, avx512, avx512bf16, amx, neon exist");
    refused("cpu:scalar2", K3_E_INVALID, "\"scalar2\"");
}

/* A level of another processor, or of another architecture, is told apart from one that does not exist. */
static void levels_open_or_are_lacked(void **state)
{
    (void)state;
    static const char *const names[] = {"cpu:avx2", "cpu:avx512", "cpu:avx512bf16", "cpu:amx", "cpu:neon"};
    int n_open = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        k3_backend *be;
        k3_error err;
        k3_status status = k3_backend_open(&be, &(k3_backend_config){.name = names[i], .threads = 1}, NULL, 0, &err);
        n_open += status == K3_OK;
        if (status == K3_OK) {
            assert_string_equal(be->name, names[i]);
            be->close(be);
        } else {
            refused(names[i], K3_E_UNSUPPORTED, "here are scalar");
            refused(names[i], K3_E_UNSUPPORTED, names[i]);
        }
    }
    assert_true(n_open < 5); /* no machine is of two architectures */
}

static void memory_is_zeroed_and_aligned(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    static const size_t sizes[] = {0, 1, 63, 4096, (size_t)1 << 20, ((size_t)5 << 20) + 3};
    for (int i = 0; i < 6; i++) {
        k3_ref ref = new_bytes(be, sizes[i]);
        unsigned char *at = k3_host(ref);
        assert_int_equal((uintptr_t)at % 64, 0);
        for (size_t b = 0; b < sizes[i]; b++)
            assert_int_equal(at[b], 0);
        memset(at, 1, sizes[i]);
        be->memory->release(be, ref.buf);
    }
    be->memory->release(be, NULL);
    k3_memory_info info;
    be->memory->info(be, &info);
    assert_int_equal(info.used, 0);
    assert_int_equal(info.n_buffers, 0);
    be->close(be);
}

/* Weights of a model, small and large, lie one after another from a place where a huge page begins, are zeroed, and go in any order; what
 * they leave is not given to others with old bytes in it. */
static void weights_lie_side_by_side(void **state)
{
    (void)state;
    enum { N = 40, HUGE_PAGE = 2 << 20 };
    static const int release_by[] = {1, 7, N - 1};
    for (int round = 0; round < 3; round++) {
        k3_backend *be = open_any();
        k3_buf *buf[N];
        k3_memory_info info;
        uint64_t used = 0;
        int n_apart = 0;
        for (int i = 0; i < N; i++) {
            uint64_t rows = i % 5 == 4 ? 1001 : 1 + (uint64_t)i, row_bytes = 1001;
            buf[i] = be->memory->alloc_rows(be, rows, row_bytes, "weights");
            assert_non_null(buf[i]);
            assert_int_equal(buf[i]->bytes, rows * row_bytes);
            unsigned char *at = buf[i]->host, found = 0;
            assert_int_equal((uintptr_t)at % 64, 0);
            for (uint64_t k = 0; k < rows * row_bytes; k++)
                found |= at[k];
            assert_int_equal(found, 0);
            memset(at, 0xff, (size_t)(rows * row_bytes));
            unsigned char *before = i ? (unsigned char *)buf[i - 1]->host + (buf[i - 1]->bytes + 63) / 64 * 64 : NULL;
            if (at != before) {
                n_apart++;
                assert_int_equal((uintptr_t)at % HUGE_PAGE, 0);
            }
            used += rows * row_bytes;
        }
        be->memory->info(be, &info);
        assert_int_equal(info.used, used);
        assert_int_equal(info.n_slabs, n_apart);
        assert_true(n_apart > 1 && n_apart <= 3);
        void *first = buf[0]->host;
        for (int i = 0, at = 0; i < N; i++, at = (at + release_by[round]) % N)
            be->memory->release(be, buf[at]);
        be->memory->info(be, &info);
        assert_int_equal(info.used + (uint64_t)info.n_slabs + (uint64_t)info.n_buffers, 0);
        assert_int_equal(msync(first, 1, MS_ASYNC), -1); /* nothing is there */
        k3_buf *again = be->memory->alloc_rows(be, 1, 4000000, "weights");
        assert_non_null(again);
        assert_int_equal(((unsigned char *)again->host)[3999999], 0);
        be->memory->release(be, again);
        be->close(be);
    }
}

static void budget_is_kept(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    be->memory->set_budget(be, 1000);
    k3_ref a = new_bytes(be, 600);
    assert_null(be->memory->alloc(be, 401, "the second buffer"));
    must_fail(be, K3_E_NOMEM, "the second buffer", "401");
    k3_ref b = new_bytes(be, 400);
    char page[64];
    k3_buf *wrapped = be->memory->wrap(be, page, sizeof page, "host pages"); /* memory that exists already costs no budget */
    assert_non_null(wrapped);
    k3_memory_info info;
    be->memory->info(be, &info);
    assert_int_equal(info.used, 1000);
    assert_int_equal(info.budget, 1000);
    assert_int_equal(info.n_buffers, 3);
    be->memory->release(be, a.buf);
    be->memory->set_budget(be, 300); /* below what is in use: nothing new, nothing lost */
    assert_null(be->memory->alloc(be, 1, "one byte"));
    must_fail(be, K3_E_NOMEM, "one byte", "300");
    assert_null(be->memory->alloc(be, UINT64_MAX, "everything"));
    must_fail(be, K3_E_NOMEM, "everything", "budget");
    be->memory->set_budget(be, 0);
    assert_null(be->memory->alloc(be, UINT64_MAX / 2, "half of everything"));
    must_fail(be, K3_E_NOMEM, "half of everything", "bytes");
    be->memory->release(be, b.buf);
    be->close(be); /* releases `wrapped` */
}

static void copies_stay_inside(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    k3_ref a = put_bytes(be, "abcdefgh", 8), b = new_bytes(be, 8);
    char text[9] = {0};
    be->memory->copy(be, k3_at(b, 2), a, 6);
    be->memory->download(be, text, b, 8);
    assert_memory_equal(text, "\0\0abcdef", 8);
    be->memory->copy(be, k3_at(a, 1), a, 7); /* places may overlap */
    be->memory->download(be, text, a, 8);
    assert_memory_equal(text, "aabcdefg", 8);
    must_sync(be);
    be->memory->upload(be, k3_at(a, 5), "xyzw", 4);
    must_fail(be, K3_E_INVALID, "upload", "8");
    be->memory->download(be, text, k3_at(a, 9), 1);
    must_fail(be, K3_E_INVALID, "download", "8");
    be->memory->copy(be, b, k3_at(a, 1), 8);
    must_fail(be, K3_E_INVALID, "copy", "8");
    be->memory->upload(be, (k3_ref){NULL, 0}, "x", 1);
    must_fail(be, K3_E_INVALID, "upload", "0");
    char host[4] = "hos";
    k3_buf *wrapped = be->memory->wrap(be, host, 4, "host");
    be->memory->upload(be, (k3_ref){wrapped, 0}, "new", 4);
    assert_string_equal(host, "new");
    be->close(be);
}

static void first_failure_is_kept(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    float rows[4] = {1, 2, 3, 4};
    k3_mat table = {K3_F32, 2, 2, put_floats(be, rows, 4), {NULL, 0}, 0};
    int32_t ids[3] = {1, 2, -1};
    k3_ref y = put_floats(be, (float[6]){9, 9, 9, 9, 9, 9}, 6);
    be->ops->embed(be, y, &table, put_bytes(be, ids, sizeof ids), 3);
    be->ops->attnres_mix(be, y, &y, 0, y, 1, 1, 0);
    must_fail(be, K3_E_INVALID, "embed: row 1 asks for id 2", "0 to 1");
    const float *got = k3_host(y);
    assert_true(got[0] == 3 && got[1] == 4 && got[2] == 0 && got[5] == 0);
    be->close(be);
}

static void statistics_count_and_reset(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    random_stream r = {1};
    k3_mat w = random_mat(be, &r, K3_INT4_G64, 10, 128, 0);
    k3_proj proj = {&w, new_floats(be, 10)};
    k3_ref x = new_floats(be, 128);
    k3_op_stat stats[32];
    int n = be->stats(be, stats, 32, 1), seen = 0;
    assert_int_equal(n, 18);
    assert_int_equal(be->stats(be, stats, 0, 0), n);
    be->ops->matmul(be, &proj, 1, x, 1);
    be->ops->matmul(be, &proj, 1, x, 1);
    be->stats(be, stats, 32, 1);
    for (int i = 0; i < n; i++)
        if (strcmp(stats[i].name, "matmul") == 0) {
            assert_int_equal(stats[i].calls, 2);
            assert_int_equal(stats[i].bytes, 2 * 10 * (64 + 8));
            assert_true(stats[i].nanoseconds > 0);
            seen++;
        } else {
            assert_int_equal(stats[i].calls, 0);
        }
    assert_int_equal(seen, 1);
    be->stats(be, stats, 32, 0);
    for (int i = 0; i < n; i++)
        assert_int_equal(stats[i].calls, 0);
    be->close(be);
}

static void what_cannot_be_computed_is_refused_by_name(void **state)
{
    (void)state;
    k3_backend *be = open_any();
    check_refusals(be);
    be->close(be);
}

/* At every level: the row is named and its ids stay inside the table. */
static void a_nan_in_the_router_is_named(void **state)
{
    (void)state;
    for (int l = 0; l < N_CPU_LEVELS; l++) {
        k3_backend *be = open_level(level_names[l], 1);
        if (!be)
            continue;
        float logits[3 * 20] = {0};
        logits[2 * 20 + 19] = NAN;
        k3_ref ids = new_bytes(be, 3 * 4 * 4), weights = new_floats(be, 12), bias = new_floats(be, 20);
        be->ops->router_topk(be, ids, weights, put_floats(be, logits, 60), bias, 3, 20, 4, 1, 1);
        must_fail(be, K3_E_NUMERIC, "router_topk", "row 2");
        for (int i = 0; i < 12; i++)
            assert_in_range(((int32_t *)k3_host(ids))[i], 0, 19);
        be->close(be);
    }
}

static void type_table_is_the_contract(void **state)
{
    (void)state;
    static const struct {
        k3_type type;
        const char *name;
        size_t row, scale;
        int granule;
    } want[] = {
        {K3_F32, "f32", 512, 0, 1},  {K3_BF16, "bf16", 256, 0, 1},         {K3_INT8, "int8", 128, 4, 1},
        {K3_INT4, "int4", 64, 4, 2}, {K3_INT4_G64, "int4_g64", 64, 8, 64}, {K3_INT3_G64, "int3_g64", 48, 8, 64},
        {K3_INT2, "int2", 32, 4, 4}, {K3_MXFP4, "mxfp4", 64, 4, 32},
    };
    for (int i = 0; i < K3_N_TYPES; i++) {
        assert_int_equal(want[i].type, i);
        assert_string_equal(k3_type_name(want[i].type), want[i].name);
        assert_int_equal(k3_type_row_bytes(want[i].type, 128), want[i].row);
        assert_int_equal(k3_type_scale_bytes(want[i].type, 128), want[i].scale);
        assert_int_equal(k3_type_granule(want[i].type), want[i].granule);
    }
    assert_string_equal(k3_type_name(K3_N_TYPES), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_open_what_they_say),     cmocka_unit_test(unknown_names_list_what_there_is),
        cmocka_unit_test(levels_open_or_are_lacked),    cmocka_unit_test(memory_is_zeroed_and_aligned),
        cmocka_unit_test(weights_lie_side_by_side),     cmocka_unit_test(budget_is_kept),
        cmocka_unit_test(copies_stay_inside),           cmocka_unit_test(first_failure_is_kept),
        cmocka_unit_test(statistics_count_and_reset),   cmocka_unit_test(what_cannot_be_computed_is_refused_by_name),
        cmocka_unit_test(a_nan_in_the_router_is_named), cmocka_unit_test(type_table_is_the_contract),
    };
    return cmocka_run_group_tests_name("services", tests, NULL, NULL);
}
