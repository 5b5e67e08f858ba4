// Made by tools/metal/generate.sh from glsl/attnres_mix.comp, do not edit: threads 512
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

constant bool _2 = (K3_ALIGNED != 0u);

struct U64
{
    ulong at[1];
};

struct k3_attnres_mix_args
{
    ulong y;
    ulong s;
    ulong sources;
    uint n_src;
    uint C;
    float eps;
    uint pad;
};

struct Push
{
    k3_attnres_mix_args a;
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(512u, 1u, 1u);

static inline __attribute__((always_inline))
uint channel(thread const uint& k, thread uint3& gl_LocalInvocationID)
{
    return 4u * (gl_LocalInvocationID.x + (k * 512u));
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
void sum_both(thread float3& dot_s, thread float3& square, thread const uint& set, threadgroup float3 (&dots)[2][128], thread uint& gl_SubgroupID, threadgroup float3 (&squares)[2][128], thread uint& gl_NumSubgroups)
{
    float3 part_dot = simd_sum(dot_s);
    float3 part_square = simd_sum(square);
    bool _3 = simd_is_first();
    if (_3)
    {
        dots[set][gl_SubgroupID] = part_dot;
        squares[set][gl_SubgroupID] = part_square;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    square = float3(0.0);
    dot_s = float3(0.0);
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        dot_s += dots[set][i];
        square += squares[set][i];
    }
}

static inline __attribute__((always_inline))
void k3_store4(thread const ulong& at, thread const uint& i, thread const uint& n, thread const float4& x)
{
    if (_2)
    {
        if (i < n)
        {
            (reinterpret_cast<device F32x4*>(at))->at[i / 4u] = x;
        }
        return;
    }
    device F32* to = reinterpret_cast<device F32*>(at);
    for (uint j = 0u; j < 4u; j++)
    {
        if ((i + j) < n)
        {
            to->at[i + j] = x[j];
        }
    }
}

kernel void attnres_mix(constant Push& _4 [[buffer(0)]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float3 dots[2][128];
    threadgroup float3 squares[2][128];
    threadgroup float k3_slots[128];
    device U64* sources = reinterpret_cast<device U64*>(_4.a.sources);
    ulong row = (ulong(gl_WorkGroupID.x) * ulong(_4.a.C)) * 4ul;
    spvUnsafeArray<float4, 4> mixture;
    for (uint k = 0u; k < 4u; k++)
    {
        mixture[k] = float4(0.0);
    }
    float largest = -3.0000000054977557577780399428115e+38;
    float total = 0.0;
    spvUnsafeArray<spvUnsafeArray<float4, 4>, 3> x;
    uint _5;
    float _6;
    float _7;
    for (uint first = 0u; first < _4.a.n_src; first += 3u)
    {
        for (uint j = 0u; j < 3u; j++)
        {
            ulong at = sources->at[min((first + j), (_4.a.n_src - 1u))] + row;
            for (uint k_1 = 0u; k_1 < 4u; k_1++)
            {
                uint param = k_1;
                if ((first + j) < _4.a.n_src)
                {
                    _5 = _4.a.C;
                }
                else
                {
                    _5 = 0u;
                }
                ulong param_1 = at;
                uint param_2 = channel(param, gl_LocalInvocationID);
                uint param_3 = _5;
                x[j][k_1] = k3_load4(param_1, param_2, param_3);
            }
        }
        float3 dot_s = float3(0.0);
        float3 square = float3(0.0);
        for (uint k_2 = 0u; k_2 < 4u; k_2++)
        {
            uint param_4 = k_2;
            ulong param_5 = _4.a.s;
            uint param_6 = channel(param_4, gl_LocalInvocationID);
            uint param_7 = _4.a.C;
            float4 s = k3_load4(param_5, param_6, param_7);
            for (uint j_1 = 0u; j_1 < 3u; j_1++)
            {
                dot_s[j_1] += dot(x[j_1][k_2], s);
                square[j_1] += dot(x[j_1][k_2], x[j_1][k_2]);
            }
        }
        float3 param_8 = dot_s;
        float3 param_9 = square;
        uint param_10 = (first / 3u) % 2u;
        sum_both(param_8, param_9, param_10, dots, gl_SubgroupID, squares, gl_NumSubgroups);
        dot_s = param_8;
        square = param_9;
        float3 score = dot_s / sqrt((square / float3(float(_4.a.C))) + float3(_4.a.eps));
        float before = largest;
        for (uint j_2 = 0u; j_2 < 3u; j_2++)
        {
            if ((first + j_2) < _4.a.n_src)
            {
                _6 = fast::max(largest, score[j_2]);
            }
            else
            {
                _6 = largest;
            }
            largest = _6;
        }
        float keep = exp(before - largest);
        total *= keep;
        for (uint k_3 = 0u; k_3 < 4u; k_3++)
        {
            mixture[k_3] *= keep;
        }
        for (uint j_3 = 0u; j_3 < 3u; j_3++)
        {
            if ((first + j_3) < _4.a.n_src)
            {
                _7 = exp(score[j_3] - largest);
            }
            else
            {
                _7 = 0.0;
            }
            float weight = _7;
            total += weight;
            for (uint k_4 = 0u; k_4 < 4u; k_4++)
            {
                mixture[k_4] += (x[j_3][k_4] * weight);
            }
        }
    }
    for (uint k_5 = 0u; k_5 < 4u; k_5++)
    {
        uint param_11 = k_5;
        ulong param_12 = _4.a.y + row;
        uint param_13 = channel(param_11, gl_LocalInvocationID);
        uint param_14 = _4.a.C;
        float4 param_15 = mixture[k_5] / float4(total);
        k3_store4(param_12, param_13, param_14, param_15);
    }
}

