// Made by tools/metal/generate.sh from glsl/matmul_rows_f16_two.comp, do not edit: threads constant 3 default 1
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

struct Parts;
struct k3_matmul_part_2;
struct F32x4;
struct U32x4;
struct U32;
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

struct place
{
    ulong codes;
    ulong scales;
};

struct unit
{
    spvUnsafeArray<uint4, 4> codes;
    spvUnsafeArray<uint, 4> scales;
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

constant uint T_tmp [[function_constant(0)]];
constant uint T = is_function_constant_defined(T_tmp) ? T_tmp : 1u;
constant uint UNITS_tmp [[function_constant(2)]];
constant uint UNITS = is_function_constant_defined(UNITS_tmp) ? UNITS_tmp : 4u;
constant uint _1 = (T * UNITS);
constant uint EIGHTS = (_1 * 4u);
constant uint THREADS_tmp [[function_constant(3)]];
constant uint THREADS = is_function_constant_defined(THREADS_tmp) ? THREADS_tmp : 256u;
constant uint _2 = (EIGHTS + THREADS);
constant uint _3 = (_2 - 1u);
constant uint ROUNDS = (_3 / THREADS);

struct F32x4
{
    float4 at[1];
};

constant uint _4 = (EIGHTS - 1u);
constant uint _5 = (EIGHTS - 1u);
constant uint R_tmp [[function_constant(1)]];
constant uint R = is_function_constant_defined(R_tmp) ? R_tmp : 1u;

struct U32x4
{
    uint4 at[1];
};

struct U32
{
    uint at[1];
};

struct F32
{
    float at[1];
};

constant uint _6 = THREADS;
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(_6, 1u, 1u);

static inline __attribute__((always_inline))
k3_matmul_part part_of(thread const uint& block, constant Push& v_7, thread uint& gl_SubgroupInvocationID, thread uint& gl_SubgroupSize)
{
    if (v_7.a.n_parts == 1u)
    {
        k3_matmul_part _8;
        _8.w.data = v_7.a.only.w.data;
        _8.w.scale = v_7.a.only.w.scale;
        _8.w.rows = v_7.a.only.w.rows;
        _8.w.cols = v_7.a.only.w.cols;
        _8.w.row_bytes = v_7.a.only.w.row_bytes;
        _8.w.scale_bytes = v_7.a.only.w.scale_bytes;
        _8.y = v_7.a.only.y;
        _8.stride = v_7.a.only.stride;
        _8.first_block = v_7.a.only.first_block;
        _8.first_row = v_7.a.only.first_row;
        _8.pad = v_7.a.only.pad;
        return _8;
    }
    uint begun = 0u;
    for (uint i = gl_SubgroupInvocationID; i < v_7.a.n_parts; i += gl_SubgroupSize)
    {
        begun += uint(int((reinterpret_cast<device Parts*>(v_7.a.parts))->at[i].first_block <= block));
    }
    device Parts* _9 = reinterpret_cast<device Parts*>(v_7.a.parts);
    uint _10 = simd_sum(begun) - 1u;
    k3_matmul_part _11;
    _11.w.data = _9->at[_10].w.data;
    _11.w.scale = _9->at[_10].w.scale;
    _11.w.rows = _9->at[_10].w.rows;
    _11.w.cols = _9->at[_10].w.cols;
    _11.w.row_bytes = _9->at[_10].w.row_bytes;
    _11.w.scale_bytes = _9->at[_10].w.scale_bytes;
    _11.y = _9->at[_10].y;
    _11.stride = _9->at[_10].stride;
    _11.first_block = _9->at[_10].first_block;
    _11.first_row = _9->at[_10].first_row;
    _11.pad = _9->at[_10].pad;
    return _11;
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
place place_of(thread const uint& block, thread k3_matmul_part& part, thread uint& row, constant Push& v_7, thread uint& gl_SubgroupInvocationID, thread uint& gl_SubgroupSize)
{
    uint param = block;
    part = part_of(param, v_7, gl_SubgroupInvocationID, gl_SubgroupSize);
    row = min(((block - part.first_block) * R), (part.w.rows - R));
    uint lane = gl_SubgroupInvocationID;
    k3_mat_args param_1 = part.w;
    uint param_2 = row;
    k3_mat_args param_3 = part.w;
    uint param_4 = row;
    return place{ k3_row_at(param_1, param_2) + ulong(16u * lane), k3_scale_at(param_3, param_4) + ulong((lane / 4u) * 4u) };
}

static inline __attribute__((always_inline))
unit fetch(thread const place& p)
{
    unit u;
    for (uint r = 0u; r < R; r++)
    {
        u.codes[r] = (reinterpret_cast<device U32x4*>(p.codes))->at[r * UNITS];
        u.scales[r] = (reinterpret_cast<device U32*>(p.scales))->at[(r * UNITS) / 4u];
    }
    return u;
}

static inline __attribute__((always_inline))
uint4 k3_halves(thread const float4& first, thread const float4& second)
{
    return uint4(as_type<uint>(half2(float2(first.x, second.x))), as_type<uint>(half2(float2(first.y, second.y))), as_type<uint>(half2(float2(first.z, second.z))), as_type<uint>(half2(float2(first.w, second.w))));
}

static inline __attribute__((always_inline))
void stage(constant Push& v_7, thread uint& gl_LocalInvocationIndex, threadgroup uint4 (&x_tile)[1792], threadgroup float (&x_unit)[448])
{
    spvUnsafeArray<float4, 4> low;
    spvUnsafeArray<float4, 4> high;
    for (uint k = 0u; k < ROUNDS; k++)
    {
        uint i = (k * THREADS) + gl_LocalInvocationIndex;
        if (i >= EIGHTS)
        {
            continue;
        }
        low[k] = (reinterpret_cast<device F32x4*>(v_7.a.x))->at[2u * i];
        high[k] = (reinterpret_cast<device F32x4*>(v_7.a.x))->at[(2u * i) + 1u];
        float4 most = fast::max(abs(low[k]), abs(high[k]));
        ((threadgroup uint*)&x_tile[(((((i / 4u) / UNITS) * 4u) + 3u) * UNITS) + ((i / 4u) % UNITS)])[i % 4u] = as_type<uint>(fast::max(fast::max(most.x, most.y), fast::max(most.z, most.w)));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    spvUnsafeArray<uint, 4> exponent;
    for (uint k_1 = 0u; k_1 < ROUNDS; k_1++)
    {
        uint4 most_1 = x_tile[(((((min(((k_1 * THREADS) + gl_LocalInvocationIndex), _4) / 4u) / UNITS) * 4u) + 3u) * UNITS) + ((min(((k_1 * THREADS) + gl_LocalInvocationIndex), _5) / 4u) % UNITS)];
        exponent[k_1] = max((max(max(most_1.x, most_1.y), max(most_1.z, most_1.w)) >> uint(23)), 15u);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k_2 = 0u; k_2 < ROUNDS; k_2++)
    {
        uint i_1 = (k_2 * THREADS) + gl_LocalInvocationIndex;
        uint u = i_1 / 4u;
        uint w = i_1 % 4u;
        if (i_1 >= EIGHTS)
        {
            continue;
        }
        float _inverse = as_type<float>((268u - exponent[k_2]) << uint(23));
        float4 param = low[k_2] * _inverse;
        float4 param_1 = high[k_2] * _inverse;
        x_tile[((((u / UNITS) * 4u) + w) * UNITS) + (u % UNITS)] = k3_halves(param, param_1);
        if (w == 0u)
        {
            x_unit[u] = as_type<float>(exponent[k_2] << uint(23));
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

static inline __attribute__((always_inline))
uint4 k3_e2m1_pairs(thread const uint& word)
{
    uint odd = (word & 2155905152u) | ((word >> uint(3)) & 2139062143u);
    uint even = ((word << uint(4)) & 2155905152u) | ((word << uint(1)) & 2139062143u);
    return uint4(even << uint(8), odd << uint(8), even, odd) & uint4(2382401024u);
}

static inline __attribute__((always_inline))
half2 products(thread const uint4& x, thread const uint4& w, thread half2& sum)
{
    for (int i = 0; i < 4; i++)
    {
        sum = fma(as_type<half2>(w[i]), as_type<half2>(x[i]), sum);
    }
    return sum;
}

static inline __attribute__((always_inline))
void add_unit(thread const unit& u, thread const uint& at, thread spvUnsafeArray<float, 8>& sum, thread uint& gl_SubgroupInvocationID, threadgroup uint4 (&x_tile)[1792], threadgroup float (&x_unit)[448])
{
    spvUnsafeArray<uint4, 4> x;
    spvUnsafeArray<half2, 8> block;
    half2 _12;
    for (uint w = 0u; w < 4u; w += 2u)
    {
        for (uint t = 0u; t < T; t++)
        {
            x[2u * t] = x_tile[(((4u * t) + w) * UNITS) + at];
            x[(2u * t) + 1u] = x_tile[((((4u * t) + w) + 1u) * UNITS) + at];
        }
        for (uint r = 0u; r < R; r++)
        {
            uint param = u.codes[r][w];
            uint4 w0 = k3_e2m1_pairs(param);
            uint param_1 = u.codes[r][w + 1u];
            uint4 w1 = k3_e2m1_pairs(param_1);
            for (uint t_1 = 0u; t_1 < T; t_1++)
            {
                uint i = (r * 2u) + t_1;
                uint4 param_2 = x[2u * t_1];
                uint4 param_3 = w0;
                half2 param_4 = half2(half(0.0));
                half2 _13 = products(param_2, param_3, param_4);
                uint4 param_5 = x[(2u * t_1) + 1u];
                uint4 param_6 = w1;
                half2 param_7 = _13;
                half2 _14 = products(param_5, param_6, param_7);
                half2 eights = _14;
                if (w == 0u)
                {
                    _12 = eights;
                }
                else
                {
                    _12 = block[i] + eights;
                }
                block[i] = _12;
            }
        }
    }
    uint shift = (gl_SubgroupInvocationID % 4u) * 8u;
    for (uint r_1 = 0u; r_1 < R; r_1++)
    {
        float scale = as_type<float>(((u.scales[r_1] >> shift) & 255u) << uint(23));
        for (uint t_2 = 0u; t_2 < T; t_2++)
        {
            uint i_1 = (r_1 * 2u) + t_2;
            sum[i_1] = fma(float(block[i_1].x) + float(block[i_1].y), scale * x_unit[(t_2 * UNITS) + at], sum[i_1]);
        }
    }
}

kernel void matmul_rows_f16_two(constant Push& v_7 [[buffer(0)]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]])
{
    threadgroup uint4 x_tile[1792];
    threadgroup float x_unit[448];
    uint share = v_7.a.blocks / gl_NumWorkGroups.x;
    uint more = v_7.a.blocks % gl_NumWorkGroups.x;
    uint begin = (gl_WorkGroupID.x * share) + min(gl_WorkGroupID.x, more);
    uint end = (begin + share) + uint(int(gl_WorkGroupID.x < more));
    uint _15 = begin + gl_SubgroupID;
    uint param = min(_15, (end - 1u));
    k3_matmul_part param_1;
    uint param_2;
    place _16 = place_of(param, param_1, param_2, v_7, gl_SubgroupInvocationID, gl_SubgroupSize);
    k3_matmul_part next_part = param_1;
    uint next_row = param_2;
    place p = _16;
    place param_3 = p;
    unit next = fetch(param_3);
    stage(v_7, gl_LocalInvocationIndex, x_tile, x_unit);
    spvUnsafeArray<float, 8> sum;
    k3_matmul_part param_5;
    uint param_6;
    for (uint block = _15; block < end; block += gl_NumSubgroups)
    {
        for (uint i = 0u; i < 8u; i++)
        {
            sum[i] = 0.0;
        }
        k3_matmul_part part = next_part;
        uint row = next_row;
        for (uint at = gl_SubgroupInvocationID; at < UNITS; at += gl_SubgroupSize)
        {
            unit now = next;
            if ((at + gl_SubgroupSize) >= UNITS)
            {
                uint param_4 = min((block + gl_NumSubgroups), (end - 1u));
                place _17 = place_of(param_4, param_5, param_6, v_7, gl_SubgroupInvocationID, gl_SubgroupSize);
                next_part = param_5;
                next_row = param_6;
                p = _17;
            }
            else
            {
                p.codes += ulong(16u * gl_SubgroupSize);
                p.scales += ulong(gl_SubgroupSize);
            }
            place param_7 = p;
            next = fetch(param_7);
            unit param_8 = now;
            uint param_9 = at;
            spvUnsafeArray<float, 8> param_10;
            param_10 = sum;
            add_unit(param_8, param_9, param_10, gl_SubgroupInvocationID, x_tile, x_unit);
            sum = param_10;
        }
        for (uint r = 0u; r < R; r++)
        {
            for (uint t = 0u; t < T; t++)
            {
                float total = simd_sum(sum[(r * 2u) + t]);
                bool _18 = simd_is_first();
                if (_18)
                {
                    (reinterpret_cast<device F32*>(part.y + ((4ul * ulong(t)) * ulong(part.stride))))->at[row + r] = total;
                }
            }
        }
    }
}

