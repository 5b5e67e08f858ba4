// Made by tools/metal/generate.sh from glsl/moe_experts_f16.comp, do not edit: threads constant 2 default 256
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

struct F32x4;
struct F32;
struct U64;
struct U32;
struct U32x4;

struct place
{
    ulong near;
    ulong near_scale;
    ulong far;
    ulong far_scale;
    uint at;
};

struct unit
{
    spvUnsafeArray<uint4, 4> codes;
    spvUnsafeArray<uint, 4> scales;
    uint at;
};

constant uint K3_ALIGNED_tmp [[function_constant(0)]];
constant uint K3_ALIGNED = is_function_constant_defined(K3_ALIGNED_tmp) ? K3_ALIGNED_tmp : 0u;
constant bool _1 = (K3_ALIGNED != 0u);

struct F32x4
{
    float4 at[1];
};

struct F32
{
    float at[1];
};

struct U64
{
    ulong at[1];
};

struct U32
{
    uint at[1];
};

constant bool _2 = (K3_ALIGNED != 0u);

struct U32x4
{
    uint4 at[1];
};

struct k3_moe_gemv_args
{
    ulong y;
    ulong x;
    ulong table;
    ulong ids;
    ulong pair_at;
    ulong fault;
    uint E;
    uint missing_is_fault;
    uint fault_code;
    uint rows;
    uint cols;
    uint pairs_a_row;
    uint n_pairs;
    float b1;
    float b2;
    uint pad;
};

struct Push
{
    k3_moe_gemv_args a;
};

constant uint UNITS_tmp [[function_constant(3)]];
constant uint UNITS = is_function_constant_defined(UNITS_tmp) ? UNITS_tmp : 1u;
constant uint _3 = (4u * UNITS);
constant uint THREADS_tmp [[function_constant(2)]];
constant uint THREADS = is_function_constant_defined(THREADS_tmp) ? THREADS_tmp : 256u;
constant uint _4 = (4u * UNITS);
constant uint DOWN_tmp [[function_constant(1)]];
constant uint DOWN = is_function_constant_defined(DOWN_tmp) ? DOWN_tmp : 0u;
constant bool _5 = (DOWN != 0u);
constant int _6 = _5 ? 4 : 2;
constant uint TEAM_ROWS = (uint(_6) + 0u);
constant uint _7 = (UNITS - 1u);
constant uint _8 = (UNITS % 4u);
constant bool FULL_WORDS = (_8 == 0u);
constant bool _9 = (DOWN != 0u);
constant bool _10 = (DOWN != 0u);
constant uint TEAM_tmp [[function_constant(4)]];
constant uint TEAM = is_function_constant_defined(TEAM_tmp) ? TEAM_tmp : 16u;
constant uint _11 = (THREADS - 1u);
constant uint _12 = THREADS;
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(_12, 1u, 1u);

static inline __attribute__((always_inline))
ulong k3_expert_tensor(thread const ulong& table, thread const uint& entry, thread const uint& tensor)
{
    return (reinterpret_cast<device U64*>(table))->at[(6u * entry) + tensor];
}

static inline __attribute__((always_inline))
uint k3_expert_of(thread const uint& pair, thread const ulong& table, thread const ulong& ids, thread const uint& E, thread const uint& missing_is_fault, thread const ulong& fault, thread const uint& fault_code)
{
    uint _13;
    if (ids == table)
    {
        _13 = pair;
    }
    else
    {
        _13 = (reinterpret_cast<device U32*>(ids))->at[pair];
    }
    uint entry = _13;
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
uint pair_at(thread const uint& index, constant Push& v_14)
{
    uint _15;
    if (v_14.a.pair_at == v_14.a.table)
    {
        _15 = index;
    }
    else
    {
        _15 = (reinterpret_cast<device U32*>(v_14.a.pair_at))->at[index];
    }
    return _15;
}

static inline __attribute__((always_inline))
void find_tensor(thread const uint& slot, thread const uint& index, thread const uint& which, constant Push& v_14, threadgroup ulong (&tensors)[8], threadgroup uint (&pairs)[2])
{
    uint param = index;
    ulong param_1 = v_14.a.table;
    ulong param_2 = v_14.a.ids;
    uint param_3 = v_14.a.E;
    uint param_4 = v_14.a.missing_is_fault;
    ulong param_5 = v_14.a.fault;
    uint param_6 = v_14.a.fault_code;
    uint _16 = k3_expert_of(param, param_1, param_2, param_3, param_4, param_5, param_6);
    uint entry = _16;
    uint _17;
    if (_10)
    {
        _17 = 4u;
    }
    else
    {
        _17 = (which < 2u) ? 0u : 2u;
    }
    uint codes = _17;
    ulong param_7 = v_14.a.table;
    uint param_8 = (entry == 4294967295u) ? 0u : entry;
    uint param_9 = codes + (which % 2u);
    ulong tensor = k3_expert_tensor(param_7, param_8, param_9);
    tensors[(4u * slot) + which] = (entry == 4294967295u) ? 0ul : tensor;
    if (which == 0u)
    {
        uint param_10 = index;
        pairs[slot] = pair_at(param_10, v_14);
    }
}

static inline __attribute__((always_inline))
ulong x_of(thread const uint& pair, constant Push& v_14)
{
    return v_14.a.x + ((4ul * ulong(pair / v_14.a.pairs_a_row)) * ulong(v_14.a.cols));
}

static inline __attribute__((always_inline))
float4 k3_load4(thread const ulong& at, thread const uint& i, thread const uint& n)
{
    float4 x = float4(0.0);
    if (_1)
    {
        if (i < n)
        {
            x = (reinterpret_cast<device F32x4*>(at))->at[i / 4u];
        }
        return x;
    }
    device F32* from = reinterpret_cast<device F32*>(at);
    for (uint j = 0u; j < 4u; j++)
    {
        if ((i + j) < n)
        {
            x[j] = from->at[i + j];
        }
    }
    return x;
}

static inline __attribute__((always_inline))
void stage_x(thread const uint& slot, thread const uint& pair, constant Push& v_14, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904])
{
    uint param = pair;
    ulong x = x_of(param, v_14);
    for (uint i = gl_LocalInvocationIndex; i < _3; i += THREADS)
    {
        ulong param_1 = x;
        uint param_2 = 8u * i;
        uint param_3 = v_14.a.cols;
        ulong param_4 = x;
        uint param_5 = (8u * i) + 4u;
        uint param_6 = v_14.a.cols;
        float4 most = fast::max(abs(k3_load4(param_1, param_2, param_3)), abs(k3_load4(param_4, param_5, param_6)));
        x_most[((slot * UNITS) * 4u) + i] = fast::max(fast::max(most.x, most.y), fast::max(most.z, most.w));
    }
}

static inline __attribute__((always_inline))
place place_of(thread const uint& slot, thread uint& row, constant Push& v_14, thread uint& team, thread uint& lane, threadgroup ulong (&tensors)[8])
{
    row += (TEAM_ROWS * team);
    uint at = (((row < v_14.a.rows) ? row : 0u) * UNITS) + min(lane, _7);
    return place{ tensors[4u * slot], tensors[(4u * slot) + 1u], tensors[(4u * slot) + 2u], tensors[(4u * slot) + 3u], at };
}

static inline __attribute__((always_inline))
uint behind(thread const uint& r)
{
    return (r % TEAM_ROWS) * UNITS;
}

static inline __attribute__((always_inline))
uint4 k3_code_block(thread const ulong& codes, thread const uint& i)
{
    if (_2)
    {
        return (reinterpret_cast<device U32x4*>(codes))->at[i];
    }
    device U32* words = reinterpret_cast<device U32*>(codes + (16ul * ulong(i)));
    return uint4(words->at[0], words->at[1], words->at[2], words->at[3]);
}

static inline __attribute__((always_inline))
unit fetch(thread const place& p)
{
    ulong near = p.near + (16ul * ulong(p.at));
    ulong far = p.far + (16ul * ulong(p.at));
    uint _18;
    if (FULL_WORDS)
    {
        _18 = (p.at % 4u) * 8u;
    }
    else
    {
        _18 = p.at;
    }
    unit u;
    u.at = _18;
    ulong _19;
    ulong _20;
    for (uint r = 0u; r < 4u; r++)
    {
        bool is_near = r < TEAM_ROWS;
        uint param = r;
        ulong param_1 = is_near ? near : far;
        uint param_2 = behind(param);
        u.codes[r] = k3_code_block(param_1, param_2);
        if (FULL_WORDS)
        {
            if (is_near)
            {
                _19 = p.near_scale;
            }
            else
            {
                _19 = p.far_scale;
            }
            uint param_3 = r;
            u.scales[r] = (reinterpret_cast<device U32*>(_19 + (4ul * ulong(p.at / 4u))))->at[behind(param_3) / 4u];
        }
        else
        {
            if (is_near)
            {
                _20 = p.near_scale;
            }
            else
            {
                _20 = p.far_scale;
            }
            uint param_4 = r;
            u.scales[r] = (reinterpret_cast<device U32*>(_20))->at[(p.at + behind(param_4)) / 4u];
        }
    }
    return u;
}

static inline __attribute__((always_inline))
void halve_x(thread const uint& slot, thread const uint& pair, constant Push& v_14, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904], threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226])
{
    uint param = pair;
    ulong x = x_of(param, v_14);
    for (uint i = gl_LocalInvocationIndex; i < _4; i += THREADS)
    {
        uint u = (slot * UNITS) + (i / 4u);
        float most = fast::max(fast::max(x_most[4u * u], x_most[(4u * u) + 1u]), fast::max(x_most[(4u * u) + 2u], x_most[(4u * u) + 3u]));
        uint exponent = max((as_type<uint>(most) >> uint(23)), 15u);
        float _inverse = as_type<float>((268u - exponent) << uint(23));
        ulong param_1 = x;
        uint param_2 = 8u * i;
        uint param_3 = v_14.a.cols;
        float4 low = k3_load4(param_1, param_2, param_3) * _inverse;
        ulong param_4 = x;
        uint param_5 = (8u * i) + 4u;
        uint param_6 = v_14.a.cols;
        float4 high = k3_load4(param_4, param_5, param_6) * _inverse;
        x_tile[(u * 5u) + (i % 4u)] = uint4(as_type<uint>(half2(float2(low.x, high.x))), as_type<uint>(half2(float2(low.y, high.y))), as_type<uint>(half2(float2(low.z, high.z))), as_type<uint>(half2(float2(low.w, high.w))));
        if ((i % 4u) == 0u)
        {
            x_unit[u] = as_type<float>(exponent << uint(23));
        }
    }
}

static inline __attribute__((always_inline))
uint4 k3_e2m1_pairs(thread const uint& word)
{
    uint odd = (word & 2155905152u) | ((word >> uint(3)) & 2139062143u);
    uint even = ((word << uint(4)) & 2155905152u) | ((word << uint(1)) & 2139062143u);
    return uint4(even << uint(8), odd << uint(8), even, odd) & uint4(2382401024u);
}

static inline __attribute__((always_inline))
half2 products(thread const uint4& x, thread const uint& codes, thread half2& sum)
{
    uint param = codes;
    uint4 w = k3_e2m1_pairs(param);
    for (int i = 0; i < 4; i++)
    {
        sum = fma(as_type<half2>(w[i]), as_type<half2>(x[i]), sum);
    }
    return sum;
}

static inline __attribute__((always_inline))
float4 add_unit(thread const spvUnsafeArray<uint4, 4>& codes, thread const uint& u, threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226])
{
    float4 sum = float4(0.0);
    for (uint w = 0u; w < 4u; w += 2u)
    {
        uint4 x0 = x_tile[(u * 5u) + w];
        uint4 x1 = x_tile[((u * 5u) + w) + 1u];
        for (uint r = 0u; r < 4u; r++)
        {
            uint4 param = x0;
            uint param_1 = codes[r][w];
            half2 param_2 = half2(half(0.0));
            half2 _21 = products(param, param_1, param_2);
            uint4 param_3 = x1;
            uint param_4 = codes[r][w + 1u];
            half2 param_5 = _21;
            half2 _22 = products(param_3, param_4, param_5);
            half2 p = _22;
            sum[r] += (float(p.x) + float(p.y));
        }
    }
    return sum * x_unit[u];
}

static inline __attribute__((always_inline))
float k3_e8m0(thread const uint& byte)
{
    uint _23;
    if (byte == 0u)
    {
        _23 = 4194304u;
    }
    else
    {
        _23 = byte << uint(23);
    }
    return as_type<float>(_23);
}

static inline __attribute__((always_inline))
float4 scales_of(thread const unit& u)
{
    float4 scales;
    uint _24;
    for (uint r = 0u; r < 4u; r++)
    {
        if (FULL_WORDS)
        {
            _24 = u.at;
        }
        else
        {
            uint param = r;
            _24 = ((u.at + behind(param)) % 4u) * 8u;
        }
        uint param_1 = (u.scales[r] >> _24) & 255u;
        scales[r] = k3_e8m0(param_1);
    }
    return scales;
}

static inline __attribute__((always_inline))
float k3_tanh(thread const float& x)
{
    float a = abs(x);
    float _25;
    if (a < 0.60000002384185791015625)
    {
        _25 = x * x;
    }
    else
    {
        _25 = 0.0;
    }
    float z = _25;
    float p = 0.021110959351062774658203125 - (z * 0.006269119679927825927734375);
    p = (-0.333333313465118408203125) + (z * (0.1333291530609130859375 + (z * ((-0.053873948752880096435546875) + (z * p)))));
    float far = 1.0 - (2.0 / (exp(2.0 * fast::min(a, 16.0)) + 1.0));
    float _26;
    if (a < 0.60000002384185791015625)
    {
        _26 = x + ((x * z) * p);
    }
    else
    {
        float _27;
        if (x < 0.0)
        {
            _27 = -far;
        }
        else
        {
            _27 = far;
        }
        _26 = _27;
    }
    return _26;
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
float k3_situ(thread const float& g, thread const float& u, thread const float& b1, thread const float& b2)
{
    float _28;
    if (b2 == 0.0)
    {
        _28 = u;
    }
    else
    {
        float param = u / b2;
        _28 = b2 * k3_tanh(param);
    }
    float up = _28;
    float param_1 = g / b1;
    float param_2 = g;
    return ((b1 * k3_tanh(param_1)) * k3_sigma(param_2)) * up;
}

static inline __attribute__((always_inline))
void write_rows(thread const float4& sum, thread const uint& pair, thread uint& row, constant Push& v_14, thread uint& team, thread uint& team_size, thread uint& gl_SubgroupSize, thread uint& gl_SubgroupInvocationID, thread uint& block_rows)
{
    float2 mine = float2(0.0);
    for (uint t = 0u; (t * team_size) < gl_SubgroupSize; t++)
    {
        float4 total = simd_sum(select(float4(0.0), sum, bool4(team == t)));
        for (uint r = 0u; r < TEAM_ROWS; r++)
        {
            if (gl_SubgroupInvocationID == ((TEAM_ROWS * t) + r))
            {
                mine = float2(total[r], total[(r + TEAM_ROWS) % 4u]);
            }
        }
    }
    row += gl_SubgroupInvocationID;
    bool _29 = gl_SubgroupInvocationID < block_rows;
    bool _30;
    if (_29)
    {
        _30 = row < v_14.a.rows;
    }
    else
    {
        _30 = _29;
    }
    if (_30)
    {
        float _31;
        if (_9)
        {
            _31 = mine.x;
        }
        else
        {
            float param = mine.x;
            float param_1 = mine.y;
            float param_2 = v_14.a.b1;
            float param_3 = v_14.a.b2;
            _31 = k3_situ(param, param_1, param_2, param_3);
        }
        (reinterpret_cast<device F32*>(v_14.a.y + ((4ul * ulong(pair)) * ulong(v_14.a.rows))))->at[row] = _31;
    }
}

static inline __attribute__((always_inline))
void make_blocks(thread const uint& first, thread const uint& last, thread const uint& origin, thread const uint& middle, constant Push& v_14, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904], threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226], thread uint& team, thread uint& lane, threadgroup ulong (&tensors)[8], thread uint& team_size, thread uint& gl_SubgroupSize, thread uint& gl_SubgroupInvocationID, thread uint& block_rows, thread uint& gl_SubgroupID, threadgroup uint (&pairs)[2], thread uint& gl_NumSubgroups)
{
    uint block = first + gl_SubgroupID;
    uint target = min(block, (last - 1u));
    uint slot = (target < middle) ? 0u : 1u;
    uint row = (target - ((slot == 0u) ? origin : middle)) * block_rows;
    uint param = slot;
    uint param_1 = row;
    place _32 = place_of(param, param_1, v_14, team, lane, tensors);
    place p = _32;
    place param_2 = p;
    unit next = fetch(param_2);
    uint param_3 = 0u;
    uint param_4 = pairs[0];
    halve_x(param_3, param_4, v_14, gl_LocalInvocationIndex, x_most, x_tile, x_unit);
    if (last > middle)
    {
        uint param_5 = 1u;
        uint param_6 = pairs[1];
        halve_x(param_5, param_6, v_14, gl_LocalInvocationIndex, x_most, x_tile, x_unit);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (; block < last; block += gl_NumSubgroups)
    {
        float4 sum = float4(0.0);
        uint now_slot = slot;
        uint now_row = row;
        target = min((block + gl_NumSubgroups), (last - 1u));
        slot = (target < middle) ? 0u : 1u;
        row = (target - ((slot == 0u) ? origin : middle)) * block_rows;
        for (uint u = lane; u < UNITS; u += team_size)
        {
            unit now = next;
            if ((u + team_size) >= UNITS)
            {
                uint param_7 = slot;
                uint param_8 = row;
                place _33 = place_of(param_7, param_8, v_14, team, lane, tensors);
                p = _33;
            }
            else
            {
                p.at += team_size;
            }
            place param_9 = p;
            next = fetch(param_9);
            spvUnsafeArray<uint4, 4> param_10;
            param_10 = now.codes;
            uint param_11 = (now_slot * UNITS) + u;
            unit param_12 = now;
            sum = fma(add_unit(param_10, param_11, x_tile, x_unit), scales_of(param_12), sum);
        }
        float4 param_13 = sum;
        uint param_14 = pairs[now_slot];
        uint param_15 = now_row;
        write_rows(param_13, param_14, param_15, v_14, team, team_size, gl_SubgroupSize, gl_SubgroupInvocationID, block_rows);
    }
}

kernel void moe_experts_f16(constant Push& v_14 [[buffer(0)]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float x_most[904];
    threadgroup uint4 x_tile[1130];
    threadgroup float x_unit[226];
    threadgroup ulong tensors[8];
    threadgroup uint pairs[2];
    uint team_size = min(TEAM, gl_SubgroupSize);
    uint team = gl_SubgroupInvocationID / team_size;
    uint lane = gl_SubgroupInvocationID % team_size;
    uint block_rows = (gl_SubgroupSize / team_size) * TEAM_ROWS;
    uint a_pair = ((v_14.a.rows + block_rows) - 1u) / block_rows;
    uint total = a_pair * v_14.a.n_pairs;
    uint share = total / gl_NumWorkGroups.x;
    uint more = total % gl_NumWorkGroups.x;
    uint begin = (gl_WorkGroupID.x * share) + min(gl_WorkGroupID.x, more);
    uint end = (begin + share) + uint(gl_WorkGroupID.x < more);
    uint thread0 = gl_LocalInvocationIndex;
    uint from_last = _11 - thread0;
    uint _34 = begin / a_pair;
    for (uint index = _34; (index * a_pair) < end; index += 2u)
    {
        uint origin = index * a_pair;
        uint middle = origin + a_pair;
        uint first = max(begin, origin);
        uint last = min(end, (middle + a_pair));
        bool two = last > middle;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (from_last < (two ? 8u : 4u))
        {
            uint param = from_last / 4u;
            uint param_1 = index + (from_last / 4u);
            uint param_2 = from_last % 4u;
            find_tensor(param, param_1, param_2, v_14, tensors, pairs);
        }
        uint param_3 = index;
        uint param_4 = 0u;
        uint param_5 = pair_at(param_3, v_14);
        stage_x(param_4, param_5, v_14, gl_LocalInvocationIndex, x_most);
        if (two)
        {
            uint param_6 = index + 1u;
            uint param_7 = 1u;
            uint param_8 = pair_at(param_6, v_14);
            stage_x(param_7, param_8, v_14, gl_LocalInvocationIndex, x_most);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tensors[0] == 0ul)
        {
            first = max(first, middle);
        }
        bool _35;
        if (two)
        {
            _35 = tensors[4] == 0ul;
        }
        else
        {
            _35 = two;
        }
        if (_35)
        {
            last = middle;
        }
        if (first < last)
        {
            uint param_9 = first;
            uint param_10 = last;
            uint param_11 = origin;
            uint param_12 = middle;
            make_blocks(param_9, param_10, param_11, param_12, v_14, gl_LocalInvocationIndex, x_most, x_tile, x_unit, team, lane, tensors, team_size, gl_SubgroupSize, gl_SubgroupInvocationID, block_rows, gl_SubgroupID, pairs, gl_NumSubgroups);
        }
    }
}

