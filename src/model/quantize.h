/* Rows of f32 weights to the storage types of the trunk. Pure. */
#ifndef K3_MODEL_QUANTIZE_H
#define K3_MODEL_QUANTIZE_H

#include "backend/tensor.h"

/* One row of n weights to codes and scales of `type` (f32, bf16, int8, int4, int4_g64, int3_g64, int2), laid out as tensor.h says.
 * Integer scales minimise the squared error over a fixed set of candidates, so the result is the same everywhere. */
void k3_quantize_row(void *codes, void *scales, const float *w, k3_type type, int n);

#endif
