/* One function an op: runs a golden case on a backend and returns the largest error over its outputs, relative to the largest expected
 * magnitude of each. *T becomes the number of rows of a call; if it is 1 before, and the op says so, there is one row a call. */
#ifndef K3_TESTS_BACKEND_GOLDEN_OPS_H
#define K3_TESTS_BACKEND_GOLDEN_OPS_H

#include "fixture.h"
#include "support/golden.h"

typedef double golden_run(k3_backend *be, const golden *g, const char *c, int *T);

typedef struct golden_op {
    const char *name; /* stem of the file in tests/golden */
    golden_run *run;
    int optional; /* the CPU may leave it out */
    int by_row;   /* its cases of many rows are also run row by row */
} golden_op;

enum { N_GOLDEN_OPS = 19 };
extern const golden_op golden_ops[N_GOLDEN_OPS];

#endif
