/* Multiply-adds as fast as an instruction set makes them; include after a vec and a vi header and PEAK_CHAINS. */
#include "backend/cpu/peak.h"

uint64_t K3_KERNEL(peak_f32)(float *out, int64_t rounds)
{
    vf sum[PEAK_CHAINS], a = vf_set(0.5f), b = vf_set(0.25f);
    for (int i = 0; i < PEAK_CHAINS; i++)
        sum[i] = vf_zero();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PEAK_CHAINS; i++) {
            PEAK_OPAQUE(a);
            sum[i] = vf_fma(a, b, sum[i]);
        }
    for (int i = 1; i < PEAK_CHAINS; i++)
        sum[0] = vf_add(sum[0], sum[i]);
    *out = vf_sum(sum[0]);
    return (uint64_t)rounds * PEAK_CHAINS * VF_LANES;
}

uint64_t K3_KERNEL(peak_int8)(float *out, int64_t rounds)
{
    vi sum[PEAK_CHAINS], u = vi_set8(5), x = vi_set32(0x0403fe01);
    for (int i = 0; i < PEAK_CHAINS; i++)
        sum[i] = vi_zero();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PEAK_CHAINS; i++) {
            PEAK_OPAQUE(u);
            vi s = vi_dot(sum[i], u, x);
            PEAK_OPAQUE(s);
            sum[i] = s;
        }
    for (int i = 1; i < PEAK_CHAINS; i++)
        sum[0] = vi_add32(sum[0], sum[i]);
    *out = vf_sum(vi_to_float(sum[0]));
    return (uint64_t)rounds * PEAK_CHAINS * sizeof(vi);
}
