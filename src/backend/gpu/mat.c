/* Matrices as kernels see them: a buffer that a device made of several pieces is cut at row borders. */
#include "backend/gpu/driver.h"

uint64_t k3_gpu_mat_bytes(const k3_mat *mat)
{
    return (uint64_t)mat->rows * (k3_type_row_bytes(mat->type, mat->cols) + k3_type_scale_bytes(mat->type, mat->cols));
}

static int acceptable(k3_gpu *gpu, const k3_mat *mat, const char *op)
{
    const char *name = k3_type_name(mat->type);
    if ((unsigned)mat->type >= K3_N_TYPES)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: weight type %d (%s) has no kernel in %s", op, (int)mat->type, name, gpu->base.name);
    else if (mat->cols < 1 || mat->cols % k3_type_granule(mat->type))
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: a %s matrix has %d columns, a multiple of %d wanted", op, name, mat->cols,
                    k3_type_granule(mat->type));
    else if (k3_type_row_bytes(mat->type, mat->cols) > INT32_MAX)
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "%s: a %s matrix has %d columns, rows of at most %d bytes wanted", op, name, mat->cols,
                    INT32_MAX);
    else if (!mat->data.buf)
        k3_gpu_fail(gpu, K3_E_INVALID, "%s: a %s matrix came without data", op, name);
    else if (k3_type_scale_bytes(mat->type, mat->cols) && !mat->scale.buf)
        k3_gpu_fail(gpu, K3_E_INVALID, "%s: a %s matrix came without scales", op, name);
    else
        return 1;
    return 0;
}

/* How many of n rows lie whole in the piece at ref. */
static int rows_here(k3_ref ref, size_t row_bytes, int n)
{
    uint64_t left;
    k3_gpu_piece(ref, &left);
    return left / row_bytes < (uint64_t)n ? (int)(left / row_bytes) : n;
}

int k3_gpu_mat(k3_gpu *gpu, struct k3_mat_args *out, int max, const k3_mat *mat, int first, int n, const char *op)
{
    if (!acceptable(gpu, mat, op))
        return 0;
    size_t row_bytes = k3_type_row_bytes(mat->type, mat->cols), scale_bytes = k3_type_scale_bytes(mat->type, mat->cols);
    int parts = 0;
    for (int rows; n > 0; first += rows, n -= rows) {
        k3_ref data = k3_at(mat->data, (uint64_t)first * row_bytes), scale = k3_at(mat->scale, (uint64_t)first * scale_bytes);
        rows = rows_here(data, row_bytes, n);
        if (rows > 0 && scale_bytes)
            rows = rows_here(scale, scale_bytes, rows);
        if (rows == 0 || parts == max) {
            k3_gpu_fail(gpu, K3_E_INVALID,
                        rows ? "%s: row %d of a %s matrix begins one more than %d pieces of memory"
                             : "%s: row %d of a %s matrix does not lie whole in its buffer (%d pieces before)",
                        op, first, k3_type_name(mat->type), parts);
            return 0;
        }
        out[parts++] = (struct k3_mat_args){k3_gpu_read(gpu, data, (uint64_t)rows * row_bytes),
                                            scale_bytes ? k3_gpu_read(gpu, scale, (uint64_t)rows * scale_bytes) : 0,
                                            (uint32_t)rows,
                                            (uint32_t)mat->cols,
                                            (uint32_t)row_bytes,
                                            (uint32_t)scale_bytes};
    }
    return parts;
}
