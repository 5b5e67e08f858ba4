#include "text_support.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"
#include "text/bpe.h"
#include "text/tokenize.h"

static k3_tokens encode(const k3_vocab *vocab, const char *text, size_t n, int trusted)
{
    k3_tokens ids = {0};
    k3_error err = {0};
    if (k3_text_encode(vocab, &ids, text, n, trusted, &err) != K3_OK)
        fail_msg("%s", err.text);
    return ids;
}

static void assert_encodes(const k3_vocab *vocab, const char *text, const int32_t *wanted, size_t n)
{
    k3_tokens ids = encode(vocab, text, strlen(text), 0);
    assert_ids(&ids, wanted, n, text);
    k3_tokens_free(&ids);
}

static k3_vocab *real_or_skip(void)
{
    k3_vocab *vocab = open_real_vocab();
    if (!vocab) {
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model\n");
        skip();
    }
    return vocab;
}

/* ---- joining by rank ----------------------------------------------------------------------------------- */

/* The rule written down in the most direct way: look at all pairs, join the lowest, leftmost. */
static size_t encode_plainly(const k3_vocab *vocab, int32_t *out, const char *piece, size_t n)
{
    size_t *starts = malloc((n + 1) * sizeof *starts), n_parts = n;
    for (size_t i = 0; i <= n; i++)
        starts[i] = i;
    for (;;) {
        int lowest = -1;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n_parts; i++) {
            int rank = k3_vocab_rank(vocab, piece + starts[i], starts[i + 2] - starts[i]);
            if (rank >= 0 && (lowest < 0 || rank < lowest)) {
                lowest = rank;
                at = i;
            }
        }
        if (lowest < 0)
            break;
        memmove(starts + at + 1, starts + at + 2, (n_parts - at - 1) * sizeof *starts);
        n_parts--;
    }
    for (size_t i = 0; i < n_parts; i++)
        out[i] = k3_vocab_rank(vocab, piece + starts[i], starts[i + 1] - starts[i]);
    free(starts);
    return n_parts;
}

static void check_random_pieces(const k3_vocab *vocab, const char *alphabet, size_t n_most, int n_rounds)
{
    uint64_t random = 7;
    k3_bpe bpe = {0};
    k3_error err;
    char *piece = malloc(n_most);
    int32_t *wanted = malloc(n_most * sizeof *wanted);
    for (int round = 0; round < n_rounds; round++) {
        size_t n = 1 + random_below(&random, (uint32_t)n_most);
        for (size_t i = 0; i < n; i++)
            piece[i] = alphabet ? alphabet[random_below(&random, (uint32_t)strlen(alphabet))] : (char)random_below(&random, 256);
        k3_tokens ids = {0};
        assert_int_equal(k3_bpe_encode(&bpe, &ids, vocab, piece, n, &err), K3_OK);
        /* A piece that is a token as a whole is that token, however its parts would join. */
        int whole = k3_vocab_rank(vocab, piece, n);
        size_t n_wanted = whole < 0 ? encode_plainly(vocab, wanted, piece, n) : 1;
        if (whole >= 0)
            wanted[0] = whole;
        assert_ids(&ids, wanted, n_wanted, "random piece");
        k3_tokens_free(&ids);
    }
    k3_bpe_close(&bpe);
    free(piece);
    free(wanted);
}

static void random_pieces_join_as_the_plain_rule_says(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    check_random_pieces(vocab, "thean12 ", 90, 2000);
    check_random_pieces(vocab, "thean", 400, 300);
    check_random_pieces(vocab, "a", 700, 100);
    check_random_pieces(vocab, NULL, 300, 200);
    k3_vocab_close(vocab);
    vocab = real_or_skip();
    check_random_pieces(vocab, "etaoinshr", 95, 2000);
    check_random_pieces(vocab, "etaoinshr", 600, 200);
    check_random_pieces(vocab, " =-", 600, 100);
    k3_vocab_close(vocab);
}

static void a_whole_token_wins_over_what_its_parts_join_to(void **state)
{
    (void)state;
    /* "xyz" has a rank, but neither "xy" nor "yz" has: no join reaches it. */
    int n;
    char *model = small_model_text(&n);
    sprintf(model + strlen(model), "eHl6 %d\n", n);
    k3_vocab *vocab = parse_vocab(model, NULL, n + 1 + 256);
    const int32_t whole[] = {n}, parts[] = {'x', 'y', 'z', 'x'};
    assert_encodes(vocab, "xyz", whole, 1);
    assert_encodes(vocab, "xyzx", parts, 4);
    k3_vocab_close(vocab);
    free(model);
}

static void known_ids_of_the_real_vocabulary(void **state)
{
    (void)state;
    k3_vocab *vocab = real_or_skip();
    assert_encodes(vocab, "user", (const int32_t[]){2482}, 1);
    assert_encodes(vocab, "assistant", (const int32_t[]){69702}, 1);
    assert_encodes(vocab, "hello", (const int32_t[]){22931}, 1);
    assert_encodes(vocab, "image", (const int32_t[]){4017}, 1);
    assert_encodes(vocab, "1234567890", (const int32_t[]){6694, 12972, 16242, 15}, 4);
    assert_encodes(vocab, "The capital of France is", (const int32_t[]){1008, 10484, 318, 15383, 387}, 5);
    assert_encodes(vocab, "", NULL, 0);
    k3_vocab_close(vocab);
}

/* ---- B01: huge words ----------------------------------------------------------------------------------- */

enum { MILLION = 1000000 };

static char *fill(char c)
{
    uint64_t random = 11;
    char *text = malloc(MILLION);
    for (size_t i = 0; i < MILLION; i++)
        text[i] = c ? c : (char)('a' + random_below(&random, 26));
    return text;
}

/* Pairs looked up for the first n letters of one piece: the work, whatever the machine. */
static uint64_t steps(const k3_vocab *vocab, const char *text, size_t n)
{
    k3_bpe bpe = {0};
    k3_tokens ids = {0};
    k3_error err;
    assert_int_equal(k3_bpe_encode(&bpe, &ids, vocab, text, n, &err), K3_OK);
    uint64_t n_steps = bpe.n_steps;
    k3_tokens_free(&ids);
    k3_bpe_close(&bpe);
    return n_steps;
}

static void check_growth(const k3_vocab *vocab)
{
    static const char fills[] = {'a', '^', ' ', 0};
    for (size_t i = 0; i < sizeof fills; i++) {
        char *text = fill(fills[i]);
        /* One piece of a megabyte, which the coarse cuts never let through: each byte is looked up a few times, not thousands. */
        assert_true(steps(vocab, text, MILLION) <= 3 * (uint64_t)MILLION);
        assert_true(steps(vocab, text, 10 * 1000) <= 3 * 10 * 1000);
        uint64_t start = k3_os_nanoseconds();
        k3_tokens ids = encode(vocab, text, MILLION, 0);
        double seconds = (double)(k3_os_nanoseconds() - start) * 1e-9;
        print_message("1e6 x '%c': %zu ids, %.2f s\n", fills[i] ? fills[i] : '?', ids.n, seconds);
        /* The case allows 2 s on one core; sanitizers and busy machines get ten times that. */
        assert_true(seconds < 20);
        k3_tokens_free(&ids);
        free(text);
    }
}

static void b01_a_million_equal_or_random_letters_are_near_linear(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    check_growth(vocab);
    k3_vocab_close(vocab);
    vocab = real_or_skip();
    check_growth(vocab);
    k3_vocab_close(vocab);
}

/* ---- special names and broken text --------------------------------------------------------------------- */

static void special_names_are_tokens_in_trusted_text_only(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    int first = k3_vocab_n_ranks(vocab);
    const char *bytes;
    size_t n;
    k3_error err;
    for (int id = first; id < first + 256; id++) {
        assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, id, &err), K3_OK);
        k3_tokens plain = encode(vocab, bytes, n, 0), trusted = encode(vocab, bytes, n, 1);
        for (size_t i = 0; i < plain.n; i++)
            assert_true(plain.ids[i] < first);
        assert_ids(&trusted, &(const int32_t){id}, 1, "special name");
        k3_tokens_free(&plain);
        k3_tokens_free(&trusted);
    }
    const int32_t wanted[] = {'x', ' ', first + 3, ' ', 'y', first + 5, first + 5, '<', k3_vocab_rank(vocab, "op", 2)};
    static const char text[] = "x <|open|> y<|sep|><|sep|><op";
    k3_tokens mixed = encode(vocab, text, sizeof text - 1, 1);
    assert_ids(&mixed, wanted, 9, "mixed");
    k3_tokens_free(&mixed);
    k3_vocab_close(vocab);
}

static void invalid_utf8_is_read_as_replacement_characters(void **state)
{
    (void)state;
    /* One U+FFFD for each maximal part, as in Python: the expected text follows the bytes. */
    static const char *const pairs[][2] = {
        {"a\xff"
         "b",
         "a\xef\xbf\xbd"
         "b"},
        {"\xe4\xb8", "\xef\xbf\xbd"},
        {"\xe4\xb8"
         "a",
         "\xef\xbf\xbd"
         "a"},
        {"\xf0\x9f\x98\xe4\xb8\xad", "\xef\xbf\xbd\xe4\xb8\xad"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xe0\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    k3_vocab *vocab = open_small_vocab();
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        k3_tokens broken = encode(vocab, pairs[i][0], strlen(pairs[i][0]), 0), whole = encode(vocab, pairs[i][1], strlen(pairs[i][1]), 0);
        assert_ids(&broken, whole.ids, whole.n, pairs[i][1]);
        k3_tokens_free(&broken);
        k3_tokens_free(&whole);
    }
    const int32_t nul[] = {'a', 0, 'b'};
    k3_tokens with_nul = encode(vocab, "a\0b", 3, 0);
    assert_ids(&with_nul, nul, 3, "a NUL byte");
    k3_tokens_free(&with_nul);
    k3_vocab_close(vocab);
}

static void decoding_gives_the_text_back(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    static const char text[] = "The messages think: \xe4\xb8\xad\xe4\xb8\x96 \xf0\x9f\x98\x80 e\xcc\x81 <|open|>\r\n\r\n  12345 \t\x01";
    k3_tokens ids = encode(vocab, text, sizeof text, 0);
    char back[4 * sizeof text];
    size_t n_back = 0;
    for (size_t i = 0; i < ids.n; i++) {
        const char *bytes;
        size_t n;
        k3_error err;
        assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, ids.ids[i], &err), K3_OK);
        memcpy(back + n_back, bytes, n);
        n_back += n;
    }
    assert_int_equal(n_back, sizeof text);
    assert_memory_equal(back, text, sizeof text);
    assert_true(ids.n < sizeof text);
    k3_tokens_free(&ids);
    k3_vocab_close(vocab);
}

enum { N_THREADS = 4 };

static void *encode_often(void *arg)
{
    const k3_vocab *vocab = arg;
    static const char text[] = "The messages think: \xe4\xb8\xad 12345 <|open|> aaaaaaaaaaaaaaaaa\r\n";
    k3_tokens *ids = calloc(1, sizeof *ids);
    k3_error err;
    for (int i = 0; ids && i < 200; i++)
        if (k3_text_encode(vocab, ids, text, sizeof text, i % 2, &err) != K3_OK)
            break;
    return ids;
}

static void one_vocabulary_serves_several_threads(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    pthread_t threads[N_THREADS];
    k3_tokens *alone = encode_often(vocab);
    for (size_t i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, vocab), 0);
    for (size_t i = 0; i < N_THREADS; i++) {
        void *ids;
        assert_int_equal(pthread_join(threads[i], &ids), 0);
        assert_ids(ids, alone->ids, alone->n, "in a thread");
        k3_tokens_free(ids);
        free(ids);
    }
    k3_tokens_free(alone);
    free(alone);
    k3_vocab_close(vocab);
}

/* ---- streaming UTF-8 ----------------------------------------------------------------------------------- */

static void b07_a_character_split_over_tokens_comes_out_whole(void **state)
{
    (void)state;
    static const char text[] = "a\xf0\x9f\x98\x80\xe4\xb8\xad!";
    k3_utf8 utf8 = {0};
    char out[64], all[64] = "";
    for (size_t i = 0; i < sizeof text - 1; i++) {
        size_t n = k3_utf8_push(&utf8, out, text + i, 1);
        size_t wanted = i == 0 ? 1 : i == 4 ? 4 : i == 7 ? 3 : i == 8 ? 1 : 0;
        assert_int_equal(n, wanted);
        strncat(all, out, n);
    }
    assert_int_equal(k3_utf8_push(&utf8, out, NULL, 0), 0);
    assert_string_equal(all, text);
}

static void b09_any_cut_of_a_long_text_lands_on_characters(void **state)
{
    (void)state;
    uint64_t random = 3;
    size_t n = 3 * 3500000, n_out = 0;
    char *text = malloc(n), *out = malloc(n + 16), piece[3 * 64];
    for (size_t i = 0; i < n; i += 3)
        memcpy(text + i, "\xe4\xb8\x96", 3);
    k3_utf8 utf8 = {0};
    for (size_t i = 0; i < n;) {
        size_t n_here = 1 + random_below(&random, 50);
        n_here = n_here < n - i ? n_here : n - i;
        size_t n_piece = k3_utf8_push(&utf8, piece, text + i, n_here);
        assert_int_equal(n_piece % 3, 0);
        memcpy(out + n_out, piece, n_piece);
        n_out += n_piece;
        i += n_here;
    }
    assert_int_equal(n_out, n);
    assert_memory_equal(out, text, n);
    free(text);
    free(out);
}

static void a_flush_ends_a_broken_character_once(void **state)
{
    (void)state;
    k3_utf8 utf8 = {0};
    char out[32];
    assert_int_equal(k3_utf8_push(&utf8, out, "\xf0\x9f", 2), 0);
    assert_int_equal(k3_utf8_push(&utf8, out, NULL, 0), 3);
    assert_memory_equal(out, "\xef\xbf\xbd", 3);
    assert_int_equal(k3_utf8_push(&utf8, out, NULL, 0), 0);
    assert_int_equal(k3_utf8_push(&utf8, out, "\xf0\x9f", 2), 0);
    assert_int_equal(k3_utf8_push(&utf8, out, "ab", 2), 5);
    assert_memory_equal(out,
                        "\xef\xbf\xbd"
                        "ab",
                        5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pieces_join_as_the_plain_rule_says),
        cmocka_unit_test(a_whole_token_wins_over_what_its_parts_join_to),
        cmocka_unit_test(known_ids_of_the_real_vocabulary),
        cmocka_unit_test(b01_a_million_equal_or_random_letters_are_near_linear),
        cmocka_unit_test(special_names_are_tokens_in_trusted_text_only),
        cmocka_unit_test(invalid_utf8_is_read_as_replacement_characters),
        cmocka_unit_test(decoding_gives_the_text_back),
        cmocka_unit_test(one_vocabulary_serves_several_threads),
        cmocka_unit_test(b07_a_character_split_over_tokens_comes_out_whole),
        cmocka_unit_test(b09_any_cut_of_a_long_text_lands_on_characters),
        cmocka_unit_test(a_flush_ends_a_broken_character_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
