/* Memory and weights as the forward pass names them: a buffer of some backend, a place in it, a typed matrix. */
#ifndef K3_BACKEND_TENSOR_H
#define K3_BACKEND_TENSOR_H

#include <stddef.h>
#include <stdint.h>

/* Storage of a matrix W [rows = out, cols = in], row-major. Stored by name, never guessed from sizes.
 *   f32, bf16     4, 2 bytes a weight
 *   int8          signed byte; value = code * scale[row]
 *   int4          nibble, low nibble = even column; value = (code - 8) * scale[row]
 *   int4_g64      the same with one scale a row and 64 columns: scale[row][col / 64]
 *   int3_g64      a group of 64 columns is a 192-bit little-endian string, code i in bits 3i..3i+2; (code - 4) * scale[row][col / 64]
 *   int2          four a byte, bits 0-1 = column 4k; value = (code - 2) * scale[row]
 *   mxfp4         e2m1 nibble, low nibble = even column; times 2^(scale[row][col / 32] - 127), the scale kept as its byte */
typedef enum k3_type { K3_F32, K3_BF16, K3_INT8, K3_INT4, K3_INT4_G64, K3_INT3_G64, K3_INT2, K3_MXFP4, K3_N_TYPES } k3_type;

const char *k3_type_name(k3_type type);
/* Bytes of one row's codes and of one row's scales. cols must be a multiple of k3_type_granule. */
size_t k3_type_row_bytes(k3_type type, int cols);
size_t k3_type_scale_bytes(k3_type type, int cols);
int k3_type_granule(k3_type type);

/* Backends put this at the start of their own structure. */
typedef struct k3_buf {
    uint64_t bytes;
    void *host;       /* NULL where the host cannot see the memory */
    uint64_t address; /* device address, 0 where there is none */
} k3_buf;

/* A place in a buffer; `at` in bytes. buf == NULL is "no tensor" where an argument is optional. */
typedef struct k3_ref {
    k3_buf *buf;
    uint64_t at;
} k3_ref;

typedef struct k3_mat {
    k3_type type;
    int rows, cols;
    k3_ref data, scale;
    int rounds_x; /* bf16 weights: x may be rounded to bf16 before it is multiplied; 0: it stays f32 */
} k3_mat;

static inline k3_ref k3_at(k3_ref ref, uint64_t bytes)
{
    return (k3_ref){ref.buf, ref.at + bytes};
}

/* The host's view of a place; only where buf->host is set. */
static inline void *k3_host(k3_ref ref)
{
    return (char *)ref.buf->host + ref.at;
}

#endif
