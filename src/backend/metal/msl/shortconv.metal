// Made by tools/metal/generate.sh from glsl/shortconv.comp, do not edit: threads 128
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

struct k3_shortconv_args
{
    ulong y;
    ulong u;
    ulong w;
    k3_runs_args_1 runs;
    uint C;
    uint unused;
};

struct Push
{
    k3_shortconv_args a;
};

struct F32
{
    float at[1];
};

constant uint WIDTH_tmp [[function_constant(0)]];
constant uint WIDTH = is_function_constant_defined(WIDTH_tmp) ? WIDTH_tmp : 4u;
constant uint _1 = (WIDTH - 1u);
constant uint _2 = (WIDTH - 1u);
constant uint _3 = (WIDTH - 1u);
constant uint _4 = (WIDTH - 1u);
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
float k3_silu(thread const float& x)
{
    float param = x;
    return x * k3_sigma(param);
}

kernel void shortconv(constant Push& _5 [[buffer(0)]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float k3_slots[128];
    uint c = gl_GlobalInvocationID.x;
    uint first = gl_WorkGroupID.y * 8u;
    k3_runs_args param;
    param.table = _5.a.runs.table;
    param.state = _5.a.runs.state;
    param.row = _5.a.runs.row;
    param.n = _5.a.runs.n;
    uint param_1 = gl_WorkGroupID.z;
    Run run = k3_run_of(param, param_1);
    bool _6 = c >= _5.a.C;
    bool _7;
    if (!_6)
    {
        _7 = first >= run.n;
    }
    else
    {
        _7 = _6;
    }
    if (_7)
    {
        return;
    }
    ulong column = 4ul * ((ulong(run.row) * ulong(_5.a.C)) + ulong(c));
    device F32* u = reinterpret_cast<device F32*>(_5.a.u + column);
    device F32* y = reinterpret_cast<device F32*>(_5.a.y + column);
    device F32* w = reinterpret_cast<device F32*>(_5.a.w + (4ul * ulong(c * WIDTH)));
    device F32* window = reinterpret_cast<device F32*>(run.state + (4ul * ulong(c)));
    spvUnsafeArray<float, 8> now;
    float _8;
    for (uint i = 0u; i < 8u; i++)
    {
        if ((first + i) < run.n)
        {
            _8 = u->at[(first + i) * _5.a.C];
        }
        else
        {
            _8 = 0.0;
        }
        now[i] = _8;
    }
    spvUnsafeArray<float, 8> past;
    float _9;
    for (uint j = 0u; j < _1; j++)
    {
        if (first > 0u)
        {
            _9 = u->at[(((first + j) + 1u) - WIDTH) * _5.a.C];
        }
        else
        {
            _9 = window->at[j * _5.a.C];
        }
        past[j] = _9;
    }
    spvUnsafeArray<float, 8> taps;
    for (uint j_1 = 0u; j_1 < WIDTH; j_1++)
    {
        taps[j_1] = w->at[j_1];
    }
    for (uint i_1 = 0u; i_1 < 8u; i_1++)
    {
        if ((first + i_1) < run.n)
        {
            past[_2] = now[i_1];
            float sum = 0.0;
            for (uint j_2 = 0u; j_2 < WIDTH; j_2++)
            {
                sum += (taps[j_2] * past[j_2]);
            }
            float param_2 = sum;
            y->at[(first + i_1) * _5.a.C] = k3_silu(param_2);
            for (uint j_3 = 0u; j_3 < _3; j_3++)
            {
                past[j_3] = past[j_3 + 1u];
            }
        }
    }
    if (first == 0u)
    {
        float _10;
        for (uint j_4 = 0u; j_4 < _4; j_4++)
        {
            if (run.n > 8u)
            {
                _10 = u->at[(((run.n + j_4) + 1u) - WIDTH) * _5.a.C];
            }
            else
            {
                _10 = past[j_4];
            }
            window->at[j_4 * _5.a.C] = _10;
        }
    }
}

