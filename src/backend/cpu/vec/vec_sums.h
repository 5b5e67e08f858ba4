/* Sums that several ops need; include after a vec header. */
#ifndef K3_BACKEND_CPU_VEC_VEC_SUMS_H
#define K3_BACKEND_CPU_VEC_VEC_SUMS_H

/* sum_c x[c]^2 in double, lane by lane: a norm's rounding reaches everything behind it, and costs next to nothing. The order depends on n
 * only. */
static inline double k3_square_sum(const float *x, int n)
{
    vd sum[2] = {vd_zero(), vd_zero()};
    int c = 0;
    for (; c + 2 * VF_LANES <= n; c += 2 * VF_LANES)
        for (int u = 0; u < 2; u++) {
            vf v = vf_load(x + c + u * VF_LANES);
            sum[u] = vd_fma(v, v, sum[u]);
        }
    for (; c < n; c += VF_LANES) {
        vf v = vf_load_upto(x + c, n - c);
        sum[0] = vd_fma(v, v, sum[0]);
    }
    return vd_sum(sum[0]) + vd_sum(sum[1]);
}

#endif
