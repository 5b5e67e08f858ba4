// Made by tools/metal/generate.sh from glsl/copy.comp, do not edit: threads 256
#include <metal_stdlib>
#include <simd/simd.h>

using namespace metal;

struct U32x4;

struct U32x4
{
    uint4 at[1];
};

struct k3_copy_args
{
    ulong to;
    ulong from;
    uint n;
    uint pad;
};

struct Push
{
    k3_copy_args a;
};

constant uint3 gl_WorkGroupSize [[maybe_unused]] = uint3(256u, 1u, 1u);

kernel void copy(constant Push& _1 [[buffer(0)]], uint3 gl_NumWorkGroups [[threadgroups_per_grid]], uint3 gl_GlobalInvocationID [[thread_position_in_grid]])
{
    uint stride = 256u * gl_NumWorkGroups.x;
    uint i = gl_GlobalInvocationID.x;
    device U32x4* to = reinterpret_cast<device U32x4*>(_1.a.to);
    device U32x4* from = reinterpret_cast<device U32x4*>(_1.a.from);
    for (; (i + (3u * stride)) < _1.a.n; i += (4u * stride))
    {
        uint4 x0 = from->at[i];
        uint4 x1 = from->at[i + stride];
        uint4 x2 = from->at[i + (2u * stride)];
        uint4 x3 = from->at[i + (3u * stride)];
        to->at[i] = x0;
        to->at[i + stride] = x1;
        to->at[i + (2u * stride)] = x2;
        to->at[i + (3u * stride)] = x3;
    }
    for (; i < _1.a.n; i += stride)
    {
        to->at[i] = from->at[i];
    }
}

