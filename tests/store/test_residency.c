/* Which expert is in which slot. */
#include "store/residency.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ITEMS = 40 };

static k3_residency *open_slots(int n)
{
    k3_residency *r;
    assert_int_equal(k3_residency_open(&r, ITEMS, n, NULL), K3_OK);
    return r;
}

/* Uses an item in a step of its own and takes a slot if it has none. */
static int want(k3_residency *r, int item, int force)
{
    k3_residency_step(r);
    int slot = k3_residency_use(r, item);
    return slot >= 0 ? slot : k3_residency_take(r, item, force);
}

static void free_slots_come_first_and_items_stay_in_theirs(void **state)
{
    (void)state;
    k3_residency *r = open_slots(5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(want(r, 10 + i, 0), i);
    assert_int_equal(k3_residency_used(r), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k3_residency_find(r, 10 + i), i);
        assert_int_equal(k3_residency_item(r, i), 10 + i);
        assert_int_equal(want(r, 10 + i, 1), i);
    }
    assert_int_equal(k3_residency_find(r, 3), -1);
    assert_int_equal(k3_residency_evictions(r), 0);
    k3_residency_close(r);
}

static void without_slots_nothing_is_taken(void **state)
{
    (void)state;
    k3_residency *r = open_slots(0);
    assert_int_equal(want(r, 0, 0), -1);
    assert_int_equal(want(r, 0, 1), -1);
    k3_residency_close(r);
}

static void what_was_not_used_for_longest_makes_room(void **state)
{
    (void)state;
    k3_residency *r = open_slots(20);
    for (int i = 0; i < 20; i++)
        want(r, i, 0);
    want(r, 0, 0); /* 1 is oldest now; all but 0 have one use */
    int slot = k3_residency_find(r, 1);
    assert_int_equal(want(r, 30, 1), slot);
    assert_int_equal(k3_residency_find(r, 1), -1);
    assert_int_equal(k3_residency_evictions(r), 1);
    k3_residency_close(r);
}

static void of_the_oldest_the_least_used_makes_room(void **state)
{
    (void)state;
    k3_residency *r = open_slots(4);
    static const int uses[4] = {3, 2, 1, 4};
    for (int i = 0; i < 4; i++)
        for (int u = 0; u < uses[i]; u++)
            want(r, i, 0);
    int slot = k3_residency_find(r, 2);
    assert_int_equal(want(r, 30, 1), slot);
    k3_residency_close(r);
}

static void what_is_wanted_once_does_not_push_out_what_is_wanted_often(void **state)
{
    (void)state;
    k3_residency *r = open_slots(2);
    for (int u = 0; u < 3; u++) {
        want(r, 0, 0);
        want(r, 1, 0);
    }
    for (int u = 0; u < 3; u++)
        assert_int_equal(want(r, 5, 0), -1);
    assert_int_not_equal(want(r, 5, 0), -1); /* the fourth use */
    k3_residency_close(r);
}

static void a_step_keeps_what_it_uses(void **state)
{
    (void)state;
    k3_residency *r = open_slots(3);
    for (int i = 0; i < 3; i++)
        want(r, i, 0);
    k3_residency_step(r);
    for (int i = 0; i < 3; i++)
        k3_residency_use(r, i);
    assert_int_equal(k3_residency_take(r, 9, 1), -1);
    k3_residency_step(r);
    k3_residency_use(r, 0);
    k3_residency_use(r, 2);
    int slot = k3_residency_find(r, 1);
    assert_int_equal(k3_residency_take(r, 9, 1), slot);
    assert_int_equal(k3_residency_take(r, 8, 1), -1); /* 9 was brought in this step */
    k3_residency_close(r);
}

static void popularity_is_forgotten(void **state)
{
    (void)state;
    k3_residency *r = open_slots(1);
    for (int u = 0; u < 600; u++)
        want(r, 0, 0);
    int n = 0;
    while (want(r, 7, 0) < 0 && n < 10000)
        n++;
    assert_true(n > 100 && n < 450);
    k3_residency_close(r);
}

static void slots_that_are_cut_never_come_back(void **state)
{
    (void)state;
    k3_residency *r = open_slots(8);
    for (int i = 0; i < 6; i++)
        want(r, i, 0);
    k3_residency_cut(r, 4, 3);
    assert_int_equal(k3_residency_used(r), 4);
    assert_int_equal(k3_residency_find(r, 4), -1);
    for (int i = 0; i < 200; i++) {
        int slot = want(r, i % ITEMS, 1);
        assert_true(slot >= 0 && (slot < 4 || slot == 7));
    }
    assert_int_equal(k3_residency_used(r), 5);
    k3_residency_cut(r, 0, 8);
    assert_int_equal(want(r, 3, 1), -1);
    assert_int_equal(k3_residency_used(r), 0);
    k3_residency_close(r);
}

/* Long random traffic: slot and item always name each other, and hits are counted by a plain model. */
static void tables_agree_under_random_traffic(void **state)
{
    (void)state;
    uint32_t x = 1;
    k3_residency *r = open_slots(7);
    for (int i = 0; i < 20000; i++) {
        x = x * 1664525u + 1013904223u;
        want(r, (int)((x >> 16) % ITEMS) * (int)((x >> 8) & 1), (int)(x >> 31));
        int n = 0;
        for (int item = 0; item < ITEMS; item++) {
            int slot = k3_residency_find(r, item);
            n += slot >= 0;
            if (slot >= 0)
                assert_int_equal(k3_residency_item(r, slot), item);
        }
        assert_int_equal(n, k3_residency_used(r));
    }
    k3_residency_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_slots_come_first_and_items_stay_in_theirs),
        cmocka_unit_test(without_slots_nothing_is_taken),
        cmocka_unit_test(what_was_not_used_for_longest_makes_room),
        cmocka_unit_test(of_the_oldest_the_least_used_makes_room),
        cmocka_unit_test(what_is_wanted_once_does_not_push_out_what_is_wanted_often),
        cmocka_unit_test(a_step_keeps_what_it_uses),
        cmocka_unit_test(popularity_is_forgotten),
        cmocka_unit_test(slots_that_are_cut_never_come_back),
        cmocka_unit_test(tables_agree_under_random_traffic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
