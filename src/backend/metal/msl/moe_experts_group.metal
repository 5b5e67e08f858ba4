// Made by tools/metal/generate.sh from glsl/moe_experts_group.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"
#pragma clang diagnostic ignored "-Wunused-variable"

#include <metal_stdlib>
#include <simd/simd.h>
#include <metal_atomic>

using namespace metal;

struct U64;
struct U32;
struct U32x4;

struct U64
{
    ulong at[1];
};

struct U32
{
    uint at[1];
};

struct k3_moe_group_args
{
    ulong jobs;
    ulong pair_at;
    ulong table;
    ulong ids;
    ulong fault;
    uint E;
    uint missing_is_fault;
    uint fault_code;
    uint n_pairs;
    uint max_jobs;
    uint pad;
};

struct Push
{
    k3_moe_group_args a;
};

struct U32x4
{
    uint4 at[1];
};

constant uint K3_ALIGNED_tmp [[function_constant(0)]];
constant uint K3_ALIGNED = is_function_constant_defined(K3_ALIGNED_tmp) ? K3_ALIGNED_tmp : 0u;
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
ulong k3_expert_tensor(thread const ulong& table, thread const uint& entry, thread const uint& tensor)
{
    return (reinterpret_cast<device U64*>(table))->at[(6u * entry) + tensor];
}

static inline __attribute__((always_inline))
uint k3_expert_of(thread const uint& pair, thread const ulong& table, thread const ulong& ids, thread const uint& E, thread const uint& missing_is_fault, thread const ulong& fault, thread const uint& fault_code)
{
    uint _1;
    if (ids == table)
    {
        _1 = pair;
    }
    else
    {
        _1 = (reinterpret_cast<device U32*>(ids))->at[pair];
    }
    uint entry = _1;
    bool inside = (ids == table) || (entry < E);
    ulong param = table;
    uint param_1 = inside ? entry : 0u;
    uint param_2 = 0u;
    if ((k3_expert_tensor(param, param_1, param_2) != 0ul) && inside)
    {
        return entry;
    }
    if ((!inside) || (missing_is_fault != 0u))
    {
        (reinterpret_cast<device U32*>(fault))->at[0] = fault_code;
    }
    return 4294967295u;
}

static inline __attribute__((always_inline))
uint expert_of(thread const uint& pair, constant Push& v_2)
{
    uint _3;
    if (pair < v_2.a.n_pairs)
    {
        uint param = pair;
        ulong param_1 = v_2.a.table;
        ulong param_2 = v_2.a.ids;
        uint param_3 = v_2.a.E;
        uint param_4 = v_2.a.missing_is_fault;
        ulong param_5 = v_2.a.fault;
        uint param_6 = v_2.a.fault_code;
        uint _4 = k3_expert_of(param, param_1, param_2, param_3, param_4, param_5, param_6);
        _3 = _4;
    }
    else
    {
        _3 = 4294967295u;
    }
    return _3;
}

static inline __attribute__((always_inline))
void count(thread const uint& thread0, constant Push& v_2, threadgroup uint (&place)[4096])
{
    for (uint e = thread0; e < v_2.a.E; e += 256u)
    {
        place[e] = 0u;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint p = thread0; p < v_2.a.n_pairs; p += 256u)
    {
        uint param = p;
        uint _5 = expert_of(param, v_2);
        uint e_1 = _5;
        if (e_1 != 4294967295u)
        {
            uint _6 = atomic_fetch_add_explicit((threadgroup atomic_uint*)&place[e_1], 1u, memory_order_relaxed);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

static inline __attribute__((always_inline))
void write_jobs(thread const uint& thread0, constant Push& v_2, threadgroup uint (&place)[4096], threadgroup uint2 (&before)[256])
{
    uint share = ((v_2.a.E + 256u) - 1u) / 256u;
    uint first = min((thread0 * share), v_2.a.E);
    uint end = min((first + share), v_2.a.E);
    uint2 own = uint2(0u);
    for (uint e = first; e < end; e++)
    {
        own += uint2(place[e], min(place[e], 1u));
    }
    before[thread0] = own;
    uint2 _7;
    for (uint _step = 1u; _step < 256u; _step *= 2u)
    {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (thread0 >= _step)
        {
            _7 = before[thread0 - _step];
        }
        else
        {
            _7 = uint2(0u);
        }
        uint2 other = _7;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        before[thread0] += other;
    }
    uint2 at = before[thread0] - own;
    device U32x4* jobs = reinterpret_cast<device U32x4*>(v_2.a.jobs);
    for (uint e_1 = first; e_1 < end; e_1++)
    {
        uint n = place[e_1];
        place[e_1] = at.x;
        if (n == 0u)
        {
            continue;
        }
        jobs->at[at.y] = uint4(e_1, at.x, n, 0u);
        at += uint2(n, 1u);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint _8 = ((threadgroup uint*)&before[255])[1u] + thread0;
    for (uint i = _8; i < v_2.a.max_jobs; i += 256u)
    {
        jobs->at[i] = uint4(0u);
    }
}

static inline __attribute__((always_inline))
uint2 among(thread const uint& entry, thread const uint& thread0, threadgroup uint (&entries)[256])
{
    uint2 n = uint2(0u);
    for (uint i = 0u; i < 256u; i++)
    {
        if (entries[i] == entry)
        {
            n += uint2(1u, uint(i < thread0));
        }
    }
    return n;
}

kernel void moe_experts_group(constant Push& v_2 [[buffer(0)]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]])
{
    threadgroup uint place[4096];
    threadgroup uint2 before[256];
    threadgroup uint entries[256];
    threadgroup float k3_slots[128];
    uint thread0 = gl_LocalInvocationIndex;
    uint param = thread0;
    count(param, v_2, place);
    uint param_1 = thread0;
    write_jobs(param_1, v_2, place, before);
    uint _9;
    for (uint first = 0u; first < v_2.a.n_pairs; first += 256u)
    {
        uint pair = first + thread0;
        uint param_2 = pair;
        uint _10 = expert_of(param_2, v_2);
        uint entry = _10;
        entries[thread0] = entry;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        uint param_3 = entry;
        uint param_4 = thread0;
        uint2 n = among(param_3, param_4, entries);
        bool there = entry != 4294967295u;
        if (there)
        {
            _9 = place[entry] + n.y;
        }
        else
        {
            _9 = 0u;
        }
        uint at = _9;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        bool _11;
        if (there)
        {
            _11 = n.y == 0u;
        }
        else
        {
            _11 = there;
        }
        if (_11)
        {
            place[entry] += n.x;
        }
        if (there)
        {
            (reinterpret_cast<device U32*>(v_2.a.pair_at))->at[at] = pair;
        }
    }
}

