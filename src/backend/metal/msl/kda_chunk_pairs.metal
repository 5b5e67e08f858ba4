// Made by tools/metal/generate.sh from glsl/kda_chunk_pairs.comp, do not edit: threads 128
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

struct Runs;
struct F32x4;
struct F32;

struct k3_runs_args
{
    ulong table;
    ulong state;
    uint row;
    uint n;
};

struct Run
{
    ulong state;
    uint row;
    uint n;
};

struct k3_run_args
{
    ulong state;
    ulong pos;
    uint row;
    uint n;
};

struct Runs
{
    k3_run_args at[1];
};

struct k3_runs_args_1
{
    ulong table;
    ulong state;
    uint row;
    uint n;
};

struct k3_kda_chunk_args
{
    ulong o;
    ulong q;
    ulong k;
    ulong v;
    ulong g;
    ulong beta;
    ulong pairs;
    k3_runs_args_1 runs;
    uint H;
    uint first;
    uint end;
    uint unused;
};

struct Push
{
    k3_kda_chunk_args a;
};

constant uint D_tmp [[function_constant(0)]];
constant uint D = is_function_constant_defined(D_tmp) ? D_tmp : 128u;
constant uint _1 = (D / 4u);
constant uint _2 = (D / 4u);

struct F32x4
{
    float4 at[1];
};

struct F32
{
    float at[1];
};

constant uint _3 = (D / 4u);
constant uint _4 = (D / 4u);
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(128u, 1u, 1u);

static inline __attribute__((always_inline))
Run k3_run_of(thread const k3_runs_args& runs, thread const uint& i)
{
    if (runs.table == 0ul)
    {
        return Run{ runs.state, runs.row, runs.n };
    }
    device Runs* table = reinterpret_cast<device Runs*>(runs.table);
    return Run{ table->at[i].state, table->at[i].row, table->at[i].n };
}

static inline __attribute__((always_inline))
uint k3_first_chunk(thread const Run& run, thread const uint& row)
{
    uint chunks = ((run.n + 16u) - 1u) / 16u;
    uint _5;
    if (row <= run.row)
    {
        _5 = 0u;
    }
    else
    {
        _5 = min(chunks, ((((row - run.row) + 16u) - 1u) / 16u));
    }
    return _5;
}

static inline __attribute__((always_inline))
void stage(thread const uint& row, thread const uint& n, thread uint& i, constant Push& v_6, thread uint3& gl_WorkGroupID, threadgroup float4 (&keys)[512], threadgroup float4 (&decays)[512], threadgroup float (&betas)[16])
{
    float4 _7;
    float4 _8;
    for (uint j = i; j < 512u; j += 128u)
    {
        uint s = j / 32u;
        uint four = j % 32u;
        uint at = ((((row + s) * v_6.a.H) + gl_WorkGroupID.x) * _1) + four;
        bool _9 = s < n;
        bool _10;
        if (_9)
        {
            _10 = four < _2;
        }
        else
        {
            _10 = _9;
        }
        bool there = _10;
        if (there)
        {
            _7 = (reinterpret_cast<device F32x4*>(v_6.a.k))->at[at];
        }
        else
        {
            _7 = float4(0.0);
        }
        keys[j] = _7;
        if (there)
        {
            _8 = exp((reinterpret_cast<device F32x4*>(v_6.a.g))->at[at]);
        }
        else
        {
            _8 = float4(1.0);
        }
        decays[j] = _8;
    }
    if (i < 16u)
    {
        float _11;
        if (i < n)
        {
            _11 = (reinterpret_cast<device F32*>(v_6.a.beta))->at[((row + i) * v_6.a.H) + gl_WorkGroupID.x];
        }
        else
        {
            _11 = 0.0;
        }
        betas[i] = _11;
    }
}

static inline __attribute__((always_inline))
void multiply(thread const uint& row, thread const uint& n, thread uint& t, thread uint& slice, constant Push& v_6, thread uint3& gl_WorkGroupID, threadgroup float4 (&keys)[512], threadgroup float4 (&decays)[512])
{
    spvUnsafeArray<float4, 4> k;
    spvUnsafeArray<float4, 4> q;
    float4 _12;
    for (uint j = 0u; j < 4u; j++)
    {
        uint four = slice + (8u * j);
        k[j] = keys[(t * 32u) + four];
        bool _13 = t < n;
        bool _14;
        if (_13)
        {
            _14 = four < _3;
        }
        else
        {
            _14 = _13;
        }
        if (_14)
        {
            _12 = (reinterpret_cast<device F32x4*>(v_6.a.q))->at[((((row + t) * v_6.a.H) + gl_WorkGroupID.x) * _4) + four];
        }
        else
        {
            _12 = float4(0.0);
        }
        q[j] = _12;
    }
    spvUnsafeArray<float4, 4> pairs_k;
    spvUnsafeArray<float4, 4> pairs_q;
    for (uint back = 0u; back < 16u; back++)
    {
        uint s = 15u - back;
        float with_k = 0.0;
        float with_q = 0.0;
        if (s <= t)
        {
            for (uint j_1 = 0u; j_1 < 4u; j_1++)
            {
                float4 key = keys[((s * 32u) + slice) + (8u * j_1)];
                float4 decay = decays[((s * 32u) + slice) + (8u * j_1)];
                with_k += dot(k[j_1], key);
                with_q += dot(q[j_1], key);
                k[j_1] *= decay;
                q[j_1] *= decay;
            }
        }
        pairs_k[s / 4u][s % 4u] = (s < t) ? with_k : 0.0;
        pairs_q[s / 4u][s % 4u] = with_q;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint j_2 = 0u; j_2 < 4u; j_2++)
    {
        keys[(((slice * 16u) + t) * 4u) + j_2] = pairs_k[j_2];
        decays[(((slice * 16u) + t) * 4u) + j_2] = pairs_q[j_2];
    }
}

static inline __attribute__((always_inline))
void solve(thread const uint& j, threadgroup float (&betas)[16], threadgroup float4 (&A)[16][4], threadgroup float4 (&T)[16][4])
{
    spvUnsafeArray<float, 16> x;
    for (uint r = 0u; r < 16u; r++)
    {
        x[r] = float(r == j);
        for (uint s = 0u; s < r; s++)
        {
            x[r] -= (((threadgroup float*)&A[r][s / 4u])[s % 4u] * x[s]);
        }
        ((threadgroup float*)&T[r][j / 4u])[j % 4u] = x[r] * betas[j];
    }
}

static inline __attribute__((always_inline))
uint k3_pairs_at(thread const uint& row, thread const uint& head, constant Push& v_6)
{
    return (((row - v_6.a.first) * v_6.a.H) + head) * 8u;
}

kernel void kda_chunk_pairs(constant Push& v_6 [[buffer(0)]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float4 keys[512];
    threadgroup float4 decays[512];
    threadgroup float betas[16];
    threadgroup float4 A[16][4];
    threadgroup float4 T[16][4];
    threadgroup float4 B[16][4];
    threadgroup float k3_slots[128];
    uint i = gl_LocalInvocationID.x;
    uint t = i / 8u;
    uint slice = i % 8u;
    k3_runs_args param;
    param.table = v_6.a.runs.table;
    param.state = v_6.a.runs.state;
    param.row = v_6.a.runs.row;
    param.n = v_6.a.runs.n;
    uint param_1 = gl_WorkGroupID.z;
    Run run = k3_run_of(param, param_1);
    Run param_2 = run;
    uint param_3 = v_6.a.first;
    uint chunk = k3_first_chunk(param_2, param_3) + gl_WorkGroupID.y;
    Run param_4 = run;
    uint param_5 = v_6.a.end;
    if (chunk >= k3_first_chunk(param_4, param_5))
    {
        return;
    }
    uint row = run.row + (16u * chunk);
    uint n = min(16u, (run.n - (16u * chunk)));
    uint param_6 = row;
    uint param_7 = n;
    stage(param_6, param_7, i, v_6, gl_WorkGroupID, keys, decays, betas);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint param_8 = row;
    uint param_9 = n;
    multiply(param_8, param_9, t, slice, v_6, gl_WorkGroupID, keys, decays);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint r = (i / 4u) % 16u;
    uint four = i % 4u;
    uint side = i / 64u;
    float4 sum = float4(0.0);
    float4 _15;
    for (uint s = 0u; s < 8u; s++)
    {
        if (side == 0u)
        {
            _15 = keys[(s * 64u) + (i % 64u)];
        }
        else
        {
            _15 = decays[(s * 64u) + (i % 64u)];
        }
        sum += _15;
    }
    if (side == 0u)
    {
        A[r][four] = sum * betas[r];
    }
    else
    {
        B[r][four] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < 16u)
    {
        uint param_10 = i;
        solve(param_10, betas, A, T);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float4 _16;
    if (side == 0u)
    {
        _16 = T[r][four];
    }
    else
    {
        _16 = float4(0.0);
    }
    float4 result = _16;
    if (side == 1u)
    {
        for (uint s_1 = 0u; s_1 < 16u; s_1++)
        {
            result += (T[s_1][four] * ((threadgroup float*)&B[r][s_1 / 4u])[s_1 % 4u]);
        }
    }
    if (r < n)
    {
        uint param_11 = row + r;
        uint param_12 = gl_WorkGroupID.x;
        (reinterpret_cast<device F32x4*>(v_6.a.pairs))->at[(k3_pairs_at(param_11, param_12, v_6) + (side * 4u)) + four] = result;
    }
}

