#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample/sampler.h"

enum { MAX_TEXT = 4096 };

static k3_stop *open_stop(const char *const *stops, size_t n)
{
    size_t lengths[64];
    k3_stop *stop = NULL;
    k3_error err = {0};
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++)
        lengths[i] = strlen(stops[i]);
    if (k3_stop_open(&stop, stops, lengths, n, &err) != K3_OK)
        fail_msg("%s", err.text);
    return stop;
}

/* Pushes one piece and appends what comes out. Returns `matched`. */
static int push(k3_stop *stop, char *out, const char *piece, size_t n)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    int matched = -1;
    assert_int_equal(k3_stop_push(stop, &safe, &n_safe, &matched, piece, n, NULL), K3_OK);
    strncat(out, safe ? safe : "", n_safe);
    return matched;
}

static void flush(k3_stop *stop, char *out)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    k3_stop_flush(stop, &safe, &n_safe);
    strncat(out, safe, n_safe);
}

/* Every way to cut a text of up to 13 bytes in pieces must give `want`, and the same verdict. */
static void check_all_cuts(const char *const *stops, size_t n_stops, const char *text, const char *want, int want_match)
{
    size_t n = strlen(text);
    assert_true(n && n <= 13);
    for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
        char out[MAX_TEXT] = "";
        k3_stop *stop = open_stop(stops, n_stops);
        int matched = 0;
        for (size_t first = 0, i = 1; i <= n; i++)
            if (i == n || cuts >> (i - 1) & 1) {
                matched = push(stop, out, text + first, i - first);
                first = i;
            }
        flush(stop, out);
        flush(stop, out); /* what is held back comes once */
        k3_stop_close(stop);
        if (strcmp(out, want) != 0 || matched != want_match)
            fail_msg("\"%s\" cut as %x: \"%s\" matched %d, wanted \"%s\" matched %d", text, cuts, out, matched, want, want_match);
    }
}

#define CHECK(text, want, match, ...)                                                                                                      \
    do {                                                                                                                                   \
        const char *list[] = {__VA_ARGS__};                                                                                                \
        check_all_cuts(list, sizeof list / sizeof *list, text, want, match);                                                               \
    } while (0)

static void d07_a_stop_string_is_found_across_tokens(void **state)
{
    (void)state;
    CHECK("M N O P Q R", "M N ", 1, "O P Q");
    CHECK("ab", "", 1, "ab");
    CHECK("aaab", "a", 1, "aab"); /* the automaton falls back inside a partial match */
    CHECK("abababac", "ab", 1, "ababac");
    CHECK("xabcabd", "x", 1, "abcabd");
}

static void d08_held_text_is_sent_exactly_once(void **state)
{
    (void)state;
    CHECK(" Alice!", " Alice!", 0, "\n", "Alice:");
    CHECK("Alice", "Alice", 0, "Alice:");
    CHECK("AlAliAlice", "AlAliAlice", 0, "Alice:", "\n\n");
    CHECK("one\ntwo", "one", 1, "\n", "Alice:");
}

static void d08_only_a_possible_stop_string_is_held(void **state)
{
    (void)state;
    static const char *const stops[] = {"Alice:", "END"};
    k3_stop *stop = open_stop(stops, 2);
    char out[MAX_TEXT] = "";
    assert_int_equal(push(stop, out, "hello Al", 8), 0);
    assert_string_equal(out, "hello ");
    assert_int_equal(push(stop, out, "bert", 4), 0);
    assert_string_equal(out, "hello Albert");
    assert_int_equal(push(stop, out, " EN", 3), 0);
    assert_string_equal(out, "hello Albert ");
    flush(stop, out);
    assert_string_equal(out, "hello Albert EN");
    k3_stop_close(stop);
}

static void the_first_complete_stop_string_wins(void **state)
{
    (void)state;
    CHECK("xabcd", "xa", 1, "abcde", "bc");  /* the longer one began earlier but never ended */
    CHECK("xabc", "x", 1, "c", "bc", "abc"); /* of those that end together the longest */
    CHECK("xabab", "x", 1, "ab", "abab");
}

static void nothing_comes_after_a_match(void **state)
{
    (void)state;
    static const char *const stops[] = {"#"};
    k3_stop *stop = open_stop(stops, 1);
    char out[MAX_TEXT] = "";
    assert_int_equal(push(stop, out, "a#b", 3), 1);
    assert_int_equal(push(stop, out, "c", 1), 1);
    flush(stop, out);
    assert_string_equal(out, "a");
    k3_stop_close(stop);
}

static void d10_no_stop_strings_pass_everything_through(void **state)
{
    (void)state;
    k3_stop *stop = open_stop(NULL, 0);
    char out[MAX_TEXT] = "";
    assert_int_equal(push(stop, out, "any", 3), 0);
    assert_string_equal(out, "any");
    k3_stop_close(stop);
}

static void d10_sixty_four_stop_strings_of_any_length_work(void **state)
{
    (void)state;
    char texts[64][80];
    const char *stops[64];
    for (int i = 0; i < 64; i++) {
        memset(texts[i], 'a' + i % 20, sizeof texts[i]);
        texts[i][sizeof texts[i] - 2] = (char)('A' + i % 32);
        texts[i][sizeof texts[i] - 1] = 0;
        stops[i] = texts[i];
    }
    for (size_t n = 1; n <= 64; n += n == 1 ? 4 : 59) {
        k3_stop *stop = open_stop(stops, n);
        char out[MAX_TEXT] = "", want[MAX_TEXT] = "";
        for (int i = 0; i < 5; i++) {
            assert_int_equal(push(stop, out, "aaaa-", 5), 0);
            strcat(want, "aaaa-");
        }
        assert_string_equal(out, want);
        assert_int_equal(push(stop, out, texts[n - 1], 79), 1);
        assert_string_equal(out, want);
        k3_stop_close(stop);
    }
}

static void d10_an_empty_stop_string_is_refused(void **state)
{
    (void)state;
    const char *stops[] = {"a", ""};
    size_t lengths[] = {1, 0};
    k3_stop *stop = NULL;
    k3_error err = {0};
    assert_int_equal(k3_stop_open(&stop, stops, lengths, 2, &err), K3_E_INVALID);
    assert_string_equal(err.text, "stop string 1: empty; at least one byte wanted (leave it out to have none)");
    assert_null(stop);
}

static void d10_a_stop_string_inside_han_text_keeps_characters_whole(void **state)
{
    (void)state;
    CHECK("\xe4\xbd\xa0\xe4\xb8\xad\xe6\x96\x87", "\xe4\xbd\xa0", 1, "\xe4\xb8\xad");
    /* The same first two bytes, another character: no match, nothing lost. */
    CHECK("\xe4\xb8\xae\xe4\xb8\xaf", "\xe4\xb8\xae\xe4\xb8\xaf", 0, "\xe4\xb8\xad");
    static const char *const stops[] = {"\xe4\xb8\xad\xe6\x96\x87"};
    k3_stop *stop = open_stop(stops, 1);
    char out[MAX_TEXT] = "";
    push(stop, out, "\xe4\xbd\xa0\xe4\xb8\xad", 6);
    assert_string_equal(out, "\xe4\xbd\xa0"); /* held back at a character's edge */
    push(stop, out, "\xe5\xbf\x83", 3);
    assert_string_equal(out, "\xe4\xbd\xa0\xe4\xb8\xad\xe5\xbf\x83");
    k3_stop_close(stop);
}

static void stop_strings_and_text_may_hold_zero_bytes(void **state)
{
    (void)state;
    const char *stops[] = {"\0b"};
    size_t lengths[] = {2};
    k3_stop *stop = NULL;
    const char *safe = NULL;
    size_t n_safe = 0;
    int matched = 0;
    assert_int_equal(k3_stop_open(&stop, stops, lengths, 1, NULL), K3_OK);
    assert_int_equal(k3_stop_push(stop, &safe, &n_safe, &matched, "\0a\0", 3, NULL), K3_OK);
    assert_int_equal(n_safe, 2);
    assert_int_equal(k3_stop_push(stop, &safe, &n_safe, &matched, "b", 1, NULL), K3_OK);
    assert_int_equal(n_safe, 0);
    assert_int_equal(matched, 1);
    k3_stop_close(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d07_a_stop_string_is_found_across_tokens),
        cmocka_unit_test(d08_held_text_is_sent_exactly_once),
        cmocka_unit_test(d08_only_a_possible_stop_string_is_held),
        cmocka_unit_test(the_first_complete_stop_string_wins),
        cmocka_unit_test(nothing_comes_after_a_match),
        cmocka_unit_test(d10_no_stop_strings_pass_everything_through),
        cmocka_unit_test(d10_sixty_four_stop_strings_of_any_length_work),
        cmocka_unit_test(d10_an_empty_stop_string_is_refused),
        cmocka_unit_test(d10_a_stop_string_inside_han_text_keeps_characters_whole),
        cmocka_unit_test(stop_strings_and_text_may_hold_zero_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
