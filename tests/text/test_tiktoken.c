/* Ids against the tiktoken package with K3's ranks and pattern, on 12 MB of text that tools/text/compare_tiktoken.py makes: every code
 * point in several surroundings, mixtures of scripts, long runs across the cuts, special names, invalid UTF-8. */
#include "text_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "text/tokenize.h"

#define PYTHON ".venv/bin/python"
enum { HEADER_BYTES = 12 };

static uint32_t read_u32(const char *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static size_t check_record(k3_encoder *encoder, const char *at, size_t *n_text)
{
    k3_error err = {0};
    uint32_t trusted = read_u32(at), n_bytes = read_u32(at + 4), n_ids = read_u32(at + 8);
    const char *text = at + HEADER_BYTES;
    k3_tokens ids = {0};
    if (k3_encoder_add(encoder, &ids, text, n_bytes, (int)trusted, &err) != K3_OK)
        fail_msg("%s", err.text);
    int32_t *expected = malloc(n_ids * sizeof *expected + 1);
    memcpy(expected, text + n_bytes, n_ids * sizeof *expected);
    char what[160];
    snprintf(what, sizeof what, "%u bytes beginning with \"%.*s\"", n_bytes, (int)(n_bytes < 100 ? n_bytes : 100), text);
    assert_ids(&ids, expected, n_ids, what);
    free(expected);
    k3_tokens_free(&ids);
    *n_text += n_bytes;
    return HEADER_BYTES + n_bytes + (size_t)n_ids * 4;
}

static void ids_equal_those_of_tiktoken(void **state)
{
    (void)state;
    k3_vocab *vocab = open_real_vocab();
    if (!vocab || system(PYTHON " -c 'import tiktoken' 2>/dev/null") != 0) {
        k3_vocab_close(vocab);
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model and the tiktoken package in .venv\n");
        skip();
    }
    char path[] = P_tmpdir "/k3-tiktoken-XXXXXX", command[256], *data;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    snprintf(command, sizeof command, PYTHON " tools/text/compare_tiktoken.py " REAL_FOLDER "/tiktoken.model %s", path);
    assert_int_equal(system(command), 0);
    size_t n, n_text = 0, n_records = 0;
    k3_error err = {0};
    k3_status status = k3_os_read_file(&data, &n, path, (uint64_t)1 << 30, &err);
    unlink(path);
    assert_int_equal(status, K3_OK);
    k3_encoder *encoder;
    assert_int_equal(k3_encoder_open(&encoder, vocab, &err), K3_OK);
    for (size_t at = 0; at < n; n_records++)
        at += check_record(encoder, data + at, &n_text);
    print_message("%zu texts, %zu bytes: same ids\n", n_records, n_text);
    assert_true(n_text > 5000000);
    k3_encoder_close(encoder);
    free(data);
    k3_vocab_close(vocab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ids_equal_those_of_tiktoken)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
