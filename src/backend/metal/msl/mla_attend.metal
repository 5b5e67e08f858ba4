// Made by tools/metal/generate.sh from glsl/mla_attend.comp, do not edit: threads 256
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

struct U32;
struct MlaRuns;
struct F32x4;
struct U32x2;
struct F32;
struct F32x2;

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

struct k3_tile
{
    k3_mla_run run;
    uint first;
    uint n;
    uint begin;
    uint end;
};

struct U32
{
    uint at[1];
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

struct k3_mla_attend_args_1
{
    ulong query;
    ulong context;
    ulong stats;
    k3_mla_runs_1 runs;
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
    k3_mla_attend_args_1 a;
};

constant uint BF16_tmp [[function_constant(0)]];
constant uint BF16 = is_function_constant_defined(BF16_tmp) ? BF16_tmp : 0u;
constant bool _1 = (BF16 != 0u);
constant ulong _2 = _1 ? 2ul : 4ul;
constant uint ALIGNED_tmp [[function_constant(1)]];
constant uint ALIGNED = is_function_constant_defined(ALIGNED_tmp) ? ALIGNED_tmp : 0u;
constant bool _3 = (ALIGNED != 0u);
constant bool _4 = (BF16 == 0u);

struct F32x4
{
    float4 at[1];
};

struct U32x2
{
    uint2 at[1];
};

constant bool _5 = (BF16 != 0u);

struct F32
{
    float at[1];
};

struct F32x2
{
    float2 at[1];
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
k3_tile k3_tile_of(thread const k3_mla_attend_args& a, thread const uint& tile_pairs, thread uint3& gl_WorkGroupID, thread uint3& gl_LocalInvocationID, threadgroup uint& k3_tile_run)
{
    uint tile = gl_WorkGroupID.x;
    uint i = gl_LocalInvocationID.x;
    if (i < a.runs.n)
    {
        k3_mla_runs param = a.runs;
        uint param_1 = i;
        k3_mla_run run = k3_mla_run_of(param, param_1);
        bool _6 = run.first <= tile;
        bool _7;
        if (_6)
        {
            _7 = (tile - run.first) < ((((run.n * a.heads) + tile_pairs) - 1u) / tile_pairs);
        }
        else
        {
            _7 = _6;
        }
        if (_7)
        {
            k3_tile_run = i;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    k3_mla_runs param_2 = a.runs;
    uint param_3 = k3_tile_run;
    k3_tile found;
    found.run = k3_mla_run_of(param_2, param_3);
    found.first = (tile - found.run.first) * tile_pairs;
    found.n = min(tile_pairs, ((found.run.n * a.heads) - found.first));
    found.begin = gl_WorkGroupID.y * a.part_rows;
    found.end = min((found.begin + a.part_rows), ((found.run.pos + (((found.first + found.n) - 1u) / a.heads)) + 1u));
    return found;
}

static inline __attribute__((always_inline))
uint k3_tile_limit(thread const k3_tile& tile, thread const uint& heads, thread const uint& i)
{
    return min(tile.end, ((tile.run.pos + ((tile.first + i) / heads)) + 1u));
}

static inline __attribute__((always_inline))
uint k3_tile_pair(thread const k3_tile& tile, thread const uint& heads, thread const uint& i)
{
    return ((tile.run.row * heads) + tile.first) + i;
}

static inline __attribute__((always_inline))
float2 k3_bf16x2(thread const uint& word)
{
    return float2(as_type<float>(word << uint(16)), as_type<float>(word & 4294901760u));
}

static inline __attribute__((always_inline))
uint k3_load(thread const ulong& at, thread const uint& bytes)
{
    uint first = uint(at) & 3u;
    device U32* words = reinterpret_cast<device U32*>(at - ulong(first));
    uint value = words->at[0] >> (8u * first);
    if ((first + bytes) > 4u)
    {
        value |= (words->at[1] << (32u - (8u * first)));
    }
    return value;
}

static inline __attribute__((always_inline))
float4 cache4(thread const k3_tile& tile, thread const uint& s, thread const uint& four, constant Push& v_8)
{
    uint width = v_8.a.kv + v_8.a.rope;
    ulong row = tile.run.cache + ((_2 * ulong(width)) * ulong(s));
    float4 x = float4(0.0);
    if (_3)
    {
        if ((4u * four) >= width)
        {
            return x;
        }
        if (_4)
        {
            return (reinterpret_cast<device F32x4*>(row))->at[four];
        }
        uint2 words = (reinterpret_cast<device U32x2*>(row))->at[four];
        uint param = words.x;
        uint param_1 = words.y;
        return float4(k3_bf16x2(param), k3_bf16x2(param_1));
    }
    uint c = 4u * four;
    float _9;
    uint i = 0u;
    for (;;)
    {
        bool _10 = i < 4u;
        bool _11;
        if (_10)
        {
            _11 = (c + i) < width;
        }
        else
        {
            _11 = _10;
        }
        if (_11)
        {
            if (_5)
            {
                ulong param_2 = row + (2ul * ulong(c + i));
                uint param_3 = 2u;
                _9 = as_type<float>(k3_load(param_2, param_3) << uint(16));
            }
            else
            {
                _9 = (reinterpret_cast<device F32*>(row))->at[c + i];
            }
            x[i] = _9;
            i++;
            continue;
        }
        else
        {
            break;
        }
    }
    return x;
}

static inline __attribute__((always_inline))
float score_of(thread const k3_tile& tile, thread const uint& base, thread const uint& i, thread const uint& n, thread uint3& gl_LocalInvocationID, constant Push& v_8, threadgroup float4 (&queries)[528], threadgroup float4 (&rows)[528])
{
    uint fours = v_8.a.query_stride / 4u;
    float score = 0.0;
    float4 _12;
    for (uint first = 0u; first < fours; first += 32u)
    {
        uint most = min(32u, (fours - first));
        for (uint k = gl_LocalInvocationID.x; k < 512u; k += 256u)
        {
            uint row = k / 32u;
            uint four = k % 32u;
            if (four < most)
            {
                k3_tile param = tile;
                uint param_1 = v_8.a.heads;
                uint param_2 = min(row, (tile.n - 1u));
                uint pair = k3_tile_pair(param, param_1, param_2);
                queries[(row * 33u) + four] = (reinterpret_cast<device F32x4*>(v_8.a.query + ((4ul * ulong(pair)) * ulong(v_8.a.query_stride))))->at[first + four];
                if ((base + row) < tile.end)
                {
                    k3_tile param_3 = tile;
                    uint param_4 = base + row;
                    uint param_5 = first + four;
                    _12 = cache4(param_3, param_4, param_5, v_8);
                }
                else
                {
                    _12 = float4(0.0);
                }
                rows[(row * 33u) + four] = _12;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint four_1 = 0u; four_1 < most; four_1++)
        {
            score += dot(queries[(i * 33u) + four_1], rows[(n * 33u) + four_1]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    return score;
}

static inline __attribute__((always_inline))
void add_rows(thread const k3_tile& tile, thread const uint& base, thread const uint& n, thread const uint& four, thread const uint& first, thread const bool& all_seen, constant Push& v_8, threadgroup float4 (&weights)[64], thread spvUnsafeArray<float4, 8>& context)
{
    for (uint s = 0u; s < n; s++)
    {
        k3_tile param = tile;
        uint param_1 = base + s;
        uint param_2 = four;
        float4 x = cache4(param, param_1, param_2, v_8);
        for (uint i = 0u; i < 8u; i++)
        {
            float weight = ((threadgroup float*)&weights[(((s * 16u) + first) + i) / 4u])[i % 4u];
            if (all_seen || (weight != 0.0))
            {
                context[i] += (x * weight);
            }
        }
    }
}

kernel void mla_attend(constant Push& v_8 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup uint k3_tile_run;
    threadgroup float4 queries[528];
    threadgroup float4 rows[528];
    threadgroup float4 weights[64];
    threadgroup float scores[256];
    threadgroup float keep[16];
    threadgroup float k3_slots[128];
    k3_mla_attend_args param;
    param.query = v_8.a.query;
    param.context = v_8.a.context;
    param.stats = v_8.a.stats;
    param.runs.table = v_8.a.runs.table;
    param.runs.only.cache = v_8.a.runs.only.cache;
    param.runs.only.pos = v_8.a.runs.only.pos;
    param.runs.only.row = v_8.a.runs.only.row;
    param.runs.only.n = v_8.a.runs.only.n;
    param.runs.only.first = v_8.a.runs.only.first;
    param.runs.n = v_8.a.runs.n;
    param.runs.pad = v_8.a.runs.pad;
    param.heads = v_8.a.heads;
    param.kv = v_8.a.kv;
    param.rope = v_8.a.rope;
    param.pairs = v_8.a.pairs;
    param.query_stride = v_8.a.query_stride;
    param.context_stride = v_8.a.context_stride;
    param.parts = v_8.a.parts;
    param.part_rows = v_8.a.part_rows;
    uint param_1 = 16u;
    k3_tile _13 = k3_tile_of(param, param_1, gl_WorkGroupID, gl_LocalInvocationID, k3_tile_run);
    k3_tile tile = _13;
    uint me = gl_LocalInvocationID.x;
    uint n = me % 16u;
    uint i = me / 16u;
    uint four = (gl_WorkGroupID.z * 128u) + (me % 128u);
    uint first = (me / 128u) * 8u;
    spvUnsafeArray<float4, 8> context;
    uint _14;
    if (i < tile.n)
    {
        k3_tile param_2 = tile;
        uint param_3 = v_8.a.heads;
        uint param_4 = i;
        _14 = k3_tile_limit(param_2, param_3, param_4);
    }
    else
    {
        _14 = 0u;
    }
    uint limit = _14;
    k3_tile param_5 = tile;
    uint param_6 = v_8.a.heads;
    uint param_7 = 0u;
    uint least = k3_tile_limit(param_5, param_6, param_7);
    float reference = -3.0000000054977557577780399428115e+38;
    float sum = 0.0;
    for (uint k = 0u; k < 8u; k++)
    {
        context[k] = float4(0.0);
    }
    float _15;
    float _16;
    for (uint base = tile.begin; base < tile.end; base += 16u)
    {
        k3_tile param_8 = tile;
        uint param_9 = base;
        uint param_10 = i;
        uint param_11 = n;
        float _17 = score_of(param_8, param_9, param_10, param_11, gl_LocalInvocationID, v_8, queries, rows);
        float score = _17;
        float most = reference;
        bool seen = (base + n) < limit;
        scores[me] = seen ? score : (-3.0000000054977557577780399428115e+38);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint k_1 = 0u; k_1 < 16u; k_1++)
        {
            most = fast::max(most, scores[(i * 16u) + k_1]);
        }
        if (most > reference)
        {
            _15 = exp2(reference - most);
        }
        else
        {
            _15 = 1.0;
        }
        float kept = _15;
        if (seen)
        {
            _16 = exp2(score - most);
        }
        else
        {
            _16 = 0.0;
        }
        float weight = _16;
        sum = (sum * kept) + weight;
        reference = most;
        ((threadgroup float*)&weights[((n * 16u) + i) / 4u])[i % 4u] = weight;
        if (n == 0u)
        {
            keep[i] = kept;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if ((4u * four) < v_8.a.context_stride)
        {
            for (uint k_2 = 0u; k_2 < 8u; k_2++)
            {
                context[k_2] *= keep[first + k_2];
            }
            if ((base + 16u) <= least)
            {
                k3_tile param_12 = tile;
                uint param_13 = base;
                uint param_14 = 16u;
                uint param_15 = four;
                uint param_16 = first;
                bool param_17 = true;
                add_rows(param_12, param_13, param_14, param_15, param_16, param_17, v_8, weights, context);
            }
            else
            {
                k3_tile param_18 = tile;
                uint param_19 = base;
                uint param_20 = min(16u, (tile.end - base));
                uint param_21 = four;
                uint param_22 = first;
                bool param_23 = false;
                add_rows(param_18, param_19, param_20, param_21, param_22, param_23, v_8, weights, context);
            }
        }
    }
    scores[me] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float total = 0.0;
    for (uint k_3 = 0u; k_3 < 16u; k_3++)
    {
        total += scores[(i * 16u) + k_3];
    }
    if (n == 0u)
    {
        float _18;
        if (v_8.a.parts == 1u)
        {
            _18 = 1.0 / total;
        }
        else
        {
            _18 = 1.0;
        }
        keep[i] = _18;
        if (i < tile.n)
        {
            k3_tile param_24 = tile;
            uint param_25 = v_8.a.heads;
            uint param_26 = i;
            (reinterpret_cast<device F32x2*>(v_8.a.stats + ((8ul * ulong(gl_WorkGroupID.y)) * ulong(v_8.a.pairs))))->at[k3_tile_pair(param_24, param_25, param_26)] = float2(reference, total);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    bool _19 = tile.begin < tile.end;
    bool _20;
    if (_19)
    {
        _20 = (4u * four) < v_8.a.context_stride;
    }
    else
    {
        _20 = _19;
    }
    if (_20)
    {
        uint k_4 = 0u;
        for (;;)
        {
            bool _21 = k_4 < 8u;
            bool _22;
            if (_21)
            {
                _22 = (first + k_4) < tile.n;
            }
            else
            {
                _22 = _21;
            }
            if (_22)
            {
                k3_tile param_27 = tile;
                uint param_28 = v_8.a.heads;
                uint param_29 = first + k_4;
                ulong pair = (ulong(gl_WorkGroupID.y) * ulong(v_8.a.pairs)) + ulong(k3_tile_pair(param_27, param_28, param_29));
                (reinterpret_cast<device F32x4*>(v_8.a.context + ((4ul * pair) * ulong(v_8.a.context_stride))))->at[four] = context[k_4] * keep[first + k_4];
                k_4++;
                continue;
            }
            else
            {
                break;
            }
        }
    }
}

