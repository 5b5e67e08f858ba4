/* Golden vectors: a safetensors file of several cases. Tensors are named CASE.TENSOR; the metadata lists "cases" and holds "CASE.tol"
 * (largest allowed error relative to the largest expected magnitude) and the case's scalar parameters as text. Everything here fails the
 * test on trouble. */
#ifndef K3_TESTS_GOLDEN_H
#define K3_TESTS_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

typedef struct golden_tensor {
    char name[96], dtype[8]; /* "F32", "I32", "U8", "BF16" */
    int rank;
    int64_t shape[5];
    size_t n; /* elements */
    size_t n_bytes;
    const void *data; /* 16-byte aligned copy */
} golden_tensor;

typedef struct golden golden;

golden *golden_open(const char *path);
void golden_close(golden *g);

int golden_n_cases(const golden *g);
const char *golden_case(const golden *g, int i);
/* NULL if the case has no such tensor. */
const golden_tensor *golden_maybe(const golden *g, const char *case_name, const char *tensor);
/* The same, but must be there. */
const golden_tensor *golden_get(const golden *g, const char *case_name, const char *tensor);
const float *golden_floats(const golden *g, const char *case_name, const char *tensor); /* must be F32 */
const int32_t *golden_ints(const golden *g, const char *case_name, const char *tensor); /* must be I32 */
const char *golden_text(const golden *g, const char *case_name, const char *parameter); /* NULL if absent */
double golden_number(const golden *g, const char *case_name, const char *parameter);    /* must be there; "inf" is infinity */

/* max |got - want| / max |want|; a NaN or infinity in got is an infinite error. */
double golden_error(const float *got, const float *want, size_t n);

#endif
