// Made by tools/metal/generate.sh from glsl/sample_ties.comp, do not edit: threads 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"
#pragma clang diagnostic ignored "-Wmissing-braces"
#pragma clang diagnostic ignored "-Wunused-variable"

#include <metal_stdlib>
#include <simd/simd.h>
#include <metal_atomic>

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
struct Draws;
struct U32x4;
struct States;

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

struct k3_sample_draw
{
    ulong u;
    ulong top_p;
    ulong cut;
    ulong min_p;
    uint scale;
    int shift;
    uint top_k;
    uint greedy;
};

struct Draws
{
    k3_sample_draw at[1];
};

struct U32x4
{
    uint4 at[1];
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

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

static inline __attribute__((always_inline))
uint group_most(thread const uint& own, threadgroup uint (&maxima_of)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups)
{
    uint most = simd_max(own);
    bool _1 = simd_is_first();
    if (_1)
    {
        maxima_of[gl_SubgroupID] = most;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = 0u; i < gl_NumSubgroups; i++)
    {
        most = max(most, maxima_of[i]);
    }
    return most;
}

static inline __attribute__((always_inline))
bool has_distribution(thread const uint& best)
{
    return (best < 4286578688u) && (best > 8388607u);
}

static inline __attribute__((always_inline))
bool wanted(thread const uint& search, constant Push& v_2, thread uint3& gl_WorkGroupID, thread uint& now_best)
{
    device Draws* draws = reinterpret_cast<device Draws*>(v_2.a.draws);
    uint t = gl_WorkGroupID.y;
    bool _3 = search == 0u;
    bool _4;
    if (!_3)
    {
        uint param = now_best;
        _4 = !has_distribution(param);
    }
    else
    {
        _4 = _3;
    }
    bool _5;
    if (!_4)
    {
        _5 = draws->at[t].greedy != 0u;
    }
    else
    {
        _5 = _4;
    }
    if (_5)
    {
        return false;
    }
    bool _6;
    if (search == 1u)
    {
        _6 = draws->at[t].top_k != 0u;
    }
    else
    {
        bool _7;
        if (search == 2u)
        {
            _7 = draws->at[t].top_p != 0ul;
        }
        else
        {
            _7 = true;
        }
        _6 = _7;
    }
    return _6;
}

static inline __attribute__((always_inline))
ulong histogram_at(thread const uint& _step, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    return v_2.a.histograms + (32784ul * ulong((8u * gl_WorkGroupID.y) + _step));
}

static inline __attribute__((always_inline))
ulong mass_of(thread const uint4& bin)
{
    return (ulong(bin.y) + (ulong(bin.z) << ulong(20))) + (ulong(bin.w) << ulong(40));
}

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
ulong begin_search(thread const uint& search, thread ulong& kept, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    device Draws* draws = reinterpret_cast<device Draws*>(v_2.a.draws);
    uint t = gl_WorkGroupID.y;
    ulong _8;
    if (search == 2u)
    {
        _8 = draws->at[t].top_p;
    }
    else
    {
        _8 = draws->at[t].u;
    }
    ulong share = _8;
    bool _9 = search == 3u;
    bool _10;
    if (_9)
    {
        _10 = draws->at[t].min_p != 18446744073709551615ul;
    }
    else
    {
        _10 = _9;
    }
    if (_10)
    {
        uint param = 0u;
        uint4 param_1 = (reinterpret_cast<device U32x4*>(histogram_at(param, v_2, gl_WorkGroupID)))->at[2048];
        kept = min(kept, mass_of(param_1));
    }
    ulong k0 = kept & 4294967295ul;
    ulong k1 = kept >> ulong(32);
    ulong s0 = share & 4294967295ul;
    ulong s1 = share >> ulong(32);
    ulong middle = (((k0 * s0) >> ulong(32)) + ((k1 * s0) & 4294967295ul)) + (k0 * s1);
    ulong whole = ((k1 * s1) + ((k1 * s0) >> ulong(32))) + (middle >> ulong(32));
    ulong _11;
    if (search == 1u)
    {
        _11 = ulong(draws->at[t].top_k);
    }
    else
    {
        bool _12 = search == 3u;
        bool _13;
        if (!_12)
        {
            _13 = (kept * share) != 0ul;
        }
        else
        {
            _13 = _12;
        }
        _11 = whole + ulong(_13);
    }
    return _11;
}

static inline __attribute__((always_inline))
void descend(thread const uint& _step, thread const uint& search, thread const uint& bits, thread const bool& begins, constant Push& v_2, thread uint3& gl_WorkGroupID, thread uint3& gl_LocalInvocationID, threadgroup ulong (&scan_mass)[2][256], threadgroup uint (&scan_count)[2][256], threadgroup ulong& now_kept, threadgroup ulong& now_goal, threadgroup ulong& now_above, threadgroup uint& now_n_above, threadgroup uint& now_prefix)
{
    uint param = _step;
    device U32x4* bins = reinterpret_cast<device U32x4*>(histogram_at(param, v_2, gl_WorkGroupID));
    uint lane = gl_LocalInvocationID.x;
    uint count = 0u;
    ulong mass = 0ul;
    spvUnsafeArray<uint, 8> counts;
    spvUnsafeArray<ulong, 8> masses;
    for (uint j = 0u; j < 8u; j++)
    {
        uint4 bin = bins->at[(2047u - (8u * lane)) - j];
        counts[j] = bin.x;
        count += bin.x;
        uint4 param_1 = bin;
        ulong _14 = mass_of(param_1);
        masses[j] = _14;
        mass += _14;
    }
    ulong mass_to = mass;
    uint count_to = count;
    ulong param_2 = mass_to;
    uint param_3 = count_to;
    ulong _15 = scan_lanes(param_2, param_3, gl_LocalInvocationID, scan_mass, scan_count);
    mass_to = param_2;
    count_to = param_3;
    ulong _all = _15;
    ulong kept = min(now_kept, _all);
    ulong _16;
    if (begins)
    {
        uint param_4 = search;
        ulong param_5 = kept;
        ulong _17 = begin_search(param_4, param_5, v_2, gl_WorkGroupID);
        kept = param_5;
        _16 = _17;
    }
    else
    {
        _16 = now_goal;
    }
    ulong goal = _16;
    ulong above = ((begins ? 0ul : now_above) + mass_to) - mass;
    uint n_above = ((begins ? 0u : now_n_above) + count_to) - count;
    uint prefix = begins ? 0u : now_prefix;
    bool by_count = search == 1u;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    ulong _18;
    if (by_count)
    {
        _18 = ulong(n_above);
    }
    else
    {
        _18 = above;
    }
    bool done = _18 >= goal;
    ulong _19;
    for (uint j_1 = 0u; j_1 < 8u; j_1++)
    {
        bool _20 = !done;
        bool _21;
        if (_20)
        {
            if (by_count)
            {
                _19 = ulong(n_above + counts[j_1]);
            }
            else
            {
                _19 = above + masses[j_1];
            }
            _21 = _19 >= goal;
        }
        else
        {
            _21 = _20;
        }
        if (_21)
        {
            now_above = above;
            now_n_above = n_above;
            now_prefix = (prefix << bits) | ((2047u - (8u * lane)) - j_1);
            done = true;
        }
        above += masses[j_1];
        n_above += counts[j_1];
    }
    if (begins && (lane == 255u))
    {
        now_kept = kept;
        now_goal = goal;
        if (!done)
        {
            now_above = 0ul;
            now_prefix = 0u;
            now_n_above = 0u;
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
}

static inline __attribute__((always_inline))
uint bits_of(thread const uint& key)
{
    uint _22;
    if ((key & 2147483648u) != 0u)
    {
        _22 = key & 2147483647u;
    }
    else
    {
        _22 = ~key;
    }
    return _22;
}

static inline __attribute__((always_inline))
int unit_shift(constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    return min((reinterpret_cast<device Draws*>(v_2.a.draws))->at[gl_WorkGroupID.y].shift, 0);
}

static inline __attribute__((always_inline))
long fixed_of(thread const uint& bits, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    int exponent = int((bits >> uint(23)) & 255u);
    int shift = (exponent - 118) + unit_shift(v_2, gl_WorkGroupID);
    long _23;
    if (exponent == 0)
    {
        _23 = 0l;
    }
    else
    {
        _23 = long(ulong((bits & 8388607u) | 8388608u));
    }
    long mantissa = _23;
    long _24;
    if (shift > 37)
    {
        _24 = 4611686018427387904l;
    }
    else
    {
        long _25;
        if (shift >= 0)
        {
            _25 = mantissa << long(shift);
        }
        else
        {
            long _26;
            if (shift > (-24))
            {
                _26 = mantissa >> long(-shift);
            }
            else
            {
                _26 = 0l;
            }
            _25 = _26;
        }
        _24 = _25;
    }
    long size = _24;
    long _27;
    if ((bits & 2147483648u) != 0u)
    {
        _27 = -size;
    }
    else
    {
        _27 = size;
    }
    return _27;
}

static inline __attribute__((always_inline))
ulong distance_of(thread const uint& key, thread const uint& best, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    uint param = key;
    uint x = bits_of(param);
    uint param_1 = best;
    uint max_x = bits_of(param_1);
    if ((int((max_x >> uint(23)) & 255u) + unit_shift(v_2, gl_WorkGroupID)) < 155)
    {
        uint param_2 = max_x;
        uint param_3 = x;
        return ulong(fixed_of(param_2, v_2, gl_WorkGroupID) - fixed_of(param_3, v_2, gl_WorkGroupID));
    }
    uint param_4 = as_type<uint>(as_type<float>(max_x) - as_type<float>(x));
    return ulong(fixed_of(param_4, v_2, gl_WorkGroupID));
}

static inline __attribute__((always_inline))
ulong weight_of(thread const ulong& _distance, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    device Draws* draws = reinterpret_cast<device Draws*>(v_2.a.draws);
    uint t = gl_WorkGroupID.y;
    if (_distance > draws->at[t].cut)
    {
        return 0ul;
    }
    ulong d = _distance << ulong(max(draws->at[t].shift, 0));
    ulong scale = ulong(draws->at[t].scale);
    ulong halvings = ((d >> ulong(32)) * scale) + (((d & 4294967295ul) * scale) >> ulong(32));
    ulong y = ((halvings & 4294967295ul) * 2977044472ul) >> ulong(32);
    ulong power = 4294967296ul;
    for (uint k = 12u; k > 0u; k--)
    {
        power = 4294967296ul - ulong(uint((y * power) >> ulong(32)) / k);
    }
    uint whole = uint(halvings >> ulong(32));
    return ((power << ulong(8)) + ((1ul << ulong(whole)) >> ulong(1))) >> ulong(whole);
}

static inline __attribute__((always_inline))
void finish_search(thread const uint& search, constant Push& v_2, thread uint3& gl_WorkGroupID, threadgroup ulong& now_kept, threadgroup ulong& now_goal, threadgroup ulong& now_above, threadgroup uint& now_n_above, threadgroup uint& now_prefix, thread uint& now_best, threadgroup uint& now_rank)
{
    uint param = now_prefix;
    uint param_1 = now_best;
    ulong param_2 = distance_of(param, param_1, v_2, gl_WorkGroupID);
    ulong weight = weight_of(param_2, v_2, gl_WorkGroupID);
    if (search == 1u)
    {
        now_kept = min(now_kept, (now_above + ((now_goal - ulong(now_n_above)) * weight)));
    }
    else
    {
        ulong ids = (((now_goal - now_above) + weight) - 1ul) / max(weight, 1ul);
        if (search == 2u)
        {
            now_kept = min(now_kept, (now_above + (ids * weight)));
        }
        else
        {
            now_rank = uint(ids) - 1u;
        }
    }
}

static inline __attribute__((always_inline))
uint known_prefix(constant Push& v_2, threadgroup uint& now_prefix, thread uint& now_best)
{
    return (v_2.a._step == 0u) ? now_best : now_prefix;
}

static inline __attribute__((always_inline))
void advance(constant Push& v_2, thread uint3& gl_WorkGroupID, threadgroup uint (&maxima_of)[128], thread uint& gl_SubgroupID, thread uint& gl_NumSubgroups, thread uint3& gl_LocalInvocationID, threadgroup ulong (&scan_mass)[2][256], threadgroup uint (&scan_count)[2][256], threadgroup ulong& now_kept, threadgroup ulong& now_goal, threadgroup ulong& now_above, threadgroup uint& now_n_above, threadgroup uint& now_prefix, thread uint& now_best, threadgroup uint& now_rank)
{
    device States* states = reinterpret_cast<device States*>(v_2.a.states);
    device U32* maxima = reinterpret_cast<device U32*>(v_2.a.maxima + ((4ul * ulong(v_2.a.groups)) * ulong(gl_WorkGroupID.y)));
    uint at = (8u * gl_WorkGroupID.y) + v_2.a._step;
    uint own = 0u;
    bool first_lane = gl_LocalInvocationID.x == 0u;
    bool _28;
    if (first_lane)
    {
        _28 = v_2.a._step == 0u;
    }
    else
    {
        _28 = first_lane;
    }
    if (_28)
    {
        now_kept = 18446744073709551615ul;
        now_above = 0ul;
        now_goal = 0ul;
        now_rank = 0u;
        now_prefix = 0u;
        now_n_above = 0u;
    }
    else
    {
        if (first_lane)
        {
            now_kept = states->at[at - 1u].kept;
            now_goal = states->at[at - 1u].goal;
            now_above = states->at[at - 1u].above;
            now_n_above = states->at[at - 1u].n_above;
            now_prefix = states->at[at - 1u].prefix;
            now_rank = states->at[at - 1u].rank;
        }
    }
    for (uint g = gl_LocalInvocationID.x; g < v_2.a.groups; g += 256u)
    {
        own = max(own, maxima->at[g]);
    }
    uint param = own;
    uint _29 = group_most(param, maxima_of, gl_SubgroupID, gl_NumSubgroups);
    now_best = _29;
    uint param_1 = v_2.a.finish;
    if (wanted(param_1, v_2, gl_WorkGroupID, now_best))
    {
        uint param_2 = v_2.a._step - 1u;
        uint param_3 = v_2.a.finish;
        uint param_4 = 10u;
        bool param_5 = false;
        descend(param_2, param_3, param_4, param_5, v_2, gl_WorkGroupID, gl_LocalInvocationID, scan_mass, scan_count, now_kept, now_goal, now_above, now_n_above, now_prefix);
        if (first_lane)
        {
            uint param_6 = v_2.a.finish;
            finish_search(param_6, v_2, gl_WorkGroupID, now_kept, now_goal, now_above, now_n_above, now_prefix, now_best, now_rank);
        }
    }
    uint param_7 = v_2.a.search;
    if (wanted(param_7, v_2, gl_WorkGroupID, now_best))
    {
        uint _30;
        if (v_2.a.digit == 1u)
        {
            _30 = 0u;
        }
        else
        {
            _30 = v_2.a._step - 1u;
        }
        uint param_8 = _30;
        uint param_9 = v_2.a.search;
        uint param_10 = 11u;
        bool param_11 = v_2.a.digit == 1u;
        descend(param_8, param_9, param_10, param_11, v_2, gl_WorkGroupID, gl_LocalInvocationID, scan_mass, scan_count, now_kept, now_goal, now_above, now_n_above, now_prefix);
    }
    if ((gl_WorkGroupID.x == 0u) && first_lane)
    {
        states->at[at].kept = now_kept;
        states->at[at].goal = now_goal;
        states->at[at].above = now_above;
        states->at[at].n_above = now_n_above;
        states->at[at].prefix = known_prefix(v_2, now_prefix, now_best);
        states->at[at].best = now_best;
        states->at[at].rank = now_rank;
    }
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
    uint _31;
    if ((bits & 2147483648u) != 0u)
    {
        _31 = ~bits;
    }
    else
    {
        _31 = bits | 2147483648u;
    }
    return _31;
}

static inline __attribute__((always_inline))
uint key_at(thread const uint& i, constant Push& v_2, thread uint3& gl_WorkGroupID)
{
    uint param = (reinterpret_cast<device U32*>(v_2.a.logits + ((4ul * ulong(v_2.a.V)) * ulong(gl_WorkGroupID.y))))->at[i];
    uint _32 = key_of(param);
    return _32;
}

kernel void sample_ties(constant Push& v_2 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup uint maxima_of[128];
    threadgroup ulong scan_mass[2][256];
    threadgroup uint scan_count[2][256];
    threadgroup ulong now_kept;
    threadgroup ulong now_goal;
    threadgroup ulong now_above;
    threadgroup uint now_n_above;
    threadgroup uint now_prefix;
    threadgroup uint now_rank;
    threadgroup uint ties;
    threadgroup float k3_slots[128];
    uint lane = gl_LocalInvocationID.x;
    uint from = gl_WorkGroupID.x * 2048u;
    uint own = 0u;
    uint now_best;
    if (lane == 0u)
    {
        ties = 0u;
    }
    advance(v_2, gl_WorkGroupID, maxima_of, gl_SubgroupID, gl_NumSubgroups, gl_LocalInvocationID, scan_mass, scan_count, now_kept, now_goal, now_above, now_n_above, now_prefix, now_best, now_rank);
    uint _33 = from + lane;
    for (uint i = _33; i < min((from + 2048u), v_2.a.V); i += 256u)
    {
        uint param = i;
        own += uint(key_at(param, v_2, gl_WorkGroupID) == known_prefix(v_2, now_prefix, now_best));
    }
    uint _34 = atomic_fetch_add_explicit((threadgroup atomic_uint*)&ties, own, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0u)
    {
        (reinterpret_cast<device U32*>(v_2.a.ties))->at[(v_2.a.groups * gl_WorkGroupID.y) + gl_WorkGroupID.x] = ties;
    }
}

