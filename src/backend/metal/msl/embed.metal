// Made by tools/metal/generate.sh from glsl/embed.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct U32;
struct Parts;
struct I32;
struct k3_mat_args_1;
struct F32;

struct k3_mat_args
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct U32
{
    uint at[1];
};

struct k3_embed_args
{
    ulong y;
    ulong ids;
    ulong parts;
    ulong fault;
    uint n_parts;
    uint cols;
    uint groups;
    uint bad_id;
};

struct Push
{
    k3_embed_args a;
};

struct k3_mat_args_1
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct Parts
{
    k3_mat_args_1 at[1];
};

struct I32
{
    int at[1];
};

constant uint TYPE_tmp [[function_constant(0)]];
constant uint TYPE = is_function_constant_defined(TYPE_tmp) ? TYPE_tmp : 0u;

struct F32
{
    float at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
ulong k3_scale_at(thread const k3_mat_args& m, thread const uint& row)
{
    return m.scale + (ulong(row) * ulong(m.scale_bytes));
}

static inline __attribute__((always_inline))
ulong k3_row_at(thread const k3_mat_args& m, thread const uint& row)
{
    return m.data + (ulong(row) * ulong(m.row_bytes));
}

static inline __attribute__((always_inline))
uint k3_load(thread const ulong& at, thread const uint& bytes)
{
    uint first = uint(at) & 3u;
    device U32* words = reinterpret_cast<device U32*>(at - ulong(first));
    uint value = words->at[0] >> (8u * first);
    if ((first + bytes) > 4u)
    {
        value |= (words->at[1] << (32u - (8u * first)));
    }
    return value;
}

static inline __attribute__((always_inline))
float k3_e2m1(thread const uint& code)
{
    return float2(as_type<half2>(((code & 8u) << uint(12)) | ((code & 7u) << uint(9)))).x * 16384.0;
}

static inline __attribute__((always_inline))
uint k3_word_around(thread const ulong& at)
{
    return (reinterpret_cast<device U32*>(at - ulong(uint(at) & 3u)))->at[0];
}

static inline __attribute__((always_inline))
uint k3_byte_in(thread const uint& word, thread const ulong& at)
{
    return extract_bits(word, uint(int(uint(at) & 3u) * 8), uint(8));
}

static inline __attribute__((always_inline))
uint k3_load_byte(thread const ulong& at)
{
    ulong param = at;
    uint param_1 = k3_word_around(param);
    ulong param_2 = at;
    return k3_byte_in(param_1, param_2);
}

static inline __attribute__((always_inline))
float k3_e8m0(thread const uint& byte)
{
    uint _1;
    if (byte == 0u)
    {
        _1 = 4194304u;
    }
    else
    {
        _1 = byte << uint(23);
    }
    return as_type<float>(_1);
}

static inline __attribute__((always_inline))
float k3_load_f32(thread const ulong& at)
{
    ulong param = at;
    uint param_1 = 4u;
    return as_type<float>(k3_load(param, param_1));
}

static inline __attribute__((always_inline))
float k3_code(thread const uint& type, thread const ulong& row, thread const ulong& scale, thread const uint& col)
{
    switch (type)
    {
        case 0u:
        {
            ulong param = row + (4ul * ulong(col));
            return k3_load_f32(param);
        }
        case 1u:
        {
            ulong param_1 = row + (2ul * ulong(col));
            uint param_2 = 2u;
            return as_type<float>(k3_load(param_1, param_2) << uint(16));
        }
        case 2u:
        {
            ulong param_3 = row + ulong(col);
            uint param_4 = 1u;
            return float(extract_bits(int(k3_load(param_3, param_4)), uint(0), uint(8)));
        }
        case 3u:
        case 4u:
        {
            ulong param_5 = row + ulong(col / 2u);
            uint param_6 = 1u;
            float value = float(extract_bits(k3_load(param_5, param_6), uint(int(col % 2u) * 4), uint(4))) - 8.0;
            float _2;
            if (type == 3u)
            {
                _2 = value;
            }
            else
            {
                ulong param_7 = scale + (4ul * ulong(col / 64u));
                _2 = value * k3_load_f32(param_7);
            }
            return _2;
        }
        case 5u:
        {
            uint bit = (col % 64u) * 3u;
            uint shift = bit % 8u;
            ulong param_8 = (row + (ulong(col / 64u) * 24ul)) + ulong(bit / 8u);
            uint param_9 = (shift > 5u) ? 2u : 1u;
            uint code = (k3_load(param_8, param_9) >> shift) & 7u;
            ulong param_10 = scale + (4ul * ulong(col / 64u));
            return (float(code) - 4.0) * k3_load_f32(param_10);
        }
        case 6u:
        {
            ulong param_11 = row + ulong(col / 4u);
            uint param_12 = 1u;
            return float(extract_bits(k3_load(param_11, param_12), uint(int(col % 4u) * 2), uint(2))) - 2.0;
        }
        default:
        {
            ulong param_13 = row + ulong(col / 2u);
            uint param_14 = 1u;
            uint param_15 = extract_bits(k3_load(param_13, param_14), uint(int(col % 2u) * 4), uint(4));
            ulong param_16 = scale + ulong(col / 32u);
            uint param_17 = k3_load_byte(param_16);
            return k3_e2m1(param_15) * k3_e8m0(param_17);
        }
    }
}

static inline __attribute__((always_inline))
bool k3_type_scales_rows(thread const uint& type)
{
    return ((type == 2u) || (type == 3u)) || (type == 6u);
}

static inline __attribute__((always_inline))
float k3_row_scale(thread const uint& type, thread const ulong& scale)
{
    uint param = type;
    float _3;
    if (k3_type_scales_rows(param))
    {
        ulong param_1 = scale;
        _3 = k3_load_f32(param_1);
    }
    else
    {
        _3 = 1.0;
    }
    return _3;
}

static inline __attribute__((always_inline))
float k3_weight(thread const uint& type, thread const k3_mat_args& m, thread const uint& row, thread const uint& col)
{
    k3_mat_args param = m;
    uint param_1 = row;
    ulong scale = k3_scale_at(param, param_1);
    k3_mat_args param_2 = m;
    uint param_3 = row;
    uint param_4 = type;
    ulong param_5 = k3_row_at(param_2, param_3);
    ulong param_6 = scale;
    uint param_7 = col;
    uint param_8 = type;
    ulong param_9 = scale;
    return k3_code(param_4, param_5, param_6, param_7) * k3_row_scale(param_8, param_9);
}

kernel void embed(constant Push& _4 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint t = gl_WorkGroupID.x / _4.a.groups;
    uint col = ((gl_WorkGroupID.x % _4.a.groups) * 256u) + gl_LocalInvocationID.x;
    if (col >= _4.a.cols)
    {
        return;
    }
    device Parts* parts = reinterpret_cast<device Parts*>(_4.a.parts);
    uint row = uint((reinterpret_cast<device I32*>(_4.a.ids))->at[t]);
    uint p = 0u;
    for (;;)
    {
        bool _5 = p < _4.a.n_parts;
        bool _6;
        if (_5)
        {
            _6 = row >= parts->at[p].rows;
        }
        else
        {
            _6 = _5;
        }
        if (_6)
        {
            uint _7 = p;
            p = _7 + uint(1);
            row -= parts->at[_7].rows;
            continue;
        }
        else
        {
            break;
        }
    }
    float y = 0.0;
    if (p < _4.a.n_parts)
    {
        uint param = TYPE;
        k3_mat_args param_1;
        param_1.data = parts->at[p].data;
        param_1.scale = parts->at[p].scale;
        param_1.rows = parts->at[p].rows;
        param_1.cols = parts->at[p].cols;
        param_1.row_bytes = parts->at[p].row_bytes;
        param_1.scale_bytes = parts->at[p].scale_bytes;
        uint param_2 = row;
        uint param_3 = col;
        y = k3_weight(param, param_1, param_2, param_3);
    }
    else
    {
        if (col == 0u)
        {
            (reinterpret_cast<device U32*>(_4.a.fault))->at[0] = _4.a.bad_id;
        }
    }
    (reinterpret_cast<device F32*>(_4.a.y + (4ul * (ulong(t) * ulong(_4.a.cols)))))->at[col] = y;
}

