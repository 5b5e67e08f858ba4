// Made by tools/metal/generate.sh from glsl/gate_rmsnorm.comp, do not edit: threads 128
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

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

struct k3_head_norm_args
{
    ulong y;
    ulong x;
    ulong w;
    ulong gate;
    uint rows;
    uint D;
    float eps;
    float scale;
};

struct Push
{
    k3_head_norm_args a;
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(128u, 1u, 1u);

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
float4 weight(thread const ulong& at, thread const uint& d, constant Push& v_3)
{
    ulong param = v_3.a.gate + at;
    uint param_1 = d;
    uint param_2 = v_3.a.D;
    float4 gate = k3_load4(param, param_1, param_2);
    float param_3 = gate.x;
    float param_4 = gate.y;
    float param_5 = gate.z;
    float param_6 = gate.w;
    float4 open = float4(k3_sigma(param_3), k3_sigma(param_4), k3_sigma(param_5), k3_sigma(param_6));
    ulong param_7 = v_3.a.w;
    uint param_8 = d;
    uint param_9 = v_3.a.D;
    return k3_load4(param_7, param_8, param_9) * open;
}

static inline __attribute__((always_inline))
float factor(thread const float& square, constant Push& v_3)
{
    return 1.0 / sqrt((square / float(v_3.a.D)) + v_3.a.eps);
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

kernel void gate_rmsnorm(constant Push& v_3 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint _4 = gl_NumWorkGroups.x * gl_NumSubgroups;
    uint lane = 4u * gl_SubgroupInvocationID;
    uint width = 4u * gl_SubgroupSize;
    uint _5 = (gl_WorkGroupID.x * gl_NumSubgroups) + gl_SubgroupID;
    for (uint _step = _4, row = _5; row < v_3.a.rows; row += _step)
    {
        ulong at = (4ul * ulong(row)) * ulong(v_3.a.D);
        ulong param = v_3.a.x + at;
        uint param_1 = lane;
        uint param_2 = v_3.a.D;
        float4 first = k3_load4(param, param_1, param_2);
        ulong param_3 = at;
        uint param_4 = lane;
        float4 first_weight = weight(param_3, param_4, v_3);
        float square = dot(first, first);
        uint _6 = lane + width;
        for (uint d = _6; d < v_3.a.D; d += width)
        {
            ulong param_5 = v_3.a.x + at;
            uint param_6 = d;
            uint param_7 = v_3.a.D;
            float4 x = k3_load4(param_5, param_6, param_7);
            square += dot(x, x);
        }
        float param_8 = simd_sum(square);
        float scale = factor(param_8, v_3);
        ulong param_9 = v_3.a.y + at;
        uint param_10 = lane;
        uint param_11 = v_3.a.D;
        float4 param_12 = (first * scale) * first_weight;
        k3_store4(param_9, param_10, param_11, param_12);
        uint _7 = lane + width;
        for (uint d_1 = _7; d_1 < v_3.a.D; d_1 += width)
        {
            ulong param_13 = v_3.a.x + at;
            uint param_14 = d_1;
            uint param_15 = v_3.a.D;
            ulong param_16 = at;
            uint param_17 = d_1;
            ulong param_18 = v_3.a.y + at;
            uint param_19 = d_1;
            uint param_20 = v_3.a.D;
            float4 param_21 = (k3_load4(param_13, param_14, param_15) * scale) * weight(param_16, param_17, v_3);
            k3_store4(param_18, param_19, param_20, param_21);
        }
    }
}

