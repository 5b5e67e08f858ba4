// Made by tools/metal/generate.sh from glsl/sample_pick.comp, do not edit: threads 256
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
struct States;
struct I32;

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

struct k3_sample_state
{
    ulong kept;
    ulong goal;
    ulong above;
    uint n_above;
    uint prefix;
    uint best;
    uint rank;
};

struct States
{
    k3_sample_state at[1];
};

struct I32
{
    int at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
ulong scan_lanes(thread ulong& mass, thread uint& count, thread uint3& gl_LocalInvocationID, threadgroup ulong (&scan_mass)[2][256], threadgroup uint (&scan_count)[2][256])
{
    uint lane = gl_LocalInvocationID.x;
    for (uint set = 0u, reach = 1u; reach < 256u; reach *= 2u, set ^= 1u)
    {
        scan_mass[set][lane] = mass;
        scan_count[set][lane] = count;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (lane >= reach)
        {
            mass += scan_mass[set][lane - reach];
            count += scan_count[set][lane - reach];
        }
    }
    return scan_mass[1][127] + scan_mass[1][255];
}

static inline __attribute__((always_inline))
void find(thread const spvUnsafeArray<uint, 8>& n, thread uint3& gl_LocalInvocationID, threadgroup ulong (&scan_mass)[2][256], threadgroup uint (&scan_count)[2][256], threadgroup uint& rank, threadgroup uint& found)
{
    uint own = 0u;
    uint sought = rank;
    ulong unused = 0ul;
    for (uint j = 0u; j < 8u; j++)
    {
        own += n[j];
    }
    uint to = own;
    ulong param = unused;
    uint param_1 = to;
    ulong _1 = scan_lanes(param, param_1, gl_LocalInvocationID, scan_mass, scan_count);
    unused = param;
    to = param_1;
    uint before = to - own;
    for (uint j_1 = 0u; j_1 < 8u; j_1++)
    {
        bool _2 = before <= sought;
        bool _3;
        if (_2)
        {
            _3 = sought < (before + n[j_1]);
        }
        else
        {
            _3 = _2;
        }
        if (_3)
        {
            found = (8u * gl_LocalInvocationID.x) + j_1;
            rank = sought - before;
        }
        before += n[j_1];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

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
    uint _4;
    if ((bits & 2147483648u) != 0u)
    {
        _4 = ~bits;
    }
    else
    {
        _4 = bits | 2147483648u;
    }
    return _4;
}

static inline __attribute__((always_inline))
uint key_at(thread const uint& i, constant Push& v_5, thread uint3& gl_WorkGroupID)
{
    uint param = (reinterpret_cast<device U32*>(v_5.a.logits + ((4ul * ulong(v_5.a.V)) * ulong(gl_WorkGroupID.y))))->at[i];
    uint _6 = key_of(param);
    return _6;
}

static inline __attribute__((always_inline))
bool has_distribution(thread const uint& best)
{
    return (best < 4286578688u) && (best > 8388607u);
}

kernel void sample_pick(constant Push& v_5 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup ulong scan_mass[2][256];
    threadgroup uint scan_count[2][256];
    threadgroup uint rank;
    threadgroup uint found;
    threadgroup float k3_slots[128];
    threadgroup ulong now_kept;
    threadgroup ulong now_goal;
    threadgroup ulong now_above;
    threadgroup uint now_n_above;
    threadgroup uint now_prefix;
    threadgroup uint now_rank;
    threadgroup uint maxima_of[128];
    device States* states = reinterpret_cast<device States*>(v_5.a.states);
    device U32* ties = reinterpret_cast<device U32*>(v_5.a.ties + ((4ul * ulong(v_5.a.groups)) * ulong(gl_WorkGroupID.y)));
    uint lane = gl_LocalInvocationID.x;
    uint last = (8u * gl_WorkGroupID.y) + v_5.a._step;
    uint key = states->at[last].prefix;
    uint now_best;
    if (lane == 0u)
    {
        found = 0u;
        rank = states->at[last].rank;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    spvUnsafeArray<uint, 8> n;
    uint _7;
    for (uint j = 0u; j < 8u; j++)
    {
        if (((8u * lane) + j) < v_5.a.groups)
        {
            _7 = ties->at[(8u * lane) + j];
        }
        else
        {
            _7 = 0u;
        }
        n[j] = _7;
    }
    spvUnsafeArray<uint, 8> param;
    param = n;
    find(param, gl_LocalInvocationID, scan_mass, scan_count, rank, found);
    uint from = found * 2048u;
    for (uint j_1 = 0u; j_1 < 8u; j_1++)
    {
        uint i = (from + (8u * lane)) + j_1;
        bool _8 = i < v_5.a.V;
        bool _9;
        if (_8)
        {
            uint param_1 = i;
            _9 = key_at(param_1, v_5, gl_WorkGroupID) == key;
        }
        else
        {
            _9 = _8;
        }
        n[j_1] = uint(_9);
    }
    spvUnsafeArray<uint, 8> param_2;
    param_2 = n;
    find(param_2, gl_LocalInvocationID, scan_mass, scan_count, rank, found);
    if (lane == 0u)
    {
        uint param_3 = states->at[last].best;
        int _10;
        if (has_distribution(param_3))
        {
            _10 = int(from + found);
        }
        else
        {
            _10 = -1;
        }
        (reinterpret_cast<device I32*>(v_5.a.ids))->at[gl_WorkGroupID.y] = _10;
    }
}

