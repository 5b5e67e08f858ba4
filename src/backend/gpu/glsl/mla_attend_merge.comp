/* The third stage of mla_attend: context[pair] = sum_p 2^(ref_p - ref) context_p[pair] / sum_p 2^(ref_p - ref) sum_p, ref the largest, over
 * the parts of the cache. Workgroup (x, y) takes channels 128 y .. of pair x: thread (slice, column) four of them in every SLICES-th part,
 * AT_ONCE of which it waits for together; then the slices are summed in order. The result takes the place of part 0. */
#version 450
#include "mla.glsl"

layout(local_size_x = 256) in;
layout(constant_id = 0) const uint AT_ONCE = 1; /* at most MOST */
layout(push_constant, std430) uniform Push { k3_mla_attend_args a; };

const uint MOST = 8;
const uint COLUMNS = 32; /* fours of channels */
const uint SLICES = 256 / COLUMNS;

shared vec4 contexts[SLICES * COLUMNS];
shared vec2 stats[SLICES]; /* reference, sum */

void main()
{
    uint column = gl_LocalInvocationID.x % COLUMNS, slice = gl_LocalInvocationID.x / COLUMNS;
    uint pair = gl_WorkGroupID.x, fours = a.context_stride / 4u, four = gl_WorkGroupID.y * COLUMNS + column;
    uint64_t context_at = a.context + 16ul * (uint64_t(pair) * fours + min(four, fours - 1u));
    float reference = K3_LOWEST, sum = 0.0;
    vec4 context = vec4(0.0);
    for (uint first = slice; first < a.parts; first += AT_ONCE * SLICES) {
        vec2 part[MOST];
        vec4 x[MOST];
        float most = reference;
        [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
            uint p = min(first + i * SLICES, a.parts - 1u);
            part[i] = F32x2(a.stats).at[p * a.pairs + pair];
            x[i] = F32x4(context_at + 16ul * p * a.pairs * fours).at[0];
        }
        [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
            if (first + i * SLICES >= a.parts)
                part[i] = vec2(K3_LOWEST, 0.0);
            most = max(most, part[i].x);
        }
        float kept = exp2(reference - most);
        reference = most;
        sum *= kept;
        context *= kept;
        [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
            float weight = exp2(part[i].x - reference);
            sum += weight * part[i].y;
            context += part[i].y != 0.0 ? weight * x[i] : vec4(0.0); /* a pair that sees nothing of the part has anything there */
        }
    }
    contexts[gl_LocalInvocationID.x] = context;
    if (column == 0u)
        stats[slice] = vec2(reference, sum);
    barrier();
    if (slice != 0u || four >= fours)
        return;
    for (uint s = 0u; s < SLICES; s++)
        reference = max(reference, stats[s].x);
    sum = 0.0;
    context = vec4(0.0);
    for (uint s = 0u; s < SLICES; s++) {
        float weight = exp2(stats[s].x - reference);
        sum += weight * stats[s].y;
        context += weight * contexts[s * COLUMNS + column];
    }
    F32x4(context_at).at[0] = context / sum;
}
