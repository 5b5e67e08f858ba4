// Made by tools/metal/generate.sh from glsl/kda_chunk.comp, do not edit: threads 128
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
struct F32;
struct F32x4;

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

struct F32
{
    float at[1];
};

constant uint _3 = (D / 4u);

struct F32x4
{
    float4 at[1];
};

constant uint _4 = (D / 4u);
constant uint _5 = (D / 4u);
constant uint _6 = (D / 4u);
constant uint _7 = (D / 4u);
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
    uint _8;
    if (row <= run.row)
    {
        _8 = 0u;
    }
    else
    {
        _8 = min(chunks, ((((row - run.row) + 16u) - 1u) / 16u));
    }
    return _8;
}

static inline __attribute__((always_inline))
uint mixed(thread const uint& t, thread const uint& of)
{
    return (t * 32u) + (of ^ (t % 8u));
}

static inline __attribute__((always_inline))
float scale(thread const uint& row, thread const uint& n, thread spvUnsafeArray<float, 16>& left, thread uint& i, thread uint& head, constant Push& v_9, threadgroup float4 (&rows)[1024])
{
    float total = 1.0;
    float after = 1.0;
    uint at = (((row * v_9.a.H) + head) * D) + i;
    uint _step = v_9.a.H * D;
    float _10;
    spvUnsafeArray<float, 16> decay;
    float _11;
    float _12;
    for (uint s = 0u; s < 16u; s++)
    {
        bool there = (s < n) && (i < D);
        if (there)
        {
            _10 = (reinterpret_cast<device F32*>(v_9.a.k))->at[at + (s * _step)];
        }
        else
        {
            _10 = 0.0;
        }
        left[s] = _10;
        if (there)
        {
            _11 = exp((reinterpret_cast<device F32*>(v_9.a.g))->at[at + (s * _step)]);
        }
        else
        {
            _11 = 1.0;
        }
        decay[s] = _11;
        if (there)
        {
            _12 = (reinterpret_cast<device F32*>(v_9.a.q))->at[at + (s * _step)];
        }
        else
        {
            _12 = 0.0;
        }
        float q = _12;
        total *= decay[s];
        uint param = s;
        uint param_1 = i / 4u;
        ((threadgroup float*)&rows[mixed(param, param_1)])[i % 4u] = left[s] * total;
        uint param_2 = s;
        uint param_3 = i / 4u;
        ((threadgroup float*)&rows[mixed(param_2, param_3) + 512u])[i % 4u] = q * total;
    }
    for (uint back = 1u; back <= 16u; back++)
    {
        uint _13 = 16u - back;
        left[_13] *= after;
        after *= decay[16u - back];
    }
    return total;
}

static inline __attribute__((always_inline))
uint k3_pairs_at(thread const uint& row, thread const uint& head, constant Push& v_9)
{
    return (((row - v_9.a.first) * v_9.a.H) + head) * 8u;
}

static inline __attribute__((always_inline))
void from_state(thread float4& with_k, thread float4& with_q, thread uint& t, thread uint& column, threadgroup float4 (&rows)[1024], threadgroup float4 (&S0)[1024])
{
    with_q = float4(0.0);
    with_k = float4(0.0);
    for (uint j = 0u; j < _3; j++)
    {
        uint param = t;
        uint param_1 = j;
        float4 k = rows[mixed(param, param_1)];
        uint param_2 = t;
        uint param_3 = j;
        float4 q = rows[mixed(param_2, param_3) + 512u];
        for (uint d = 0u; d < 4u; d++)
        {
            float4 s = S0[(((4u * j) + d) * 8u) + column];
            with_k += (s * k[d]);
            with_q += (s * q[d]);
        }
    }
}

static inline __attribute__((always_inline))
void update(thread spvUnsafeArray<float4, 8>& S, thread uint& t, thread uint& column, threadgroup float4 (&rows)[1024])
{
    for (uint j = 0u; j < 8u; j++)
    {
        S[j] *= ((threadgroup float*)&rows[(512u + (2u * t)) + (j / 4u)])[j % 4u];
    }
    for (uint s = 0u; s < 16u; s++)
    {
        float4 e = rows[(672u + (s * 8u)) + column];
        float4 k0 = rows[(s * 32u) + (2u * t)];
        float4 k1 = rows[((s * 32u) + (2u * t)) + 1u];
        for (uint j_1 = 0u; j_1 < 4u; j_1++)
        {
            S[j_1] += (e * k0[j_1]);
            uint _14 = 4u + j_1;
            S[_14] += (e * k1[j_1]);
        }
    }
}

kernel void kda_chunk(constant Push& v_9 [[buffer(0)]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float4 rows[1024];
    threadgroup float4 S0[1024];
    uint i = gl_LocalInvocationID.x;
    uint blocks = _2;
    uint head = gl_WorkGroupID.x / blocks;
    uint t = i / 8u;
    uint column = i % 8u;
    uint four = ((gl_WorkGroupID.x % blocks) * 8u) + column;
    k3_runs_args param;
    param.table = v_9.a.runs.table;
    param.state = v_9.a.runs.state;
    param.row = v_9.a.runs.row;
    param.n = v_9.a.runs.n;
    uint param_1 = gl_WorkGroupID.y;
    Run run = k3_run_of(param, param_1);
    device F32x4* state = reinterpret_cast<device F32x4*>(run.state + (4ul * ulong((head * D) * D)));
    bool in_columns = four < _4;
    bool _15;
    if (in_columns)
    {
        _15 = (8u * t) < D;
    }
    else
    {
        _15 = in_columns;
    }
    bool in_state = _15;
    spvUnsafeArray<float4, 8> S;
    float4 _16;
    for (uint j = 0u; j < 8u; j++)
    {
        if (in_state)
        {
            _16 = state->at[(((8u * t) + j) * _5) + four];
        }
        else
        {
            _16 = float4(0.0);
        }
        S[j] = _16;
        S0[(((8u * t) + j) * 8u) + column] = S[j];
    }
    Run param_2 = run;
    uint param_3 = v_9.a.first;
    uint _17 = k3_first_chunk(param_2, param_3);
    Run param_4 = run;
    uint param_5 = v_9.a.end;
    uint end = k3_first_chunk(param_4, param_5);
    float4 _18;
    spvUnsafeArray<float, 16> param_8;
    spvUnsafeArray<float4, 4> T;
    float4 _19;
    spvUnsafeArray<float4, 4> BT;
    float4 _20;
    float4 param_11;
    float4 param_12;
    for (uint chunk = _17; chunk < end; chunk++)
    {
        uint row = run.row + (16u * chunk);
        uint n = min(16u, (run.n - (16u * chunk)));
        uint at = ((((row + t) * v_9.a.H) + head) * _6) + four;
        bool mine = (t < n) && in_columns;
        if (mine)
        {
            _18 = (reinterpret_cast<device F32x4*>(v_9.a.v))->at[at];
        }
        else
        {
            _18 = float4(0.0);
        }
        float4 v = _18;
        uint param_6 = row;
        uint param_7 = n;
        float _21 = scale(param_6, param_7, param_8, i, head, v_9, rows);
        spvUnsafeArray<float, 16> left;
        left = param_8;
        float last = _21;
        for (uint s = 0u; s < 4u; s++)
        {
            uint param_9 = row + t;
            uint param_10 = head;
            uint pair = k3_pairs_at(param_9, param_10, v_9) + s;
            if (t < n)
            {
                _19 = (reinterpret_cast<device F32x4*>(v_9.a.pairs))->at[pair];
            }
            else
            {
                _19 = float4(0.0);
            }
            T[s] = _19;
            if (t < n)
            {
                _20 = (reinterpret_cast<device F32x4*>(v_9.a.pairs))->at[pair + 4u];
            }
            else
            {
                _20 = float4(0.0);
            }
            BT[s] = _20;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        from_state(param_11, param_12, t, column, rows, S0);
        float4 with_k = param_11;
        float4 with_q = param_12;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint s_1 = 0u; s_1 < 16u; s_1++)
        {
            ((threadgroup float*)&rows[(s_1 * 32u) + (i / 4u)])[i % 4u] = left[s_1];
        }
        ((threadgroup float*)&rows[512u + (i / 4u)])[i % 4u] = last;
        rows[(544u + (t * 8u)) + column] = v - with_k;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        float4 e = float4(0.0);
        for (uint s_2 = 0u; s_2 < 16u; s_2++)
        {
            float4 r = rows[(544u + (s_2 * 8u)) + column];
            e += (r * T[s_2 / 4u][s_2 % 4u]);
            with_q += (r * BT[s_2 / 4u][s_2 % 4u]);
        }
        rows[(672u + (t * 8u)) + column] = e;
        if (mine)
        {
            (reinterpret_cast<device F32x4*>(v_9.a.o))->at[at] = with_q;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        spvUnsafeArray<float4, 8> param_13;
        param_13 = S;
        update(param_13, t, column, rows);
        S = param_13;
        for (uint j_1 = 0u; j_1 < 8u; j_1++)
        {
            S0[(((8u * t) + j_1) * 8u) + column] = S[j_1];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint j_2 = 0u; j_2 < 8u; j_2++)
    {
        if (in_state)
        {
            state->at[(((8u * t) + j_2) * _7) + four] = S[j_2];
        }
    }
}

