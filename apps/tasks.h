/* Prompts with a check on the answer: how a model card's scores are made again. */
#ifndef K3_APPS_TASKS_H
#define K3_APPS_TASKS_H

#include "k3.h"
#include "options.h"

/* options->tasks is a JSON list of {family, request, prompt_ids, check}. check is one of
 *   {"type": "content_equals", "value": TEXT}, {"type": "content_contains", "value": TEXT},
 *   {"type": "tool_call", "name": NAME, "arguments": OBJECT}: exactly one call, arguments compared as data.
 * `request` may be left out where prompt_ids is there; with both, they must agree. Answers are greedy. Prints a table. */
int app_tasks(k3_engine *engine, const app_options *options);

#endif
