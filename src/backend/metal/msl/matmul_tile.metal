// Made by tools/metal/generate.sh from glsl/matmul_tile.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"
#pragma clang diagnostic ignored "-Wmissing-braces"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

template<typename T, size_t Num>
struct spvUnsafeArray
{
    T elements[Num ? Num : 1];
    
    thread T& operator [] (size_t pos) thread
    {
        return elements[pos];
    }
    constexpr const thread T& operator [] (size_t pos) const thread
    {
        return elements[pos];
    }
    
    device T& operator [] (size_t pos) device
    {
        return elements[pos];
    }
    constexpr const device T& operator [] (size_t pos) const device
    {
        return elements[pos];
    }
    
    constexpr const constant T& operator [] (size_t pos) const constant
    {
        return elements[pos];
    }
    
    threadgroup T& operator [] (size_t pos) threadgroup
    {
        return elements[pos];
    }
    constexpr const threadgroup T& operator [] (size_t pos) const threadgroup
    {
        return elements[pos];
    }
};

struct U32;
struct Parts;
struct k3_matmul_part_2;
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

struct k3_matmul_part
{
    k3_mat_args w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct U32
{
    uint at[1];
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

struct k3_matmul_part_1
{
    k3_mat_args_1 w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct k3_matmul_args
{
    ulong parts;
    ulong x;
    ulong x_scale;
    ulong sums;
    uint n_parts;
    uint T;
    uint cols;
    uint blocks;
    uint rows;
    uint whole;
    uint split_row;
    uint splits;
    k3_matmul_part_1 only;
};

struct Push
{
    k3_matmul_args a;
};

struct k3_mat_args_2
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct k3_matmul_part_2
{
    k3_mat_args_2 w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct Parts
{
    k3_matmul_part_2 at[1];
};

constant uint Q_tmp [[function_constant(1)]];
constant uint Q = is_function_constant_defined(Q_tmp) ? Q_tmp : 4u;
constant uint _1 = (16u * Q);
constant uint _2 = (16u * Q);
constant uint TYPE_tmp [[function_constant(0)]];
constant uint TYPE = is_function_constant_defined(TYPE_tmp) ? TYPE_tmp : 0u;

struct F32
{
    float at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
k3_matmul_part part_of(thread const uint& block, constant Push& v_3, thread uint& gl_SubgroupInvocationID, thread uint& gl_SubgroupSize)
{
    if (v_3.a.n_parts == 1u)
    {
        k3_matmul_part _4;
        _4.w.data = v_3.a.only.w.data;
        _4.w.scale = v_3.a.only.w.scale;
        _4.w.rows = v_3.a.only.w.rows;
        _4.w.cols = v_3.a.only.w.cols;
        _4.w.row_bytes = v_3.a.only.w.row_bytes;
        _4.w.scale_bytes = v_3.a.only.w.scale_bytes;
        _4.y = v_3.a.only.y;
        _4.stride = v_3.a.only.stride;
        _4.first_block = v_3.a.only.first_block;
        _4.first_row = v_3.a.only.first_row;
        _4.pad = v_3.a.only.pad;
        return _4;
    }
    uint begun = 0u;
    for (uint i = gl_SubgroupInvocationID; i < v_3.a.n_parts; i += gl_SubgroupSize)
    {
        begun += uint(int((reinterpret_cast<device Parts*>(v_3.a.parts))->at[i].first_block <= block));
    }
    device Parts* _5 = reinterpret_cast<device Parts*>(v_3.a.parts);
    uint _6 = simd_sum(begun) - 1u;
    k3_matmul_part _7;
    _7.w.data = _5->at[_6].w.data;
    _7.w.scale = _5->at[_6].w.scale;
    _7.w.rows = _5->at[_6].w.rows;
    _7.w.cols = _5->at[_6].w.cols;
    _7.w.row_bytes = _5->at[_6].w.row_bytes;
    _7.w.scale_bytes = _5->at[_6].w.scale_bytes;
    _7.y = _5->at[_6].y;
    _7.stride = _5->at[_6].stride;
    _7.first_block = _5->at[_6].first_block;
    _7.first_row = _5->at[_6].first_row;
    _7.pad = _5->at[_6].pad;
    return _7;
}

static inline __attribute__((always_inline))
ulong k3_row_at(thread const k3_mat_args& m, thread const uint& row)
{
    return m.data + (ulong(row) * ulong(m.row_bytes));
}

static inline __attribute__((always_inline))
ulong k3_scale_at(thread const k3_mat_args& m, thread const uint& row)
{
    return m.scale + (ulong(row) * ulong(m.scale_bytes));
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
    uint _8;
    if (byte == 0u)
    {
        _8 = 4194304u;
    }
    else
    {
        _8 = byte << uint(23);
    }
    return as_type<float>(_8);
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
            float _9;
            if (type == 3u)
            {
                _9 = value;
            }
            else
            {
                ulong param_7 = scale + (4ul * ulong(col / 64u));
                _9 = value * k3_load_f32(param_7);
            }
            return _9;
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
    float _10;
    if (k3_type_scales_rows(param))
    {
        ulong param_1 = scale;
        _10 = k3_load_f32(param_1);
    }
    else
    {
        _10 = 1.0;
    }
    return _10;
}

kernel void matmul_tile(constant Push& v_3 [[buffer(0)]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup float4 w_tile[272];
    threadgroup float x_tile[1040];
    threadgroup float k3_slots[128];
    uint t_tiles = ((v_3.a.T + _1) - 1u) / _2;
    uint block = gl_WorkGroupID.x / t_tiles;
    uint t0 = ((gl_WorkGroupID.x % t_tiles) * 16u) * Q;
    uint param = block;
    k3_matmul_part part = part_of(param, v_3, gl_SubgroupInvocationID, gl_SubgroupSize);
    k3_mat_args w = part.w;
    uint r0 = (block - part.first_block) * 64u;
    uint low = gl_LocalInvocationID.x % 16u;
    uint high = gl_LocalInvocationID.x / 16u;
    spvUnsafeArray<float4, 4> sum;
    for (uint q = 0u; q < Q; q++)
    {
        sum[q] = float4(0.0);
    }
    float _11;
    spvUnsafeArray<float4, 4> tile_sum;
    for (uint c0 = 0u; c0 < v_3.a.cols; c0 += 16u)
    {
        uint col = c0 + low;
        float4 four = float4(0.0);
        if (col < v_3.a.cols)
        {
            for (uint i = 0u; i < 4u; i++)
            {
                uint row = min(((r0 + (4u * high)) + i), (w.rows - 1u));
                k3_mat_args param_1 = w;
                uint param_2 = row;
                k3_mat_args param_3 = w;
                uint param_4 = row;
                uint param_5 = TYPE;
                ulong param_6 = k3_row_at(param_1, param_2);
                ulong param_7 = k3_scale_at(param_3, param_4);
                uint param_8 = col;
                four[i] = k3_code(param_5, param_6, param_7, param_8);
            }
        }
        w_tile[(low * 17u) + high] = four;
        for (uint q_1 = 0u; q_1 < Q; q_1++)
        {
            uint t = min(((t0 + (Q * high)) + q_1), (v_3.a.T - 1u));
            if (col < v_3.a.cols)
            {
                _11 = (reinterpret_cast<device F32*>(v_3.a.x + (4ul * (ulong(t) * ulong(v_3.a.cols)))))->at[col];
            }
            else
            {
                _11 = 0.0;
            }
            x_tile[((low * 65u) + (Q * high)) + q_1] = _11;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint q_2 = 0u; q_2 < Q; q_2++)
        {
            tile_sum[q_2] = float4(0.0);
        }
        for (uint k = 0u; k < 16u; k++)
        {
            float4 weights = w_tile[(k * 17u) + low];
            for (uint q_3 = 0u; q_3 < Q; q_3++)
            {
                tile_sum[q_3] = fma(weights, float4(x_tile[((k * 65u) + (Q * high)) + q_3]), tile_sum[q_3]);
            }
        }
        for (uint q_4 = 0u; q_4 < Q; q_4++)
        {
            sum[q_4] += tile_sum[q_4];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i_1 = 0u; i_1 < 4u; i_1++)
    {
        uint row_1 = (r0 + (4u * low)) + i_1;
        if (row_1 >= w.rows)
        {
            continue;
        }
        k3_mat_args param_9 = w;
        uint param_10 = row_1;
        uint param_11 = TYPE;
        ulong param_12 = k3_scale_at(param_9, param_10);
        float scale = k3_row_scale(param_11, param_12);
        for (uint q_5 = 0u; q_5 < Q; q_5++)
        {
            uint t_1 = (t0 + (Q * high)) + q_5;
            if (t_1 < v_3.a.T)
            {
                (reinterpret_cast<device F32*>(part.y + ((4ul * ulong(t_1)) * ulong(part.stride))))->at[row_1] = sum[q_5][i_1] * scale;
            }
        }
    }
}

