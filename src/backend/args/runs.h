/* The runs of an operation as a kernel gets them: a table, or the only run in place, so that one token does not wait for the table. */
#ifndef K3_BACKEND_ARGS_RUNS_H
#define K3_BACKEND_ARGS_RUNS_H

#include "backend/args/types.h"

struct k3_runs_args {
    uint64_t table; /* address of k3_run_args; 0: the only run follows */
    uint64_t state; /* address */
    uint32_t row, n;
};
K3_ARGS_SIZE(k3_runs_args, 24)

#endif
