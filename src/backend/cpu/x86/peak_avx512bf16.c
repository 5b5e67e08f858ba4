#include "backend/cpu/x86/vec_avx512.h"

#include "backend/cpu/peak.h"

enum { PEAK_CHAINS = 16 };

uint64_t k3_peak_bf16_avx512bf16(float *out, int64_t rounds)
{
    vf sum[PEAK_CHAINS];
    __m512bh a = _mm512_cvtne2ps_pbh(vf_set(0.5f), vf_set(0.5f)), b = _mm512_cvtne2ps_pbh(vf_set(0.25f), vf_set(0.25f));
    for (int i = 0; i < PEAK_CHAINS; i++)
        sum[i] = vf_zero();
    for (int64_t r = 0; r < rounds; r++)
        for (int i = 0; i < PEAK_CHAINS; i++) {
            PEAK_OPAQUE(a);
            vf s = _mm512_dpbf16_ps(sum[i], a, b);
            PEAK_OPAQUE(s);
            sum[i] = s;
        }
    for (int i = 1; i < PEAK_CHAINS; i++)
        sum[0] = vf_add(sum[0], sum[i]);
    *out = vf_sum(sum[0]);
    return (uint64_t)rounds * PEAK_CHAINS * 2 * VF_LANES;
}
