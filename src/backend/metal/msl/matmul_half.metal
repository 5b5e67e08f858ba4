// Made by tools/metal/generate.sh from glsl/matmul_half.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct F32x4;
struct U32x4;
struct F32;

struct F32x4
{
    float4 at[1];
};

struct k3_matmul_half_args
{
    ulong y;
    ulong scale;
    ulong x;
    uint cols;
    uint pad;
};

struct Push
{
    k3_matmul_half_args a;
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

kernel void matmul_half(constant Push& _2 [[buffer(0)]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint t = gl_WorkGroupID.x;
    device F32x4* x = reinterpret_cast<device F32x4*>(_2.a.x + (4ul * (ulong(t) * ulong(_2.a.cols))));
    device U32x4* half_row = reinterpret_cast<device U32x4*>(_2.a.y + (2ul * (ulong(t) * ulong(_2.a.cols))));
    float peak = 0.0;
    for (uint v = gl_LocalInvocationID.x; v < (_2.a.cols / 4u); v += 256u)
    {
        float4 m = abs(x->at[v]);
        peak = fast::max(fast::max(peak, fast::max(m.x, m.y)), fast::max(m.z, m.w));
    }
    float param = peak;
    float _3 = k3_group_max(param, k3_slots, gl_SubgroupID, gl_NumSubgroups);
    uint exponent = clamp(as_type<uint>(_3) >> uint(23), 15u, 254u);
    float down = as_type<float>((268u - exponent) << uint(23));
    for (uint v_4 = gl_LocalInvocationID.x; v_4 < (_2.a.cols / 8u); v_4 += 256u)
    {
        float4 param_1 = x->at[2u * v_4] * down;
        float4 param_2 = x->at[(2u * v_4) + 1u] * down;
        half_row->at[v_4] = k3_halves(param_1, param_2);
    }
    if (gl_LocalInvocationID.x == 0u)
    {
        (reinterpret_cast<device F32*>(_2.a.scale))->at[t] = as_type<float>((exponent - 14u) << uint(23));
    }
}

