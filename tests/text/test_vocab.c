#include "text_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Replaces the first `old` of the model's text, or the whole if old is NULL, and expects the refusal. */
static void assert_refused(const char *old, const char *new, const char *config, int extra, const char *message)
{
    int n;
    char *model = small_model_text(&n), *edited = malloc(strlen(model) + strlen(new) + 1);
    assert_non_null(edited);
    if (old) {
        char *at = strstr(model, old);
        assert_non_null(at);
        sprintf(edited, "%.*s%s%s", (int)(at - model), model, new, at + strlen(old));
    } else {
        strcpy(edited, model);
    }
    k3_vocab *vocab;
    k3_error err = {0};
    assert_int_not_equal(k3_vocab_parse(&vocab, edited, strlen(edited), config, config ? strlen(config) : 0, n + extra, &err), K3_OK);
    assert_null(vocab);
    if (strncmp(err.text, message, strlen(message)) != 0)
        fail_msg("\"%s\", wanted \"%s\"", err.text, message);
    free(model);
    free(edited);
}

static void broken_lines_are_named_by_number(void **state)
{
    (void)state;
    assert_refused("BA== 4\n", "BA==4\n", NULL, 256, "tiktoken.model: line 5 is \"BA==4\", wanted \"BASE64 RANK\"");
    assert_refused("BA== 4\n", "BA== \n", NULL, 256, "tiktoken.model: line 5 is \"BA== \"");
    assert_refused("BA== 4\n", "BA== -4\n", NULL, 256, "tiktoken.model: line 5 is");
    assert_refused("BA== 4\n", "BA== 99999999999\n", NULL, 256, "tiktoken.model: line 5 is");
    assert_refused("BA== 4\n", "BA= 4\n", NULL, 256, "tiktoken.model: line 5: \"BA=\" is not base64");
    assert_refused("BA== 4\n", "B!== 4\n", NULL, 256, "tiktoken.model: line 5: \"B!==\" is not base64");
    assert_refused("BA== 4\n", "B=A= 4\n", NULL, 256, "tiktoken.model: line 5: \"B=A=\" is not base64");
    assert_refused("BA== 4\n", " 4\n", NULL, 256, "tiktoken.model: line 5: \"\" is not base64");
    assert_refused("BA== 4\n", "BA== 3\n", NULL, 256, "tiktoken.model: line 5 has rank 3, which an earlier line has already");
    assert_refused("BA== 4\n", "BA== 9999\n", NULL, 256, "tiktoken.model: line 5 has rank 9999, but the");
    assert_refused("BA== 4\n", "Aw== 4\n", NULL, 256, "tiktoken.model: line 5: rank 4 has the same bytes as rank 3");
    assert_refused("BA== 4\n", "BAQ= 4\n", NULL, 256, "tiktoken.model: no token is the single byte 0x04");
}

static void a_wrong_vocab_size_is_explained(void **state)
{
    (void)state;
    assert_refused(NULL, "", NULL, 0, "tiktoken.model: ");
    assert_refused(NULL, "", NULL, 65537, "tiktoken.model: ");
    k3_vocab *vocab;
    k3_error err;
    assert_int_equal(k3_vocab_parse(&vocab, "", 0, NULL, 0, 0, &err), K3_E_INVALID);
    assert_int_equal(k3_vocab_parse(&vocab, "", 0, NULL, 0, 100, &err), K3_E_FORMAT);
}

static void crlf_and_a_byte_order_mark_are_accepted(void **state)
{
    (void)state;
    int n;
    char *model = small_model_text(&n), *windows = malloc(2 * strlen(model) + 8), *at = windows;
    at += sprintf(at, "\xef\xbb\xbf");
    for (const char *s = model; *s; s++)
        at += sprintf(at, *s == '\n' ? "\r\n" : "%c", *s);
    at += sprintf(at, "\r\n");
    k3_vocab *vocab = parse_vocab(windows, "\xef\xbb\xbf{\r\n\"added_tokens_decoder\": {\r\n}}\r\n", n + 256);
    assert_int_equal(k3_vocab_n_ranks(vocab), n);
    assert_true(k3_vocab_rank(vocab, "message", 7) > 255);
    k3_vocab_close(vocab);
    free(windows);
    free(model);
}

static void without_a_config_the_names_are_k3s_by_position(void **state)
{
    (void)state;
    static const struct {
        int offset;
        const char *name;
    } wanted[] = {{0, "[BOS]"},
                  {1, "[EOS]"},
                  {2, "<|end_of_msg|>"},
                  {3, "<|open|>"},
                  {4, "<|close|>"},
                  {5, "<|sep|>"},
                  {9, "[EOT]"},
                  {18, "<|media_begin|>"},
                  {19, "<|media_content|>"},
                  {20, "<|media_end|>"},
                  {21, "<|media_pad|>"},
                  {65, "<osagent_mode>"},
                  {254, "[UNK]"},
                  {255, "[PAD]"}};
    k3_vocab *vocab = open_small_vocab();
    int first = k3_vocab_n_ranks(vocab);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_int_equal(k3_vocab_special(vocab, wanted[i].name), first + wanted[i].offset);
    char reserved[40];
    snprintf(reserved, sizeof reserved, "<|reserved_token_%d|>", first + 8);
    assert_int_equal(k3_vocab_special(vocab, reserved), first + 8);
    assert_int_equal(k3_vocab_special(vocab, "<|nothing|>"), -1);
    assert_false(k3_vocab_is_special(vocab, first - 1));
    assert_true(k3_vocab_is_special(vocab, first));
    assert_false(k3_vocab_is_special(vocab, first + 256));
    assert_false(k3_vocab_is_special(vocab, -1));
    k3_vocab_close(vocab);
}

static void fewer_slots_hold_the_names_that_fit(void **state)
{
    (void)state;
    int n;
    char *model = small_model_text(&n);
    k3_vocab *vocab = parse_vocab(model, NULL, n + 6);
    assert_int_equal(k3_vocab_special(vocab, "<|sep|>"), n + 5);
    assert_int_equal(k3_vocab_special(vocab, "[EOT]"), -1);
    assert_int_equal(k3_vocab_special(vocab, "[PAD]"), -1);
    k3_vocab_close(vocab);
    free(model);
}

static void b20_names_stand_at_their_own_ids_across_gaps(void **state)
{
    (void)state;
    int n;
    char *model = small_model_text(&n), config[512], reserved[40];
    snprintf(config, sizeof config,
             "{\"added_tokens_decoder\": {\"%d\": {\"content\": \"[UNK]\", \"special\": true}, \"%d\": {\"content\": \"<|open|>\"},"
             "\"%d\": {\"content\": \"[PAD]\"}, \"%d\": {\"content\": \"[BOS]\"}}, \"x\": NaN}",
             n + 254, n + 3, n + 255, n);
    k3_vocab *vocab = parse_vocab(model, config, n + 256);
    assert_int_equal(k3_vocab_special(vocab, "[BOS]"), n);
    assert_int_equal(k3_vocab_special(vocab, "<|open|>"), n + 3);
    assert_int_equal(k3_vocab_special(vocab, "[UNK]"), n + 254);
    assert_int_equal(k3_vocab_special(vocab, "[PAD]"), n + 255);
    assert_int_equal(k3_vocab_special(vocab, "<|sep|>"), -1);
    snprintf(reserved, sizeof reserved, "<|reserved_token_%d|>", n + 5);
    assert_int_equal(k3_vocab_special(vocab, reserved), n + 5);
    k3_vocab_close(vocab);
    free(model);
}

static void broken_configs_are_refused(void **state)
{
    (void)state;
    assert_refused(NULL, "", "[", 256, "tokenizer_config.json: line 1, column 2");
    assert_refused(NULL, "", "[]", 256, "tokenizer_config.json: the file is not a JSON object");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": []}", 256, "tokenizer_config.json: added_tokens_decoder is not an object");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"3\": {\"content\": \"x\"}}}", 256,
                   "tokenizer_config.json: added_tokens_decoder has the id \"3\", wanted a number from");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"99999999999999999999999\": {\"content\": \"x\"}}}", 256,
                   "tokenizer_config.json: added_tokens_decoder has the id \"99999999999999999999999\"");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"\": {\"content\": \"x\"}}}", 256,
                   "tokenizer_config.json: added_tokens_decoder has the id \"\"");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"400\": {\"content\": \"\"}}}", 256,
                   "tokenizer_config.json: added_tokens_decoder: id 400 has no \"content\"");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"400\": {\"content\": \"x\"}, \"400\": {\"content\": \"y\"}}}", 256,
                   "tokenizer_config.json: added_tokens_decoder names id 400 twice");
    assert_refused(NULL, "", "{\"added_tokens_decoder\": {\"400\": {\"content\": \"x\"}, \"401\": {\"content\": \"x\"}}}", 256,
                   "tokenizer_config.json: special tokens 400 and 401 are both named \"x\"");
}

static void check_every_id(const k3_vocab *vocab)
{
    const char *bytes;
    size_t n;
    k3_error err;
    for (int id = 0; id < k3_vocab_size(vocab); id++) {
        char name[4097];
        assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, id, &err), K3_OK);
        assert_true(n > 0 && n < sizeof name);
        memcpy(name, bytes, n);
        name[n] = 0;
        assert_int_equal(id < k3_vocab_n_ranks(vocab) ? k3_vocab_rank(vocab, bytes, n) : k3_vocab_special(vocab, name), id);
    }
    static const int64_t outside[] = {-1, INT32_MIN, INT64_MIN, (int64_t)1 << 31, INT64_MAX};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, outside[i], &err), K3_E_INVALID);
    assert_int_equal(k3_vocab_bytes(vocab, &bytes, &n, k3_vocab_size(vocab), &err), K3_E_INVALID);
    assert_null(bytes);
}

static void b19_every_id_decodes_and_no_other(void **state)
{
    (void)state;
    k3_vocab *vocab = open_small_vocab();
    check_every_id(vocab);
    k3_vocab_close(vocab);
    vocab = open_real_vocab();
    if (!vocab) {
        print_message("SKIP: needs " REAL_FOLDER "/tiktoken.model\n");
        skip();
    }
    assert_int_equal(k3_vocab_n_ranks(vocab), 163584);
    assert_int_equal(k3_vocab_longest(vocab), 256);
    check_every_id(vocab);
    assert_int_equal(k3_vocab_special(vocab, "<|end_of_msg|>"), 163586);
    assert_int_equal(k3_vocab_special(vocab, "[PAD]"), 163839);
    assert_int_equal(k3_vocab_special(vocab, "<|reserved_token_163600|>"), 163600);
    k3_vocab_close(vocab);
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static void b14_a_folder_with_tiktoken_model_alone_opens(void **state)
{
    (void)state;
    char folder[] = P_tmpdir "/k3-vocab-XXXXXX", path[sizeof folder + 32], text[512];
    assert_non_null(mkdtemp(folder));
    k3_vocab *vocab;
    k3_error err = {0};
    assert_int_equal(k3_vocab_open(&vocab, folder, 600, &err), K3_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "tiktoken.model"));
    int n;
    char *model = small_model_text(&n);
    snprintf(path, sizeof path, "%s/tiktoken.model", folder);
    write_file(path, model);
    assert_int_equal(k3_vocab_open(&vocab, folder, n + 256, &err), K3_OK);
    assert_int_equal(k3_vocab_special(vocab, "<|sep|>"), n + 5);
    k3_vocab_close(vocab);
    assert_int_equal(k3_vocab_open(&vocab, folder, n, &err), K3_E_FORMAT);
    snprintf(text, sizeof text, "%s: tiktoken.model: ", folder);
    assert_int_equal(strncmp(err.text, text, strlen(text)), 0);
    unlink(path);
    rmdir(folder);
    free(model);
}

static void the_config_of_the_folder_is_read(void **state)
{
    (void)state;
    char folder[] = P_tmpdir "/k3-vocab-XXXXXX", model_path[sizeof folder + 32], config_path[sizeof folder + 32], config[128];
    assert_non_null(mkdtemp(folder));
    k3_vocab *vocab;
    k3_error err = {0};
    int n;
    char *model = small_model_text(&n);
    snprintf(model_path, sizeof model_path, "%s/tiktoken.model", folder);
    snprintf(config_path, sizeof config_path, "%s/tokenizer_config.json", folder);
    snprintf(config, sizeof config, "{\"added_tokens_decoder\": {\"%d\": {\"content\": \"<|mine|>\"}}}", n + 7);
    write_file(model_path, model);
    write_file(config_path, config);
    assert_int_equal(k3_vocab_open(&vocab, folder, n + 256, &err), K3_OK);
    assert_int_equal(k3_vocab_special(vocab, "<|mine|>"), n + 7);
    assert_int_equal(k3_vocab_special(vocab, "<|sep|>"), -1);
    k3_vocab_close(vocab);
    write_file(config_path, "{");
    assert_int_equal(k3_vocab_open(&vocab, folder, n + 256, &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "tokenizer_config.json: line 1, column 2: "));
    unlink(model_path);
    unlink(config_path);
    rmdir(folder);
    free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_lines_are_named_by_number),
        cmocka_unit_test(a_wrong_vocab_size_is_explained),
        cmocka_unit_test(crlf_and_a_byte_order_mark_are_accepted),
        cmocka_unit_test(without_a_config_the_names_are_k3s_by_position),
        cmocka_unit_test(fewer_slots_hold_the_names_that_fit),
        cmocka_unit_test(b20_names_stand_at_their_own_ids_across_gaps),
        cmocka_unit_test(broken_configs_are_refused),
        cmocka_unit_test(b14_a_folder_with_tiktoken_model_alone_opens),
        cmocka_unit_test(the_config_of_the_folder_is_read),
        cmocka_unit_test(b19_every_id_decodes_and_no_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
