// Made by tools/metal/generate.sh from glsl/matmul_rows.comp, do not edit: threads constant 4 default 256
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
struct F32x4;
struct U32x4;
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

struct k3_matmul_part
{
    k3_mat_args w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct unit
{
    uint4 low;
    uint4 high;
    uint scale;
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

constant uint T_tmp [[function_constant(1)]];
constant uint T = is_function_constant_defined(T_tmp) ? T_tmp : 1u;
constant uint _1 = (7168u / T);
constant uint _2 = (_1 / 64u);
constant uint SECTION = (_2 * 64u);
constant uint _3 = (SECTION / 4u);
constant uint _4 = (SECTION / 32u);
constant uint PITCH = (_3 + _4);

struct F32x4
{
    float4 at[1];
};

constant uint THREADS_tmp [[function_constant(4)]];
constant uint THREADS = is_function_constant_defined(THREADS_tmp) ? THREADS_tmp : 256u;
constant uint TYPE_tmp [[function_constant(0)]];
constant uint TYPE = is_function_constant_defined(TYPE_tmp) ? TYPE_tmp : 0u;
constant bool _5 = (TYPE == 0u);

struct U32x4
{
    uint4 at[1];
};

constant bool _6 = (TYPE == 5u);

struct U32x2
{
    uint2 at[1];
};

constant bool _7 = (TYPE == 7u);
constant bool _8 = (TYPE == 4u);
constant bool _9 = (TYPE == 5u);
constant bool _10 = (TYPE == 7u);
constant bool _11 = (TYPE == 4u);
constant bool _12 = (TYPE == 5u);
constant bool _13 = (_11 || _12);
constant bool _14 = (TYPE == 0u);
constant bool _15 = (TYPE == 1u);
constant bool _16 = (TYPE == 2u);
constant bool _17 = (TYPE == 6u);
constant bool _18 = (TYPE == 5u);
constant bool _19 = (TYPE == 3u);
constant bool _20 = (TYPE == 4u);
constant bool _21 = (_19 || _20);
constant bool _22 = (T <= 2u);
constant bool IS_UINT4 = (_21 && _22);
constant uint UNIT_tmp [[function_constant(3)]];
constant uint UNIT = is_function_constant_defined(UNIT_tmp) ? UNIT_tmp : 8u;
constant uint _23 = (UNIT / 4u);
constant uint _24 = (UNIT / 8u);
constant uint R_tmp [[function_constant(2)]];
constant uint R = is_function_constant_defined(R_tmp) ? R_tmp : 1u;

struct F32
{
    float at[1];
};

constant uint _25 = THREADS;
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(_25, 1u, 1u);

static inline __attribute__((always_inline))
k3_matmul_part part_of(thread const uint& block, constant Push& v_26, thread uint& gl_SubgroupInvocationID, thread uint& gl_SubgroupSize)
{
    if (v_26.a.n_parts == 1u)
    {
        k3_matmul_part _27;
        _27.w.data = v_26.a.only.w.data;
        _27.w.scale = v_26.a.only.w.scale;
        _27.w.rows = v_26.a.only.w.rows;
        _27.w.cols = v_26.a.only.w.cols;
        _27.w.row_bytes = v_26.a.only.w.row_bytes;
        _27.w.scale_bytes = v_26.a.only.w.scale_bytes;
        _27.y = v_26.a.only.y;
        _27.stride = v_26.a.only.stride;
        _27.first_block = v_26.a.only.first_block;
        _27.first_row = v_26.a.only.first_row;
        _27.pad = v_26.a.only.pad;
        return _27;
    }
    uint begun = 0u;
    for (uint i = gl_SubgroupInvocationID; i < v_26.a.n_parts; i += gl_SubgroupSize)
    {
        begun += uint(int((reinterpret_cast<device Parts*>(v_26.a.parts))->at[i].first_block <= block));
    }
    device Parts* _28 = reinterpret_cast<device Parts*>(v_26.a.parts);
    uint _29 = simd_sum(begun) - 1u;
    k3_matmul_part _30;
    _30.w.data = _28->at[_29].w.data;
    _30.w.scale = _28->at[_29].w.scale;
    _30.w.rows = _28->at[_29].w.rows;
    _30.w.cols = _28->at[_29].w.cols;
    _30.w.row_bytes = _28->at[_29].w.row_bytes;
    _30.w.scale_bytes = _28->at[_29].w.scale_bytes;
    _30.y = _28->at[_29].y;
    _30.stride = _28->at[_29].stride;
    _30.first_block = _28->at[_29].first_block;
    _30.first_row = _28->at[_29].first_row;
    _30.pad = _28->at[_29].pad;
    return _30;
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
uint k3_word_around(thread const ulong& at)
{
    return (reinterpret_cast<device U32*>(at - ulong(uint(at) & 3u)))->at[0];
}

static inline __attribute__((always_inline))
unit load_unit(thread const ulong& row, thread const ulong& scale, thread const uint& i)
{
    unit u;
    u.high = uint4(0u);
    u.scale = 0u;
    if (_5)
    {
        u.low = (reinterpret_cast<device U32x4*>(row))->at[2u * i];
        u.high = (reinterpret_cast<device U32x4*>(row))->at[(2u * i) + 1u];
    }
    else
    {
        if (_6)
        {
            u.low = uint4((reinterpret_cast<device U32x2*>(row))->at[3u * i], (reinterpret_cast<device U32x2*>(row))->at[(3u * i) + 1u]);
            device U32x2* _31 = reinterpret_cast<device U32x2*>(row);
            uint _32 = (3u * i) + 2u;
            u.high.x = _31->at[_32].x;
            u.high.y = _31->at[_32].y;
        }
        else
        {
            u.low = (reinterpret_cast<device U32x4*>(row))->at[i];
        }
    }
    if (_7)
    {
        ulong param = scale + ulong(i);
        u.scale = k3_word_around(param);
    }
    else
    {
        if (_8)
        {
            u.scale = (reinterpret_cast<device U32*>(scale))->at[i / 2u];
        }
        else
        {
            if (_9)
            {
                u.scale = (reinterpret_cast<device U32*>(scale))->at[i];
            }
        }
    }
    return u;
}

static inline __attribute__((always_inline))
void stage(thread const uint& first, thread const uint& n, constant Push& v_26, thread uint3& gl_LocalInvocationID, threadgroup float4 (&x_shared)[2016])
{
    for (uint t = 0u; t < T; t++)
    {
        for (uint v = gl_LocalInvocationID.x; v < (n / 4u); v += THREADS)
        {
            x_shared[((t * PITCH) + v) + (v / 8u)] = (reinterpret_cast<device F32x4*>(v_26.a.x + (4ul * ((ulong(t) * ulong(v_26.a.cols)) + ulong(first)))))->at[v];
        }
    }
}

static inline __attribute__((always_inline))
uint k3_byte_in(thread const uint& word, thread const ulong& at)
{
    return extract_bits(word, uint(int(uint(at) & 3u) * 8), uint(8));
}

static inline __attribute__((always_inline))
float k3_e8m0(thread const uint& byte)
{
    uint _33;
    if (byte == 0u)
    {
        _33 = 4194304u;
    }
    else
    {
        _33 = byte << uint(23);
    }
    return as_type<float>(_33);
}

static inline __attribute__((always_inline))
float scale_of(thread const unit& u, thread const ulong& scale, thread const uint& i)
{
    if (_10)
    {
        uint param = u.scale;
        ulong param_1 = scale + ulong(i);
        uint param_2 = k3_byte_in(param, param_1);
        return k3_e8m0(param_2);
    }
    float _34;
    if (_13)
    {
        _34 = as_type<float>(u.scale);
    }
    else
    {
        _34 = 1.0;
    }
    return _34;
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
void k3_decode8(thread const uint& type, thread const uint4& words, thread float4& first, thread float4& second)
{
    if (type == 1u)
    {
        uint param = words.x;
        uint param_1 = words.y;
        first = float4(k3_bf16x2(param), k3_bf16x2(param_1));
        uint param_2 = words.z;
        uint param_3 = words.w;
        second = float4(k3_bf16x2(param_2), k3_bf16x2(param_3));
    }
    else
    {
        if (type == 2u)
        {
            uint param_4 = words.x;
            first = k3_int8x4(param_4);
            uint param_5 = words.y;
            second = k3_int8x4(param_5);
        }
        else
        {
            if ((type == 3u) || (type == 4u))
            {
                uint param_6 = words.x;
                uint param_7 = 4u;
                float param_8 = 8.0;
                first = k3_small4(param_6, param_7, param_8);
                uint param_9 = words.x >> uint(16);
                uint param_10 = 4u;
                float param_11 = 8.0;
                second = k3_small4(param_9, param_10, param_11);
            }
            else
            {
                if (type == 5u)
                {
                    uint param_12 = words.x;
                    uint param_13 = 3u;
                    float param_14 = 4.0;
                    first = k3_small4(param_12, param_13, param_14);
                    uint param_15 = words.x >> uint(12);
                    uint param_16 = 3u;
                    float param_17 = 4.0;
                    second = k3_small4(param_15, param_16, param_17);
                }
                else
                {
                    if (type == 6u)
                    {
                        uint param_18 = words.x;
                        uint param_19 = 2u;
                        float param_20 = 2.0;
                        first = k3_small4(param_18, param_19, param_20);
                        uint param_21 = words.x >> uint(8);
                        uint param_22 = 2u;
                        float param_23 = 2.0;
                        second = k3_small4(param_21, param_22, param_23);
                    }
                    else
                    {
                        uint param_24 = words.x;
                        float4 param_25;
                        float4 param_26;
                        k3_e2m1x8(param_24, param_25, param_26);
                        first = param_25;
                        second = param_26;
                    }
                }
            }
        }
    }
}

static inline __attribute__((always_inline))
void k3_uint4x8(thread const uint& word, thread float4& first, thread float4& second)
{
    uint4 pairs = uint4(word, word >> uint(4), word >> uint(8), word >> uint(12)) & uint4(983055u);
    float2 c04 = float2(as_type<half2>(pairs.x));
    float2 c15 = float2(as_type<half2>(pairs.y));
    float2 c26 = float2(as_type<half2>(pairs.z));
    float2 c37 = float2(as_type<half2>(pairs.w));
    first = float4(c04.x, c15.x, c26.x, c37.x);
    second = float4(c04.y, c15.y, c26.y, c37.y);
}

static inline __attribute__((always_inline))
void decode_chunk(thread const unit& u, thread const uint& j, thread float4& first, thread float4& second)
{
    if (_14)
    {
        first = as_type<float4>(u.low);
        second = as_type<float4>(u.high);
    }
    else
    {
        if (_15)
        {
            uint param = TYPE;
            uint4 param_1 = u.low;
            float4 param_2;
            float4 param_3;
            k3_decode8(param, param_1, param_2, param_3);
            first = param_2;
            second = param_3;
        }
        else
        {
            if (_16)
            {
                uint param_4 = TYPE;
                uint4 param_5 = uint4(u.low[2u * j], u.low[(2u * j) + 1u], 0u, 0u);
                float4 param_6;
                float4 param_7;
                k3_decode8(param_4, param_5, param_6, param_7);
                first = param_6;
                second = param_7;
            }
            else
            {
                if (_17)
                {
                    uint param_8 = TYPE;
                    uint4 param_9 = uint4(u.low[j / 2u] >> (16u * (j % 2u)));
                    float4 param_10;
                    float4 param_11;
                    k3_decode8(param_8, param_9, param_10, param_11);
                    first = param_10;
                    second = param_11;
                }
                else
                {
                    if (_18)
                    {
                        uint word = (3u * j) / 4u;
                        uint shift = (24u * j) % 32u;
                        uint next = word + 1u;
                        uint _35;
                        if (word < 4u)
                        {
                            _35 = u.low[word];
                        }
                        else
                        {
                            _35 = u.high[word - 4u];
                        }
                        uint bits = _35 >> shift;
                        if (shift > 8u)
                        {
                            uint _36;
                            if (next < 4u)
                            {
                                _36 = u.low[next];
                            }
                            else
                            {
                                _36 = u.high[next - 4u];
                            }
                            bits |= (_36 << (32u - shift));
                        }
                        uint param_12 = TYPE;
                        uint4 param_13 = uint4(bits);
                        float4 param_14;
                        float4 param_15;
                        k3_decode8(param_12, param_13, param_14, param_15);
                        first = param_14;
                        second = param_15;
                    }
                    else
                    {
                        if (IS_UINT4)
                        {
                            uint param_16 = u.low[j];
                            float4 param_17;
                            float4 param_18;
                            k3_uint4x8(param_16, param_17, param_18);
                            first = param_17;
                            second = param_18;
                        }
                        else
                        {
                            uint param_19 = TYPE;
                            uint4 param_20 = uint4(u.low[j]);
                            float4 param_21;
                            float4 param_22;
                            k3_decode8(param_19, param_20, param_21, param_22);
                            first = param_21;
                            second = param_22;
                        }
                    }
                }
            }
        }
    }
}

static inline __attribute__((always_inline))
float k3_unit(thread const uint& type)
{
    return (type == 7u) ? 16384.0 : 1.0;
}

static inline __attribute__((always_inline))
void add_unit(thread const spvUnsafeArray<unit, 4>& u, thread const spvUnsafeArray<float, 4>& scale, thread const uint& at, thread spvUnsafeArray<float, 32>& sum, threadgroup float4 (&x_shared)[2016])
{
    uint v = at * _23;
    v += (v / 8u);
    spvUnsafeArray<float4, 4> first;
    spvUnsafeArray<float4, 4> second;
    float4 param_2;
    float4 param_3;
    spvUnsafeArray<float4, 8> x_sum;
    float4 _37;
    spvUnsafeArray<float4, 32> four;
    float4 _38;
    for (uint j = 0u; j < _24; j++)
    {
        for (uint r = 0u; r < R; r++)
        {
            unit param = u[r];
            uint param_1 = j;
            decode_chunk(param, param_1, param_2, param_3);
            first[r] = param_2;
            second[r] = param_3;
        }
        for (uint t = 0u; t < T; t++)
        {
            uint place = (((t * PITCH) + v) + (2u * j)) + (j / 4u);
            float4 x0 = x_shared[place];
            float4 x1 = x_shared[place + 1u];
            if (IS_UINT4)
            {
                if (j == 0u)
                {
                    _37 = x0 + x1;
                }
                else
                {
                    _37 = x_sum[t] + (x0 + x1);
                }
                x_sum[t] = _37;
            }
            for (uint r_1 = 0u; r_1 < R; r_1++)
            {
                uint i = (r_1 * 8u) + t;
                if (j == 0u)
                {
                    _38 = first[r_1] * x0;
                }
                else
                {
                    _38 = fma(first[r_1], x0, four[i]);
                }
                four[i] = _38;
                four[i] = fma(second[r_1], x1, four[i]);
            }
        }
    }
    float _39;
    for (uint r_2 = 0u; r_2 < R; r_2++)
    {
        for (uint t_1 = 0u; t_1 < T; t_1++)
        {
            if (IS_UINT4)
            {
                _39 = 16777216.0;
            }
            else
            {
                uint param_4 = TYPE;
                _39 = k3_unit(param_4);
            }
            float4 p = four[(r_2 * 8u) + t_1] * _39;
            if (IS_UINT4)
            {
                p -= (x_sum[t_1] * 8.0);
            }
            sum[(r_2 * 8u) + t_1] = fma((p.x + p.y) + (p.z + p.w), scale[r_2], sum[(r_2 * 8u) + t_1]);
        }
    }
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
    float _40;
    if (k3_type_scales_rows(param))
    {
        ulong param_1 = scale;
        _40 = k3_load_f32(param_1);
    }
    else
    {
        _40 = 1.0;
    }
    return _40;
}

static inline __attribute__((always_inline))
void block_of_rows(thread uint& block, thread const bool& is_first, constant Push& v_26, thread uint& gl_SubgroupInvocationID, thread uint& gl_SubgroupSize, thread uint3& gl_LocalInvocationID, threadgroup float4 (&x_shared)[2016])
{
    bool live = block < v_26.a.blocks;
    block = min(block, (v_26.a.blocks - 1u));
    uint param = block;
    k3_matmul_part part = part_of(param, v_26, gl_SubgroupInvocationID, gl_SubgroupSize);
    k3_mat_args w = part.w;
    uint row = (block - part.first_block) * R;
    spvUnsafeArray<ulong, 4> codes;
    spvUnsafeArray<ulong, 4> scales;
    spvUnsafeArray<float, 32> sum;
    for (uint r = 0u; r < R; r++)
    {
        k3_mat_args param_1 = w;
        uint param_2 = min((row + r), (w.rows - 1u));
        codes[r] = k3_row_at(param_1, param_2);
        k3_mat_args param_3 = w;
        uint param_4 = min((row + r), (w.rows - 1u));
        scales[r] = k3_scale_at(param_3, param_4);
        for (uint t = 0u; t < T; t++)
        {
            sum[(r * 8u) + t] = 0.0;
        }
    }
    spvUnsafeArray<unit, 4> next;
    spvUnsafeArray<unit, 4> now;
    spvUnsafeArray<float, 4> scale;
    for (uint first = 0u; first < v_26.a.cols; first += SECTION)
    {
        uint n = min(SECTION, (v_26.a.cols - first));
        uint from = first / UNIT;
        uint units = n / UNIT;
        uint at = gl_SubgroupInvocationID;
        for (uint r_1 = 0u; r_1 < R; r_1++)
        {
            ulong param_5 = codes[r_1];
            ulong param_6 = scales[r_1];
            uint param_7 = from + min(at, (units - 1u));
            next[r_1] = load_unit(param_5, param_6, param_7);
        }
        if ((v_26.a.cols > SECTION) || is_first)
        {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint param_8 = first;
            uint param_9 = n;
            stage(param_8, param_9, v_26, gl_LocalInvocationID, x_shared);
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
        for (; at < units; at += gl_SubgroupSize)
        {
            for (uint r_2 = 0u; r_2 < R; r_2++)
            {
                now[r_2] = next[r_2];
                unit param_10 = now[r_2];
                ulong param_11 = scales[r_2];
                uint param_12 = from + at;
                scale[r_2] = scale_of(param_10, param_11, param_12);
                ulong param_13 = codes[r_2];
                ulong param_14 = scales[r_2];
                uint param_15 = from + min((at + gl_SubgroupSize), (units - 1u));
                next[r_2] = load_unit(param_13, param_14, param_15);
            }
            spvUnsafeArray<unit, 4> param_16;
            param_16 = now;
            spvUnsafeArray<float, 4> param_17;
            param_17 = scale;
            uint param_18 = at;
            spvUnsafeArray<float, 32> param_19;
            param_19 = sum;
            add_unit(param_16, param_17, param_18, param_19, x_shared);
            sum = param_19;
        }
    }
    for (uint r_3 = 0u; r_3 < R; r_3++)
    {
        for (uint t_1 = 0u; t_1 < T; t_1++)
        {
            float y = simd_sum(sum[(r_3 * 8u) + t_1]);
            bool _41;
            if (live)
            {
                bool _42 = simd_is_first();
                _41 = _42;
            }
            else
            {
                _41 = live;
            }
            bool _43;
            if (_41)
            {
                _43 = (row + r_3) < w.rows;
            }
            else
            {
                _43 = _41;
            }
            if (_43)
            {
                uint param_20 = TYPE;
                ulong param_21 = scales[r_3];
                (reinterpret_cast<device F32*>(part.y + ((4ul * ulong(t_1)) * ulong(part.stride))))->at[row + r_3] = y * k3_row_scale(param_20, param_21);
            }
        }
    }
}

kernel void matmul_rows(constant Push& v_26 [[buffer(0)]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]])
{
    threadgroup float4 x_shared[2016];
    threadgroup float k3_slots[128];
    uint groups = ((v_26.a.blocks + gl_NumSubgroups) - 1u) / gl_NumSubgroups;
    for (uint g = gl_WorkGroupID.x; g < groups; g += gl_NumWorkGroups.x)
    {
        uint param = (g * gl_NumSubgroups) + gl_SubgroupID;
        bool param_1 = g == gl_WorkGroupID.x;
        block_of_rows(param, param_1, v_26, gl_SubgroupInvocationID, gl_SubgroupSize, gl_LocalInvocationID, x_shared);
    }
}

