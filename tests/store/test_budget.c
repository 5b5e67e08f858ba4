/* The plan for the host's memory, by the cases of users whose memory was not enough, or was not used. */
#include "store/budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 93, MOE_LAYERS = 92, EXPERTS = 896, NOW = 16 };
static const uint64_t GB = 1000000000, MB = 1000000;

static k3_trunk_sizes sizes;

/* A model as large as the released one: 60 GB of trunk as it is held, 360 GB of experts. */
static k3_budget_facts facts_of(uint64_t available, uint64_t ram)
{
    sizes = (k3_trunk_sizes){.always = 20 * MB, .rows = MB, .n_layers = LAYERS};
    for (int l = 0; l < LAYERS; l++)
        sizes.layers[l] = (k3_trunk_size){.held = 600 * MB, .stored = 1200 * MB, .room = 1201 * MB, .made = 600 * MB};
    sizes.head = (k3_trunk_size){.held = 1200 * MB, .stored = 2400 * MB, .room = 80 * MB, .made = 40 * MB};
    sizes.embed = (k3_trunk_size){.held = 2400 * MB, .stored = 2400 * MB};
    return (k3_budget_facts){.available = available,
                             .ram = ram,
                             .scratch = 500 * MB,
                             .sessions = 900 * MB,
                             .trunk = &sizes,
                             .expert_slot = 4395008,
                             .n_experts = MOE_LAYERS * EXPERTS,
                             .n_experts_now = NOW};
}

static k3_budget plan(uint64_t available, uint64_t ram)
{
    k3_budget b;
    k3_error err;
    k3_budget_facts facts = facts_of(available, ram);
    if (k3_budget_make(&b, &facts, &err) != K3_OK)
        fail_msg("%s", err.text);
    return b;
}

/* What holds of every plan. */
static void check(const k3_budget *b, const k3_budget_facts *facts)
{
    assert_true(b->peak <= b->limit);
    assert_true(b->limit <= facts->available - b->reserve);
    assert_true(b->reserve > 0 && b->available == facts->available);
    assert_true(b->peak == b->scratch + b->sessions + b->trunk + b->experts);
    assert_true(b->experts == facts->expert_slot * (uint64_t)b->n_slots);
    assert_true(!facts->n_experts || b->n_slots >= 1);
    assert_true(b->n_slots <= facts->n_experts);
    assert_true(b->is_clamped == (facts->ram > facts->available - b->reserve));
    assert_true(!facts->ram || b->limit <= facts->ram);
}

/* The smallest --ram that plans, found by halving. */
static uint64_t least_ram(uint64_t available)
{
    uint64_t low = 0, high = available;
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        k3_budget b;
        k3_budget_facts facts = facts_of(available, middle);
        *(k3_budget_make(&b, &facts, NULL) == K3_OK ? &high : &low) = middle;
    }
    return high;
}

/* ---- cases -------------------------------------------------------------------------------------------------------------- */

static void F01_what_is_free_is_used_without_being_asked(void **state)
{
    (void)state;
    for (uint64_t free_gb = 8; free_gb <= 400; free_gb += 7) {
        k3_budget_facts facts = facts_of(free_gb * GB, 0);
        k3_budget b = plan(facts.available, 0);
        double share = (double)b.peak / (double)facts.available;
        check(&b, &facts);
        if (share < 0.7 || share > 0.9)
            fail_msg("%d GB are free, %.1f %% of them are used", (int)free_gb, 100 * share);
    }
    /* A model that is smaller than the memory is there as a whole. */
    k3_budget b = plan(1000 * GB, 0);
    assert_int_equal(b.n_slots, MOE_LAYERS * EXPERTS);
    assert_int_equal(b.trunk_plan.n_pinned, LAYERS);
    assert_true(b.trunk_plan.has_head && b.trunk_plan.has_embed && !b.trunk_plan.token_bytes);
}

static void F02_F16_an_explicit_size_beyond_what_there_is_is_clamped(void **state)
{
    (void)state;
    for (uint64_t free_gb = 8; free_gb <= 400; free_gb += 7)
        for (uint64_t ram = free_gb * GB; ram <= 8 * free_gb * GB; ram *= 2) {
            k3_budget_facts facts = facts_of(free_gb * GB, ram);
            k3_budget b = plan(facts.available, ram);
            check(&b, &facts);
            assert_int_equal(b.is_clamped, 1);
            assert_true(b.peak < facts.available);
        }
    k3_budget b = plan(64 * GB, 32 * GB);
    assert_int_equal(b.is_clamped, 0);
    assert_true(b.limit == 32 * GB && b.peak > 31 * GB);
}

/* Case F04: 0 bytes are no memory, not a wish for the smallest cache. */
static void F04_no_free_memory_is_an_error(void **state)
{
    (void)state;
    for (uint64_t ram = 0; ram <= 64 * GB; ram += 32 * GB) {
        k3_budget b;
        k3_error err;
        k3_budget_facts facts = facts_of(0, ram);
        assert_int_equal(k3_budget_make(&b, &facts, &err), K3_E_NOMEM);
        assert_non_null(strstr(err.text, "0.000 GB of memory may be used and at least "));
    }
}

static void F12_nothing_takes_what_is_left_to_other_programs(void **state)
{
    (void)state;
    for (uint64_t free_gb = 6; free_gb <= 200; free_gb += 2)
        for (int eighths = 0; eighths <= 16; eighths++) {
            k3_budget b;
            k3_budget_facts facts = facts_of(free_gb * GB, free_gb * GB / 8 * (uint64_t)eighths);
            if (k3_budget_make(&b, &facts, NULL) != K3_OK)
                continue;
            check(&b, &facts);
            assert_true(b.reserve >= facts.available / 50);
            assert_true(b.peak + b.reserve <= facts.available);
        }
}

static void F19_any_budget_above_the_minimum_plans(void **state)
{
    (void)state;
    uint64_t available = 64 * GB, least = least_ram(available), most = UINT64_MAX;
    assert_true(least < (uint64_t)LAYERS * 600 * MB / 10); /* far below the trunk */
    for (uint64_t ram = least; ram < available; ram += ram / 64) {
        k3_budget_facts facts = facts_of(available, ram);
        k3_budget b = plan(available, ram);
        check(&b, &facts);
        assert_true(b.trunk_plan.token_bytes <= most); /* more memory never means more to read */
        most = b.trunk_plan.token_bytes;
    }
}

static void F19_below_the_minimum_the_error_has_the_parts(void **state)
{
    (void)state;
    uint64_t least = least_ram(64 * GB), rams[] = {1, least / 2, least - 1};
    for (size_t i = 0; i < sizeof rams / sizeof *rams; i++) {
        k3_budget b;
        k3_error err;
        k3_budget_facts facts = facts_of(64 * GB, rams[i]);
        assert_int_equal(k3_budget_make(&b, &facts, &err), K3_E_NOMEM);
        char wanted[96];
        snprintf(wanted, sizeof wanted, "at least %.3f are wanted: passes 0.500, conversations 0.900, trunk ", (double)least * 1e-9);
        if (!strstr(err.text, wanted) || !strstr(err.text, "one expert 0.004"))
            fail_msg("\"%s\" found, \"%s\" wanted", err.text, wanted);
    }
    k3_budget b;
    k3_error err;
    k3_budget_facts facts = facts_of(100 * MB, 0); /* nor without --ram */
    assert_int_equal(k3_budget_make(&b, &facts, &err), K3_E_NOMEM);
}

/* ---- several drives ------------------------------------------------------------------------------------------------------ */

/* The same model with its trunk on one drive and its experts on another. */
static k3_budget_facts facts_of_two(uint64_t available, const double rates[2])
{
    static k3_stream_sizes experts;
    k3_budget_facts facts = facts_of(available, 0);
    for (int l = 0; l < LAYERS; l++) {
        sizes.layers[l].on[0] = sizes.layers[l].stored;
        experts.wanted[l][1] = l < LAYERS - MOE_LAYERS ? 0 : NOW * (uint64_t)4386816;
    }
    sizes.head.on[0] = sizes.head.stored;
    facts.n_drives = 2;
    facts.rates = rates;
    facts.experts = &experts;
    return facts;
}

static double seconds_of(k3_budget *b, const k3_budget_facts *facts)
{
    k3_error err;
    if (k3_budget_make(b, facts, &err) != K3_OK)
        fail_msg("%s", err.text);
    check(b, facts);
    return k3_budget_seconds(facts, &b->trunk_plan, b->n_slots, NULL);
}

static const double fast_trunk[2] = {7e9, 0.5e9}, fast_experts[2] = {0.5e9, 7e9}, slow_experts[2] = {7e9, 0.1e9}, even[2] = {3e9, 3e9};

/* Case F18. */
static void F18_with_two_drives_time_falls_with_each_gigabyte(void **state)
{
    (void)state;
    static const double *const rates[] = {fast_trunk, fast_experts, slow_experts, even};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        double before = 0, blind_more = 0;
        for (uint64_t free_gb = 16; !(free_gb > 16 && before <= 0); free_gb++) {
            k3_budget b, again, blind;
            k3_budget_facts facts = facts_of_two(free_gb * GB, rates[i]), one = facts;
            double now = seconds_of(&b, &facts);
            if (free_gb > 16 && now >= before)
                fail_msg("rates %.1e and %.1e: %f s a token with %d GB, %f s with one less", rates[i][0], rates[i][1], now, (int)free_gb,
                         before);
            before = now;
            assert_true(free_gb < 600);
            if (free_gb % 8)
                continue;
            assert_int_equal(k3_budget_make(&again, &facts, NULL), K3_OK);
            assert_true(again.n_slots == b.n_slots && again.trunk == b.trunk && again.trunk_plan.n_pinned == b.trunk_plan.n_pinned);
            one.rates = NULL;
            assert_int_equal(k3_budget_make(&blind, &one, NULL), K3_OK);
            double then = k3_budget_seconds(&facts, &blind.trunk_plan, blind.n_slots, NULL) - now;
            assert_true(then >= 0);
            blind_more = then > blind_more ? then : blind_more;
        }
        assert_true(blind_more > 1 || rates[i] != slow_experts); /* with the others the trunk comes first anyhow */
    }
}

static void F18_memory_goes_where_the_slow_bytes_are(void **state)
{
    (void)state;
    for (uint64_t free_gb = 24; free_gb <= 200; free_gb += 8) {
        k3_budget experts, trunk;
        k3_budget_facts facts = facts_of_two(free_gb * GB, slow_experts);
        (void)seconds_of(&experts, &facts);
        facts.rates = fast_experts;
        (void)seconds_of(&trunk, &facts);
        assert_true(experts.n_slots > trunk.n_slots || trunk.n_slots == facts.n_experts);
        assert_true(experts.trunk_plan.n_pinned < trunk.trunk_plan.n_pinned || experts.trunk_plan.n_pinned == LAYERS);
    }
    /* While experts take longer than the trunk everywhere, all memory is theirs; and the trunk's while it takes longer. */
    k3_budget b;
    k3_budget_facts facts = facts_of_two(64 * GB, slow_experts);
    (void)seconds_of(&b, &facts);
    assert_true(b.trunk_plan.n_pinned <= LAYERS - MOE_LAYERS);
    facts.rates = fast_experts;
    (void)seconds_of(&b, &facts);
    assert_true(b.trunk_plan.n_pinned > LAYERS / 2 && b.n_slots < 1000);
}

/* Layers one after another, in each the drive with most to do; one drive has the sum. */
static void F18_the_time_is_that_of_the_slowest_drive_of_each_layer(void **state)
{
    (void)state;
    static const double rates[2] = {2e9, 1e9};
    double bytes[K3_MAX_DRIVES];
    k3_budget_facts facts = facts_of_two(64 * GB, rates);
    k3_trunk_plan plan = k3_trunk_plan_of(&sizes, 10, 0, 0);
    double layer = 1.2e9 / 2e9, wanted = NOW * 4386816.0, experts = wanted / 2 / 1e9;
    assert_float_equal(k3_budget_seconds(&facts, &plan, facts.n_experts / 2, bytes), 83 * layer + 9 * experts + 2.4e9 / 2e9, 1e-6);
    assert_float_equal(bytes[0], 83 * 1.2e9 + 2.4e9, 1);
    assert_float_equal(bytes[1], MOE_LAYERS * wanted / 2, 1);
    for (int l = 0; l < LAYERS; l++)
        sizes.layers[l].on[1] = sizes.layers[l].on[0], sizes.layers[l].on[0] = 0;
    sizes.head.on[1] = sizes.head.on[0], sizes.head.on[0] = 0;
    double all = k3_budget_seconds(&facts, &plan, facts.n_experts / 2, bytes);
    assert_float_equal(bytes[0], 0, 0);
    assert_float_equal(all, bytes[1] / 1e9, 1e-6);
    assert_float_equal(bytes[1], 83 * 1.2e9 + 2.4e9 + MOE_LAYERS * wanted / 2, 1);
}

/* A first layer, a head or an embedding for which slots, or rows, take more than they do themselves is in the smallest plan. Whoever gets
 * the bytes of a plan makes the same plan of them. */
static void the_smallest_plan_may_keep_something(void **state)
{
    (void)state;
    for (int what = 0; what < 8; what++) {
        k3_budget_facts facts = facts_of(64 * GB, 0);
        k3_trunk_plan least, one, again;
        if (what & 1)
            sizes.layers[0] = (k3_trunk_size){.held = 900 * MB, .stored = 1800 * MB, .room = 1801 * MB, .made = 900 * MB};
        if (what & 2)
            sizes.head.held = 100 * MB;
        if (what & 4)
            sizes.rows = sizes.embed.held + 1;
        assert_false(k3_trunk_make_plan(&least, &sizes, 0));
        assert_int_equal(least.n_pinned, what & 1);
        assert_int_equal(least.has_head, (what & 2) != 0);
        assert_int_equal(least.has_embed, (what & 4) != 0);
        assert_false(k3_trunk_make_plan(&one, &sizes, least.bytes - 1));
        for (uint64_t budget = least.bytes; budget < 70000 * MB; budget += 333 * MB) {
            assert_true(k3_trunk_make_plan(&one, &sizes, budget));
            assert_true(one.bytes <= budget);
            assert_true(k3_trunk_make_plan(&again, &sizes, one.bytes));
            assert_true(again.n_pinned == one.n_pinned && again.has_head == one.has_head && again.has_embed == one.has_embed);
            assert_true(again.bytes == one.bytes && again.token_bytes == one.token_bytes);
        }
        facts.ram = facts.scratch + facts.sessions + least.bytes + facts.expert_slot;
        k3_budget b;
        assert_int_equal(k3_budget_make(&b, &facts, NULL), K3_OK);
        assert_true(b.trunk == least.bytes);
    }
}

/* A device has the trunk: all of the budget is for experts. A dense model has none of those. */
static void what_is_not_there_takes_nothing(void **state)
{
    (void)state;
    k3_budget b;
    k3_budget_facts facts = facts_of(64 * GB, 32 * GB);
    facts.trunk = NULL;
    facts.scratch = facts.sessions = 0;
    assert_int_equal(k3_budget_make(&b, &facts, NULL), K3_OK);
    check(&b, &facts);
    assert_true(b.trunk == 0 && b.peak + facts.expert_slot > 32 * GB);
    facts = facts_of(64 * GB, 0);
    facts.n_experts = facts.n_experts_now = 0;
    facts.expert_slot = 0;
    assert_int_equal(k3_budget_make(&b, &facts, NULL), K3_OK);
    check(&b, &facts);
    assert_int_equal(b.n_slots, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(F01_what_is_free_is_used_without_being_asked),
        cmocka_unit_test(F02_F16_an_explicit_size_beyond_what_there_is_is_clamped),
        cmocka_unit_test(F04_no_free_memory_is_an_error),
        cmocka_unit_test(F12_nothing_takes_what_is_left_to_other_programs),
        cmocka_unit_test(F19_any_budget_above_the_minimum_plans),
        cmocka_unit_test(F19_below_the_minimum_the_error_has_the_parts),
        cmocka_unit_test(F18_with_two_drives_time_falls_with_each_gigabyte),
        cmocka_unit_test(F18_memory_goes_where_the_slow_bytes_are),
        cmocka_unit_test(F18_the_time_is_that_of_the_slowest_drive_of_each_layer),
        cmocka_unit_test(the_smallest_plan_may_keep_something),
        cmocka_unit_test(what_is_not_there_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
