// Made by tools/metal/generate.sh from glsl/mla_attend_merge.comp, do not edit: threads 256
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

struct F32x2;
struct F32x4;

struct k3_mla_run
{
    ulong cache;
    uint pos;
    uint row;
    uint n;
    uint first;
};

struct k3_mla_runs
{
    ulong table;
    k3_mla_run only;
    uint n;
    uint pad;
};

struct k3_mla_attend_args
{
    ulong query;
    ulong context;
    ulong stats;
    k3_mla_runs runs;
    uint heads;
    uint kv;
    uint rope;
    uint pairs;
    uint query_stride;
    uint context_stride;
    uint parts;
    uint part_rows;
};

struct Push
{
    k3_mla_attend_args a;
};

constant uint AT_ONCE_tmp [[function_constant(0)]];
constant uint AT_ONCE = is_function_constant_defined(AT_ONCE_tmp) ? AT_ONCE_tmp : 1u;

struct F32x2
{
    float2 at[1];
};

struct F32x4
{
    float4 at[1];
};

constant uint _1 = (AT_ONCE * 8u);
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

kernel void mla_attend_merge(constant Push& _2 [[buffer(0)]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float4 contexts[256];
    threadgroup float2 stats[8];
    threadgroup float k3_slots[128];
    threadgroup uint k3_tile_run;
    uint column = gl_LocalInvocationID.x % 32u;
    uint slice = gl_LocalInvocationID.x / 32u;
    uint pair = gl_WorkGroupID.x;
    uint fours = _2.a.context_stride / 4u;
    uint four = (gl_WorkGroupID.y * 32u) + column;
    ulong context_at = _2.a.context + (16ul * ((ulong(pair) * ulong(fours)) + ulong(min(four, (fours - 1u)))));
    float reference = -3.0000000054977557577780399428115e+38;
    float sum = 0.0;
    float4 context = float4(0.0);
    spvUnsafeArray<float2, 8> part;
    spvUnsafeArray<float4, 8> x;
    float4 _3;
    for (uint first = slice; first < _2.a.parts; first += _1)
    {
        float most = reference;
        for (uint i = 0u; i < AT_ONCE; i++)
        {
            uint p = min((first + (i * 8u)), (_2.a.parts - 1u));
            part[i] = (reinterpret_cast<device F32x2*>(_2.a.stats))->at[(p * _2.a.pairs) + pair];
            x[i] = (reinterpret_cast<device F32x4*>(context_at + (((16ul * ulong(p)) * ulong(_2.a.pairs)) * ulong(fours))))->at[0];
        }
        for (uint i_1 = 0u; i_1 < AT_ONCE; i_1++)
        {
            if ((first + (i_1 * 8u)) >= _2.a.parts)
            {
                part[i_1] = float2(-3.0000000054977557577780399428115e+38, 0.0);
            }
            most = fast::max(most, part[i_1].x);
        }
        float kept = exp2(reference - most);
        reference = most;
        sum *= kept;
        context *= kept;
        for (uint i_2 = 0u; i_2 < AT_ONCE; i_2++)
        {
            float weight = exp2(part[i_2].x - reference);
            sum += (weight * part[i_2].y);
            if (part[i_2].y != 0.0)
            {
                _3 = x[i_2] * weight;
            }
            else
            {
                _3 = float4(0.0);
            }
            context += _3;
        }
    }
    contexts[gl_LocalInvocationID.x] = context;
    if (column == 0u)
    {
        stats[slice] = float2(reference, sum);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if ((slice != 0u) || (four >= fours))
    {
        return;
    }
    for (uint s = 0u; s < 8u; s++)
    {
        reference = fast::max(reference, ((threadgroup float*)&stats[s])[0u]);
    }
    sum = 0.0;
    context = float4(0.0);
    for (uint s_1 = 0u; s_1 < 8u; s_1++)
    {
        float weight_1 = exp2(((threadgroup float*)&stats[s_1])[0u] - reference);
        sum += (weight_1 * ((threadgroup float*)&stats[s_1])[1u]);
        context += (contexts[(s_1 * 32u) + column] * weight_1);
    }
    (reinterpret_cast<device F32x4*>(context_at))->at[0] = context / float4(sum);
}

