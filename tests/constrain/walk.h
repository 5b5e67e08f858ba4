/* Shared by the tests of constraints: a vocabulary, requests, random answers, and answers that are fed. */
#ifndef K3_TESTS_CONSTRAIN_WALK_H
#define K3_TESTS_CONSTRAIN_WALK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "constrain/constraint.h"
#include "text/buffer.h"
#include "text/tokens.h"

enum { MAX_WALK = 4000, MAX_CALLS = 40 };

/* The bundled model's vocabulary and its trie, opened once. */
const k3_vocab *the_vocab(void);
const k3_token_trie *the_trie(void);
void close_vocab(void);

/* Fails the test on an error. */
k3_constraint *open_constraint(const char *request, int thinking);
/* {"response_format": {...json_schema of the schema...}}, malloc'd. */
char *request_of(const char *schema);

/* The parts of an answer as a client sees them. */
typedef struct parts {
    k3_buffer content, names[MAX_CALLS], arguments[MAX_CALLS];
    int n_calls, done;
} parts;
parts take_apart(const k3_tokens *ids, int thinking);
void free_parts(parts *p);

/* Picks at random among the ids that stay until the answer is over: after a few dozen ids those that end things come first. Fails the test
 * at a dead end, or if an id that stays is refused. */
void random_answer(k3_constraint *c, k3_tokens *ids, uint64_t *random);

/* Feeds an answer: markers are these signs, and what stands between is text, encoded as the renderer does it, or byte by byte. An id is
 * taken if and only if it stays. Returns how many bytes of the script were taken; fed (or
 * NULL) gets the ids. */
#define OPEN "\1"
#define CLOSE "\2"
#define SEP "\3"
#define END "\4"
size_t feed_script(k3_constraint *c, const char *script, int by_bytes, k3_tokens *fed);
/* The same for text without markers. */
size_t feed_text(k3_constraint *c, const char *text, size_t n, int by_bytes, k3_tokens *fed);

#endif
