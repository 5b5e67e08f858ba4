/* Shared by the tests of the chat parser: outputs in tokens, and what a client has when the stream is over. */
#ifndef K3_TESTS_TEXT_CHAT_ANSWER_H
#define K3_TESTS_TEXT_CHAT_ANSWER_H

#include "text_support.h"

#include "text/buffer.h"

enum { MAX_CALLS = 8 };

/* What a client has when the stream is over. */
typedef struct answer {
    k3_buffer reasoning, content, names[MAX_CALLS], arguments[MAX_CALLS];
    int n_calls, in_call, n_events, done;
    const char *finish;
} answer;

/* The parser's sink; user is an answer. Fails the test when pieces are not valid UTF-8, calls overlap or are numbered wrong. */
void collect(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n);
answer parse_ids(const k3_vocab *vocab, int thinking, const int32_t *ids, size_t n);
int same_buffer(const k3_buffer *a, const k3_buffer *b);
int same_answer(const answer *a, const answer *b);
void free_answer(answer *a);

/* Text in ordinary tokens. n_most: the largest number of bytes encoded together; 0: all. */
void add_text(const k3_vocab *vocab, k3_tokens *ids, const char *text, size_t n, uint32_t n_most, uint64_t *random);
/* "{" is <|open|>, "}" is <|close|>, "|" is <|sep|>, "$" is <|end_of_msg|>; the rest is ordinary text. */
void add_script(const k3_vocab *vocab, k3_tokens *ids, const char *script);

#endif
