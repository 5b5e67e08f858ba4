/* Shared by the tests of text/: vocabularies and files. */
#ifndef K3_TESTS_TEXT_SUPPORT_H
#define K3_TESTS_TEXT_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "text/vocab.h"

/* K3's own tiktoken.model is not in the repository; it is looked for beside it. */
#define REAL_FOLDER "../shared/data"
enum { REAL_SIZE = 163840 };

/* NULL if the file is not there. The caller closes it. */
k3_vocab *open_real_vocab(void);
/* 256 single bytes, a few hundred tokens made of them, 256 special slots with K3's names. */
k3_vocab *open_small_vocab(void);
/* The text of such a tiktoken.model, malloc'd; n_tokens counts its lines. */
char *small_model_text(int *n_tokens);
/* Both fail the test when something is wrong. */
const k3_json *read_json(const char *path);
k3_vocab *parse_vocab(const char *model, const char *config, int vocab_size);
/* Fails the test if `ids` differ from expected [n]; `what` names the text. */
void assert_ids(const k3_tokens *ids, const int32_t *expected, size_t n, const char *what);

/* A repeatable random number below n. */
uint32_t random_below(uint64_t *state, uint32_t n);

#endif
