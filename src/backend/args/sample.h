/* Arguments and tables of the kernels of sample. */
#ifndef K3_BACKEND_ARGS_SAMPLE_H
#define K3_BACKEND_ARGS_SAMPLE_H

#include "backend/args/types.h"

/* One draw, in numbers that every device rounds alike. Distances are those of a logit from the row's largest, in units of 2^-32 or, if that
 * is more, 2^-32 2^-shift. */
struct k3_sample_draw {
    uint64_t u, top_p; /* in units of 2^-64; top_p 0: off */
    uint64_t cut;      /* largest distance with a weight */
    uint64_t min_p;    /* largest distance that min_p keeps; all bits: off */
    uint32_t scale;    /* log2(e) / temperature = scale 2^(shift - 32) */
    int32_t shift;
    uint32_t top_k; /* 0: off */
    uint32_t greedy;
};
K3_ARGS_SIZE(k3_sample_draw, 48)

/* How far a row's search has come. Masses are sums of weights, whose unit is 2^-40 of the largest. */
struct k3_sample_state {
    uint64_t kept;            /* mass of what the filters so far keep */
    uint64_t goal;            /* what is searched: where the running mass, or count, reaches this */
    uint64_t above;           /* mass of the keys above the interval */
    uint32_t n_above, prefix; /* their number; the leading bits of the keys in the interval */
    uint32_t best, rank;      /* the largest key; which of the ids that have the found key */
};
K3_ARGS_SIZE(k3_sample_state, 40)

/* The kernels run one after another; step i finds state i - 1 and leaves state i and histogram i. */
struct k3_sample_args {
    uint64_t ids, logits, draws; /* addresses */
    uint64_t maxima, ties;       /* uint [T, groups] */
    uint64_t states, histograms; /* k3_sample_state [T, K3_SAMPLE_STEPS]; uvec4 [T, K3_SAMPLE_STEPS, K3_SAMPLE_BINS + 1] */
    uint32_t V, groups, step;
    uint32_t search, digit; /* the search this step serves, the digit of the key it counts */
    uint32_t finish;        /* the search that the step before has counted the last digit for */
};
K3_ARGS_SIZE(k3_sample_args, 80)

#define K3_SAMPLE_BINS 2048u
#define K3_SAMPLE_STEPS 8u
#define K3_SAMPLE_GROUP 2048u /* logits of a workgroup */
#define K3_SAMPLE_NONE 0u
#define K3_SAMPLE_TOP_K 1u
#define K3_SAMPLE_TOP_P 2u
#define K3_SAMPLE_DRAW 3u

#endif
