/* What C and GLSL share in argument structures: 64-bit device addresses first, then 32-bit fields, so that both lay them out alike. A
 * kernel gets one structure of at most 128 bytes as push constants; what does not fit is a table behind an address. */
#ifndef K3_BACKEND_ARGS_TYPES_H
#define K3_BACKEND_ARGS_TYPES_H

#ifdef GL_core_profile
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int32 : require
#define K3_ARGS_SIZE(name, bytes)
#else
#include <stdint.h>
#define K3_ARGS_SIZE(name, bytes)                                                                                                          \
    typedef struct name name; /* GLSL nests a structure by its bare name */                                                                \
    _Static_assert(sizeof(struct name) == (bytes), #name " is laid out as GLSL lays it out");
#endif

/* A weight matrix, or the rows of one that lie in one piece of memory. */
struct k3_mat_args {
    uint64_t data, scale; /* addresses of row 0 of this piece */
    uint32_t rows, cols;
    uint32_t row_bytes, scale_bytes;
};
K3_ARGS_SIZE(k3_mat_args, 32)

/* k3_run. */
struct k3_run_args {
    uint64_t state; /* address */
    uint64_t pos;
    uint32_t row, n;
};
K3_ARGS_SIZE(k3_run_args, 24)

#endif
