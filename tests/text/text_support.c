#include "text_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/os.h"

k3_vocab *open_real_vocab(void)
{
    k3_vocab *vocab = NULL;
    k3_error err = {0};
    if (!k3_os_exists(REAL_FOLDER "/tiktoken.model"))
        return NULL;
    if (k3_vocab_open(&vocab, REAL_FOLDER, REAL_SIZE, &err) != K3_OK)
        fail_msg("%s", err.text);
    return vocab;
}

static size_t put_base64(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n_out = 0;
    for (size_t i = 0; i < n; i += 3) {
        uint32_t bits = (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0);
        for (size_t j = 0; j < 4; j++)
            out[n_out++] = i + j > n ? '=' : digits[bits >> (18 - 6 * j) & 63];
    }
    out[n_out] = 0;
    return n_out;
}

char *small_model_text(int *n_tokens)
{
    /* Letter pairs first, then words: each is reached by joins of lower rank. */
    static const char *const words[] = {
        "th",  "the",     "in",       "er",           "an",           "re",       "on",           "at",
        "en",  "nd",      "and",      " t",           " the",         "me",       "ss",           "mess",
        "age", "message", "ink",      "think",        "to",           "ol",       "tool",         "ca",
        "ll",  "call",    "=\"",      "arg",          "um",           "ent",      "ty",           "pe",
        "st",  "ing",     "str",      "string",       "num",          "ber",      "12",           "123",
        "aa",  "aaaa",    "\xe4\xb8", "\xe4\xb8\xad", "\xe4\xb8\x96", "\xf0\x9f", "\xf0\x9f\x98", "\xf0\x9f\x98\x80",
        "<|",  "|>",      "op",       "open",         "sep",          "cl",       "ose",          "close",
        "  ",  "    ",    "\r\n",     "\n\n"};
    size_t n_words = sizeof words / sizeof words[0], at = 0;
    char *text = malloc((256 + n_words) * 48);
    assert_non_null(text);
    int n = 0;
    for (int b = 0; b < 256; b++) {
        unsigned char byte = (unsigned char)b;
        at += put_base64(text + at, &byte, 1);
        at += (size_t)sprintf(text + at, " %d\n", n++);
    }
    for (size_t i = 0; i < n_words; i++) {
        int repeated = 0;
        for (size_t j = 0; j < i; j++)
            repeated |= strcmp(words[i], words[j]) == 0;
        if (repeated)
            continue;
        at += put_base64(text + at, (const unsigned char *)words[i], strlen(words[i]));
        at += (size_t)sprintf(text + at, " %d\n", n++);
    }
    *n_tokens = n;
    return text;
}

k3_vocab *parse_vocab(const char *model, const char *config, int vocab_size)
{
    k3_vocab *vocab = NULL;
    k3_error err = {0};
    if (k3_vocab_parse(&vocab, model, strlen(model), config, config ? strlen(config) : 0, vocab_size, &err) != K3_OK)
        fail_msg("%s", err.text);
    return vocab;
}

k3_vocab *open_small_vocab(void)
{
    int n;
    char *model = small_model_text(&n);
    k3_vocab *vocab = parse_vocab(model, NULL, n + 256);
    free(model);
    return vocab;
}

const k3_json *read_json(const char *path)
{
    char *text;
    size_t n;
    const k3_json *root = NULL;
    k3_error err = {0};
    if (k3_os_read_file(&text, &n, path, (uint64_t)1 << 30, &err) != K3_OK || k3_json_parse(&root, text, n, 0, &err) != K3_OK)
        fail_msg("%s: %s", path, err.text);
    free(text);
    return root;
}

void assert_ids(const k3_tokens *ids, const int32_t *expected, size_t n, const char *what)
{
    for (size_t i = 0; i < n && i < ids->n; i++)
        if (ids->ids[i] != expected[i])
            fail_msg("%s: id %zu of %zu is %d, wanted %d", what, i, n, ids->ids[i], expected[i]);
    if (ids->n != n)
        fail_msg("%s: %zu ids, wanted %zu", what, ids->n, n);
}

uint32_t random_below(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}
