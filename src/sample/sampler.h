/* Sampling, pure on an array of logits. The public half is in k3.h; this is what tests look at. */
#ifndef K3_SAMPLE_SAMPLER_H
#define K3_SAMPLE_SAMPLER_H

#include "base/error.h"

/* The distribution one id is drawn from: ids [n] by falling probability (equal logits: lower id first) and p [n], both with room for n
 * entries; *n_kept of them are written and their p sum to 1. A greedy setting keeps one id. Draws nothing. */
k3_status k3_sample_distribution(int32_t *ids, double *p, size_t *n_kept, const float *logits, size_t n, const k3_sampling *sampling,
                                 k3_error *err);

/* Draw number i (from 0) of a seed, uniform in [0, 1) with 53 bits. The whole generator: the state after any number of draws is
 * (seed, i), so a sequence is fixed by its seed alone, on every machine. */
double k3_sample_uniform(uint64_t seed, uint64_t i);

/* For draws made elsewhere: the settings and the number in [0, 1) of the next draw; and a draw counted as k3_sampler_pick counts it. */
double k3_sampler_next(const k3_sampler *sampler, k3_sampling *sampling);
void k3_sampler_count(k3_sampler *sampler);

#endif
