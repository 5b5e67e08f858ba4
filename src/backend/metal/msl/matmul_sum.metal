// Made by tools/metal/generate.sh from glsl/matmul_sum.comp, do not edit: threads 256
#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct F32;
struct Parts;
struct k3_matmul_part_2;

struct k3_mat_args
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct k3_matmul_part
{
    k3_mat_args w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct k3_matmul_args
{
    ulong parts;
    ulong x;
    ulong x_scale;
    ulong sums;
    uint n_parts;
    uint T;
    uint cols;
    uint blocks;
    uint rows;
    uint whole;
    uint split_row;
    uint splits;
    k3_matmul_part only;
};

struct Push
{
    k3_matmul_args a;
};

struct F32
{
    float at[1];
};

struct k3_mat_args_1
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct k3_matmul_part_1
{
    k3_mat_args_1 w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct k3_mat_args_2
{
    ulong data;
    ulong scale;
    uint rows;
    uint cols;
    uint row_bytes;
    uint scale_bytes;
};

struct k3_matmul_part_2
{
    k3_mat_args_2 w;
    ulong y;
    uint stride;
    uint first_block;
    uint first_row;
    uint pad;
};

struct Parts
{
    k3_matmul_part_2 at[1];
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

kernel void matmul_sum(constant Push& _1 [[buffer(0)]], uint3 gl_WorkGroupID [[threadgroup_position_in_grid]], uint3 gl_LocalInvocationID [[thread_position_in_threadgroup]])
{
    threadgroup float k3_slots[128];
    uint rows = _1.a.rows - _1.a.split_row;
    uint groups = ((rows + 256u) - 1u) / 256u;
    uint t = gl_WorkGroupID.x / groups;
    uint i = ((gl_WorkGroupID.x % groups) * 256u) + gl_LocalInvocationID.x;
    uint row = _1.a.split_row + i;
    uint p = 0u;
    if (i >= rows)
    {
        return;
    }
    float sum = 0.0;
    for (uint s = 0u; s < _1.a.splits; s++)
    {
        sum += (reinterpret_cast<device F32*>(_1.a.sums + ((4ul * ulong(rows)) * ((ulong(s) * ulong(_1.a.T)) + ulong(t)))))->at[i];
    }
    k3_matmul_part_1 part;
    part.w.data = _1.a.only.w.data;
    part.w.scale = _1.a.only.w.scale;
    part.w.rows = _1.a.only.w.rows;
    part.w.cols = _1.a.only.w.cols;
    part.w.row_bytes = _1.a.only.w.row_bytes;
    part.w.scale_bytes = _1.a.only.w.scale_bytes;
    part.y = _1.a.only.y;
    part.stride = _1.a.only.stride;
    part.first_block = _1.a.only.first_block;
    part.first_row = _1.a.only.first_row;
    part.pad = _1.a.only.pad;
    if (_1.a.n_parts > 1u)
    {
        for (;;)
        {
            bool _2 = (p + 1u) < _1.a.n_parts;
            bool _3;
            if (_2)
            {
                _3 = (reinterpret_cast<device Parts*>(_1.a.parts))->at[p + 1u].first_row <= row;
            }
            else
            {
                _3 = _2;
            }
            if (_3)
            {
                p++;
                continue;
            }
            else
            {
                break;
            }
        }
        device Parts* _4 = reinterpret_cast<device Parts*>(_1.a.parts);
        part.w.data = _4->at[p].w.data;
        part.w.scale = _4->at[p].w.scale;
        part.w.rows = _4->at[p].w.rows;
        part.w.cols = _4->at[p].w.cols;
        part.w.row_bytes = _4->at[p].w.row_bytes;
        part.w.scale_bytes = _4->at[p].w.scale_bytes;
        part.y = _4->at[p].y;
        part.stride = _4->at[p].stride;
        part.first_block = _4->at[p].first_block;
        part.first_row = _4->at[p].first_row;
        part.pad = _4->at[p].pad;
    }
    (reinterpret_cast<device F32*>(part.y + ((4ul * ulong(t)) * ulong(part.stride))))->at[row - part.first_row] = sum;
}

