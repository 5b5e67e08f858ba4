#include "model/convert.h"

#include "base/bf16.h"
#include "model/quantize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct k3_convert_job {
    const k3_converter *converter;
    const char *raw;
    char *codes, *scales; /* NULL: the values are only looked at */
    k3_dtype stored;
    k3_type type;
    int cols;
    size_t raw_bytes, code_bytes, scale_bytes; /* of a row */
    _Atomic int is_not_finite;
} k3_convert_job;

/* Whether n bf16 or f32 values are numbers: an exponent of all ones is none. */
static int are_finite(const char *src, k3_dtype stored, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; stored == K3_DT_F32 && i < n; i++) {
        uint32_t bits;
        memcpy(&bits, src + 4 * i, 4);
        bad |= (bits & 0x7f800000) == 0x7f800000;
    }
    for (size_t i = 0; stored == K3_DT_BF16 && i < n; i++) {
        uint16_t bits;
        memcpy(&bits, src + 2 * i, 2);
        bad |= (bits & 0x7f80) == 0x7f80;
    }
    return !bad;
}

static void convert_rows(void *arg, int64_t first, int64_t last, int thread)
{
    k3_convert_job *job = arg;
    size_t cols = (size_t)job->cols;
    float *row = job->converter->rows + thread * job->converter->most_cols;
    for (int64_t r = first; r < last; r++) {
        const char *src = job->raw + (size_t)r * job->raw_bytes;
        if (!are_finite(src, job->stored, cols)) {
            job->is_not_finite = 1;
            continue;
        }
        if (!job->codes)
            continue;
        if (job->stored == K3_DT_F32)
            memcpy(row, src, cols * 4);
        else
            for (size_t i = 0; i < cols; i++) {
                uint16_t b;
                memcpy(&b, src + 2 * i, 2);
                row[i] = k3_bf16_value(b);
            }
        k3_quantize_row(job->codes + (size_t)r * job->code_bytes, job->scales + (size_t)r * job->scale_bytes, row, job->type, job->cols);
    }
}

static k3_status run(k3_converter *converter, k3_convert_job *job, const k3_tensor_info *t, int64_t first, int64_t n, k3_error *err)
{
    job->converter = converter;
    job->stored = t->dtype;
    job->cols = (int)t->shape[1];
    job->raw_bytes = (size_t)t->shape[1] * k3_stored_size(t);
    k3_pool_run(converter->pool, convert_rows, job, n, 16);
    if (job->is_not_finite)
        return k3_fail(err, K3_E_FORMAT, "%s: a value in rows %lld to %lld is not finite; the file is damaged", t->name, (long long)first,
                       (long long)(first + n - 1));
    return K3_OK;
}

k3_status k3_convert(k3_converter *converter, void *codes, void *scales, k3_type type, const void *raw, const k3_tensor_info *t,
                     int64_t first, int64_t n, k3_error *err)
{
    k3_convert_job job = {.raw = raw, .codes = codes, .scales = scales, .type = type};
    job.code_bytes = k3_type_row_bytes(type, (int)t->shape[1]);
    job.scale_bytes = k3_type_scale_bytes(type, (int)t->shape[1]);
    return run(converter, &job, t, first, n, err);
}

k3_status k3_convert_check(k3_converter *converter, const void *raw, const k3_tensor_info *t, int64_t first, int64_t n, k3_error *err)
{
    return run(converter, &(k3_convert_job){.raw = raw}, t, first, n, err);
}

k3_status k3_scales_check(const void *raw, const k3_tensor_info *scales, uint64_t bytes, k3_error *err)
{
    for (uint64_t at = 0; at < bytes; at += 4) {
        float x;
        memcpy(&x, (const char *)raw + at, sizeof x);
        if (!isfinite(x))
            return k3_fail(err, K3_E_FORMAT, "%s: a scale is not finite; the file is damaged", scales->name);
    }
    return K3_OK;
}

k3_status k3_converter_open(k3_converter *out, int threads, int64_t most_cols, k3_error *err)
{
    *out = (k3_converter){.most_cols = most_cols};
    K3_TRY(k3_pool_open(&out->pool, threads, err));
    out->rows = malloc((size_t)k3_pool_threads(out->pool) * (size_t)most_cols * sizeof *out->rows);
    if (out->rows)
        return K3_OK;
    k3_converter_close(out);
    return k3_fail(err, K3_E_NOMEM, "no memory for rows of %lld values", (long long)most_cols);
}

void k3_converter_close(k3_converter *converter)
{
    k3_pool_close(converter->pool);
    free(converter->rows);
    *converter = (k3_converter){0};
}
