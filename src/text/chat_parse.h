/* What the model says, taken apart: one state machine driven by token ids, for streams and whole answers alike. docs/chat.md states its
 * rules. Only real marker tokens open structure; a text that spells one is text. */
#ifndef K3_TEXT_CHAT_PARSE_H
#define K3_TEXT_CHAT_PARSE_H

#include "text/vocab.h"

typedef struct k3_chat_parse k3_chat_parse;

/* thinking: 1 if the prompt left `think` open, 0 for `response`. The vocabulary must outlive the parser. */
k3_status k3_chat_parse_open(k3_chat_parse **out, const k3_vocab *vocab, int thinking, k3_chat_sink sink, void *user, k3_error *err);
/* Feeds one generated id; *done becomes 1 at the end of the message, and later ids change nothing. A call's events come together, when
 * the call is complete. */
k3_status k3_chat_parse_push(k3_chat_parse *parse, int32_t id, int *done, k3_error *err);
/* Ends the output: hands out text that was held and drops a call that is still open. "tool_calls" or "stop" if the message ended,
 * otherwise "length". */
const char *k3_chat_parse_finish(k3_chat_parse *parse);
void k3_chat_parse_close(k3_chat_parse *parse);

#endif
