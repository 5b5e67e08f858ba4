/* Rows of kv_b, four columns at a time, as the first and the last stage of mla_attend read them. */
#ifndef K3_MLA_WEIGHTS_GLSL
#define K3_MLA_WEIGHTS_GLSL

#include "decode.glsl"
#include "backend/args/mla.h"

layout(constant_id = 0) const uint TYPE = 0;
layout(constant_id = 1) const uint ALIGNED = 0; /* rows begin at multiples of 16 bytes, and columns are a multiple of 4 */
layout(constant_id = 2) const uint ROWS = 8;    /* rows of activations that share a decoded weight */
const uint MAX_ROWS = 8;

layout(push_constant, std430) uniform Push { k3_mla_weights_args a; };
layout(buffer_reference, std430, buffer_reference_align = 8) buffer MlaParts { k3_mat_args at[]; };

struct k3_row {
    uint64_t codes, scale;
};

k3_row k3_row_of(uint row)
{
    if (row < a.w.rows)
        return k3_row(k3_row_at(a.w, row), k3_scale_at(a.w, row));
    MlaParts parts = MlaParts(a.parts);
    uint i = 0u;
    for (row -= a.w.rows; row >= parts.at[i].rows; i++)
        row -= parts.at[i].rows;
    return k3_row(parts.at[i].data + uint64_t(row) * a.w.row_bytes, parts.at[i].scale + uint64_t(row) * a.w.scale_bytes);
}

float k3_scale_of(k3_row row)
{
    return k3_row_scale(TYPE, row.scale);
}

/* Weights c .. c+3, c a multiple of 4, without the scale of the row; zeros past the last column. */
vec4 k3_weights4(k3_row row, uint c)
{
    vec4 w = vec4(0.0), rest;
    if (ALIGNED != 0u && TYPE == K3_F32)
        return F32x4(row.codes).at[c / 4u];
    if (ALIGNED != 0u && TYPE == K3_BF16) {
        uvec2 words = U32x2(row.codes).at[c / 4u];
        return vec4(k3_bf16x2(words.x), k3_bf16x2(words.y));
    }
    if (ALIGNED != 0u && TYPE == K3_INT8)
        return k3_int8x4(U32(row.codes).at[c / 4u]);
    if (ALIGNED != 0u && (TYPE == K3_INT4 || TYPE == K3_INT4_G64)) {
        w = k3_small4(U32(row.codes).at[c / 8u] >> c % 8u * 4u, 4u, 8.0);
        return TYPE == K3_INT4 ? w : w * k3_load_f32(row.scale + 4ul * (c / 64u));
    }
    if (ALIGNED != 0u && TYPE == K3_MXFP4) {
        k3_e2m1x8(U32(row.codes).at[c / 8u] >> c % 8u * 4u, w, rest);
        return w * (K3_E2M1_UNIT * k3_e8m0(k3_load_byte(row.scale + c / 32u)));
    }
    for (uint i = 0u; i < 4u; i++)
        if (c + i < a.kv)
            w[i] = k3_code(TYPE, row.codes, row.scale, c + i);
    return w;
}

#endif
