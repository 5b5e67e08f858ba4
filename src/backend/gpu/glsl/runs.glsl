/* The runs of an operation. */
#ifndef K3_RUNS_GLSL
#define K3_RUNS_GLSL

#include "common.glsl"
#include "backend/args/runs.h"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer Runs { k3_run_args at[]; };

struct Run {
    uint64_t state;
    uint row, n;
};

Run k3_run_of(k3_runs_args runs, uint i)
{
    if (runs.table == 0ul)
        return Run(runs.state, runs.row, runs.n);
    Runs table = Runs(runs.table);
    return Run(table.at[i].state, table.at[i].row, table.at[i].n);
}

#endif
