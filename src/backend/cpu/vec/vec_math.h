/* exp, sigmoid and tanh on vectors; include after a vec header. A lane's result depends on its own input only. Largest error
 * seen by tests/backend/test_vec_math.c against the C library in double: exp 1 ulp, sigmoid 3 ulp, tanh 4 ulp (subnormal results: one unit
 * of 2^-149). NaN stays NaN. */
#ifndef K3_BACKEND_CPU_VEC_VEC_MATH_H
#define K3_BACKEND_CPU_VEC_VEC_MATH_H

/* Splits x = n ln2 + r with |r| <= ln2 / 2 and returns exp(r) - 1, the Taylor series to r^7 (the next term is below 2^-27). ln2 comes as
 * the nearest float and the rest. */
static inline vf vf_reduced_expm1(vf x, vf *n)
{
    *n = vf_round(vf_mul(x, vf_set(0x1.715476p+0f)));
    vf r = vf_fnma(*n, vf_set(0x1.62e43p-1f), x);
    r = vf_fnma(*n, vf_set(-0x1.05c61p-29f), r);
    vf p = vf_fma(r, vf_set(1.0f / 5040), vf_set(1.0f / 720));
    p = vf_fma(r, p, vf_set(1.0f / 120));
    p = vf_fma(r, p, vf_set(1.0f / 24));
    p = vf_fma(r, p, vf_set(1.0f / 6));
    p = vf_fma(r, p, vf_set(0.5f));
    return vf_fma(vf_mul(r, r), p, r);
}

/* Below -104 the result is 0, above 89 infinity; the constants come first in min and max so that a NaN passes. */
static inline vf vf_exp(vf x)
{
    vf n, q;
    x = vf_min(vf_set(89.0f), vf_max(vf_set(-104.0f), x));
    q = vf_reduced_expm1(x, &n);
    return vf_scale2(vf_add(vf_set(1.0f), q), n);
}

/* By exp of -|x|, which cannot overflow and keeps the relative error small on both sides. */
static inline vf vf_sigmoid(vf x)
{
    vf e = vf_exp(vf_sub(vf_zero(), vf_abs(x)));
    vf s = vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), e));
    return vf_if_negative(x, vf_mul(e, s), s);
}

/* m / (m + 2) with m = exp(2|x|) - 1 = 2^n q + (2^n - 1): exact in relation also where x is small. From 10 on it is 1. */
static inline vf vf_tanh(vf x)
{
    vf n, q, two_n, m;
    vf magnitude = vf_min(vf_set(10.0f), vf_abs(x));
    q = vf_reduced_expm1(vf_add(magnitude, magnitude), &n);
    two_n = vf_scale2(vf_set(1.0f), n);
    m = vf_fma(two_n, q, vf_sub(two_n, vf_set(1.0f)));
    return vf_with_sign(vf_div(m, vf_add(m, vf_set(2.0f))), x);
}

#endif
