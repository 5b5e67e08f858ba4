// Made by tools/metal/generate.sh from glsl/router_topk.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct F32;
struct U32;
struct I32;

struct k3_router_topk_args
{
    ulong ids;
    ulong weights;
    ulong logits;
    ulong bias0;
    ulong fault;
    uint E;
    uint K;
    uint renormalize;
    uint fault_code;
    float scale;
    uint pad;
};

struct Push
{
    k3_router_topk_args a;
};

struct F32
{
    float at[1];
};

struct U32
{
    uint at[1];
};

struct I32
{
    int at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

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
uint ordered(thread const float& x)
{
    uint bits = as_type<uint>(x);
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
bool is_nan(thread const float& x)
{
    return (as_type<uint>(x) & 2147483647u) > 2139095040u;
}

static inline __attribute__((always_inline))
uint2 own_best(thread const uint& thread0, constant Push& v_2, threadgroup uint (&score)[4096])
{
    uint2 best = uint2(0u, 4294967295u);
    for (uint e = thread0; e < v_2.a.E; e += 256u)
    {
        if (score[e] > best.x)
        {
            best = uint2(score[e], e);
        }
    }
    return best;
}

static inline __attribute__((always_inline))
uint group_best(thread const uint2& own, thread const uint& _round, threadgroup uint2 (&best_of)[2][128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    uint most = simd_max(own.x);
    uint _3;
    if (own.x == most)
    {
        _3 = own.y;
    }
    else
    {
        _3 = 4294967295u;
    }
    uint id = simd_min(_3);
    bool _4 = simd_is_first();
    if (_4)
    {
        best_of[_round & 1u][gl_SubgroupID] = uint2(most, id);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint2 best = best_of[_round & 1u][0];
    for (uint i = 1u; i < gl_NumSubgroups; i++)
    {
        uint2 other = best_of[_round & 1u][i];
        bool _5 = other.x > best.x;
        bool _6;
        if (!_5)
        {
            bool _7 = other.x == best.x;
            bool _8;
            if (_7)
            {
                _8 = other.y < best.y;
            }
            else
            {
                _8 = _7;
            }
            _6 = _8;
        }
        else
        {
            _6 = _5;
        }
        if (_6)
        {
            best = other;
        }
    }
    return best.y;
}

kernel void router_topk(constant Push& v_2 [[buffer(0)]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup uint score[4096];
    threadgroup uint2 best_of[2][128];
    threadgroup uint damaged[128];
    threadgroup float chosen[64];
    threadgroup float k3_slots[128];
    uint thread0 = gl_LocalInvocationIndex;
    uint row = gl_WorkGroupID.x;
    device F32* logits = reinterpret_cast<device F32*>(v_2.a.logits + ((4ul * ulong(row)) * ulong(v_2.a.E)));
    device F32* bias0 = reinterpret_cast<device F32*>(v_2.a.bias0);
    uint bad = 0u;
    for (uint e = thread0; e < v_2.a.E; e += 256u)
    {
        float x = logits->at[e];
        float param = x;
        float biased = k3_sigma(param) + bias0->at[e];
        float param_1 = biased;
        score[e] = ordered(param_1);
        float param_2 = x;
        bool _9 = is_nan(param_2);
        bool _10;
        if (!_9)
        {
            float param_3 = biased;
            _10 = is_nan(param_3);
        }
        else
        {
            _10 = _9;
        }
        if (_10)
        {
            bad = 1u;
        }
    }
    bad = simd_max(bad);
    bool _11 = simd_is_first();
    if (_11)
    {
        damaged[gl_SubgroupID] = bad;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        bad |= damaged[i];
    }
    if (bad != 0u)
    {
        if (thread0 == 0u)
        {
            (reinterpret_cast<device U32*>(v_2.a.fault))->at[0] = v_2.a.fault_code;
        }
        for (uint e_1 = thread0; e_1 < v_2.a.E; e_1 += 256u)
        {
            score[e_1] = 1u;
        }
    }
    uint param_4 = thread0;
    uint2 own = own_best(param_4, v_2, score);
    uint mine = 0u;
    for (uint _round = 0u; _round < v_2.a.K; _round++)
    {
        uint2 param_5 = own;
        uint param_6 = _round;
        uint _12 = group_best(param_5, param_6, best_of, gl_SubgroupID, gl_NumSubgroups);
        uint id = _12;
        mine = (_round == thread0) ? id : mine;
        if ((id % 256u) == thread0)
        {
            score[id] = 0u;
            uint param_7 = thread0;
            own = own_best(param_7, v_2, score);
        }
    }
    float s = 0.0;
    if (thread0 < v_2.a.K)
    {
        float param_8 = logits->at[mine];
        float _13 = k3_sigma(param_8);
        s = _13;
        chosen[thread0] = _13;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread0 < v_2.a.K)
    {
        float sum = 0.0;
        for (uint k = 0u; k < v_2.a.K; k++)
        {
            sum += chosen[k];
        }
        ulong at = 4ul * ulong((row * v_2.a.K) + thread0);
        (reinterpret_cast<device I32*>(v_2.a.ids + at))->at[0] = int(mine);
        float _14;
        if (v_2.a.renormalize != 0u)
        {
            _14 = sum + 9.9999996826552253889678874634872e-21;
        }
        else
        {
            _14 = 1.0;
        }
        (reinterpret_cast<device F32*>(v_2.a.weights + at))->at[0] = (s / _14) * v_2.a.scale;
    }
}

