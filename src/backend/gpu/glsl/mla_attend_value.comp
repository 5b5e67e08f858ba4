/* The last stage of mla_attend: o[t,h,r] = sum_c W_v[h][r, c] context[t,h,c]. Workgroup (x, y) takes a.block rows of one head's W_v for
 * ROWS rows of activations; a subgroup two rows of W_v at a time, its lanes side by side along the columns. It waits for AT_ONCE rounds of
 * weights, and for the scales, together. */
#version 450
#include "mla_weights.glsl"

layout(local_size_x = 256) in;

const uint AT_ONCE = 4;

void main()
{
    uint blocks = gl_NumWorkGroups.x / a.heads, h = gl_WorkGroupID.x / blocks, t0 = gl_WorkGroupID.y * ROWS;
    uint first = gl_WorkGroupID.x % blocks * a.block, end = min(a.v, first + a.block), last = (a.kv - 1u) / 4u * 4u;
    for (uint r = first + 2u * gl_SubgroupID; r < end; r += 2u * gl_NumSubgroups) {
        k3_row row = k3_row_of(h * (a.nope + a.v) + a.nope + r), next = k3_row_of(h * (a.nope + a.v) + a.nope + min(r + 1u, end - 1u));
        vec2 scales = vec2(k3_scale_of(row), k3_scale_of(next)), sum[MAX_ROWS];
        [[unroll]] for (uint t = 0u; t < ROWS; t++)
            sum[t] = vec2(0.0);
        for (uint base = 4u * gl_SubgroupInvocationID; base < a.kv; base += AT_ONCE * 4u * gl_SubgroupSize) {
            vec4 w[AT_ONCE], w_next[AT_ONCE];
            [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
                uint c = min(base + i * 4u * gl_SubgroupSize, last);
                w[i] = k3_weights4(row, c);
                w_next[i] = k3_weights4(next, c);
            }
            [[unroll]] for (uint i = 0u; i < AT_ONCE; i++) {
                uint c = base + i * 4u * gl_SubgroupSize;
                [[unroll]] for (uint t = 0u; t < ROWS; t++) {
                    vec4 x = F32x4(a.x + 4ul * (uint64_t(min(t0 + t, a.T - 1u)) * a.heads + h) * a.stride).at[min(c, last) / 4u];
                    sum[t] += c < a.kv ? vec2(dot(w[i], x), dot(w_next[i], x)) : vec2(0.0);
                }
            }
        }
        [[unroll]] for (uint t = 0u; t < ROWS; t++) {
            vec2 y = subgroupAdd(sum[t]) * scales;
            if (subgroupElect() && t0 + t < a.T) {
                F32 o = F32(a.y + 4ul * (uint64_t(t0 + t) * a.heads + h) * a.v);
                o.at[r] = y.x;
                if (r + 1u < end)
                    o.at[r + 1u] = y.y;
            }
        }
    }
}
