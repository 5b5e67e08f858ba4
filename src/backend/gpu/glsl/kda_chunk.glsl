/* What the two kernels of kda_chunk share. The rows of a run are cut into chunks of 16, from its first row on; with G_t the sum of g over
 * the chunk's rows up to t (specification 3.4),
 *   A[t,s] = beta_t sum_d k_t k_s exp(G_t - G_s)   s < t      B[t,s] = sum_d q_t k_s exp(G_t - G_s)   s <= t
 *   T = (I + A)^-1 diag(beta)                                 BT = B T
 *   R = V - (K exp G) S0       E = T R       O = (Q exp G) S0 + BT R       S = diag(exp G_last) S0 + (K exp(G_last - G))^T E
 * T and BT know nothing of the state: kda_chunk_pairs makes them for all chunks at once, once for all columns, and kda_chunk, which goes
 * from chunk to chunk, has only products left. Every exponent is a difference with t >= s, so that no factor exceeds 1. */
#ifndef K3_KDA_CHUNK_GLSL
#define K3_KDA_CHUNK_GLSL

#include "runs.glsl"
#include "backend/args/kda_chunk.h"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint D = 128; /* a multiple of 8, at most 128 */
layout(push_constant, std430) uniform Push
{
    k3_kda_chunk_args a;
};

const uint CHUNK = 16;
const uint MAX_D = 128;
const uint FOURS = MAX_D / 4; /* of channels */
const vec4 ZERO = vec4(0.0);

/* The first chunk of the run that begins at row `row` of the call or later. */
uint k3_first_chunk(Run run, uint row)
{
    uint chunks = (run.n + CHUNK - 1u) / CHUNK;
    return row <= run.row ? 0u : min(chunks, (row - run.row + CHUNK - 1u) / CHUNK);
}

/* Index of fours of a row's T; its BT follows. */
uint k3_pairs_at(uint row, uint head)
{
    return ((row - a.first) * a.H + head) * (2u * CHUNK / 4u);
}

#endif
