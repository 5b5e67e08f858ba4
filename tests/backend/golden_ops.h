/* One function an op: runs a golden case on a backend and returns the largest error over its outputs, relative to the largest expected
 * magnitude of each. *T is the number of rows. */
#ifndef K3_TESTS_BACKEND_GOLDEN_OPS_H
#define K3_TESTS_BACKEND_GOLDEN_OPS_H

#include "fixture.h"
#include "support/golden.h"

typedef double golden_run(k3_backend *be, const golden *g, const char *c, int *T);

typedef struct golden_op {
    const char *name; /* stem of the file in tests/golden */
    golden_run *run;
    int optional; /* the CPU may leave it out */
} golden_op;

enum { N_GOLDEN_OPS = 19 };
extern const golden_op golden_ops[N_GOLDEN_OPS];

#endif
