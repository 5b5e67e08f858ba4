/* Sums that several ops need; include after a vec header. */
#ifndef K3_BACKEND_CPU_X86_VEC_SUMS_H
#define K3_BACKEND_CPU_X86_VEC_SUMS_H

/* sum_c x[c]^2, in four running sums: the order depends on n only. */
static inline float k3_square_sum(const float *x, int n)
{
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int c = 0;
    for (; c + 4 * VF_LANES <= n; c += 4 * VF_LANES)
        for (int u = 0; u < 4; u++) {
            vf v = vf_load(x + c + u * VF_LANES);
            sum[u] = vf_fma(v, v, sum[u]);
        }
    for (; c < n; c += VF_LANES) {
        vf v = vf_load_upto(x + c, n - c);
        sum[0] = vf_fma(v, v, sum[0]);
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

#endif
