/* score_j = (sum_c src_j[t,c] s[c]) / sqrt(mean_c src_j[t,c]^2 + eps);  w = softmax_j(score);  y[t,c] = sum_j w_j src_j[t,c]
 *
 * One workgroup a row. Sources are read once, AT_ONCE together: their scores take one reduction, and then they join the mixture, which every
 * thread keeps for its own channels, unnormalised and relative to the largest score so far (online softmax). A thread reads and writes the
 * same channels only, so y may be a source. The mixture takes the raw vectors; mixing the normalised ones would look right for unit-norm
 * sources and be wrong. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "vec4.glsl"
#include "backend/args/attnres_mix.h"

const uint FOURS = 4; /* C <= 4 * FOURS * 512 */
const uint AT_ONCE = 3;
layout(local_size_x = 512) in;
layout(push_constant, std430) uniform Push
{
    k3_attnres_mix_args a;
};

/* The first of four channels. */
uint channel(uint k)
{
    return 4u * (gl_LocalInvocationID.x + k * gl_WorkGroupSize.x);
}

/* Sums over the workgroup of the dot products and squares of AT_ONCE sources. Calls use two sets of slots in turn, so that one barrier a call
 * is enough. */
shared vec3 dots[2][K3_MAX_SUBGROUPS], squares[2][K3_MAX_SUBGROUPS];

void sum_both(inout vec3 dot_s, inout vec3 square, uint set)
{
    vec3 part_dot = subgroupAdd(dot_s), part_square = subgroupAdd(square);
    if (subgroupElect()) {
        dots[set][gl_SubgroupID] = part_dot;
        squares[set][gl_SubgroupID] = part_square;
    }
    barrier();
    dot_s = square = vec3(0.0);
    for (uint i = 0u; i < gl_NumSubgroups; i++) {
        dot_s += dots[set][i];
        square += squares[set][i];
    }
}

void main()
{
    U64 sources = U64(a.sources);
    uint64_t row = uint64_t(gl_WorkGroupID.x) * a.C * 4ul;
    vec4 mixture[FOURS];
    [[unroll]] for (uint k = 0u; k < FOURS; k++)
        mixture[k] = vec4(0.0);
    float largest = -3.0e38, total = 0.0;
    for (uint first = 0u; first < a.n_src; first += AT_ONCE) {
        vec4 x[AT_ONCE][FOURS];
        [[unroll]] for (uint j = 0u; j < AT_ONCE; j++) {
            uint64_t at = sources.at[min(first + j, a.n_src - 1u)] + row;
            [[unroll]] for (uint k = 0u; k < FOURS; k++)
                x[j][k] = k3_load4(at, channel(k), first + j < a.n_src ? a.C : 0u);
        }
        vec3 dot_s = vec3(0.0), square = vec3(0.0);
        [[unroll]] for (uint k = 0u; k < FOURS; k++) {
            vec4 s = k3_load4(a.s, channel(k), a.C);
            [[unroll]] for (uint j = 0u; j < AT_ONCE; j++) {
                dot_s[j] += dot(x[j][k], s);
                square[j] += dot(x[j][k], x[j][k]);
            }
        }
        sum_both(dot_s, square, first / AT_ONCE % 2u);
        vec3 score = dot_s / sqrt(square / float(a.C) + a.eps);
        float before = largest;
        [[unroll]] for (uint j = 0u; j < AT_ONCE; j++)
            largest = first + j < a.n_src ? max(largest, score[j]) : largest;
        float keep = exp(before - largest);
        total *= keep;
        [[unroll]] for (uint k = 0u; k < FOURS; k++)
            mixture[k] *= keep;
        [[unroll]] for (uint j = 0u; j < AT_ONCE; j++) {
            float weight = first + j < a.n_src ? exp(score[j] - largest) : 0.0;
            total += weight;
            [[unroll]] for (uint k = 0u; k < FOURS; k++)
                mixture[k] += weight * x[j][k];
        }
    }
    [[unroll]] for (uint k = 0u; k < FOURS; k++)
        k3_store4(a.y + row, channel(k), a.C, mixture[k] / total);
}
