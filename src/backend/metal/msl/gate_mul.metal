// Made by tools/metal/generate.sh from glsl/gate_mul.comp, do not edit: threads 256
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

struct k3_elementwise_args
{
    ulong y;
    ulong a;
    ulong b;
    uint n;
    float b1;
    float b2;
    uint pad;
};

struct Push
{
    k3_elementwise_args a;
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

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
float4 value(thread float4& x, thread const float4& gate)
{
    for (int i = 0; i < 4; i++)
    {
        float param = gate[i];
        x[i] *= k3_sigma(param);
    }
    return x;
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

kernel void gate_mul(constant Push& _3 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    threadgroup float k3_slots[128];
    uint _4 = 1024u * gl_NumWorkGroups.x;
    uint _5 = 4u * gl_GlobalInvocationID.x;
    for (uint _step = _4, i = _5; i < _3.a.n; i += _step)
    {
        ulong param = _3.a.a;
        uint param_1 = i;
        uint param_2 = _3.a.n;
        ulong param_3 = _3.a.b;
        uint param_4 = i;
        uint param_5 = _3.a.n;
        float4 param_6 = k3_load4(param, param_1, param_2);
        float4 param_7 = k3_load4(param_3, param_4, param_5);
        float4 _6 = value(param_6, param_7);
        ulong param_8 = _3.a.y;
        uint param_9 = i;
        uint param_10 = _3.a.n;
        float4 param_11 = _6;
        k3_store4(param_8, param_9, param_10, param_11);
    }
}

