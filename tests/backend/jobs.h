/* Random calls of the ops: a job is a shape and a seed, so every backend gets the same inputs. The rows can be computed in one call or in
 * several, and what comes out is one list of floats: outputs, then states. */
#ifndef K3_TESTS_BACKEND_JOBS_H
#define K3_TESTS_BACKEND_JOBS_H

#include "fixture.h"

typedef struct job {
    uint64_t seed;
    int T;           /* rows */
    int n_sequences; /* the rows belong to that many sequences, in order */
    int a, b;        /* what the op makes of them: columns, heads, ... */
    k3_type type;    /* of weights */
    int odd;         /* tensors lie at odd places: activations so many floats further, matrices a byte */
} job;

typedef struct job_result {
    float *values;
    size_t n;
} job_result;

/* Computes the job in calls of pieces[0], pieces[1], ... rows (0 ends the list: the rest in one call). */
typedef void job_run(k3_backend *be, const job *j, const int *pieces, job_result *out);

typedef struct job_op {
    const char *name;
    job_run *run;
    double tolerance; /* against scalar, relative to the largest value of an output */
    int by_type;      /* each weight type in turn */
    int chunked;      /* calls of other lengths round differently on every backend */
} job_op;

enum { N_JOB_OPS = 17 };
extern const job_op job_ops[N_JOB_OPS];

/* The largest difference, relative to the largest value of a; infinite where either has one that is not finite. */
double job_difference(const job_result *a, const job_result *b);

#endif
