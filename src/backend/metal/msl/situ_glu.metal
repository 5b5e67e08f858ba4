// Made by tools/metal/generate.sh from glsl/situ_glu.comp, do not edit: threads 256
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
float k3_tanh(thread const float& x)
{
    float a = abs(x);
    float _3;
    if (a < 0.60000002384185791015625)
    {
        _3 = x * x;
    }
    else
    {
        _3 = 0.0;
    }
    float z = _3;
    float p = 0.021110959351062774658203125 - (z * 0.006269119679927825927734375);
    p = (-0.333333313465118408203125) + (z * (0.1333291530609130859375 + (z * ((-0.053873948752880096435546875) + (z * p)))));
    float far = 1.0 - (2.0 / (exp(2.0 * fast::min(a, 16.0)) + 1.0));
    float _4;
    if (a < 0.60000002384185791015625)
    {
        _4 = x + ((x * z) * p);
    }
    else
    {
        float _5;
        if (x < 0.0)
        {
            _5 = -far;
        }
        else
        {
            _5 = far;
        }
        _4 = _5;
    }
    return _4;
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
    float _6;
    if (b2 == 0.0)
    {
        _6 = u;
    }
    else
    {
        float param = u / b2;
        _6 = b2 * k3_tanh(param);
    }
    float up = _6;
    float param_1 = g / b1;
    float param_2 = g;
    return ((b1 * k3_tanh(param_1)) * k3_sigma(param_2)) * up;
}

static inline __attribute__((always_inline))
float4 value(thread const float4& g, thread const float4& u, constant Push& v_7)
{
    float4 y;
    for (int i = 0; i < 4; i++)
    {
        float param = g[i];
        float param_1 = u[i];
        float param_2 = v_7.a.b1;
        float param_3 = v_7.a.b2;
        y[i] = k3_situ(param, param_1, param_2, param_3);
    }
    return y;
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

kernel void situ_glu(constant Push& v_7 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    threadgroup float k3_slots[128];
    uint _8 = 1024u * gl_NumWorkGroups.x;
    uint _9 = 4u * gl_GlobalInvocationID.x;
    for (uint _step = _8, i = _9; i < v_7.a.n; i += _step)
    {
        ulong param = v_7.a.a;
        uint param_1 = i;
        uint param_2 = v_7.a.n;
        ulong param_3 = v_7.a.b;
        uint param_4 = i;
        uint param_5 = v_7.a.n;
        float4 param_6 = k3_load4(param, param_1, param_2);
        float4 param_7 = k3_load4(param_3, param_4, param_5);
        ulong param_8 = v_7.a.y;
        uint param_9 = i;
        uint param_10 = v_7.a.n;
        float4 param_11 = value(param_6, param_7, v_7);
        k3_store4(param_8, param_9, param_10, param_11);
    }
}

