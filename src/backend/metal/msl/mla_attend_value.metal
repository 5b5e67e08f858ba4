// Made by tools/metal/generate.sh from glsl/mla_attend_value.comp, do not edit: threads 256
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
struct MlaParts;
struct F32x4;
struct U32x2;
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

struct k3_row
{
    ulong codes;
    ulong scale;
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

struct k3_mla_weights_args
{
    k3_mat_args_1 w;
    ulong parts;
    ulong x;
    ulong y;
    uint T;
    uint heads;
    uint nope;
    uint rope;
    uint v;
    uint kv;
    uint stride;
    uint block;
    float scale;
    uint pad;
};

struct Push
{
    k3_mla_weights_args a;
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

struct MlaParts
{
    k3_mat_args_2 at[1];
};

constant uint TYPE_tmp [[function_constant(0)]];
constant uint TYPE = is_function_constant_defined(TYPE_tmp) ? TYPE_tmp : 0u;
constant uint ALIGNED_tmp [[function_constant(1)]];
constant uint ALIGNED = is_function_constant_defined(ALIGNED_tmp) ? ALIGNED_tmp : 0u;
constant bool _1 = (ALIGNED != 0u);
constant bool _2 = (TYPE == 0u);
constant bool _3 = (_1 && _2);

struct F32x4
{
    float4 at[1];
};

constant bool _4 = (ALIGNED != 0u);
constant bool _5 = (TYPE == 1u);
constant bool _6 = (_4 && _5);

struct U32x2
{
    uint2 at[1];
};

constant bool _7 = (ALIGNED != 0u);
constant bool _8 = (TYPE == 2u);
constant bool _9 = (_7 && _8);
constant bool _10 = (ALIGNED != 0u);
constant bool _11 = (TYPE == 3u);
constant bool _12 = (TYPE == 4u);
constant bool _13 = (_11 || _12);
constant bool _14 = (TYPE == 3u);
constant bool _15 = (ALIGNED != 0u);
constant bool _16 = (TYPE == 7u);
constant bool _17 = (_15 && _16);
constant uint ROWS_tmp [[function_constant(2)]];
constant uint ROWS = is_function_constant_defined(ROWS_tmp) ? ROWS_tmp : 8u;

struct F32
{
    float at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

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
k3_row k3_row_of(thread uint& row, constant Push& v_18)
{
    if (row < v_18.a.w.rows)
    {
        k3_mat_args param;
        param.data = v_18.a.w.data;
        param.scale = v_18.a.w.scale;
        param.rows = v_18.a.w.rows;
        param.cols = v_18.a.w.cols;
        param.row_bytes = v_18.a.w.row_bytes;
        param.scale_bytes = v_18.a.w.scale_bytes;
        uint param_1 = row;
        k3_mat_args param_2;
        param_2.data = v_18.a.w.data;
        param_2.scale = v_18.a.w.scale;
        param_2.rows = v_18.a.w.rows;
        param_2.cols = v_18.a.w.cols;
        param_2.row_bytes = v_18.a.w.row_bytes;
        param_2.scale_bytes = v_18.a.w.scale_bytes;
        uint param_3 = row;
        return k3_row{ k3_row_at(param, param_1), k3_scale_at(param_2, param_3) };
    }
    device MlaParts* parts = reinterpret_cast<device MlaParts*>(v_18.a.parts);
    uint i = 0u;
    row -= v_18.a.w.rows;
    for (; row >= parts->at[i].rows; i++)
    {
        row -= parts->at[i].rows;
    }
    return k3_row{ parts->at[i].data + (ulong(row) * ulong(v_18.a.w.row_bytes)), parts->at[i].scale + (ulong(row) * ulong(v_18.a.w.scale_bytes)) };
}

static inline __attribute__((always_inline))
bool k3_type_scales_rows(thread const uint& type)
{
    return ((type == 2u) || (type == 3u)) || (type == 6u);
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
float k3_load_f32(thread const ulong& at)
{
    ulong param = at;
    uint param_1 = 4u;
    return as_type<float>(k3_load(param, param_1));
}

static inline __attribute__((always_inline))
float k3_row_scale(thread const uint& type, thread const ulong& scale)
{
    uint param = type;
    float _19;
    if (k3_type_scales_rows(param))
    {
        ulong param_1 = scale;
        _19 = k3_load_f32(param_1);
    }
    else
    {
        _19 = 1.0;
    }
    return _19;
}

static inline __attribute__((always_inline))
float k3_scale_of(thread const k3_row& row)
{
    uint param = TYPE;
    ulong param_1 = row.scale;
    return k3_row_scale(param, param_1);
}

static inline __attribute__((always_inline))
float2 k3_bf16x2(thread const uint& word)
{
    return float2(as_type<float>(word << uint(16)), as_type<float>(word & 4294901760u));
}

static inline __attribute__((always_inline))
float k3_small(thread const uint& code, thread const float& zero)
{
    return as_type<float>(code | 1258291200u) - (8388608.0 + zero);
}

static inline __attribute__((always_inline))
float4 k3_int8x4(thread const uint& word)
{
    uint w = word ^ 2155905152u;
    uint param = w & 255u;
    float param_1 = 128.0;
    uint param_2 = (w >> uint(8)) & 255u;
    float param_3 = 128.0;
    uint param_4 = (w >> uint(16)) & 255u;
    float param_5 = 128.0;
    uint param_6 = w >> uint(24);
    float param_7 = 128.0;
    return float4(k3_small(param, param_1), k3_small(param_2, param_3), k3_small(param_4, param_5), k3_small(param_6, param_7));
}

static inline __attribute__((always_inline))
float4 k3_small4(thread const uint& word, thread const uint& bits, thread const float& zero)
{
    uint mask = (1u << bits) - 1u;
    uint param = word & mask;
    float param_1 = zero;
    uint param_2 = (word >> bits) & mask;
    float param_3 = zero;
    uint param_4 = (word >> (2u * bits)) & mask;
    float param_5 = zero;
    uint param_6 = (word >> (3u * bits)) & mask;
    float param_7 = zero;
    return float4(k3_small(param, param_1), k3_small(param_2, param_3), k3_small(param_4, param_5), k3_small(param_6, param_7));
}

static inline __attribute__((always_inline))
uint4 k3_e2m1_pairs(thread const uint& word)
{
    uint odd = (word & 2155905152u) | ((word >> uint(3)) & 2139062143u);
    uint even = ((word << uint(4)) & 2155905152u) | ((word << uint(1)) & 2139062143u);
    return uint4(even << uint(8), odd << uint(8), even, odd) & uint4(2382401024u);
}

static inline __attribute__((always_inline))
void k3_e2m1x8(thread const uint& word, thread float4& first, thread float4& second)
{
    uint param = word;
    uint4 pairs = k3_e2m1_pairs(param);
    float2 c04 = float2(as_type<half2>(pairs.x));
    float2 c15 = float2(as_type<half2>(pairs.y));
    float2 c26 = float2(as_type<half2>(pairs.z));
    float2 c37 = float2(as_type<half2>(pairs.w));
    first = float4(c04.x, c15.x, c26.x, c37.x);
    second = float4(c04.y, c15.y, c26.y, c37.y);
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
    uint _20;
    if (byte == 0u)
    {
        _20 = 4194304u;
    }
    else
    {
        _20 = byte << uint(23);
    }
    return as_type<float>(_20);
}

static inline __attribute__((always_inline))
float k3_e2m1(thread const uint& code)
{
    return float2(as_type<half2>(((code & 8u) << uint(12)) | ((code & 7u) << uint(9)))).x * 16384.0;
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
            float _21;
            if (type == 3u)
            {
                _21 = value;
            }
            else
            {
                ulong param_7 = scale + (4ul * ulong(col / 64u));
                _21 = value * k3_load_f32(param_7);
            }
            return _21;
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
float4 k3_weights4(thread const k3_row& row, thread const uint& c, constant Push& v_18)
{
    float4 w = float4(0.0);
    if (_3)
    {
        return (reinterpret_cast<device F32x4*>(row.codes))->at[c / 4u];
    }
    if (_6)
    {
        uint2 words = (reinterpret_cast<device U32x2*>(row.codes))->at[c / 4u];
        uint param = words.x;
        uint param_1 = words.y;
        return float4(k3_bf16x2(param), k3_bf16x2(param_1));
    }
    if (_9)
    {
        uint param_2 = (reinterpret_cast<device U32*>(row.codes))->at[c / 4u];
        return k3_int8x4(param_2);
    }
    bool _22;
    if (_10)
    {
        _22 = _13;
    }
    else
    {
        _22 = _10;
    }
    if (_22)
    {
        uint param_3 = (reinterpret_cast<device U32*>(row.codes))->at[c / 8u] >> ((c % 8u) * 4u);
        uint param_4 = 4u;
        float param_5 = 8.0;
        w = k3_small4(param_3, param_4, param_5);
        float4 _23;
        if (_14)
        {
            _23 = w;
        }
        else
        {
            ulong param_6 = row.scale + (4ul * ulong(c / 64u));
            _23 = w * k3_load_f32(param_6);
        }
        return _23;
    }
    if (_17)
    {
        uint param_7 = (reinterpret_cast<device U32*>(row.codes))->at[c / 8u] >> ((c % 8u) * 4u);
        float4 param_8;
        float4 param_9;
        k3_e2m1x8(param_7, param_8, param_9);
        w = param_8;
        float4 rest = param_9;
        ulong param_10 = row.scale + ulong(c / 32u);
        uint param_11 = k3_load_byte(param_10);
        return w * (16384.0 * k3_e8m0(param_11));
    }
    for (uint i = 0u; i < 4u; i++)
    {
        if ((c + i) < v_18.a.kv)
        {
            uint param_12 = TYPE;
            ulong param_13 = row.codes;
            ulong param_14 = row.scale;
            uint param_15 = c + i;
            w[i] = k3_code(param_12, param_13, param_14, param_15);
        }
    }
    return w;
}

kernel void mla_attend_value(constant Push& v_18 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint blocks = gl_NumWorkGroups.x / v_18.a.heads;
    uint h = gl_WorkGroupID.x / blocks;
    uint t0 = gl_WorkGroupID.y * ROWS;
    uint first = (gl_WorkGroupID.x % blocks) * v_18.a.block;
    uint end = min(v_18.a.v, (first + v_18.a.block));
    uint last = ((v_18.a.kv - 1u) / 4u) * 4u;
    uint _24 = first + (2u * gl_SubgroupID);
    spvUnsafeArray<float2, 8> sum;
    spvUnsafeArray<float4, 4> w;
    spvUnsafeArray<float4, 4> w_next;
    float2 _25;
    for (uint r = _24; r < end; r += (2u * gl_NumSubgroups))
    {
        uint param = ((h * (v_18.a.nope + v_18.a.v)) + v_18.a.nope) + r;
        k3_row _26 = k3_row_of(param, v_18);
        k3_row row = _26;
        uint param_1 = ((h * (v_18.a.nope + v_18.a.v)) + v_18.a.nope) + min((r + 1u), (end - 1u));
        k3_row _27 = k3_row_of(param_1, v_18);
        k3_row next = _27;
        k3_row param_2 = row;
        k3_row param_3 = next;
        float2 scales = float2(k3_scale_of(param_2), k3_scale_of(param_3));
        for (uint t = 0u; t < ROWS; t++)
        {
            sum[t] = float2(0.0);
        }
        uint _28 = 4u * gl_SubgroupInvocationID;
        for (uint base = _28; base < v_18.a.kv; base += (16u * gl_SubgroupSize))
        {
            for (uint i = 0u; i < 4u; i++)
            {
                uint c = min((base + ((i * 4u) * gl_SubgroupSize)), last);
                k3_row param_4 = row;
                uint param_5 = c;
                w[i] = k3_weights4(param_4, param_5, v_18);
                k3_row param_6 = next;
                uint param_7 = c;
                w_next[i] = k3_weights4(param_6, param_7, v_18);
            }
            for (uint i_1 = 0u; i_1 < 4u; i_1++)
            {
                uint c_1 = base + ((i_1 * 4u) * gl_SubgroupSize);
                for (uint t_1 = 0u; t_1 < ROWS; t_1++)
                {
                    float4 x = (reinterpret_cast<device F32x4*>(v_18.a.x + ((4ul * ((ulong(min((t0 + t_1), (v_18.a.T - 1u))) * ulong(v_18.a.heads)) + ulong(h))) * ulong(v_18.a.stride))))->at[min(c_1, last) / 4u];
                    if (c_1 < v_18.a.kv)
                    {
                        _25 = float2(dot(w[i_1], x), dot(w_next[i_1], x));
                    }
                    else
                    {
                        _25 = float2(0.0);
                    }
                    sum[t_1] += _25;
                }
            }
        }
        for (uint t_2 = 0u; t_2 < ROWS; t_2++)
        {
            float2 y = simd_sum(sum[t_2]) * scales;
            bool _29 = simd_is_first();
            bool _30;
            if (_29)
            {
                _30 = (t0 + t_2) < v_18.a.T;
            }
            else
            {
                _30 = _29;
            }
            if (_30)
            {
                device F32* o = reinterpret_cast<device F32*>(v_18.a.y + ((4ul * ((ulong(t0 + t_2) * ulong(v_18.a.heads)) + ulong(h))) * ulong(v_18.a.v)));
                o->at[r] = y.x;
                if ((r + 1u) < end)
                {
                    o->at[r + 1u] = y.y;
                }
            }
        }
    }
}

