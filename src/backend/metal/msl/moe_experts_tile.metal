// Made by tools/metal/generate.sh from glsl/moe_experts_tile.comp, do not edit: threads 256
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

struct F32x4;
struct F32;
struct U64;
struct U32;
struct U32x4;

constant uint K3_ALIGNED_tmp [[function_constant(0)]];
constant uint K3_ALIGNED = is_function_constant_defined(K3_ALIGNED_tmp) ? K3_ALIGNED_tmp : 0u;
constant bool _1 = (K3_ALIGNED != 0u);

struct F32x4
{
    float4 at[1];
};

struct F32
{
    float at[1];
};

struct U64
{
    ulong at[1];
};

struct U32
{
    uint at[1];
};

struct k3_moe_tile_args
{
    ulong y;
    ulong x;
    ulong x_unit;
    ulong table;
    ulong jobs;
    ulong pair_at;
    uint rows;
    uint cols;
    uint pairs_a_row;
    float b1;
    float b2;
    float inner_unit;
    uint places;
    uint pad;
};

struct Push
{
    k3_moe_tile_args a;
};

constant uint DOWN_tmp [[function_constant(1)]];
constant uint DOWN = is_function_constant_defined(DOWN_tmp) ? DOWN_tmp : 0u;
constant bool _2 = (DOWN != 0u);

struct U32x4
{
    uint4 at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
ulong k3_expert_tensor(thread const ulong& table, thread const uint& entry, thread const uint& tensor)
{
    return (reinterpret_cast<device U64*>(table))->at[(6u * entry) + tensor];
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
uint k3_scale_byte(thread const ulong& scales, thread const uint& i)
{
    return ((reinterpret_cast<device U32*>(scales))->at[i / 4u] >> (8u * (i % 4u))) & 255u;
}

static inline __attribute__((always_inline))
float k3_e8m0(thread const uint& byte)
{
    uint _3;
    if (byte == 0u)
    {
        _3 = 4194304u;
    }
    else
    {
        _3 = byte << uint(23);
    }
    return as_type<float>(_3);
}

static inline __attribute__((always_inline))
void put(thread const float4& v, thread const uint& at, thread const bool& in_w, threadgroup float (&w_tile)[2112], threadgroup float (&x_tile)[1056])
{
    for (int i = 0; i < 4; i++)
    {
        if (in_w)
        {
            w_tile[at + uint(i)] = v[i];
        }
        else
        {
            x_tile[at + uint(i)] = v[i];
        }
    }
}

static inline __attribute__((always_inline))
float4 k3_load4(thread const ulong& at, thread const uint& i, thread const uint& n)
{
    float4 x = float4(0.0);
    if (_1)
    {
        if (i < n)
        {
            x = (reinterpret_cast<device F32x4*>(at))->at[i / 4u];
        }
        return x;
    }
    device F32* from = reinterpret_cast<device F32*>(at);
    for (uint j = 0u; j < 4u; j++)
    {
        if ((i + j) < n)
        {
            x[j] = from->at[i + j];
        }
    }
    return x;
}

static inline __attribute__((always_inline))
void load_tiles(thread const uint& thread0, thread const uint& block, thread const ulong& codes, thread const ulong& scales, thread const uint& scale_at, thread const ulong& x, threadgroup float (&w_tile)[2112], threadgroup float (&x_tile)[1056], constant Push& v_4)
{
    uint param = (reinterpret_cast<device U32*>(codes))->at[(4u * block) + (thread0 % 4u)];
    float4 param_1;
    float4 param_2;
    k3_e2m1x8(param, param_1, param_2);
    float4 w0 = param_1;
    float4 w1 = param_2;
    ulong param_3 = scales;
    uint param_4 = scale_at + block;
    uint param_5 = k3_scale_byte(param_3, param_4);
    float scale = k3_e8m0(param_5) * 16384.0;
    uint at = ((thread0 / 4u) * 33u) + ((thread0 % 4u) * 8u);
    float4 param_6 = w0 * scale;
    uint param_7 = at;
    bool param_8 = true;
    put(param_6, param_7, param_8, w_tile, x_tile);
    float4 param_9 = w1 * scale;
    uint param_10 = at + 4u;
    bool param_11 = true;
    put(param_9, param_10, param_11, w_tile, x_tile);
    ulong param_12 = x;
    uint param_13 = (32u * block) + ((thread0 % 8u) * 4u);
    uint param_14 = v_4.a.cols;
    float4 param_15 = k3_load4(param_12, param_13, param_14);
    uint param_16 = ((thread0 / 8u) * 33u) + ((thread0 % 8u) * 4u);
    bool param_17 = false;
    put(param_15, param_16, param_17, w_tile, x_tile);
}

static inline __attribute__((always_inline))
float k3_tanh(thread const float& x)
{
    float a = abs(x);
    float _5;
    if (a < 0.60000002384185791015625)
    {
        _5 = x * x;
    }
    else
    {
        _5 = 0.0;
    }
    float z = _5;
    float p = 0.021110959351062774658203125 - (z * 0.006269119679927825927734375);
    p = (-0.333333313465118408203125) + (z * (0.1333291530609130859375 + (z * ((-0.053873948752880096435546875) + (z * p)))));
    float far = 1.0 - (2.0 / (exp(2.0 * fast::min(a, 16.0)) + 1.0));
    float _6;
    if (a < 0.60000002384185791015625)
    {
        _6 = x + ((x * z) * p);
    }
    else
    {
        float _7;
        if (x < 0.0)
        {
            _7 = -far;
        }
        else
        {
            _7 = far;
        }
        _6 = _7;
    }
    return _6;
}

static inline __attribute__((always_inline))
float k3_exp(thread const float& x)
{
    return exp(fast::clamp(x, -87.0, 88.0));
}

static inline __attribute__((always_inline))
float k3_sigma(thread const float& x)
{
    float param = -x;
    return 1.0 / (1.0 + k3_exp(param));
}

static inline __attribute__((always_inline))
float k3_situ(thread const float& g, thread const float& u, thread const float& b1, thread const float& b2)
{
    float _8;
    if (b2 == 0.0)
    {
        _8 = u;
    }
    else
    {
        float param = u / b2;
        _8 = b2 * k3_tanh(param);
    }
    float up = _8;
    float param_1 = g / b1;
    float param_2 = g;
    return ((b1 * k3_tanh(param_1)) * k3_sigma(param_2)) * up;
}

kernel void moe_experts_tile(constant Push& v_4 [[buffer(0)]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float w_tile[2112];
    threadgroup float x_tile[1056];
    threadgroup float k3_slots[128];
    uint thread0 = gl_LocalInvocationIndex;
    bool down = _2;
    uint4 job = (reinterpret_cast<device U32x4*>(v_4.a.jobs))->at[gl_WorkGroupID.y];
    uint y0 = gl_WorkGroupID.x * (down ? 64u : 32u);
    uint n_blocks = v_4.a.cols / 32u;
    uint half_row = (thread0 / 4u) % 32u;
    bool second = ((thread0 / 4u) >= 32u) && (!down);
    uint _9;
    if (down)
    {
        _9 = thread0 / 4u;
    }
    else
    {
        _9 = half_row;
    }
    uint row = min((y0 + _9), (v_4.a.rows - 1u));
    uint _10;
    if (down)
    {
        _10 = 4u;
    }
    else
    {
        _10 = second ? 2u : 0u;
    }
    ulong param = v_4.a.table;
    uint param_1 = job.x;
    uint param_2 = _10;
    ulong codes = k3_expert_tensor(param, param_1, param_2) + ((16ul * ulong(row)) * ulong(n_blocks));
    uint _11;
    if (down)
    {
        _11 = 5u;
    }
    else
    {
        _11 = second ? 3u : 1u;
    }
    ulong param_3 = v_4.a.table;
    uint param_4 = job.x;
    uint param_5 = _11;
    ulong scales = k3_expert_tensor(param_3, param_4, param_5);
    uint i = thread0 % 16u;
    uint j = thread0 / 16u;
    uint _12;
    spvUnsafeArray<float2, 4> sum;
    uint _13;
    float _14;
    for (uint x0 = 0u; x0 < job.z; x0 += 32u)
    {
        uint place = job.y + min((x0 + (thread0 / 8u)), (job.z - 1u));
        if (down)
        {
            _12 = place;
        }
        else
        {
            _12 = (reinterpret_cast<device U32*>(v_4.a.pair_at))->at[place] / v_4.a.pairs_a_row;
        }
        uint x_row = _12;
        ulong x = v_4.a.x + ((4ul * ulong(x_row)) * ulong(v_4.a.cols));
        for (uint q = 0u; q < 4u; q++)
        {
            sum[q] = float2(0.0);
        }
        for (uint block = 0u; block < n_blocks; block++)
        {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            uint param_6 = thread0;
            uint param_7 = block;
            ulong param_8 = codes;
            ulong param_9 = scales;
            uint param_10 = row * n_blocks;
            ulong param_11 = x;
            load_tiles(param_6, param_7, param_8, param_9, param_10, param_11, w_tile, x_tile, v_4);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint c = 0u; c < 32u; c++)
            {
                float2 xs = float2(x_tile[(j * 33u) + c], x_tile[((j + 16u) * 33u) + c]);
                for (uint q_1 = 0u; q_1 < 4u; q_1++)
                {
                    float w = w_tile[((i + (16u * q_1)) * 33u) + c];
                    sum[q_1] = fma(float2(w), xs, sum[q_1]);
                }
            }
        }
        for (uint h = 0u; h < 2u; h++)
        {
            uint at = (x0 + j) + (16u * h);
            if (at >= job.z)
            {
                continue;
            }
            if (down)
            {
                _13 = (reinterpret_cast<device U32*>(v_4.a.pair_at))->at[job.y + at];
            }
            else
            {
                _13 = job.y + at;
            }
            uint y_row = _13;
            device F32* y = reinterpret_cast<device F32*>(v_4.a.y + ((4ul * ulong(y_row)) * ulong(v_4.a.rows)));
            for (uint q_2 = 0u; q_2 < (down ? 4u : 2u); q_2++)
            {
                if (((y0 + i) + (16u * q_2)) < v_4.a.rows)
                {
                    if (down)
                    {
                        _14 = sum[q_2][h];
                    }
                    else
                    {
                        float param_12 = sum[q_2][h];
                        float param_13 = sum[q_2 + 2u][h];
                        float param_14 = v_4.a.b1;
                        float param_15 = v_4.a.b2;
                        _14 = k3_situ(param_12, param_13, param_14, param_15);
                    }
                    y->at[(y0 + i) + (16u * q_2)] = _14;
                }
            }
        }
    }
}

