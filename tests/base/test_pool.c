#include "base/os.h"
#include "base/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct counts {
    _Atomic int seen[1000];
    _Atomic int64_t ragged; /* pieces that are not a multiple of the grain, apart from the last */
    int64_t n, grain;
} counts;

static void count(void *arg, int64_t first, int64_t last, int thread)
{
    counts *c = arg;
    assert_in_range(thread, 0, 63);
    for (int64_t i = first; i < last; i++)
        atomic_fetch_add(&c->seen[i], 1);
    if (first % c->grain != 0 || (last != c->n && (last - first) % c->grain != 0))
        atomic_fetch_add(&c->ragged, 1);
}

static void each_item_is_done_once_for_any_threads_items_and_grain(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        k3_pool *pool;
        assert_int_equal(k3_pool_open(&pool, threads, NULL), K3_OK);
        assert_int_equal(k3_pool_threads(pool), threads);
        for (int64_t n = 0; n <= 1000; n = n < 4 ? n + 1 : n * 3 + 1)
            for (int64_t grain = 1; grain <= 64; grain *= 4) {
                counts c = {.n = n, .grain = grain};
                k3_pool_run(pool, count, &c, n, grain);
                for (int64_t i = 0; i < 1000; i++)
                    assert_int_equal(c.seen[i], i < n);
                assert_int_equal(c.ragged, 0);
            }
        k3_pool_close(pool);
    }
}

typedef struct foretold {
    k3_pool *pool;
    int64_t first[5]; /* by thread: what its next piece was said to begin with; 0: it has had none; -1: nothing was said */
    int64_t longest[5];
    _Atomic int wrong, n_foretold;
} foretold;

static void check_foretold(void *arg, int64_t first, int64_t last, int thread)
{
    foretold *f = arg;
    if (f->first[thread] > 0 && f->first[thread] != first)
        atomic_fetch_add(&f->wrong, 1);
    if (last - first > f->longest[thread] && f->longest[thread])
        atomic_fetch_add(&f->wrong, 1);
    f->longest[thread] = last - first;
    f->first[thread] = k3_pool_coming(f->pool, thread);
    if (f->first[thread] > 0)
        atomic_fetch_add(&f->n_foretold, 1);
}

typedef struct meeting {
    _Atomic int here, is_late;
    int n;
} meeting;

static void meet(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    meeting *m = arg;
    assert_int_equal(last - first, 1);
    atomic_fetch_add(&m->here, 1);
    uint64_t until = k3_os_nanoseconds() + 20000000000u;
    while (m->here < m->n && k3_os_nanoseconds() < until)
        k3_os_yield();
    m->is_late |= m->here < m->n;
}

/* Of as many pieces as threads each thread has one: nobody holds two while another has none. */
static void the_last_pieces_are_for_whoever_is_free(void **state)
{
    (void)state;
    for (int threads = 2; threads <= 5; threads++) {
        k3_pool *pool;
        assert_int_equal(k3_pool_open(&pool, threads, NULL), K3_OK);
        for (int round = 0; round < 50; round++) {
            meeting m = {.n = threads};
            k3_pool_run(pool, meet, &m, threads, 1);
            assert_false(m.is_late);
        }
        k3_pool_close(pool);
    }
}

/* Long pieces come first, and a thread that is told where its next one begins is told the truth. */
static void a_task_knows_what_comes_next(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 5; threads++) {
        k3_pool *pool;
        assert_int_equal(k3_pool_open(&pool, threads, NULL), K3_OK);
        int n_foretold = 0;
        for (int64_t n = 1; n < 3000; n = 2 * n + 1) {
            foretold f = {.pool = pool};
            k3_pool_run(pool, check_foretold, &f, n, 3);
            assert_int_equal(f.wrong, 0);
            n_foretold += f.n_foretold;
            for (int i = 0; i < threads; i++)
                assert_true(f.first[i] <= 0);
        }
        assert_true(threads == 1 || n_foretold > 0);
        k3_pool_close(pool);
    }
}

static void a_loop_sees_what_the_loop_before_wrote(void **state)
{
    (void)state;
    k3_pool *pool;
    assert_int_equal(k3_pool_open(&pool, 3, NULL), K3_OK);
    for (int round = 0; round < 20000; round++) {
        counts c = {.n = 8, .grain = 1};
        k3_pool_run(pool, count, &c, 8, 1);
        for (int i = 0; i < 8; i++)
            assert_int_equal(c.seen[i], 1);
    }
    k3_pool_close(pool);
}

static void sleeping_workers_wake_up(void **state)
{
    (void)state;
    k3_pool *pool;
    assert_int_equal(k3_pool_open(&pool, 4, NULL), K3_OK);
    for (int round = 0; round < 20; round++) {
        uint64_t start = k3_os_nanoseconds();
        while (k3_os_nanoseconds() - start < 3000000)
            k3_os_yield();
        counts c = {.n = 100, .grain = 1};
        k3_pool_run(pool, count, &c, 100, 1);
        for (int i = 0; i < 100; i++)
            assert_int_equal(c.seen[i], 1);
    }
    k3_pool_close(pool);
}

static void a_wrong_number_of_threads_is_refused(void **state)
{
    (void)state;
    k3_pool *pool;
    k3_error err;
    assert_int_equal(k3_pool_open(&pool, -1, &err), K3_E_INVALID);
    assert_null(pool);
    assert_non_null(strstr(err.text, "-1"));
    assert_int_equal(k3_pool_open(&pool, 5000, &err), K3_E_INVALID);
}

static void the_machine_has_cores_and_memory(void **state)
{
    (void)state;
    assert_in_range(k3_os_cores(), 1, 4096);
    assert_true(k3_os_memory_available(NULL) > (uint64_t)16 << 20);
}

static void reading_a_file_names_what_is_wrong(void **state)
{
    (void)state;
    char *text;
    size_t n;
    k3_error err;
    assert_int_equal(k3_os_read_file(&text, &n, "no/such/file", 100, &err), K3_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "no/such/file"));
    assert_int_equal(k3_os_read_file(&text, &n, "src", 100, &err), K3_E_IO);
    assert_int_equal(k3_os_read_file(&text, &n, "CMakeLists.txt", 10, &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "at most 10"));
    assert_int_equal(k3_os_read_file(&text, &n, "CMakeLists.txt", 1 << 20, &err), K3_OK);
    assert_int_equal(strlen(text), n);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_item_is_done_once_for_any_threads_items_and_grain),
        cmocka_unit_test(the_last_pieces_are_for_whoever_is_free),
        cmocka_unit_test(a_task_knows_what_comes_next),
        cmocka_unit_test(a_loop_sees_what_the_loop_before_wrote),
        cmocka_unit_test(sleeping_workers_wake_up),
        cmocka_unit_test(a_wrong_number_of_threads_is_refused),
        cmocka_unit_test(the_machine_has_cores_and_memory),
        cmocka_unit_test(reading_a_file_names_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
