// Made by tools/metal/generate.sh from glsl/rmsnorm.comp, do not edit: threads 512
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

struct k3_rmsnorm_args
{
    ulong y;
    ulong x;
    ulong w;
    ulong y_row;
    ulong x_row;
    uint C;
    float eps;
};

struct Push
{
    k3_rmsnorm_args a;
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
float k3_group_sum(thread const float& x, threadgroup float (&k3_slots)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    float part = simd_sum(x);
    bool _3 = simd_is_first();
    if (_3)
    {
        k3_slots[gl_SubgroupID] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0;
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        sum += k3_slots[i];
    }
    return sum;
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

kernel void rmsnorm(constant Push& _4 [[buffer(0)]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float k3_slots[128];
    ulong x_at = _4.a.x + (ulong(gl_WorkGroupID.x) * _4.a.x_row);
    ulong y_at = _4.a.y + (ulong(gl_WorkGroupID.x) * _4.a.y_row);
    float square = 0.0;
    spvUnsafeArray<float4, 4> x;
    spvUnsafeArray<float4, 4> w;
    for (uint k = 0u; k < 4u; k++)
    {
        uint param = k;
        ulong param_1 = x_at;
        uint param_2 = channel(param, gl_LocalInvocationID);
        uint param_3 = _4.a.C;
        x[k] = k3_load4(param_1, param_2, param_3);
        uint param_4 = k;
        ulong param_5 = _4.a.w;
        uint param_6 = channel(param_4, gl_LocalInvocationID);
        uint param_7 = _4.a.C;
        w[k] = k3_load4(param_5, param_6, param_7);
    }
    for (uint k_1 = 0u; k_1 < 4u; k_1++)
    {
        square += dot(x[k_1], x[k_1]);
    }
    float param_8 = square;
    float _5 = k3_group_sum(param_8, k3_slots, gl_SubgroupID, gl_NumSubgroups);
    float _inverse = 1.0 / sqrt((_5 / float(_4.a.C)) + _4.a.eps);
    for (uint k_2 = 0u; k_2 < 4u; k_2++)
    {
        uint param_9 = k_2;
        ulong param_10 = y_at;
        uint param_11 = channel(param_9, gl_LocalInvocationID);
        uint param_12 = _4.a.C;
        float4 param_13 = (x[k_2] * _inverse) * w[k_2];
        k3_store4(param_10, param_11, param_12, param_13);
    }
}

