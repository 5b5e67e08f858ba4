/* What the instructions of products give when nothing but registers is touched. */
#ifndef K3_BENCH_CPU_CEILING_H
#define K3_BENCH_CPU_CEILING_H

#include <stdint.h>

typedef enum ceiling { CEILING_F32_AVX2, CEILING_F32, CEILING_INT8, CEILING_BF16, CEILING_AMX_INT8, CEILING_AMX_BF16, N_CEILINGS } ceiling;

const char *ceiling_name(ceiling which);
/* Whether this CPU has the instructions. AMX: the process must have asked for its tiles before. */
int ceiling_here(ceiling which);
/* n rounds of the loop; multiply-adds that were done. */
double ceiling_run(ceiling which, int64_t n);

#endif
