// Made by tools/metal/generate.sh from glsl/moe_sum.comp, do not edit: threads 256
#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct F32;

struct k3_moe_sum_args
{
    ulong y;
    ulong slots;
    ulong weights;
    uint K;
    uint L;
};

struct Push
{
    k3_moe_sum_args a;
};

struct F32
{
    float at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

kernel void moe_sum(constant Push& _1 [[buffer(0)]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float k3_slots[128];
    uint c = gl_GlobalInvocationID.x;
    uint t = gl_WorkGroupID.y;
    if (c >= _1.a.L)
    {
        return;
    }
    device F32* weights = reinterpret_cast<device F32*>(_1.a.weights + ((4ul * ulong(t)) * ulong(_1.a.K)));
    device F32* slots = reinterpret_cast<device F32*>(_1.a.slots + (((4ul * ulong(t)) * ulong(_1.a.K)) * ulong(_1.a.L)));
    float sum = 0.0;
    for (uint k = 0u; k < _1.a.K; k++)
    {
        sum = fma(weights->at[k], slots->at[(k * _1.a.L) + c], sum);
    }
    (reinterpret_cast<device F32*>(_1.a.y + ((4ul * ulong(t)) * ulong(_1.a.L))))->at[c] = sum;
}

