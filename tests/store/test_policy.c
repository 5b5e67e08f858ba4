/* Which expert is in which slot, and what is remembered of use. */
#include "store/policy.h"
#include "store/usage.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ITEMS = 40 };

/* One layer of ITEMS experts. */
static k3_policy *open_slots(int n)
{
    k3_policy *p;
    assert_int_equal(k3_policy_open(&p, 1, ITEMS, n, NULL), K3_OK);
    return p;
}

/* Uses an item in a step of its own and takes a slot if it has none. */
static int want(k3_policy *p, int item, int force)
{
    k3_policy_step(p, 0);
    int slot = k3_policy_use(p, item);
    return slot >= 0 ? slot : k3_policy_take(p, item, force);
}

/* ---- slots --------------------------------------------------------------------------------------------------------------- */

static void free_slots_come_first_and_items_stay_in_theirs(void **state)
{
    (void)state;
    k3_policy *p = open_slots(5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(want(p, 10 + i, 0), i);
    assert_int_equal(k3_policy_used(p), 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(k3_policy_find(p, 10 + i), i);
        assert_int_equal(k3_policy_item(p, i), 10 + i);
        assert_int_equal(want(p, 10 + i, 1), i);
    }
    assert_int_equal(k3_policy_find(p, 3), -1);
    assert_int_equal(k3_policy_evictions(p), 0);
    k3_policy_close(p);
}

static void without_slots_nothing_is_taken(void **state)
{
    (void)state;
    k3_policy *p = open_slots(0);
    assert_int_equal(want(p, 0, 0), -1);
    assert_int_equal(want(p, 0, 1), -1);
    k3_policy_close(p);
}

static void of_equals_what_was_not_used_for_longest_makes_room(void **state)
{
    (void)state;
    k3_policy *p = open_slots(20);
    for (int i = 0; i < 20; i++)
        want(p, i, 0);
    want(p, 0, 0); /* 1 is oldest now; all but 0 have one use */
    int slot = k3_policy_find(p, 1);
    assert_int_equal(want(p, 30, 1), slot);
    assert_int_equal(k3_policy_find(p, 1), -1);
    assert_int_equal(k3_policy_evictions(p), 1);
    k3_policy_close(p);
}

static void the_least_used_makes_room_though_it_was_used_last(void **state)
{
    (void)state;
    k3_policy *p = open_slots(3);
    for (int i = 0; i < 60; i++)
        want(p, i % 2, 0);
    want(p, 2, 0);
    for (int i = 0; i < 6; i++) /* the last use of 2 is past */
        want(p, i % 2, 0);
    int slot = k3_policy_find(p, 2);
    assert_int_equal(want(p, 30, 1), slot);
    k3_policy_close(p);
}

static void what_is_wanted_once_does_not_push_out_what_is_wanted_often(void **state)
{
    (void)state;
    k3_policy *p = open_slots(2);
    int n = 0;
    for (int u = 0; u < 20; u++) {
        k3_policy_step(p, 0);
        for (int i = 0; i < 2; i++)
            if (k3_policy_use(p, i) < 0)
                k3_policy_take(p, i, 0);
    }
    assert_int_equal(want(p, 5, 0), -1);
    while (want(p, 5, 0) < 0)
        n++;
    assert_in_range(n, 2, 12); /* wanted always, it comes in soon */
    k3_policy_close(p);
}

/* Uses the first three of a layer's eight, and takes slots for what has none. */
static void visit(k3_policy *p, int layer)
{
    k3_policy_step(p, layer);
    for (int i = 0; i < 3; i++)
        if (k3_policy_use(p, 8 * layer + i) < 0)
            k3_policy_take(p, 8 * layer + i, 1);
}

static int n_resident(const k3_policy *p, int layer)
{
    int n = 0;
    for (int i = 0; i < 8; i++)
        n += k3_policy_find(p, 8 * layer + i) >= 0;
    return n;
}

/* Of experts used alike, those of the layer just past are needed last. */
static void the_layer_just_past_makes_room(void **state)
{
    (void)state;
    for (int last = 0; last < 4; last++) {
        k3_policy *p;
        assert_int_equal(k3_policy_open(&p, 4, 8, 12, NULL), K3_OK);
        for (int i = 0; i < 12 + last; i++)
            visit(p, i % 4);
        visit(p, last);
        int next = (last + 1) % 4;
        visit(p, next);
        k3_policy_use(p, 8 * next + 7);
        assert_true(k3_policy_take(p, 8 * next + 7, 1) >= 0);
        for (int l = 0; l < 4; l++)
            assert_int_equal(n_resident(p, l), l == last ? 2 : l == next ? 4 : 3);
        k3_policy_close(p);
    }
}

static void a_step_keeps_what_it_uses(void **state)
{
    (void)state;
    k3_policy *p = open_slots(3);
    for (int i = 0; i < 3; i++)
        want(p, i, 0);
    k3_policy_step(p, 0);
    for (int i = 0; i < 3; i++)
        k3_policy_use(p, i);
    assert_int_equal(k3_policy_take(p, 9, 1), -1);
    k3_policy_step(p, 0);
    k3_policy_use(p, 0);
    k3_policy_use(p, 2);
    int slot = k3_policy_find(p, 1);
    assert_int_equal(k3_policy_take(p, 9, 1), slot);
    assert_int_equal(k3_policy_take(p, 8, 1), -1); /* 9 was brought in this step */
    k3_policy_close(p);
}

static void what_is_read_ahead_lives_through_the_step_and_goes_if_it_was_a_wrong_guess(void **state)
{
    (void)state;
    k3_policy *p;
    assert_int_equal(k3_policy_open(&p, 2, 8, 4, NULL), K3_OK);
    for (int pass = 0; pass < 4; pass++)
        for (int l = 0; l < 2; l++) {
            k3_policy_step(p, l);
            for (int i = 0; i < 2; i++)
                if (k3_policy_use(p, 8 * l + i) < 0)
                    k3_policy_take(p, 8 * l + i, 1);
        }
    k3_policy_step(p, 0);
    k3_policy_use(p, 0);
    int slot = k3_policy_take(p, 8 + 5, 1); /* a guess, in the place of 1 */
    assert_int_equal(k3_policy_find(p, 1), -1);
    assert_int_equal(k3_policy_find(p, 13), slot);
    k3_policy_step(p, 1);
    k3_policy_use(p, 8);
    k3_policy_use(p, 9);
    assert_int_equal(k3_policy_use(p, 14), -1);
    assert_int_equal(k3_policy_take(p, 14, 1), slot); /* used by nobody, it is the first to go */
    k3_policy_close(p);
}

static void popularity_is_forgotten(void **state)
{
    (void)state;
    k3_policy *p = open_slots(1);
    for (int u = 0; u < 600; u++)
        want(p, 0, 0);
    int n = 0;
    while (want(p, 7, 0) < 0 && n < 10000)
        n++;
    assert_in_range(n, 1, 48);
    k3_policy_close(p);
}

static void an_item_that_is_dropped_leaves_its_slot(void **state)
{
    (void)state;
    k3_policy *p = open_slots(2);
    want(p, 3, 0);
    int slot = want(p, 4, 0); /* held by the step */
    k3_policy_drop(p, 4);
    k3_policy_drop(p, 4);
    assert_int_equal(k3_policy_find(p, 4), -1);
    assert_int_equal(k3_policy_item(p, slot), -1);
    assert_int_equal(want(p, 5, 0), slot);
    k3_policy_drop(p, 3); /* not held */
    assert_int_equal(k3_policy_used(p), 1);
    assert_int_not_equal(want(p, 6, 0), -1);
    assert_int_equal(k3_policy_evictions(p), 0);
    k3_policy_close(p);
}

static void slots_that_are_cut_never_come_back(void **state)
{
    (void)state;
    k3_policy *p = open_slots(8);
    for (int i = 0; i < 6; i++)
        want(p, i, 0);
    k3_policy_cut(p, 4, 3);
    assert_int_equal(k3_policy_used(p), 4);
    assert_int_equal(k3_policy_find(p, 4), -1);
    for (int i = 0; i < 200; i++) {
        int slot = want(p, i % ITEMS, 1);
        assert_true(slot >= 0 && (slot < 4 || slot == 7));
    }
    assert_int_equal(k3_policy_used(p), 5);
    k3_policy_cut(p, 0, 8);
    assert_int_equal(want(p, 3, 1), -1);
    assert_int_equal(k3_policy_used(p), 0);
    k3_policy_close(p);
}

/* Long random traffic of several layers, with drops: slot and item always name each other, and no step gives up what it holds. */
static void tables_agree_under_random_traffic(void **state)
{
    (void)state;
    uint32_t x = 1;
    k3_policy *p;
    assert_int_equal(k3_policy_open(&p, 4, 10, 7, NULL), K3_OK);
    for (int i = 0; i < 20000; i++) {
        int layer = i % 4, kept[3], n = 0;
        k3_policy_step(p, layer);
        for (int k = 0; k < 3; k++) {
            x = x * 1664525u + 1013904223u;
            int item = layer * 10 + k * 3 + (int)((x >> 16) % 3) * (int)((x >> 8) & 1), slot = k3_policy_use(p, item);
            if (slot < 0)
                slot = k3_policy_take(p, item, (int)(x >> 31));
            kept[k] = slot < 0 ? -1 : item;
        }
        for (int k = 0; k < 3; k++)
            assert_true(kept[k] < 0 || k3_policy_find(p, kept[k]) >= 0);
        for (int item = 0; item < ITEMS; item++) {
            int slot = k3_policy_find(p, item);
            n += slot >= 0;
            if (slot >= 0)
                assert_int_equal(k3_policy_item(p, slot), item);
        }
        assert_int_equal(n, k3_policy_used(p));
        if (x % 50 == 0)
            k3_policy_drop(p, (int)((x >> 8) % ITEMS));
    }
    k3_policy_close(p);
}

/* ---- remembered use -------------------------------------------------------------------------------------------------------- */

static const k3_usage mine = {77, 3, 5};
static char folder[64], file[96];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/k3-usage-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/counts", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove(file);
    return rmdir(folder); /* nothing else was left there */
}

static k3_policy *open_mine(void)
{
    k3_policy *p;
    assert_int_equal(k3_policy_open(&p, mine.n_layers, mine.n_experts, 4, NULL), K3_OK);
    return p;
}

/* Expert e of layer l is used in e of `visits` visits. */
static void use_mine(k3_policy *p, int visits)
{
    for (int v = 0; v < visits; v++)
        for (int l = 0; l < mine.n_layers; l++) {
            k3_policy_step(p, l);
            for (int e = v + 1; e < mine.n_experts; e++)
                k3_policy_use(p, l * mine.n_experts + e);
        }
}

static void assert_counts(const k3_policy *p, int item, uint32_t uses, uint32_t visits)
{
    uint32_t u, v;
    k3_policy_counts(p, item, &u, &v);
    assert_int_equal(u, uses);
    assert_int_equal(v, visits);
}

static void counts_go_on_where_they_were(void **state)
{
    (void)state;
    k3_policy *p = open_mine(), *q = open_mine();
    use_mine(p, 8);
    for (int i = 0; i < 2; i++) /* the second replaces the first */
        assert_int_equal(k3_usage_save(p, &mine, file, NULL), K3_OK);
    assert_int_equal(k3_usage_load(q, &mine, file, NULL), K3_OK);
    for (int i = 0; i < 15; i++)
        assert_counts(q, i, (uint32_t)(i % 5), 8);
    use_mine(q, 2);
    assert_counts(q, 4, 6, 10);

    /* What was used most comes first, by layer where shares are equal, and what was never used is left out. */
    int items[15], n = 15;
    assert_int_equal(k3_usage_most(p, &mine, items, &n, NULL), K3_OK);
    assert_int_equal(n, 12);
    static const int wanted[] = {4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11};
    assert_memory_equal(items, wanted, sizeof wanted);
    n = 2;
    assert_int_equal(k3_usage_most(p, &mine, items, &n, NULL), K3_OK);
    assert_int_equal(n, 2);
    k3_policy_close(p);
    k3_policy_close(q);
}

/* A slot goes to what earlier runs used, before this run has seen any use. */
static void remembered_use_decides_who_stays(void **state)
{
    (void)state;
    k3_policy *p = open_mine(), *q = open_mine();
    use_mine(p, 8);
    assert_int_equal(k3_usage_save(p, &mine, file, NULL), K3_OK);
    assert_int_equal(k3_usage_load(q, &mine, file, NULL), K3_OK);
    k3_policy_step(q, 2);
    for (int e = 0; e < 4; e++)
        k3_policy_take(q, e + 1, 1);
    k3_policy_step(q, 1);
    k3_policy_take(q, 9, 1);
    assert_int_equal(k3_policy_find(q, 1), -1);
    assert_int_not_equal(k3_policy_find(q, 4), -1);
    k3_policy_close(p);
    k3_policy_close(q);
}

static void long_habits_weigh_no_more_than_16384_visits(void **state)
{
    (void)state;
    k3_policy *p = open_mine(), *q = open_mine();
    uint32_t uses[15] = {[7] = 39998}, visits[3] = {0, 40000, 16384};
    uses[14] = 16384;
    k3_policy_remember(p, uses, visits);
    assert_int_equal(k3_usage_save(p, &mine, file, NULL), K3_OK);
    assert_int_equal(k3_usage_load(q, &mine, file, NULL), K3_OK);
    assert_counts(q, 7, 9999, 10000);
    assert_counts(q, 14, 16384, 16384);
    assert_counts(q, 0, 0, 0);
    k3_policy_close(p);
    k3_policy_close(q);
}

static void assert_refused(const k3_usage *of, k3_status status, const char *why)
{
    k3_policy *p = open_mine();
    k3_error err;
    use_mine(p, 1);
    assert_int_equal(k3_usage_load(p, of, file, &err), status);
    if (!strstr(err.text, why) || !strstr(err.text, file))
        fail_msg("\"%s\" has no \"%s\"", err.text, why);
    assert_counts(p, 4, 1, 1); /* unchanged */
    k3_policy_close(p);
}

static void write_bytes(const char *bytes, size_t n)
{
    FILE *f = fopen(file, "wb");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void a_file_that_does_not_fit_changes_nothing(void **state)
{
    (void)state;
    char bytes[128];
    const size_t n = 24 + 4 * (3 + 15) + 8;
    k3_policy *p = open_mine();
    assert_refused(&mine, K3_E_NOT_FOUND, "No such file");
    use_mine(p, 8);
    assert_int_equal(k3_usage_save(p, &mine, file, NULL), K3_OK);
    assert_refused(&(k3_usage){78, 3, 5}, K3_E_FORMAT, "another model");
    assert_refused(&(k3_usage){77, 5, 3}, K3_E_FORMAT, "3 layers of 5 experts; this one has 5 of 3");
    FILE *f = fopen(file, "rb");
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), n);
    fclose(f);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 16;
        write_bytes(bytes, n);
        assert_refused(&mine, K3_E_FORMAT, i < 8 ? "not a file of use counts" : i < 24 ? "another model" : "checksum");
        bytes[i] ^= 16;
    }
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(bytes, cut);
        assert_refused(&mine, K3_E_FORMAT, cut < 24 ? "not a file of use counts" : "is cut or damaged");
    }
    k3_policy_close(p);
}

static void a_save_that_fails_leaves_the_old_file(void **state)
{
    (void)state;
    k3_policy *p = open_mine(), *q = open_mine();
    k3_error err;
    struct rlimit limit, small;
    use_mine(p, 8);
    assert_int_equal(k3_usage_save(p, &mine, file, NULL), K3_OK);
    use_mine(p, 8);
    /* Files may not grow beyond a few bytes: what a full drive does. */
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small = (struct rlimit){16, limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    k3_status status = k3_usage_save(p, &mine, file, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, K3_E_IO);
    assert_non_null(strstr(err.text, "File too large"));
    assert_int_equal(k3_usage_load(q, &mine, file, NULL), K3_OK);
    assert_counts(q, 4, 4, 8);
    assert_int_equal(k3_usage_save(p, &mine, "/nowhere/counts", &err), K3_E_IO);
    assert_non_null(strstr(err.text, "/nowhere/counts"));
    k3_policy_close(p);
    k3_policy_close(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_slots_come_first_and_items_stay_in_theirs),
        cmocka_unit_test(without_slots_nothing_is_taken),
        cmocka_unit_test(of_equals_what_was_not_used_for_longest_makes_room),
        cmocka_unit_test(the_least_used_makes_room_though_it_was_used_last),
        cmocka_unit_test(what_is_wanted_once_does_not_push_out_what_is_wanted_often),
        cmocka_unit_test(the_layer_just_past_makes_room),
        cmocka_unit_test(a_step_keeps_what_it_uses),
        cmocka_unit_test(what_is_read_ahead_lives_through_the_step_and_goes_if_it_was_a_wrong_guess),
        cmocka_unit_test(popularity_is_forgotten),
        cmocka_unit_test(an_item_that_is_dropped_leaves_its_slot),
        cmocka_unit_test(slots_that_are_cut_never_come_back),
        cmocka_unit_test(tables_agree_under_random_traffic),
        cmocka_unit_test_setup_teardown(counts_go_on_where_they_were, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(remembered_use_decides_who_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(long_habits_weigh_no_more_than_16384_visits, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_file_that_does_not_fit_changes_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_save_that_fails_leaves_the_old_file, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
