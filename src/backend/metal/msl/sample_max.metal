// Made by tools/metal/generate.sh from glsl/sample_max.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct U32;
struct U32x4;

struct k3_sample_args
{
    ulong ids;
    ulong logits;
    ulong draws;
    ulong maxima;
    ulong ties;
    ulong states;
    ulong histograms;
    uint V;
    uint groups;
    uint _step;
    uint search;
    uint digit;
    uint finish;
};

struct Push
{
    k3_sample_args a;
};

struct U32
{
    uint at[1];
};

struct U32x4
{
    uint4 at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
uint key_of(thread uint& bits)
{
    if ((bits & 2147483647u) > 2139095040u)
    {
        return 4294967295u;
    }
    if (bits == 2147483648u)
    {
        bits = 0u;
    }
    uint _1;
    if ((bits & 2147483648u) != 0u)
    {
        _1 = ~bits;
    }
    else
    {
        _1 = bits | 2147483648u;
    }
    return _1;
}

static inline __attribute__((always_inline))
uint key_at(thread const uint& i, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    uint param = (reinterpret_cast<device U32*>(v_2.a.logits + ((4ul * ulong(v_2.a.V)) * ulong(gl_WorkGroupID.y))))->at[i];
    uint _3 = key_of(param);
    return _3;
}

static inline __attribute__((always_inline))
uint group_most(thread const uint& own, threadgroup uint (&maxima_of)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    uint most = simd_max(own);
    bool _4 = simd_is_first();
    if (_4)
    {
        maxima_of[gl_SubgroupID] = most;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        most = max(most, maxima_of[i]);
    }
    return most;
}

static inline __attribute__((always_inline))
ulong histogram_at(thread const uint& _step, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    return v_2.a.histograms + (32784ul * ulong((8u * gl_WorkGroupID.y) + _step));
}

kernel void sample_max(constant Push& v_2 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    threadgroup uint maxima_of[128];
    threadgroup float k3_slots[128];
    threadgroup ulong now_kept;
    threadgroup ulong now_goal;
    threadgroup ulong now_above;
    threadgroup uint now_n_above;
    threadgroup uint now_prefix;
    threadgroup uint now_rank;
    threadgroup ulong scan_mass[2][256];
    threadgroup uint scan_count[2][256];
    uint lane = gl_LocalInvocationID.x;
    uint from = gl_WorkGroupID.x * 2048u;
    uint own = 0u;
    uint _5 = from + lane;
    uint now_best;
    for (uint i = _5; i < min((from + 2048u), v_2.a.V); i += 256u)
    {
        uint param = i;
        own = max(own, key_at(param, v_2, gl_WorkGroupID));
    }
    uint param_1 = own;
    uint _6 = group_most(param_1, maxima_of, gl_SubgroupID, gl_NumSubgroups);
    uint best = _6;
    if (lane == 0u)
    {
        (reinterpret_cast<device U32*>(v_2.a.maxima))->at[(v_2.a.groups * gl_WorkGroupID.y) + gl_WorkGroupID.x] = best;
    }
    uint param_2 = 0u;
    device U32x4* bins = reinterpret_cast<device U32x4*>(histogram_at(param_2, v_2, gl_WorkGroupID));
    for (uint i_1 = gl_GlobalInvocationID.x; i_1 < 16392u; i_1 += (256u * v_2.a.groups))
    {
        bins->at[i_1] = uint4(0u);
    }
}

