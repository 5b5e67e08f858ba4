// Made by tools/metal/generate.sh from glsl/kda_recur.comp, do not edit: threads 128
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

struct Row
{
    spvUnsafeArray<float4, 4> q;
    spvUnsafeArray<float4, 4> k;
    spvUnsafeArray<float4, 4> alpha;
    float4 v;
    float beta;
};

constant uint D_tmp [[function_constant(0)]];
constant uint D = is_function_constant_defined(D_tmp) ? D_tmp : 128u;
constant uint _1 = (D + 31u);
constant uint _2 = (_1 / 32u);

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

struct k3_kda_recur_args
{
    ulong o;
    ulong q;
    ulong k;
    ulong v;
    ulong decay;
    ulong beta;
    k3_runs_args_1 runs;
    uint H;
    uint decay_is_log;
};

struct Push
{
    k3_kda_recur_args a;
};

constant uint _3 = (D / 4u);
constant uint _4 = (D + 63u);
constant uint FOURS = (_4 / 64u);
constant uint _5 = (D / 4u);

struct F32x4
{
    float4 at[1];
};

constant uint _6 = (D / 4u);

struct F32
{
    float at[1];
};

constant uint _7 = (D / 4u);
constant uint _8 = (4u * FOURS);
constant uint _9 = (D / 4u);
constant uint _10 = (D / 4u);
constant uint _11 = (4u * FOURS);
constant uint _12 = (D / 4u);
constant uint _13 = (4u * FOURS);
constant uint _14 = (D / 4u);
constant uint _15 = (D / 4u);
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
uint keys(thread const uint& j, thread uint& group)
{
    return group + (16u * j);
}

static inline __attribute__((always_inline))
Row row_at(thread const uint& row, thread uint& group, thread uint& head, thread uint& four, constant Push& v_16)
{
    uint vector = (row * v_16.a.H) + head;
    uint at = _3 * vector;
    Row r;
    float4 _17;
    float4 _18;
    float4 _19;
    for (uint j = 0u; j < FOURS; j++)
    {
        uint param = j;
        bool mine = keys(param, group) < _5;
        if (mine)
        {
            uint param_1 = j;
            _17 = (reinterpret_cast<device F32x4*>(v_16.a.q))->at[at + keys(param_1, group)];
        }
        else
        {
            _17 = float4(0.0);
        }
        r.q[j] = _17;
        if (mine)
        {
            uint param_2 = j;
            _18 = (reinterpret_cast<device F32x4*>(v_16.a.k))->at[at + keys(param_2, group)];
        }
        else
        {
            _18 = float4(0.0);
        }
        r.k[j] = _18;
        if (mine)
        {
            uint param_3 = j;
            _19 = (reinterpret_cast<device F32x4*>(v_16.a.decay))->at[at + keys(param_3, group)];
        }
        else
        {
            _19 = float4(0.0);
        }
        r.alpha[j] = _19;
    }
    bool _20 = group == 0u;
    bool _21;
    if (_20)
    {
        _21 = four < _6;
    }
    else
    {
        _21 = _20;
    }
    float4 _22;
    if (_21)
    {
        _22 = (reinterpret_cast<device F32x4*>(v_16.a.v))->at[at + four];
    }
    else
    {
        _22 = float4(0.0);
    }
    r.v = _22;
    r.beta = (reinterpret_cast<device F32*>(v_16.a.beta))->at[vector];
    return r;
}

static inline __attribute__((always_inline))
void exchange(thread float4& e, thread float4& p, thread float& qk, thread uint& group, thread uint3& gl_LocalInvocationID, thread uint& column, threadgroup float4 (&parts)[16][2][8], threadgroup float (&products)[16], threadgroup float4 (&sums)[2][2][8], threadgroup float& product)
{
    uint i = gl_LocalInvocationID.x;
    parts[group][0][column] = e;
    parts[group][1][column] = p;
    if (column == 0u)
    {
        products[group] = qk;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (i < 32u)
    {
        uint side = i / 16u;
        uint which = (i / 8u) % 2u;
        float4 sum = float4(0.0);
        for (uint g = 0u; g < 8u; g++)
        {
            sum += parts[(side * 8u) + g][which][column];
        }
        sums[side][which][column] = sum;
    }
    else
    {
        if (i == 32u)
        {
            float sum_1 = 0.0;
            for (uint g_1 = 0u; g_1 < 16u; g_1++)
            {
                sum_1 += products[g_1];
            }
            product = sum_1;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    e = sums[0][0][column] + sums[1][0][column];
    p = sums[0][1][column] + sums[1][1][column];
    qk = product;
}

kernel void kda_recur(constant Push& v_16 [[buffer(0)]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float4 parts[16][2][8];
    threadgroup float products[16];
    threadgroup float4 sums[2][2][8];
    threadgroup float product;
    threadgroup float k3_slots[128];
    uint group = gl_LocalInvocationID.x / 8u;
    uint column = gl_LocalInvocationID.x % 8u;
    uint blocks = _2;
    uint head = gl_WorkGroupID.x / blocks;
    uint four = ((gl_WorkGroupID.x % blocks) * 8u) + column;
    k3_runs_args param;
    param.table = v_16.a.runs.table;
    param.state = v_16.a.runs.state;
    param.row = v_16.a.runs.row;
    param.n = v_16.a.runs.n;
    uint param_1 = gl_WorkGroupID.y;
    Run run = k3_run_of(param, param_1);
    device F32x4* state = reinterpret_cast<device F32x4*>(run.state + (4ul * ulong((head * D) * D)));
    bool in_columns = four < _7;
    spvUnsafeArray<float4, 16> S;
    float4 _23;
    for (uint i = 0u; i < _8; i++)
    {
        bool _24;
        if (in_columns)
        {
            uint param_2 = i / 4u;
            _24 = keys(param_2, group) < _9;
        }
        else
        {
            _24 = in_columns;
        }
        if (_24)
        {
            uint param_3 = i / 4u;
            _23 = state->at[(((4u * keys(param_3, group)) + (i % 4u)) * _10) + four];
        }
        else
        {
            _23 = float4(0.0);
        }
        S[i] = _23;
    }
    uint param_4 = run.row;
    Row next = row_at(param_4, group, head, four, v_16);
    float4 _25;
    for (uint t = 0u; t < run.n; t++)
    {
        Row r = next;
        float4 e = r.v;
        float4 p = float4(0.0);
        float qk = 0.0;
        for (uint j = 0u; j < FOURS; j++)
        {
            if (v_16.a.decay_is_log != 0u)
            {
                _25 = exp(r.alpha[j]);
            }
            else
            {
                _25 = r.alpha[j];
            }
            float4 alpha = _25;
            for (uint i_1 = 0u; i_1 < 4u; i_1++)
            {
                uint _26 = (4u * j) + i_1;
                S[_26] *= alpha[i_1];
                e -= (S[(4u * j) + i_1] * r.k[j][i_1]);
                p += (S[(4u * j) + i_1] * r.q[j][i_1]);
            }
            qk += dot(r.q[j], r.k[j]);
        }
        if ((t + 1u) < run.n)
        {
            uint param_5 = (run.row + t) + 1u;
            next = row_at(param_5, group, head, four, v_16);
        }
        float4 param_6 = e;
        float4 param_7 = p;
        float param_8 = qk;
        exchange(param_6, param_7, param_8, group, gl_LocalInvocationID, column, parts, products, sums, product);
        e = param_6;
        p = param_7;
        qk = param_8;
        e *= r.beta;
        for (uint i_2 = 0u; i_2 < _11; i_2++)
        {
            S[i_2] += (e * r.k[i_2 / 4u][i_2 % 4u]);
        }
        if ((group == 0u) && in_columns)
        {
            (reinterpret_cast<device F32x4*>(v_16.a.o))->at[(_12 * (((run.row + t) * v_16.a.H) + head)) + four] = p + (e * qk);
        }
    }
    for (uint i_3 = 0u; i_3 < _13; i_3++)
    {
        bool _27;
        if (in_columns)
        {
            uint param_9 = i_3 / 4u;
            _27 = keys(param_9, group) < _14;
        }
        else
        {
            _27 = in_columns;
        }
        if (_27)
        {
            uint param_10 = i_3 / 4u;
            state->at[(((4u * keys(param_10, group)) + (i_3 % 4u)) * _15) + four] = S[i_3];
        }
    }
}

