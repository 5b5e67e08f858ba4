// Made by tools/metal/generate.sh from glsl/mla_append.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct MlaRuns;
struct F32;
struct U32;

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

struct k3_mla_run_1
{
    ulong cache;
    uint pos;
    uint row;
    uint n;
    uint first;
};

struct MlaRuns
{
    k3_mla_run_1 at[1];
};

struct k3_mla_run_2
{
    ulong cache;
    uint pos;
    uint row;
    uint n;
    uint first;
};

struct k3_mla_runs_1
{
    ulong table;
    k3_mla_run_2 only;
    uint n;
    uint pad;
};

struct k3_mla_append_args
{
    ulong ckv;
    ulong w;
    k3_mla_runs_1 runs;
    uint kv;
    uint rope;
    float eps;
    uint pad;
};

struct Push
{
    k3_mla_append_args a;
};

struct F32
{
    float at[1];
};

constant uint BF16_tmp [[function_constant(0)]];
constant uint BF16 = is_function_constant_defined(BF16_tmp) ? BF16_tmp : 0u;
constant bool _1 = (BF16 != 0u);
constant ulong _2 = _1 ? 2ul : 4ul;
constant bool _3 = (BF16 != 0u);

struct U32
{
    uint at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
k3_mla_run k3_mla_run_of(thread const k3_mla_runs& runs, thread const uint& i)
{
    if (runs.table == 0ul)
    {
        return runs.only;
    }
    device MlaRuns* table = reinterpret_cast<device MlaRuns*>(runs.table);
    return k3_mla_run{ table->at[i].cache, table->at[i].pos, table->at[i].row, table->at[i].n, table->at[i].first };
}

static inline __attribute__((always_inline))
float k3_group_sum(thread const float& x, threadgroup float (&k3_slots)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    float part = simd_sum(x);
    bool _4 = simd_is_first();
    if (_4)
    {
        k3_slots[gl_SubgroupID] = part;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float sum = 0.0;
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        sum += k3_slots[i];
    }
    return sum;
}

static inline __attribute__((always_inline))
uint bf16_of(thread const float& x)
{
    uint u = as_type<uint>(x);
    bool nan = (u & 2147483647u) > 2139095040u;
    uint _5;
    if (nan)
    {
        _5 = (u >> uint(16)) | 64u;
    }
    else
    {
        _5 = ((u + 32767u) + ((u >> uint(16)) & 1u)) >> uint(16);
    }
    return _5;
}

kernel void mla_append(constant Push& _6 [[buffer(0)]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    threadgroup uint k3_tile_run;
    k3_mla_runs param;
    param.table = _6.a.runs.table;
    param.only.cache = _6.a.runs.only.cache;
    param.only.pos = _6.a.runs.only.pos;
    param.only.row = _6.a.runs.only.row;
    param.only.n = _6.a.runs.only.n;
    param.only.first = _6.a.runs.only.first;
    param.n = _6.a.runs.n;
    param.pad = _6.a.runs.pad;
    uint param_1 = gl_WorkGroupID.y;
    k3_mla_run run = k3_mla_run_of(param, param_1);
    uint width = _6.a.kv + _6.a.rope;
    uint t = gl_WorkGroupID.x;
    if (t >= run.n)
    {
        return;
    }
    device F32* from = reinterpret_cast<device F32*>(_6.a.ckv + ((4ul * ulong(width)) * ulong(run.row + t)));
    device F32* w = reinterpret_cast<device F32*>(_6.a.w);
    float square = 0.0;
    for (uint c = gl_LocalInvocationID.x; c < _6.a.kv; c += 256u)
    {
        square += (from->at[c] * from->at[c]);
    }
    float param_2 = square;
    float _7 = k3_group_sum(param_2, k3_slots, gl_SubgroupID, gl_NumSubgroups);
    float _inverse = 1.0 / sqrt((_7 / float(_6.a.kv)) + _6.a.eps);
    ulong row = run.cache + ((_2 * ulong(width)) * ulong(run.pos + t));
    uint _8 = 2u * gl_LocalInvocationID.x;
    float _9;
    for (uint c_1 = _8; c_1 < width; c_1 += 512u)
    {
        float2 pair = float2(0.0);
        uint i = 0u;
        for (;;)
        {
            bool _10 = i < 2u;
            bool _11;
            if (_10)
            {
                _11 = (c_1 + i) < width;
            }
            else
            {
                _11 = _10;
            }
            if (_11)
            {
                if ((c_1 + i) < _6.a.kv)
                {
                    _9 = (from->at[c_1 + i] * _inverse) * w->at[c_1 + i];
                }
                else
                {
                    _9 = from->at[c_1 + i];
                }
                pair[i] = _9;
                i++;
                continue;
            }
            else
            {
                break;
            }
        }
        if (_3)
        {
            float param_3 = pair.x;
            float param_4 = pair.y;
            (reinterpret_cast<device U32*>(row))->at[c_1 / 2u] = bf16_of(param_3) | (bf16_of(param_4) << uint(16));
        }
        else
        {
            (reinterpret_cast<device F32*>(row))->at[c_1] = pair.x;
            if ((c_1 + 1u) < width)
            {
                (reinterpret_cast<device F32*>(row))->at[c_1 + 1u] = pair.y;
            }
        }
    }
}

