/* When a drive is said to have become slower, by invented times. */
#include "store/drive_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const uint64_t MS = 1000000, SECOND = 1000000000;

/* Reads for so long at a rate, in steps; how often the fall was said. */
static int read_for(k3_drive_watch *w, double rate, uint64_t busy_ns, uint64_t step)
{
    int n = 0;
    for (uint64_t at = 0; at < busy_ns; at += step) {
        k3_drive_watch_add(w, (uint64_t)(rate * (double)step * 1e-9), step);
        n += k3_drive_watch_fell(w);
    }
    return n;
}

static double last_rate(const k3_drive_watch *w)
{
    k3_watch_sum last = k3_drive_watch_last(w);
    return k3_watch_rate(&last);
}

/* Case G19. */
static void G19_a_fall_is_said_once(void **state)
{
    (void)state;
    static const uint64_t steps[] = {1, 40, 250, 999, 1000, 3000, 29999, 45000}; /* ms of a pass */
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        k3_drive_watch w = {0};
        uint64_t step = steps[i] * MS;
        assert_int_equal(read_for(&w, 3e9, 600 * SECOND, step), 0);
        assert_float_equal(k3_watch_rate(&w.start), 3e9, 1e3);
        assert_float_equal(last_rate(&w), 3e9, 1e3);
        assert_int_equal(read_for(&w, 2e9, 600 * SECOND, step), 1);
        assert_float_equal(k3_watch_rate(&w.start), 3e9, 1e3);
        assert_float_equal(last_rate(&w), 2e9, 1e3);
        assert_int_equal(read_for(&w, 3e9, 600 * SECOND, step), 0);
        assert_int_equal(read_for(&w, 1e9, 600 * SECOND, step), 0);
    }
}

/* Case G19. */
static void G19_less_than_a_third_is_not_said(void **state)
{
    (void)state;
    k3_drive_watch w = {0};
    assert_int_equal(read_for(&w, 3e9, 60 * SECOND, 100 * MS), 0);
    assert_int_equal(read_for(&w, 2.11e9, 600 * SECOND, 100 * MS), 0);
    assert_int_equal(read_for(&w, 2.4e9, 30 * SECOND, 100 * MS), 0);
    assert_int_equal(read_for(&w, 1.9e9, 17 * SECOND, 100 * MS), 0); /* 30 s of 2.12 GB/s */
    assert_int_equal(read_for(&w, 1.9e9, 3 * SECOND, 100 * MS), 1);  /* of 2.07 */
}

/* Case G19: a drive that is not read delivers nothing, and is no slower for that. */
static void G19_idle_time_counts_nowhere(void **state)
{
    (void)state;
    k3_drive_watch w = {0};
    assert_float_equal(last_rate(&w), 0, 0);
    for (int i = 0; i < 100000; i++) {
        k3_drive_watch_add(&w, 0, 0);
        assert_false(k3_drive_watch_fell(&w));
        if (i % 10 == 0)
            assert_int_equal(read_for(&w, 3e9, 20 * MS, 10 * MS), 0);
    }
    assert_float_equal(last_rate(&w), 3e9, 1e3);
}

/* Case G19: the two windows do not overlap, whatever the steps; before there are two, nothing is known. */
static void G19_nothing_is_said_before_there_are_two_windows(void **state)
{
    (void)state;
    k3_drive_watch w = {0};
    assert_int_equal(read_for(&w, 3e9, 29900 * MS, 100 * MS), 0);
    assert_int_equal(read_for(&w, 3e9, 200 * MS, 200 * MS), 0);
    assert_int_equal(read_for(&w, 1e8, 29900 * MS, 100 * MS), 0);
    assert_float_equal(k3_watch_rate(&w.start), 3e9, 1e3);
    assert_int_equal(read_for(&w, 1e8, 100 * MS, 100 * MS), 1);
    assert_float_equal(last_rate(&w), 1e8, 1e3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(G19_a_fall_is_said_once),
        cmocka_unit_test(G19_less_than_a_third_is_not_said),
        cmocka_unit_test(G19_idle_time_counts_nowhere),
        cmocka_unit_test(G19_nothing_is_said_before_there_are_two_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
