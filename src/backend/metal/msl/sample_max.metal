// Made by tools/metal/generate.sh from glsl/sample_max.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"
#pragma clang diagnostic ignored "-Wunused-variable"

#include <metal_stdlib>
#include <simd/simd.h>
#include <metal_atomic>

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
uint key_at(thread const uint& i, constant Push& v_53, thread uint3& gl_WorkGroupID)
{
    uint param = (reinterpret_cast<device U32*>(v_53.a.logits + ((4ul * ulong(v_53.a.V)) * ulong(gl_WorkGroupID.y))))->at[i];
    uint _2 = key_of(param);
    return _2;
}

static inline __attribute__((always_inline))
ulong histogram_at(thread const uint& _step, constant Push& v_53, thread uint3& gl_WorkGroupID)
{
    return v_53.a.histograms + (32784ul * ulong((8u * gl_WorkGroupID.y) + _step));
}

kernel void sample_max(constant Push& v_53 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    threadgroup uint best;
    threadgroup float k3_slots[128];
    threadgroup ulong now_kept;
    threadgroup ulong now_goal;
    threadgroup ulong now_above;
    threadgroup uint now_n_above;
    threadgroup uint now_prefix;
    threadgroup uint now_best;
    threadgroup uint now_rank;
    threadgroup ulong scan_mass[2][256];
    threadgroup uint scan_count[2][256];
    uint lane = gl_LocalInvocationID.x;
    uint from = gl_WorkGroupID.x * 2048u;
    uint own = 0u;
    if (lane == 0u)
    {
        best = 0u;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint _3 = from + lane;
    for (uint i = _3; i < min((from + 2048u), v_53.a.V); i += 256u)
    {
        uint param = i;
        own = max(own, key_at(param, v_53, gl_WorkGroupID));
    }
    uint _4 = atomic_fetch_max_explicit((threadgroup atomic_uint*)&best, own, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0u)
    {
        (reinterpret_cast<device U32*>(v_53.a.maxima))->at[(v_53.a.groups * gl_WorkGroupID.y) + gl_WorkGroupID.x] = best;
    }
    uint param_1 = 0u;
    device U32x4* bins = reinterpret_cast<device U32x4*>(histogram_at(param_1, v_53, gl_WorkGroupID));
    for (uint i_1 = gl_GlobalInvocationID.x; i_1 < 16392u; i_1 += (256u * v_53.a.groups))
    {
        bins->at[i_1] = uint4(0u);
    }
}

