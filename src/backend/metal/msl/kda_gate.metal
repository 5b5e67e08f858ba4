// Made by tools/metal/generate.sh from glsl/kda_gate.comp, do not edit: threads 128
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

struct k3_kda_gate_args
{
    ulong alpha;
    ulong g;
    ulong beta;
    ulong z;
    ulong b;
    ulong a_log;
    ulong dt_bias;
    uint rows;
    uint H;
    uint D;
    float lower;
};

struct Push
{
    k3_kda_gate_args a;
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

kernel void kda_gate(constant Push& _3 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    threadgroup float k3_slots[128];
    uint fours = (_3.a.D + 3u) / 4u;
    uint _4 = 128u * gl_NumWorkGroups.x;
    float _5;
    for (uint _step = _4, i = gl_GlobalInvocationID.x; i < (_3.a.rows * fours); i += _step)
    {
        uint row = i / fours;
        uint h = row % _3.a.H;
        uint d = (i % fours) * 4u;
        ulong at = (4ul * ulong(row)) * ulong(_3.a.D);
        if (d == 0u)
        {
            _5 = (reinterpret_cast<device F32*>(_3.a.b))->at[row];
        }
        else
        {
            _5 = 0.0;
        }
        float b = _5;
        ulong param = _3.a.z + at;
        uint param_1 = d;
        uint param_2 = _3.a.D;
        ulong param_3 = _3.a.dt_bias + ((4ul * ulong(h)) * ulong(_3.a.D));
        uint param_4 = d;
        uint param_5 = _3.a.D;
        float4 x = (k3_load4(param, param_1, param_2) + k3_load4(param_3, param_4, param_5)) * exp((reinterpret_cast<device F32*>(_3.a.a_log))->at[h]);
        float param_6 = x.x;
        float param_7 = x.y;
        float param_8 = x.z;
        float param_9 = x.w;
        float4 g = float4(k3_sigma(param_6), k3_sigma(param_7), k3_sigma(param_8), k3_sigma(param_9)) * _3.a.lower;
        if (_3.a.g != 0ul)
        {
            ulong param_10 = _3.a.g + at;
            uint param_11 = d;
            uint param_12 = _3.a.D;
            float4 param_13 = g;
            k3_store4(param_10, param_11, param_12, param_13);
        }
        if (_3.a.alpha != 0ul)
        {
            ulong param_14 = _3.a.alpha + at;
            uint param_15 = d;
            uint param_16 = _3.a.D;
            float4 param_17 = exp(g);
            k3_store4(param_14, param_15, param_16, param_17);
        }
        if (d == 0u)
        {
            float param_18 = b;
            (reinterpret_cast<device F32*>(_3.a.beta))->at[row] = k3_sigma(param_18);
        }
    }
}

