/* The kernels of the CPU backend: pure functions on pointers and a range, without state, allocation or threads. A table holds one function
 * an entry, the scalar one first and then, by level, what the CPU has.
 *
 * The bit rule: on one level the bits of an output element depend on its own inputs only, never on the range it was computed in, on T or on
 * the rows beside it. So a sum over columns has one order, whether one row is computed or many. */
#ifndef K3_BACKEND_CPU_KERNELS_H
#define K3_BACKEND_CPU_KERNELS_H

#include "backend/tensor.h"

/* A matrix as the kernels see it. */
typedef struct k3_cpu_mat {
    k3_type type;
    int cols;
    size_t row_bytes, scale_bytes;      /* from one row to the next */
    const unsigned char *codes, *scale; /* scale is never NULL, so that steps of 0 bytes from it are defined */
    /* Rows of the same width that the thread reads after these, for products that memory bounds to fetch meanwhile. NULL: not known. */
    const unsigned char *next, *next_scale;
} k3_cpu_mat;

/* w with rows of `next`, from `row` on, after it. */
static inline k3_cpu_mat k3_cpu_followed(k3_cpu_mat w, const k3_cpu_mat *next, int row)
{
    w.next = next->codes + (size_t)row * next->row_bytes;
    w.next_scale = next->scale + (size_t)row * next->scale_bytes;
    return w;
}

/* Rows of x [n, cols] as 8-bit codes, one scale for K3_Q8_BLOCK columns: x = scale code. `sum` is that of a block's codes. `by_nibble`
 * holds the codes in the order in which four-bit weights come apart: of every eight columns the even ones, then the odd ones. Either may be
 * NULL where no weights ask for it. A block with a value that is not finite has NaN as its scale. */
enum { K3_Q8_BLOCK = 32 };
typedef struct k3_q8 {
    int cols;                       /* a multiple of K3_Q8_BLOCK */
    signed char *codes, *by_nibble; /* [n, cols] */
    float *scale;                   /* [n, cols / K3_Q8_BLOCK] */
    int32_t *sum;
} k3_q8;

/* Rows of x [n, cols] rounded to bf16, as matmul_bf16 of the same level wants them to lie. There is room for n rounded up to K3_BF16_ROWS
 * and for cols rounded up to K3_BF16_COLS and as many again. */
enum { K3_BF16_ROWS = 16, K3_BF16_COLS = 32 };
typedef struct k3_bf16_rows {
    int n, cols;
    uint16_t *values; /* k3_bf16_bytes(n, cols), at a multiple of 64 bytes */
} k3_bf16_rows;

/* What one head's recurrence reads and writes: place of row 0, and the distance between rows in floats. */
typedef struct k3_kda_head {
    float *o;
    const float *q, *k, *v, *decay; /* [n, D] with row_stride; decay is alpha for kda_recur, g for kda_chunk */
    const float *beta;              /* [n] with beta_stride */
    float *state;                   /* [D(k), D(v)] */
    int n, D;
    int64_t row_stride, beta_stride;
} k3_kda_head;

/* Largest width of a short convolution, largest number of AttnRes sources, rows of a KDA chunk, cache rows of one step of attention; of one
 * tile where cache rows are packed. */
enum { K3_MAX_CONV = 8, K3_MAX_SOURCES = 32, K3_CHUNK = 64, K3_ATTEND_ROWS = 64, K3_ATTEND_TILE = 128 };

/* One row's heads against n <= K3_ATTEND_TILE packed cache rows, the first of the tile. */
typedef struct k3_attend_row {
    float *context;        /* [n_heads, k3_attend_stride(kv)]: sums of values so far, not yet divided; not read if is_first */
    float *max;            /* [n_heads] largest score so far, -INFINITY at the start */
    double *sum;           /* [n_heads] of the weights so far */
    const uint16_t *query; /* bf16 [n_heads, width rounded up to 2] */
    const void *tile;
    int n_heads, n, kv, width, is_first;
    float scale;
} k3_attend_row;

/* out [cols] = the row's weights, scales applied. */
typedef void k3_decode_fn(float *out, const void *codes, const void *scale, k3_type type, int cols);
/* y[t][r] = sum_c W[r, c] x[t][c] for rows r in first .. last-1 and all t. */
typedef void k3_matmul_fn(float *const *y, const float *const *x, int T, const k3_cpu_mat *w, int first, int last);
/* Columns first .. last-1 (multiples of K3_Q8_BLOCK) of a row of q from x [cols]. */
typedef void k3_quantize_q8_fn(const k3_q8 *q, int row, const float *x, int first, int last);
/* y[t][r] = sum over blocks, ascending, of (integer product of the block) (weights' scale) (x's scale), each step one fused multiply-add;
 * for rows r in first .. last-1 and T rows of x, which are row_of[t]. For types and widths that k3_q8_takes. Same bits at every level. */
typedef void k3_matmul_q8_fn(float *const *y, const k3_q8 *x, const int32_t *row_of, int T, const k3_cpu_mat *w, int first, int last);
/* Rows first .. last-1 of q from x [n, cols]; first is a multiple of K3_BF16_ROWS, and last too unless it is n. Subnormal values become 0.
 */
typedef void k3_round_bf16_fn(const k3_bf16_rows *q, const float *x, int first, int last);
/* The product of bf16 weights with x rounded to bf16, summed in f32: all x->n rows. Products and sums that are subnormal are 0. scratch: of
 * this call alone, K3_BF16_SCRATCH bytes at a multiple of 64. */
enum { K3_BF16_SCRATCH = 256 << 10 };
typedef void k3_matmul_bf16_fn(float *const *y, const k3_bf16_rows *x, const k3_cpu_mat *w, int first, int last, void *scratch);
/* y[i, c] = keep[i] y[i, c] + sum_s p[i, s] v[s, c], s ascending; keep == NULL is 0 (y is not read). v f32 or bf16. Strides in elements. */
typedef void k3_mix_fn(float *y, int64_t y_stride, const float *keep, const float *p, int64_t p_stride, const void *v, int64_t v_stride,
                       int rows, int n, int cols);
/* One step of the running softmax over n <= K3_ATTEND_ROWS scores: p = exp(scale p - max'), *sum = *sum keep + sum(p), where max' is the
 * larger of *max and the new scores; returns keep = exp(*max - max'). *max = -INFINITY at the start. */
typedef float k3_softmax_fn(float *p, int n, float scale, float *max, double *sum);
/* Packs n <= K3_ATTEND_TILE cache rows [width] bf16 into k3_attend_tile_bytes(kv, width), aligned to 64. */
typedef void k3_attend_pack_fn(void *tile, const uint16_t *cache, int n, int kv, int width);
/* To bf16, to nearest even. */
typedef void k3_attend_round_fn(uint16_t *to, const float *from, int n);
/* y[t] = W^T q[t] in bf16, and y[t] = W x[t], for n rows and bf16 W [rows <= K3_ATTEND_TILE, cols]: W_k and W_v of a head. q and x are
 * rounded to bf16. scratch: k3_attend_scratch_bytes(cols), aligned to 64. */
typedef void k3_attend_absorb_fn(uint16_t *y, int64_t y_stride, const float *q, int64_t q_stride, int n, const uint16_t *w, int rows,
                                 int cols, void *scratch);
typedef void k3_attend_value_fn(float *y, int64_t y_stride, const float *x, int64_t x_stride, int n, const uint16_t *w, int rows, int cols,
                                void *scratch);
typedef void k3_attend_row_fn(const k3_attend_row *row);
typedef void k3_attnres_fn(float *y, const float *const *src, int n_src, const float *s, int C, float eps, int64_t first, int64_t last);
typedef void k3_rmsnorm_fn(float *y, const float *x, const float *w, int C, int64_t y_stride, int64_t x_stride, float eps, int64_t first,
                           int64_t last);
/* Channels first .. last-1 of all n rows of one run, and of its window [width-1, C]. */
typedef void k3_shortconv_fn(float *y, const float *u, const float *w, float *window, int n, int C, int width, int first, int last);
/* Vectors first .. last-1 of [T * H, D]. */
typedef void k3_l2norm_fn(float *y, const float *x, int D, float eps, float scale, int64_t first, int64_t last);
typedef void k3_kda_gate_fn(float *alpha, float *g, float *beta, const float *z, const float *b, const float *a_log, const float *dt_bias,
                            int H, int D, float lower, int64_t first, int64_t last);
typedef void k3_gate_rmsnorm_fn(float *y, const float *o, const float *w, const float *gate, int D, float eps, int64_t first, int64_t last);
typedef void k3_kda_recur_fn(const k3_kda_head *head);
typedef void k3_kda_chunk_fn(const k3_kda_head *head, double *scratch); /* scratch: k3_kda_chunk_scratch(D) doubles */
typedef void k3_gate_mul_fn(float *y, const float *x, const float *gate, int64_t n);
typedef void k3_situ_glu_fn(float *y, const float *g, const float *u, int64_t n, float b1, float b2);
/* Rows first .. last-1. A row with a NaN gets ids[t, 0] = -1. */
typedef void k3_router_fn(int32_t *ids, float *weights, const float *logits, const float *bias, int E, int K, int renormalize, float scale,
                          int64_t first, int64_t last);
typedef void k3_add_fn(float *y, const float *a, const float *b, int64_t n);
/* Reads every byte, a multiple of 512, and returns a number made of them. */
typedef uint64_t k3_memory_read_fn(const unsigned char *data, int64_t bytes);
/* Multiply-adds out of registers, in chains that do not wait for one another; *out is made of all products. Returns how many there were. */
typedef uint64_t k3_peak_fn(float *out, int64_t rounds);

typedef struct k3_cpu_kernels {
    k3_decode_fn *decode;
    k3_matmul_fn *matmul;
    k3_quantize_q8_fn *quantize_q8;
    k3_matmul_q8_fn *matmul_q8; /* NULL in exact mode */
    k3_round_bf16_fn *round_bf16;
    k3_matmul_bf16_fn *matmul_bf16;           /* NULL in exact mode and where the level has no such instructions */
    k3_mix_fn *mix_f32, *mix_bf16, *mix_int8; /* mix_int8: NULL in exact mode */
    k3_softmax_fn *softmax;
    k3_attend_pack_fn *attend_pack; /* NULL, with those after it, where products of bf16 are no faster or the mode is exact */
    k3_attend_round_fn *attend_round;
    k3_attend_row_fn *attend_row;
    k3_attend_absorb_fn *attend_absorb;
    k3_attend_value_fn *attend_value;
    k3_attnres_fn *attnres_mix;
    k3_rmsnorm_fn *rmsnorm;
    k3_shortconv_fn *shortconv;
    k3_l2norm_fn *l2norm;
    k3_kda_gate_fn *kda_gate;
    k3_gate_rmsnorm_fn *gate_rmsnorm;
    k3_kda_recur_fn *kda_recur;
    k3_kda_chunk_fn *kda_chunk;
    k3_gate_mul_fn *gate_mul;
    k3_situ_glu_fn *situ_glu;
    k3_router_fn *router_topk;
    k3_add_fn *add;
    k3_memory_read_fn *memory_read;
} k3_cpu_kernels;

/* AVX512BF16 and AMX are AVX512 with kernels of their own for some products. */
typedef enum k3_cpu_level {
    K3_CPU_SCALAR,
    K3_CPU_AVX2,
    K3_CPU_AVX512,
    K3_CPU_AVX512BF16,
    K3_CPU_AMX,
    K3_CPU_NEON,
    K3_CPU_N_LEVELS
} k3_cpu_level;

const char *k3_cpu_level_name(k3_cpu_level level);
/* Whether this build has the level's kernels and this CPU can run them. */
int k3_cpu_level_here(k3_cpu_level level);
/* Whether a level that is here is faster than those before it. */
int k3_cpu_level_pays(k3_cpu_level level);
/* The table of a level that is here. exact: every sum runs in double, as in the scalar kernels; the level's own kernels serve where the
 * bytes are (products, attention), the scalar ones elsewhere. */
void k3_cpu_kernels_get(k3_cpu_kernels *k, k3_cpu_level level, int exact);
/* The fastest multiply-adds of a level that is here; NULL: it has no instructions for them. */
typedef struct k3_cpu_peak_kernels {
    k3_peak_fn *int8, *bf16, *f32;
} k3_cpu_peak_kernels;
k3_cpu_peak_kernels k3_cpu_peak_kernels_get(k3_cpu_level level);

size_t k3_kda_chunk_scratch(int D);

/* Floats from one head's context to the next, and bytes of a tile: keys as pairs of channels, values as pairs of rows. */
static inline int k3_attend_stride(int kv)
{
    return (kv + 63) / 64 * 64;
}

static inline size_t k3_attend_tile_bytes(int kv, int width)
{
    return 4 * (size_t)K3_ATTEND_TILE * (size_t)((width + 1) / 2) + 2 * (size_t)K3_ATTEND_TILE * (size_t)k3_attend_stride(kv);
}

static inline size_t k3_attend_scratch_bytes(int cols)
{
    return k3_attend_tile_bytes(cols, cols) + 8 * (size_t)(cols + 1) * sizeof(uint32_t) / 2;
}

/* Weights that are multiplied as integers. */
static inline int k3_q8_takes(k3_type type, int cols)
{
    return cols % K3_Q8_BLOCK == 0 &&
           (type == K3_INT8 || type == K3_INT4 || type == K3_INT2 || type == K3_MXFP4 || (type == K3_INT4_G64 && cols % 64 == 0));
}

/* Bytes of n rows of k3_bf16_rows. */
static inline size_t k3_bf16_bytes(int64_t n, int cols)
{
    int64_t rows = (n + K3_BF16_ROWS - 1) / K3_BF16_ROWS * K3_BF16_ROWS;
    return (size_t)(rows * ((cols + K3_BF16_COLS - 1) / K3_BF16_COLS + 1) * K3_BF16_COLS) * sizeof(uint16_t);
}

/* What every level has; a level's own kernels carry its name. */
#define K3_DECLARE_KERNELS(level)                                                                                                          \
    k3_decode_fn k3_decode_##level;                                                                                                        \
    k3_matmul_fn k3_matmul_##level;                                                                                                        \
    k3_quantize_q8_fn k3_quantize_q8_##level;                                                                                              \
    k3_matmul_q8_fn k3_matmul_q8_##level;                                                                                                  \
    k3_mix_fn k3_mix_f32_##level, k3_mix_bf16_##level, k3_mix_int8_##level;                                                                \
    k3_softmax_fn k3_softmax_##level;                                                                                                      \
    k3_attnres_fn k3_attnres_mix_##level;                                                                                                  \
    k3_rmsnorm_fn k3_rmsnorm_##level;                                                                                                      \
    k3_shortconv_fn k3_shortconv_##level;                                                                                                  \
    k3_l2norm_fn k3_l2norm_##level;                                                                                                        \
    k3_kda_gate_fn k3_kda_gate_##level;                                                                                                    \
    k3_gate_rmsnorm_fn k3_gate_rmsnorm_##level;                                                                                            \
    k3_kda_recur_fn k3_kda_recur_##level;                                                                                                  \
    k3_gate_mul_fn k3_gate_mul_##level;                                                                                                    \
    k3_situ_glu_fn k3_situ_glu_##level;                                                                                                    \
    k3_router_fn k3_router_topk_##level;                                                                                                   \
    k3_memory_read_fn k3_memory_read_##level;

/* The same products and mixes with sums in double, of the levels above scalar. */
#define K3_DECLARE_EXACT(level)                                                                                                            \
    k3_matmul_fn k3_matmul_exact_##level;                                                                                                  \
    k3_mix_fn k3_mix_f32_exact_##level, k3_mix_bf16_exact_##level;

K3_DECLARE_KERNELS(scalar)
K3_DECLARE_KERNELS(avx2)
K3_DECLARE_KERNELS(avx512)
K3_DECLARE_KERNELS(neon)
K3_DECLARE_EXACT(avx2)
K3_DECLARE_EXACT(avx512)
K3_DECLARE_EXACT(neon)
k3_peak_fn k3_peak_int8_avx2, k3_peak_f32_avx2, k3_peak_int8_avx512, k3_peak_f32_avx512, k3_peak_int8_neon, k3_peak_f32_neon;
k3_peak_fn k3_peak_bf16_avx512bf16, k3_peak_int8_amx, k3_peak_bf16_amx;

/* What a processor of the level avx512 may have beside. */
k3_attend_pack_fn k3_attend_pack_avx512bf16;
k3_attend_round_fn k3_attend_round_avx512bf16;
k3_attend_row_fn k3_attend_row_avx512bf16;
k3_attend_absorb_fn k3_attend_absorb_avx512bf16;
k3_attend_value_fn k3_attend_value_avx512bf16;

/* Levels above AVX-512. */
k3_round_bf16_fn k3_round_bf16_avx512bf16, k3_round_bf16_amx;
k3_matmul_bf16_fn k3_matmul_bf16_avx512bf16, k3_matmul_bf16_amx;
k3_matmul_q8_fn k3_matmul_q8_amx;

/* Scalar at every level: the chunked recurrence is the specification of other backends, and memory alone bounds the addition. */
k3_kda_chunk_fn k3_kda_chunk_scalar;
k3_add_fn k3_add_scalar;

#endif
