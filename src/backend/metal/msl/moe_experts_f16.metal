// Made by tools/metal/generate.sh from glsl/moe_experts_f16.comp, do not edit: threads constant 2 default 256
#pragma clang diagnostic ignored "-Wmissing-prototypes"

#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

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
    uint near_shift;
    uint far_shift;
};

struct unit
{
    uint4 near;
    uint4 far;
    uint near_scale;
    uint far_scale;
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
constant uint _6 = (UNITS - 1u);
constant bool _7 = (DOWN != 0u);
constant bool _8 = (DOWN != 0u);
constant uint _9 = (UNITS % 4u);
constant bool _10 = (_9 == 0u);
constant uint _11 = (UNITS / 4u);
constant bool _12 = (DOWN == 0u);
constant bool _13 = (DOWN != 0u);
constant bool _14 = (DOWN != 0u);
constant bool _15 = (DOWN != 0u);
constant uint TEAM_tmp [[function_constant(4)]];
constant uint TEAM = is_function_constant_defined(TEAM_tmp) ? TEAM_tmp : 16u;
constant bool _16 = (DOWN != 0u);
constant uint _17 = _16 ? 2u : 1u;
constant uint _18 = (THREADS - 1u);
constant uint _19 = THREADS;
constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(_19, 1u, 1u);

static inline __attribute__((always_inline))
ulong k3_expert_tensor(thread const ulong& table, thread const uint& entry, thread const uint& tensor)
{
    return (reinterpret_cast<device U64*>(table))->at[(6u * entry) + tensor];
}

static inline __attribute__((always_inline))
uint k3_expert_of(thread const uint& pair, thread const ulong& table, thread const ulong& ids, thread const uint& E, thread const uint& missing_is_fault, thread const ulong& fault, thread const uint& fault_code)
{
    uint _20;
    if (ids == table)
    {
        _20 = pair;
    }
    else
    {
        _20 = (reinterpret_cast<device U32*>(ids))->at[pair];
    }
    uint entry = _20;
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
uint pair_at(thread const uint& index, constant Push& v_21)
{
    uint _22;
    if (v_21.a.pair_at == v_21.a.table)
    {
        _22 = index;
    }
    else
    {
        _22 = (reinterpret_cast<device U32*>(v_21.a.pair_at))->at[index];
    }
    return _22;
}

static inline __attribute__((always_inline))
void find_tensor(thread const uint& slot, thread const uint& index, thread const uint& which, constant Push& v_21, threadgroup ulong (&tensors)[8], threadgroup uint (&pairs)[2])
{
    uint param = index;
    ulong param_1 = v_21.a.table;
    ulong param_2 = v_21.a.ids;
    uint param_3 = v_21.a.E;
    uint param_4 = v_21.a.missing_is_fault;
    ulong param_5 = v_21.a.fault;
    uint param_6 = v_21.a.fault_code;
    uint _23 = k3_expert_of(param, param_1, param_2, param_3, param_4, param_5, param_6);
    uint entry = _23;
    uint _24;
    if (_15)
    {
        _24 = 4u;
    }
    else
    {
        _24 = (which < 2u) ? 0u : 2u;
    }
    uint codes = _24;
    ulong param_7 = v_21.a.table;
    uint param_8 = (entry == 4294967295u) ? 0u : entry;
    uint param_9 = codes + (which % 2u);
    ulong tensor = k3_expert_tensor(param_7, param_8, param_9);
    tensors[(4u * slot) + which] = (entry == 4294967295u) ? 0ul : tensor;
    if (which == 0u)
    {
        uint param_10 = index;
        pairs[slot] = pair_at(param_10, v_21);
    }
}

static inline __attribute__((always_inline))
ulong x_of(thread const uint& pair, constant Push& v_21)
{
    return v_21.a.x + ((4ul * ulong(pair / v_21.a.pairs_a_row)) * ulong(v_21.a.cols));
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
void stage_x(thread const uint& slot, thread const uint& pair, constant Push& v_21, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904])
{
    uint param = pair;
    ulong x = x_of(param, v_21);
    for (uint i = gl_LocalInvocationIndex; i < _3; i += THREADS)
    {
        ulong param_1 = x;
        uint param_2 = 8u * i;
        uint param_3 = v_21.a.cols;
        ulong param_4 = x;
        uint param_5 = (8u * i) + 4u;
        uint param_6 = v_21.a.cols;
        float4 most = fast::max(abs(k3_load4(param_1, param_2, param_3)), abs(k3_load4(param_4, param_5, param_6)));
        x_most[((slot * UNITS) * 4u) + i] = fast::max(fast::max(most.x, most.y), fast::max(most.z, most.w));
    }
}

static inline __attribute__((always_inline))
place place_of(thread const uint& slot, thread uint& row, constant Push& v_21, thread uint& team, thread uint& lane, threadgroup ulong (&tensors)[8])
{
    uint _25;
    if (_5)
    {
        _25 = 2u * team;
    }
    else
    {
        _25 = team;
    }
    row += _25;
    uint i = (((row < v_21.a.rows) ? row : 0u) * UNITS) + min(lane, _6);
    uint _26;
    if (_7)
    {
        _26 = i + UNITS;
    }
    else
    {
        _26 = i;
    }
    uint j = _26;
    return place{ tensors[4u * slot] + (16ul * ulong(i)), tensors[(4u * slot) + 1u] + ulong((i / 4u) * 4u), tensors[(4u * slot) + 2u] + (16ul * ulong(j)), tensors[(4u * slot) + 3u] + ulong((j / 4u) * 4u), (i % 4u) * 8u, (j % 4u) * 8u };
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
    ulong param = p.near;
    uint param_1 = 0u;
    unit u;
    u.near = k3_code_block(param, param_1);
    u.near_scale = (reinterpret_cast<device U32*>(p.near_scale))->at[0];
    bool _27;
    if (_8)
    {
        _27 = _10;
    }
    else
    {
        _27 = _8;
    }
    if (_27)
    {
        ulong param_2 = p.near;
        uint param_3 = UNITS;
        u.far = k3_code_block(param_2, param_3);
        u.far_scale = (reinterpret_cast<device U32*>(p.near_scale))->at[_11];
    }
    else
    {
        ulong param_4 = p.far;
        uint param_5 = 0u;
        u.far = k3_code_block(param_4, param_5);
        u.far_scale = (reinterpret_cast<device U32*>(p.far_scale))->at[0];
    }
    return u;
}

static inline __attribute__((always_inline))
void halve_x(thread const uint& slot, thread const uint& pair, constant Push& v_21, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904], threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226])
{
    uint param = pair;
    ulong x = x_of(param, v_21);
    for (uint i = gl_LocalInvocationIndex; i < _4; i += THREADS)
    {
        uint u = (slot * UNITS) + (i / 4u);
        float most = fast::max(fast::max(x_most[4u * u], x_most[(4u * u) + 1u]), fast::max(x_most[(4u * u) + 2u], x_most[(4u * u) + 3u]));
        uint exponent = max((as_type<uint>(most) >> uint(23)), 15u);
        float _inverse = as_type<float>((268u - exponent) << uint(23));
        ulong param_1 = x;
        uint param_2 = 8u * i;
        uint param_3 = v_21.a.cols;
        float4 low = k3_load4(param_1, param_2, param_3) * _inverse;
        ulong param_4 = x;
        uint param_5 = (8u * i) + 4u;
        uint param_6 = v_21.a.cols;
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
float2 add_unit(thread const uint4& n, thread const uint4& f, thread const uint& u, threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226])
{
    float2 sum = float2(0.0);
    for (uint w = 0u; w < 4u; w += 2u)
    {
        uint4 x0 = x_tile[(u * 5u) + w];
        uint4 x1 = x_tile[((u * 5u) + w) + 1u];
        uint4 param = x0;
        uint param_1 = n[w];
        half2 param_2 = half2(half(0.0));
        half2 _28 = products(param, param_1, param_2);
        uint4 param_3 = x1;
        uint param_4 = n[w + 1u];
        half2 param_5 = _28;
        half2 _29 = products(param_3, param_4, param_5);
        half2 p = _29;
        uint4 param_6 = x0;
        uint param_7 = f[w];
        half2 param_8 = half2(half(0.0));
        half2 _30 = products(param_6, param_7, param_8);
        uint4 param_9 = x1;
        uint param_10 = f[w + 1u];
        half2 param_11 = _30;
        half2 _31 = products(param_9, param_10, param_11);
        half2 q = _31;
        sum += (float2(float(p.x), float(q.x)) + float2(float(p.y), float(q.y)));
    }
    return sum * x_unit[u];
}

static inline __attribute__((always_inline))
float k3_e8m0(thread const uint& byte)
{
    uint _32;
    if (byte == 0u)
    {
        _32 = 4194304u;
    }
    else
    {
        _32 = byte << uint(23);
    }
    return as_type<float>(_32);
}

static inline __attribute__((always_inline))
float scale_of(thread const uint& word, thread const uint& shift)
{
    uint param = (word >> shift) & 255u;
    return k3_e8m0(param);
}

static inline __attribute__((always_inline))
float k3_tanh(thread const float& x)
{
    float a = abs(x);
    float _33;
    if (a < 0.60000002384185791015625)
    {
        _33 = x * x;
    }
    else
    {
        _33 = 0.0;
    }
    float z = _33;
    float p = 0.021110959351062774658203125 - (z * 0.006269119679927825927734375);
    p = (-0.333333313465118408203125) + (z * (0.1333291530609130859375 + (z * ((-0.053873948752880096435546875) + (z * p)))));
    float far = 1.0 - (2.0 / (exp(2.0 * fast::min(a, 16.0)) + 1.0));
    float _34;
    if (a < 0.60000002384185791015625)
    {
        _34 = x + ((x * z) * p);
    }
    else
    {
        float _35;
        if (x < 0.0)
        {
            _35 = -far;
        }
        else
        {
            _35 = far;
        }
        _34 = _35;
    }
    return _34;
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
    float _36;
    if (b2 == 0.0)
    {
        _36 = u;
    }
    else
    {
        float param = u / b2;
        _36 = b2 * k3_tanh(param);
    }
    float up = _36;
    float param_1 = g / b1;
    float param_2 = g;
    return ((b1 * k3_tanh(param_1)) * k3_sigma(param_2)) * up;
}

static inline __attribute__((always_inline))
void write_rows(thread const float2& sum, thread const uint& pair, thread uint& row, constant Push& v_21, thread uint& team, thread uint& team_size, thread uint& gl_SubgroupSize, thread uint& gl_SubgroupInvocationID, thread uint& block_rows)
{
    float2 mine = float2(0.0);
    for (uint t = 0u; (t * team_size) < gl_SubgroupSize; t++)
    {
        float2 total = simd_sum(select(float2(0.0), sum, bool2(team == t)));
        bool _37;
        if (_12)
        {
            _37 = gl_SubgroupInvocationID == t;
        }
        else
        {
            _37 = _12;
        }
        if (_37)
        {
            mine = total;
        }
        else
        {
            bool _38;
            if (_13)
            {
                _38 = (gl_SubgroupInvocationID / 2u) == t;
            }
            else
            {
                _38 = _13;
            }
            if (_38)
            {
                mine.x = total[gl_SubgroupInvocationID % 2u];
            }
        }
    }
    row += gl_SubgroupInvocationID;
    bool _39 = gl_SubgroupInvocationID < block_rows;
    bool _40;
    if (_39)
    {
        _40 = row < v_21.a.rows;
    }
    else
    {
        _40 = _39;
    }
    if (_40)
    {
        float _41;
        if (_14)
        {
            _41 = mine.x;
        }
        else
        {
            float param = mine.x;
            float param_1 = mine.y;
            float param_2 = v_21.a.b1;
            float param_3 = v_21.a.b2;
            _41 = k3_situ(param, param_1, param_2, param_3);
        }
        (reinterpret_cast<device F32*>(v_21.a.y + ((4ul * ulong(pair)) * ulong(v_21.a.rows))))->at[row] = _41;
    }
}

static inline __attribute__((always_inline))
void make_blocks(thread const uint& first, thread const uint& last, thread const uint& origin, thread const uint& middle, constant Push& v_21, thread uint& gl_LocalInvocationIndex, threadgroup float (&x_most)[904], threadgroup uint4 (&x_tile)[1130], threadgroup float (&x_unit)[226], thread uint& team, thread uint& lane, threadgroup ulong (&tensors)[8], thread uint& team_size, thread uint& gl_SubgroupSize, thread uint& gl_SubgroupInvocationID, thread uint& block_rows, thread uint& gl_SubgroupID, threadgroup uint (&pairs)[2], thread uint& gl_NumSubgroups)
{
    uint block = first + gl_SubgroupID;
    uint target = min(block, (last - 1u));
    uint slot = (target < middle) ? 0u : 1u;
    uint row = (target - ((slot == 0u) ? origin : middle)) * block_rows;
    uint param = slot;
    uint param_1 = row;
    place _42 = place_of(param, param_1, v_21, team, lane, tensors);
    place p = _42;
    place param_2 = p;
    unit next = fetch(param_2);
    uint param_3 = 0u;
    uint param_4 = pairs[0];
    halve_x(param_3, param_4, v_21, gl_LocalInvocationIndex, x_most, x_tile, x_unit);
    if (last > middle)
    {
        uint param_5 = 1u;
        uint param_6 = pairs[1];
        halve_x(param_5, param_6, v_21, gl_LocalInvocationIndex, x_most, x_tile, x_unit);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (; block < last; block += gl_NumSubgroups)
    {
        float2 sum = float2(0.0);
        uint now_slot = slot;
        uint now_row = row;
        target = min((block + gl_NumSubgroups), (last - 1u));
        slot = (target < middle) ? 0u : 1u;
        row = (target - ((slot == 0u) ? origin : middle)) * block_rows;
        for (uint u = lane; u < UNITS; u += team_size)
        {
            unit now = next;
            uint near_shift = p.near_shift;
            uint far_shift = p.far_shift;
            if ((u + team_size) >= UNITS)
            {
                uint param_7 = slot;
                uint param_8 = row;
                place _43 = place_of(param_7, param_8, v_21, team, lane, tensors);
                p = _43;
            }
            else
            {
                p.near += ulong(16u * team_size);
                p.far += ulong(16u * team_size);
                p.near_scale += ulong(team_size);
                p.far_scale += ulong(team_size);
            }
            place param_9 = p;
            next = fetch(param_9);
            uint4 param_10 = now.near;
            uint4 param_11 = now.far;
            uint param_12 = (now_slot * UNITS) + u;
            float2 products_1 = add_unit(param_10, param_11, param_12, x_tile, x_unit);
            uint param_13 = now.near_scale;
            uint param_14 = near_shift;
            uint param_15 = now.far_scale;
            uint param_16 = far_shift;
            sum = fma(products_1, float2(scale_of(param_13, param_14), scale_of(param_15, param_16)), sum);
        }
        float2 param_17 = sum;
        uint param_18 = pairs[now_slot];
        uint param_19 = now_row;
        write_rows(param_17, param_18, param_19, v_21, team, team_size, gl_SubgroupSize, gl_SubgroupInvocationID, block_rows);
    }
}

kernel void moe_experts_f16(constant Push& v_21 [[buffer(0)]], uint gl_LocalInvocationIndex [[thread_index_in_threadgroup]], uint gl_SubgroupSize [[thread_execution_width]], uint gl_SubgroupInvocationID [[thread_index_in_simdgroup]], uint gl_SubgroupID [[simdgroup_index_in_threadgroup]], uint gl_NumSubgroups [[simdgroups_per_threadgroup]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]])
{
    threadgroup float x_most[904];
    threadgroup uint4 x_tile[1130];
    threadgroup float x_unit[226];
    threadgroup ulong tensors[8];
    threadgroup uint pairs[2];
    uint team_size = min(TEAM, gl_SubgroupSize);
    uint team = gl_SubgroupInvocationID / team_size;
    uint lane = gl_SubgroupInvocationID % team_size;
    uint block_rows = (gl_SubgroupSize / team_size) * _17;
    uint a_pair = ((v_21.a.rows + block_rows) - 1u) / block_rows;
    uint total = a_pair * v_21.a.n_pairs;
    uint share = total / gl_NumWorkGroups.x;
    uint more = total % gl_NumWorkGroups.x;
    uint begin = (gl_WorkGroupID.x * share) + min(gl_WorkGroupID.x, more);
    uint end = (begin + share) + uint(gl_WorkGroupID.x < more);
    uint thread0 = gl_LocalInvocationIndex;
    uint from_last = _18 - thread0;
    uint _44 = begin / a_pair;
    for (uint index = _44; (index * a_pair) < end; index += 2u)
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
            find_tensor(param, param_1, param_2, v_21, tensors, pairs);
        }
        uint param_3 = index;
        uint param_4 = 0u;
        uint param_5 = pair_at(param_3, v_21);
        stage_x(param_4, param_5, v_21, gl_LocalInvocationIndex, x_most);
        if (two)
        {
            uint param_6 = index + 1u;
            uint param_7 = 1u;
            uint param_8 = pair_at(param_6, v_21);
            stage_x(param_7, param_8, v_21, gl_LocalInvocationIndex, x_most);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tensors[0] == 0ul)
        {
            first = max(first, middle);
        }
        bool _45;
        if (two)
        {
            _45 = tensors[4] == 0ul;
        }
        else
        {
            _45 = two;
        }
        if (_45)
        {
            last = middle;
        }
        if (first < last)
        {
            uint param_9 = first;
            uint param_10 = last;
            uint param_11 = origin;
            uint param_12 = middle;
            make_blocks(param_9, param_10, param_11, param_12, v_21, gl_LocalInvocationIndex, x_most, x_tile, x_unit, team, lane, tensors, team_size, gl_SubgroupSize, gl_SubgroupInvocationID, block_rows, gl_SubgroupID, pairs, gl_NumSubgroups);
        }
    }
}

