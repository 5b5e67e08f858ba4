/* Jobs that together run every kernel that Metal has, each on a backend of its own on the Metal of tests/metal: a fault that is put in
 * leaves nothing behind, and memory holds nothing of an earlier run. */
#ifndef K3_TESTS_BACKEND_KERNEL_JOBS_H
#define K3_TESTS_BACKEND_KERNEL_JOBS_H

#include "jobs.h"

#include "backend/gpu/shaders.h"

enum { KERNEL_SLABS = 64 };

typedef struct kernel_job {
    const char *op; /* of job_ops, or one that this file has itself */
    job shape;
    int exact; /* the kernels of exact mode */
    int pieces[4];
} kernel_job;

typedef struct kernel_run {
    k3_status status;
    job_result result; /* nothing unless the status is K3_OK */
    int violations, races;
    double tolerance;                        /* against the CPU, as job_difference has it */
    unsigned char kernels[K3_GPU_N_SHADERS]; /* that were compiled for it */
    int n_slabs;
    unsigned char touched[KERNEL_SLABS]; /* slabs that the recorder was told of, in the order in which encoders are */
} kernel_run;

extern const kernel_job kernel_jobs[];
extern const int n_kernel_jobs;

/* Computes a job with the kernels of the program, or with those of a folder. */
kernel_run run_kernel_job(const kernel_job *j, const char *kernels_dir);
/* What the CPU's scalar kernels make of it; nothing where they have no such operation. */
job_result cpu_result_of(const kernel_job *j);

/* Whether nothing was said against a run and it gave the same bits as another one. */
int same_run(const kernel_run *a, const kernel_run *b);

/* Name and text of a kernel; NULL text: Metal has none. */
const char *kernel_name(int shader);
const char *kernel_text(int shader);

#endif
