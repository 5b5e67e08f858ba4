/* Stored rows to the types of the trunk, by a pool of threads. */
#ifndef K3_MODEL_CONVERT_H
#define K3_MODEL_CONVERT_H

#include "backend/tensor.h"
#include "base/pool.h"
#include "ckpt/ckpt.h"

typedef struct k3_converter {
    k3_pool *pool;
    float *rows; /* [threads, most_cols] */
    int64_t most_cols;
} k3_converter;

/* A value of a stored tensor outside the routed experts takes 4 or 2 bytes. */
static inline uint64_t k3_stored_size(const k3_tensor_info *t)
{
    return t->dtype == K3_DT_F32 ? 4 : 2;
}

/* Bytes of a row of a stored matrix, packed or not. */
static inline uint64_t k3_stored_row(const k3_tensor_info *t)
{
    return t->bytes / (uint64_t)t->shape[0];
}

k3_status k3_converter_open(k3_converter *out, int threads, int64_t most_cols, k3_error *err);
void k3_converter_close(k3_converter *converter);

/* Rows first .. first+n-1 of t, as stored at `raw`, to codes and scales of `type`. K3_E_FORMAT: a value is not finite. */
k3_status k3_convert(k3_converter *converter, void *codes, void *scales, k3_type type, const void *raw, const k3_tensor_info *t,
                     int64_t first, int64_t n, k3_error *err);
/* The same check without a conversion. */
k3_status k3_convert_check(k3_converter *converter, const void *raw, const k3_tensor_info *t, int64_t first, int64_t n, k3_error *err);
/* Scales of a packed matrix, `bytes` of them as stored. K3_E_FORMAT: one is not finite. */
k3_status k3_scales_check(const void *raw, const k3_tensor_info *scales, uint64_t bytes, k3_error *err);

#endif
