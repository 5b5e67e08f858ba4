#include "text_support.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/pretokenize.h"
#include "text/tokenize.h"

/* Splits the text and compares with pieces separated by "|" (which the texts do not hold). */
static void assert_splits(const char *pieces)
{
    char text[512], found[1024] = "";
    size_t n = 0;
    for (const char *s = pieces; *s; s++)
        if (*s != '|')
            text[n++] = *s;
    k3_pretokenizer *pretokenizer;
    k3_splitter *splitter;
    k3_cut cut = {0};
    k3_error err = {0};
    int late;
    assert_int_equal(k3_pretokenizer_open(&pretokenizer, &err), K3_OK);
    assert_int_equal(k3_splitter_open(&splitter, pretokenizer, &err), K3_OK);
    assert_int_equal(k3_cut_next(&cut, text, n, &late), n);
    assert_int_equal(k3_splitter_start(splitter, text, n, late, &err), K3_OK);
    for (size_t at = 0;;) {
        size_t n_piece;
        assert_int_equal(k3_splitter_next(splitter, &n_piece, &err), K3_OK);
        if (n_piece == 0) {
            assert_int_equal(at, n);
            break;
        }
        if (at > 0)
            strcat(found, "|");
        strncat(found, text + at, n_piece);
        at += n_piece;
    }
    assert_string_equal(found, pieces);
    k3_splitter_close(splitter);
    k3_pretokenizer_close(pretokenizer);
}

static void the_examples_of_the_pattern_split_as_written(void **state)
{
    (void)state;
    assert_splits(" |\xe4\xb8\xad\xe6\x96\x87");             /* the space stays alone before Han */
    assert_splits("A|\xe4\xb8\xad|B");                       /* Han is no letter of a word */
    assert_splits("1\xe3\x80\x87\xe3\x80\x87|\xe3\x80\x87"); /* U+3007 is Han and a number: it stays with digits */
    assert_splits("\xe4\xb8\xad\xe3\x80\x87|1");             /* and in a Han run */
    assert_splits("!\n|/x");                                 /* no slash after a newline */
    assert_splits("!\xe2\xba\x80");                          /* a Han radical is a symbol here */
    assert_splits("don't| stop|   | x");                     /* runs of spaces leave one for the word */
    assert_splits("I'LL| we'Ve| it'\xc5\xbf");               /* any case, also the long s */
    assert_splits("Hello|World|FOOBar| BAZ");
    assert_splits("\xe3\x81\x93\xe3\x82\x93| \xed\x95\x9c\xea\xb8\x80"); /* kana and Hangul are letters */
    assert_splits("e\xcc\x81t\xc3\xa9");                                 /* marks stay in the word */
    assert_splits("  \n\n|\t|\tx");
    assert_splits("a|\xe1\xa0\x8e!");               /* U+180E is no space */
    assert_splits("a|\x1c!");                       /* nor is U+001C here */
    assert_splits("\xf0\x91\xbd\x90|\xe4\xb8\xad"); /* U+11F50, a digit of Unicode 15 */
    assert_splits("a\xf0\x91\xbc\x84");             /* U+11F04, a letter of Unicode 15 */
    assert_splits("\xf0\xb1\x8d\x90\xe4\xb8\xad");  /* U+31350, Han of Unicode 15 */
}

static void b06_numbers_of_all_scripts_go_in_threes(void **state)
{
    (void)state;
    assert_splits("123|456|78");
    assert_splits("\xc2\xbd");
    assert_splits("\xd9\xa3\xd9\xa4\xd9\xa5|\xd9\xa6");
    assert_splits("\xe2\x91\xa0\xe2\x91\xa1");
}

static void b04_quotes_dashes_and_han_split_like_the_reference(void **state)
{
    (void)state;
    /* “世界世世—I'M”, by the pattern: opening quote alone, a Han run, dash, word with contraction, closing quote. */
    assert_splits("\xe2\x80\x9c|\xe4\xb8\x96\xe7\x95\x8c\xe4\xb8\x96\xe4\xb8\x96|\xe2\x80\x94I'M|\xe2\x80\x9d");
}

/* Lengths of the stretches between cuts, in code points of one byte. */
static void assert_cuts(const char *text, size_t n, const size_t *wanted, size_t n_wanted)
{
    k3_cut cut = {0};
    size_t i = 0;
    for (size_t at = 0; at < n; i++) {
        int late;
        size_t length = k3_cut_next(&cut, text + at, n - at, &late);
        assert_true(i < n_wanted);
        assert_int_equal(length, wanted[i]);
        at += length;
    }
    assert_int_equal(i, n_wanted);
}

static void runs_are_cut_after_25000_and_slices_after_400000(void **state)
{
    (void)state;
    size_t n = 1000000;
    char *text = malloc(n);
    memset(text, 'a', n);
    assert_cuts(text, 25000, (size_t[]){25000}, 1);
    assert_cuts(text, 25001, (size_t[]){25000, 1}, 2);
    assert_cuts(text, 60000, (size_t[]){25000, 25000, 10000}, 3);
    text[24999] = ' '; /* a new run begins after it */
    assert_cuts(text, 50000, (size_t[]){50000}, 1);
    assert_cuts(text, 50001, (size_t[]){50000, 1}, 2);
    for (size_t i = 0; i < n; i += 20000)
        text[i] = '\n';
    assert_cuts(text, n, (size_t[]){400000, 400000, 200000}, 3);
    /* The slice begins a run anew: without this the next cut would come at 405,000. */
    memset(text, 'a', n);
    for (size_t i = 0; i < 400000; i += 20000)
        text[i] = ' ';
    assert_cuts(text, 430000, (size_t[]){400000, 25000, 5000}, 3);
    free(text);
}

static void cuts_count_code_points_not_bytes(void **state)
{
    (void)state;
    size_t n = 3 * 30000;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i += 3)
        memcpy(text + i, "\xe4\xb8\x96", 3);
    assert_cuts(text, n, (size_t[]){75000, 15000}, 2);
    free(text);
}

static void words_of_megabytes_are_matched_whole(void **state)
{
    (void)state;
    /* Far longer than any piece after the cuts: Hebrew letters, of which each could be given back to the next class. */
    size_t n = 4000000, total = 0, n_piece;
    char *text = malloc(n);
    for (size_t i = 0; i < n; i += 2)
        memcpy(text + i, "\xd7\x90", 2);
    k3_pretokenizer *pretokenizer;
    k3_splitter *splitter;
    k3_error err = {0};
    assert_int_equal(k3_pretokenizer_open(&pretokenizer, &err), K3_OK);
    assert_int_equal(k3_splitter_open(&splitter, pretokenizer, &err), K3_OK);
    assert_int_equal(k3_splitter_start(splitter, text, n, 0, &err), K3_OK);
    assert_int_equal(k3_splitter_next(splitter, &n_piece, &err), K3_OK);
    assert_int_equal(n_piece, n);
    memset(text, '!', n);
    assert_int_equal(k3_splitter_start(splitter, text, n, 0, &err), K3_OK);
    do {
        assert_int_equal(k3_splitter_next(splitter, &n_piece, &err), K3_OK);
        total += n_piece;
    } while (n_piece > 0);
    assert_int_equal(total, n);
    k3_splitter_close(splitter);
    k3_pretokenizer_close(pretokenizer);
    free(text);
}

static void space_is_pythons_isspace(void **state)
{
    (void)state;
    size_t n = 0;
    for (uint32_t c = 0; c < 0x110000; c++)
        n += (size_t)k3_utf8_is_space(c);
    assert_int_equal(n, 29);
    assert_true(k3_utf8_is_space(0x1c) && k3_utf8_is_space(0x85) && k3_utf8_is_space(0x3000));
    assert_false(k3_utf8_is_space(0x180e) || k3_utf8_is_space(0x200b) || k3_utf8_is_space(0xfeff));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_examples_of_the_pattern_split_as_written),
        cmocka_unit_test(b04_quotes_dashes_and_han_split_like_the_reference),
        cmocka_unit_test(b06_numbers_of_all_scripts_go_in_threes),
        cmocka_unit_test(runs_are_cut_after_25000_and_slices_after_400000),
        cmocka_unit_test(cuts_count_code_points_not_bytes),
        cmocka_unit_test(words_of_megabytes_are_matched_whole),
        cmocka_unit_test(space_is_pythons_isspace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
