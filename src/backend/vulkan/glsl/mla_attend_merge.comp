/* The third stage of mla_attend: context[pair] = sum_p 2^(ref_p - ref) context_p[pair] / sum_p 2^(ref_p - ref) sum_p, ref the largest, over
 * the parts of the cache in order. One thread a channel; the result takes the place of part 0. */
#version 450
#include "mla.glsl"

layout(local_size_x = 256) in;
layout(push_constant, std430) uniform Push { k3_mla_attend_args a; };

void main()
{
    uint at = gl_GlobalInvocationID.x, pair = at / a.context_stride;
    if (pair >= a.pairs)
        return;
    F32x2 stats = F32x2(a.stats);
    float reference = K3_LOWEST, sum = 0.0, context = 0.0;
    for (uint p = 0u; p < a.parts; p++)
        reference = max(reference, stats.at[p * a.pairs + pair].x);
    for (uint p = 0u; p < a.parts; p++) {
        vec2 part = stats.at[p * a.pairs + pair];
        float x = F32(a.context + 4ul * p * a.pairs * a.context_stride).at[at], weight = exp2(part.x - reference);
        if (part.y != 0.0) { /* else the pair sees nothing of the part, and x may be anything */
            sum += weight * part.y;
            context += weight * x;
        }
    }
    F32(a.context).at[at] = context / sum;
}
