/* Functions that give no NaN for a finite argument, on devices whose exp and tanh are infinity / infinity at large arguments too. */
#ifndef K3_MATH_GLSL
#define K3_MATH_GLSL

float k3_exp(float x)
{
    return exp(clamp(x, -87.0, 88.0));
}

/* 1 / (1 + e^-x) */
float k3_sigma(float x)
{
    return 1.0 / (1.0 + k3_exp(-x));
}

float k3_silu(float x)
{
    return x * k3_sigma(x);
}

/* Near 0, where 1 - 2 / (e^2x + 1) cancels, an odd polynomial that is within 7e-8 of the value, relative. */
float k3_tanh(float x)
{
    float a = abs(x), z = a < 0.6 ? x * x : 0.0;
    float p = 0.021110959351062775 - z * 0.006269119679927826;
    p = -0.3333333134651184 + z * (0.13332915306091309 + z * (-0.053873948752880096 + z * p));
    float far = 1.0 - 2.0 / (exp(2.0 * min(a, 16.0)) + 1.0);
    return a < 0.6 ? x + x * z * p : x < 0.0 ? -far : far;
}

/* SiTU (specification 3.6): b1 tanh(g / b1) sigma(g) b2 tanh(u / b2). b2 = 0 stands for a u without a cap. */
float k3_situ(float g, float u, float b1, float b2)
{
    float up = b2 == 0.0 ? u : b2 * k3_tanh(u / b2);
    return b1 * k3_tanh(g / b1) * k3_sigma(g) * up;
}

#endif
