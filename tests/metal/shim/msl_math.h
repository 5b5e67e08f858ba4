/* Mathematics, relations, bits, and dot products, for scalars and element by element for vectors. */
namespace metal
{
/* Calls the overload for scalars on each element. */
#define MSL_EACH1(NAME)                                                                                                                    \
    template <typename T, int n> MSL_FN vec<T, n> NAME(vec<T, n> x)                                                                        \
    {                                                                                                                                      \
        vec<T, n> y;                                                                                                                       \
        for (int i = 0; i < n; i++)                                                                                                        \
            y[i] = NAME((T)x[i]);                                                                                                          \
        return y;                                                                                                                          \
    }
#define MSL_EACH2(NAME)                                                                                                                    \
    template <typename T, int n> MSL_FN vec<T, n> NAME(vec<T, n> x, vec<T, n> y)                                                           \
    {                                                                                                                                      \
        vec<T, n> z;                                                                                                                       \
        for (int i = 0; i < n; i++)                                                                                                        \
            z[i] = NAME((T)x[i], (T)y[i]);                                                                                                 \
        return z;                                                                                                                          \
    }
#define MSL_EACH3(NAME)                                                                                                                    \
    template <typename T, int n> MSL_FN vec<T, n> NAME(vec<T, n> x, vec<T, n> y, vec<T, n> z)                                              \
    {                                                                                                                                      \
        vec<T, n> w;                                                                                                                       \
        for (int i = 0; i < n; i++)                                                                                                        \
            w[i] = NAME((T)x[i], (T)y[i], (T)z[i]);                                                                                        \
        return w;                                                                                                                          \
    }

#define MSL_FLOAT1(NAME, EXPRESSION)                                                                                                       \
    MSL_FN float NAME(float x)                                                                                                             \
    {                                                                                                                                      \
        return EXPRESSION;                                                                                                                 \
    }                                                                                                                                      \
    MSL_FN half NAME(half h)                                                                                                               \
    {                                                                                                                                      \
        float x = h;                                                                                                                       \
        return (half)(EXPRESSION);                                                                                                         \
    }                                                                                                                                      \
    MSL_EACH1(NAME)
#define MSL_FLOAT2(NAME, EXPRESSION)                                                                                                       \
    MSL_FN float NAME(float x, float y)                                                                                                    \
    {                                                                                                                                      \
        return EXPRESSION;                                                                                                                 \
    }                                                                                                                                      \
    MSL_FN half NAME(half a, half b)                                                                                                       \
    {                                                                                                                                      \
        float x = a, y = b;                                                                                                                \
        return (half)(EXPRESSION);                                                                                                         \
    }                                                                                                                                      \
    MSL_EACH2(NAME)
#define MSL_FLOAT3(NAME, EXPRESSION)                                                                                                       \
    MSL_FN float NAME(float x, float y, float z)                                                                                           \
    {                                                                                                                                      \
        return EXPRESSION;                                                                                                                 \
    }                                                                                                                                      \
    MSL_FN half NAME(half a, half b, half c)                                                                                               \
    {                                                                                                                                      \
        float x = a, y = b, z = c;                                                                                                         \
        return (half)(EXPRESSION);                                                                                                         \
    }                                                                                                                                      \
    MSL_EACH3(NAME)

#define MSL_INTEGER_TYPES(DEFINE)                                                                                                          \
    DEFINE(char) DEFINE(uchar) DEFINE(short) DEFINE(ushort) DEFINE(int) DEFINE(uint) DEFINE(long) DEFINE(ulong)

/* What Metal has in fast and precise forms, too; here all are the same. */
#define MSL_FLOATS                                                                                                                         \
    MSL_FLOAT1(acos, __builtin_acosf(x))                                                                                                   \
    MSL_FLOAT1(asin, __builtin_asinf(x))                                                                                                   \
    MSL_FLOAT1(atan, __builtin_atanf(x))                                                                                                   \
    MSL_FLOAT1(ceil, __builtin_ceilf(x))                                                                                                   \
    MSL_FLOAT1(cos, __builtin_cosf(x))                                                                                                     \
    MSL_FLOAT1(cosh, __builtin_coshf(x))                                                                                                   \
    MSL_FLOAT1(exp, __builtin_expf(x))                                                                                                     \
    MSL_FLOAT1(exp2, __builtin_exp2f(x))                                                                                                   \
    MSL_FLOAT1(exp10, __builtin_powf(10.0f, x))                                                                                            \
    MSL_FLOAT1(fabs, __builtin_fabsf(x))                                                                                                   \
    MSL_FLOAT1(abs, __builtin_fabsf(x))                                                                                                    \
    MSL_FLOAT1(floor, __builtin_floorf(x))                                                                                                 \
    MSL_FLOAT1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))                                                            \
    MSL_FLOAT1(log, __builtin_logf(x))                                                                                                     \
    MSL_FLOAT1(log2, __builtin_log2f(x))                                                                                                   \
    MSL_FLOAT1(log10, __builtin_log10f(x))                                                                                                 \
    MSL_FLOAT1(rint, __builtin_rintf(x))                                                                                                   \
    MSL_FLOAT1(round, __builtin_roundf(x))                                                                                                 \
    MSL_FLOAT1(rsqrt, 1.0f / __builtin_sqrtf(x))                                                                                           \
    MSL_FLOAT1(saturate, __builtin_fminf(__builtin_fmaxf(x, 0.0f), 1.0f))                                                                  \
    MSL_FLOAT1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x == 0.0f ? x : 0.0f)                                                            \
    MSL_FLOAT1(sin, __builtin_sinf(x))                                                                                                     \
    MSL_FLOAT1(sinh, __builtin_sinhf(x))                                                                                                   \
    MSL_FLOAT1(sqrt, __builtin_sqrtf(x))                                                                                                   \
    MSL_FLOAT1(tan, __builtin_tanf(x))                                                                                                     \
    MSL_FLOAT1(tanh, __builtin_tanhf(x))                                                                                                   \
    MSL_FLOAT1(trunc, __builtin_truncf(x))                                                                                                 \
    MSL_FLOAT2(atan2, __builtin_atan2f(x, y))                                                                                              \
    MSL_FLOAT2(copysign, __builtin_copysignf(x, y))                                                                                        \
    MSL_FLOAT2(fmax, __builtin_fmaxf(x, y))                                                                                                \
    MSL_FLOAT2(fmin, __builtin_fminf(x, y))                                                                                                \
    MSL_FLOAT2(fmod, __builtin_fmodf(x, y))                                                                                                \
    MSL_FLOAT2(max, __builtin_fmaxf(x, y))                                                                                                 \
    MSL_FLOAT2(min, __builtin_fminf(x, y))                                                                                                 \
    MSL_FLOAT2(pow, __builtin_powf(x, y))                                                                                                  \
    MSL_FLOAT2(powr, __builtin_powf(x, y))                                                                                                 \
    MSL_FLOAT2(step, y < x ? 0.0f : 1.0f)                                                                                                  \
    MSL_FLOAT3(clamp, __builtin_fminf(__builtin_fmaxf(x, y), z))                                                                           \
    MSL_FLOAT3(mix, x + (y - x) * z)                                                                                                       \
    MSL_FLOAT3(fma, __builtin_fmaf(x, y, z))

namespace fast
{
MSL_FLOATS
}
namespace precise
{
MSL_FLOATS
}
MSL_FLOATS

MSL_FN float ldexp(float x, int n)
{
    return __builtin_ldexpf(x, n);
}

#define MSL_INTEGER(T)                                                                                                                     \
    MSL_FN T abs(T x)                                                                                                                      \
    {                                                                                                                                      \
        return x < (T)0 ? (T)-x : x;                                                                                                       \
    }                                                                                                                                      \
    MSL_FN T max(T x, T y)                                                                                                                 \
    {                                                                                                                                      \
        return x < y ? y : x;                                                                                                              \
    }                                                                                                                                      \
    MSL_FN T min(T x, T y)                                                                                                                 \
    {                                                                                                                                      \
        return y < x ? y : x;                                                                                                              \
    }                                                                                                                                      \
    MSL_FN T clamp(T x, T low, T high)                                                                                                     \
    {                                                                                                                                      \
        return min(max(x, low), high);                                                                                                     \
    }                                                                                                                                      \
    MSL_FN T popcount(T x)                                                                                                                 \
    {                                                                                                                                      \
        return (T)__builtin_popcountl((ulong)x & (~0ul >> (64 - 8 * sizeof(T))));                                                          \
    }                                                                                                                                      \
    MSL_FN T clz(T x)                                                                                                                      \
    {                                                                                                                                      \
        return x == 0 ? (T)(8 * sizeof(T)) : (T)__builtin_clzl((ulong)x << (64 - 8 * sizeof(T)));                                          \
    }                                                                                                                                      \
    MSL_FN T ctz(T x)                                                                                                                      \
    {                                                                                                                                      \
        return x == 0 ? (T)(8 * sizeof(T)) : (T)__builtin_ctzl((ulong)x);                                                                  \
    }                                                                                                                                      \
    MSL_FN T reverse_bits(T x)                                                                                                             \
    {                                                                                                                                      \
        return (T)(__builtin_bitreverse64((ulong)x) >> (64 - 8 * sizeof(T)));                                                              \
    }                                                                                                                                      \
    MSL_FN T extract_bits(T x, uint offset, uint bits)                                                                                     \
    {                                                                                                                                      \
        uint above = 8 * sizeof(T) - bits;                                                                                                 \
        return bits == 0 ? (T)0 : (T)((T)(x << (above - offset)) >> above);                                                                \
    }                                                                                                                                      \
    MSL_FN T insert_bits(T base, T insert, uint offset, uint bits)                                                                         \
    {                                                                                                                                      \
        ulong mask = bits == 0 ? 0ul : ~0ul >> (64 - bits) << offset;                                                                      \
        return (T)(((ulong)base & ~mask) | (((ulong)insert << offset) & mask));                                                            \
    }
MSL_INTEGER_TYPES(MSL_INTEGER)
MSL_EACH1(popcount)
MSL_EACH1(clz)
MSL_EACH1(ctz)
MSL_EACH1(reverse_bits)

template <typename T, int n> MSL_FN vec<T, n> extract_bits(vec<T, n> x, uint offset, uint bits)
{
    for (int i = 0; i < n; i++)
        x[i] = extract_bits((T)x[i], offset, bits);
    return x;
}

MSL_FN uint rotate(uint x, uint by)
{
    return x << (by & 31u) | x >> (-by & 31u);
}
MSL_FN uint mulhi(uint x, uint y)
{
    return (uint)((ulong)x * y >> 32);
}
MSL_FN int mulhi(int x, int y)
{
    return (int)((long)x * y >> 32);
}

/* Scalars beside a vector stand for all of its elements. */
template <typename T, int n> MSL_FN vec<T, n> clamp(vec<T, n> x, T low, T high)
{
    return clamp(x, (vec<T, n>)(low), (vec<T, n>)(high));
}
template <typename T, int n> MSL_FN vec<T, n> max(vec<T, n> x, T y)
{
    return max(x, (vec<T, n>)(y));
}
template <typename T, int n> MSL_FN vec<T, n> min(vec<T, n> x, T y)
{
    return min(x, (vec<T, n>)(y));
}
template <typename T, int n> MSL_FN vec<T, n> mix(vec<T, n> x, vec<T, n> y, T by)
{
    return mix(x, y, (vec<T, n>)(by));
}

MSL_FN bool isnan(float x)
{
    return x != x;
}
MSL_FN bool isinf(float x)
{
    return __builtin_fabsf(x) == __builtin_inff();
}
MSL_FN bool isfinite(float x)
{
    return __builtin_fabsf(x) < __builtin_inff();
}
MSL_FN bool signbit(float x)
{
    return as_type<uint>(x) >> 31;
}
template <int n> MSL_FN vec<int, n> isnan(vec<float, n> x)
{
    return x != x;
}

MSL_FN bool any(bool x)
{
    return x;
}
MSL_FN bool all(bool x)
{
    return x;
}
template <typename T, int n> MSL_FN bool any(vec<T, n> x)
{
    bool is = false;
    for (int i = 0; i < n; i++)
        is = is || x[i] != 0;
    return is;
}
template <typename T, int n> MSL_FN bool all(vec<T, n> x)
{
    bool are = true;
    for (int i = 0; i < n; i++)
        are = are && x[i] != 0;
    return are;
}

template <typename T> MSL_FN T select(T no, T yes, bool which)
{
    return which ? yes : no;
}
template <typename T, typename B, int n> MSL_FN vec<T, n> select(vec<T, n> no, vec<T, n> yes, vec<B, n> which)
{
    for (int i = 0; i < n; i++)
        no[i] = which[i] != 0 ? yes[i] : no[i];
    return no;
}

template <typename T, int n> MSL_FN T dot(vec<T, n> x, vec<T, n> y)
{
    T sum = x[0] * y[0];
    for (int i = 1; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}
template <typename T, int n> MSL_FN T length_squared(vec<T, n> x)
{
    return dot(x, x);
}
template <typename T, int n> MSL_FN T length(vec<T, n> x)
{
    return sqrt(dot(x, x));
}
template <typename T, int n> MSL_FN T distance(vec<T, n> x, vec<T, n> y)
{
    return length(x - y);
}
template <typename T, int n> MSL_FN vec<T, n> normalize(vec<T, n> x)
{
    return x / length(x);
}
} // namespace metal

#undef INFINITY
#define INFINITY __builtin_inff()
#undef NAN
#define NAN __builtin_nanf("")
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1p-126f
#define FLT_EPSILON 0x1p-23f
#define HALF_MAX 65504.0h
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
