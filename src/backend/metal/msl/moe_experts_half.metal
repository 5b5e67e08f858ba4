// Made by tools/metal/generate.sh from glsl/moe_experts_half.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct U32;
struct F32x4;
struct U32x4;
struct F32;

struct k3_moe_half_args
{
    ulong y;
    ulong unit;
    ulong x;
    ulong pair_at;
    uint cols;
    uint pairs_a_row;
    uint n_pairs;
    uint places;
};

struct Push
{
    k3_moe_half_args a;
};

struct U32
{
    uint at[1];
};

struct F32x4
{
    float4 at[1];
};

struct U32x4
{
    uint4 at[1];
};

struct F32
{
    float at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
float k3_group_max(thread const float& x, threadgroup float (&k3_slots)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    float part = simd_max(x);
    bool _1 = simd_is_first();
    if (_1)
    {
        k3_slots[gl_SubgroupID] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float most = k3_slots[0];
    for (uint i = 1u; i < gl_NumSubgroups; i++)
    {
        most = fast::max(most, k3_slots[i]);
    }
    return most;
}

static inline __attribute__((always_inline))
uint4 k3_halves(thread const float4& first, thread const float4& second)
{
    return uint4(as_type<uint>(half2(float2(first.x, second.x))), as_type<uint>(half2(float2(first.y, second.y))), as_type<uint>(half2(float2(first.z, second.z))), as_type<uint>(half2(float2(first.w, second.w))));
}

kernel void moe_experts_half(constant Push& _2 [[buffer(0)]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint place = gl_WorkGroupID.x;
    uint thread0 = gl_LocalInvocationIndex;
    uint eights = _2.a.cols / 8u;
    uint pair = min((reinterpret_cast<device U32*>(_2.a.pair_at))->at[place], (_2.a.n_pairs - 1u));
    device F32x4* x = reinterpret_cast<device F32x4*>(_2.a.x + ((4ul * ulong(pair / _2.a.pairs_a_row)) * ulong(_2.a.cols)));
    device U32x4* y = reinterpret_cast<device U32x4*>(_2.a.y + (32ul * ulong(place)));
    float most = 0.0;
    for (uint i = thread0; i < (2u * eights); i += 256u)
    {
        float4 v = abs(x->at[i]);
        most = fast::max(most, fast::max(fast::max(v.x, v.y), fast::max(v.z, v.w)));
    }
    float param = most;
    float _3 = k3_group_max(param, k3_slots, gl_SubgroupID, gl_NumSubgroups);
    uint exponent = clamp(as_type<uint>(_3) >> uint(23), 15u, 254u);
    float _inverse = as_type<float>((268u - exponent) << uint(23));
    for (uint i_1 = thread0; i_1 < eights; i_1 += 256u)
    {
        float4 param_1 = x->at[2u * i_1] * _inverse;
        float4 param_2 = x->at[(2u * i_1) + 1u] * _inverse;
        y->at[(2u * ((i_1 / 2u) * _2.a.places)) + (i_1 % 2u)] = k3_halves(param_1, param_2);
    }
    if (thread0 == 0u)
    {
        (reinterpret_cast<device F32*>(_2.a.unit))->at[place] = as_type<float>((exponent - 14u) << uint(23));
    }
}

