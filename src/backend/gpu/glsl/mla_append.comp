/* cache[pos+t, c] = w[c] ckv[t,c] / sqrt(mean_c ckv[t,c]^2 + eps) for c < kv_lora, the mean over these; cache[pos+t, c] = ckv[t,c] for the
 * rope channels (specification 3.5). Workgroup (x, y) takes row x of run y. A thread writes two channels at a time, which are one word of a
 * bf16 cache: its rows have an even number of channels. */
#version 450
#include "mla.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint BF16 = 0;
layout(push_constant, std430) uniform Push { k3_mla_append_args a; };

/* To the nearest, ties to even; a NaN stays one. */
uint bf16_of(float x)
{
    uint u = floatBitsToUint(x);
    bool nan = (u & 0x7fffffffu) > 0x7f800000u;
    return nan ? u >> 16 | 0x40u : u + 0x7fffu + (u >> 16 & 1u) >> 16;
}

void main()
{
    k3_mla_run run = k3_mla_run_of(a.runs, gl_WorkGroupID.y);
    uint width = a.kv + a.rope, t = gl_WorkGroupID.x;
    if (t >= run.n)
        return;
    F32 from = F32(a.ckv + 4ul * width * (run.row + t)), w = F32(a.w);
    float square = 0.0;
    for (uint c = gl_LocalInvocationID.x; c < a.kv; c += gl_WorkGroupSize.x)
        square += from.at[c] * from.at[c];
    float inverse = 1.0 / sqrt(k3_group_sum(square) / float(a.kv) + a.eps);

    uint64_t row = run.cache + (BF16 != 0u ? 2ul : 4ul) * width * (run.pos + t);
    for (uint c = 2u * gl_LocalInvocationID.x; c < width; c += 2u * gl_WorkGroupSize.x) {
        vec2 pair = vec2(0.0);
        for (uint i = 0u; i < 2u && c + i < width; i++)
            pair[i] = c + i < a.kv ? from.at[c + i] * inverse * w.at[c + i] : from.at[c + i];
        if (BF16 != 0u) {
            U32(row).at[c / 2u] = bf16_of(pair[0]) | bf16_of(pair[1]) << 16;
        } else {
            F32(row).at[c] = pair[0];
            if (c + 1u < width)
                F32(row).at[c + 1u] = pair[1];
        }
    }
}
