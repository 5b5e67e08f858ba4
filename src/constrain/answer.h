/* A chat request to the grammar of its answer: thinking, response and calls in K3's format. */
#ifndef K3_CONSTRAIN_ANSWER_H
#define K3_CONSTRAIN_ANSWER_H

#include "base/json.h"
#include "constrain/grammar.h"

enum { K3_ANSWER_MAX_CALLS = 32 };

/* *rule is the rule of the whole answer, behind the prompt that k3_chat_render makes; *narrows is 0 if the request leaves the answer open.
 * The grammar is finished. */
k3_status k3_answer_grammar(k3_grammar *g, uint32_t *rule, int *narrows, const k3_json *request, int thinking, k3_error *err);

#endif
