#include "backend/tensor.h"

typedef struct k3_type_info {
    const char *name;
    int bits;         /* a weight */
    int granule;      /* columns come in multiples of it */
    int scale_bytes;  /* one scale */
    int scale_period; /* columns that share a scale; 0: the row */
} k3_type_info;

static const k3_type_info types[K3_N_TYPES] = {
    [K3_F32] = {"f32", 32, 1, 0, 0},  [K3_BF16] = {"bf16", 16, 1, 0, 0},          [K3_INT8] = {"int8", 8, 1, 4, 0},
    [K3_INT4] = {"int4", 4, 2, 4, 0}, [K3_INT4_G64] = {"int4_g64", 4, 64, 4, 64}, [K3_INT3_G64] = {"int3_g64", 3, 64, 4, 64},
    [K3_INT2] = {"int2", 2, 4, 4, 0}, [K3_MXFP4] = {"mxfp4", 4, 32, 1, 32},
};

static int known(k3_type type)
{
    return (unsigned)type < K3_N_TYPES;
}

const char *k3_type_name(k3_type type)
{
    return known(type) ? types[type].name : "unknown";
}

size_t k3_type_row_bytes(k3_type type, int cols)
{
    return known(type) ? ((size_t)cols * (size_t)types[type].bits + 7) / 8 : 0;
}

size_t k3_type_scale_bytes(k3_type type, int cols)
{
    if (!known(type) || !types[type].scale_bytes)
        return 0;
    int period = types[type].scale_period;
    size_t n = period ? ((size_t)cols + (size_t)period - 1) / (size_t)period : 1;
    return n * (size_t)types[type].scale_bytes;
}

int k3_type_granule(k3_type type)
{
    return known(type) ? types[type].granule : 1;
}
