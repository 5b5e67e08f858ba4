/* Greedy runs of tiny_model on any engine: what the tests of tiers and of recovery compare. */
#ifndef K3_TESTS_ENGINE_TINY_RUNS_H
#define K3_TESTS_ENGINE_TINY_RUNS_H

#include "engine/engine.h"
#include "engine/posing.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { RUN_PROMPT = 24, RUN_NEW = 8, RUN_EXPERTS = 12 * TINY_EXPERTS };

/* The least config.ram, to 64 KiB, with which a model opens; 0: a gigabyte does not do. */
uint64_t run_least_ram(const char *model, k3_config config);

/* The new ids and the logits after each of them. */
typedef struct tiny_run {
    int32_t ids[RUN_NEW];
    float logits[RUN_NEW][TINY_VOCAB];
} tiny_run;

extern const int32_t run_prompt[RUN_PROMPT];
int32_t run_best(const float *logits);

/* Opens on posing devices; fails the test on trouble. */
k3_engine *run_open(const k3_config *config);
/* The prompt, then greedy tokens. */
k3_status run_greedy(tiny_run *out, k3_engine *engine, k3_error *err);
void run_must(k3_status status, const k3_error *err);
/* The same on the CPU, computed once for exact 0 and 1. */
const tiny_run *run_on_cpu(int exact);
/* Equal ids; and equal bits, which is what a posing CPU gives. */
void run_check(const tiny_run *got, const tiny_run *want);

/* What the budgets below are reckoned from: an engine of this configuration on the posing device. Resets the pose. */
void run_measure(k3_config config);
/* Budget of a first device that leaves room for n experts, and that of a further one. */
uint64_t run_budget(int n_experts);
uint64_t run_helper_budget(int n_experts);

#endif
