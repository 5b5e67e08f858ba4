/* Greedy runs of a whole model on a device, compared with the CPU's in exact mode. */
#ifndef K3_TESTS_ENGINE_GREEDY_H
#define K3_TESTS_ENGINE_GREEDY_H

#include "engine/engine.h"

#define TINY "tests/golden/tiny"
#define MINI "models/k3-mini"

enum { PROMPT = 70, NEW = 64 };

typedef struct run {
    float *scores; /* [PROMPT, vocab] of each position of the prompt */
    int32_t ids[NEW];
    int vocab, n_new;
} run;

/* PROMPT ids that a vocabulary of that size has. */
const int32_t *prompt_of(int vocab);
float *room_for_scores(const k3_engine *engine);
/* Greedy ids after a prompt of n_prompt; the scores of the prompt as well if there is room for them. */
k3_status generate(run *out, k3_engine *engine, int n_prompt, int n_new, k3_error *err);
void must_generate(run *out, k3_engine *engine, int n_prompt, int n_new);
/* The CPU's in exact mode, computed once for each of the two models. */
const run *cpu_run(const char *model);
/* An engine on the CPU whose products are exact though its trunk is quantized and its cache is bf16: what devices in default mode round
 * from.
 */
k3_engine *open_wide(const char *model, const char *trunk);

/* Largest difference of the prompt's scores, relative to the largest at their position. */
double difference(const run *got, const run *want);
void same_ids(const run *got, const run *want, const char *what);

#endif
