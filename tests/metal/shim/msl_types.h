/* Address spaces, scalars, vectors and their constructors, function constants. */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define device __global
#define threadgroup __local
#define thread __private

/* `constant uint x [[function_constant(3)]];` becomes an initialised constant: the attribute closes early, and the `]]` of the text closes
 * two subscripts that are zero. The cast through a pointer keeps the value from being a constant expression, so that it cannot size an
 * array, while it still folds. MSL_FC_3 comes from the command line; it is an undeclared name when the host forgot it. */
#define function_constant(n) maybe_unused]] = (uint)(ulong)(__constant char *)(ulong)(MSL_FC_##n) + !"x"["\0"[0
#define is_function_constant_defined(x) ((void)(x), true)

/* The generator's way out when a constant sizes an array: a macro that the host cannot set. */
#pragma GCC poison SPIRV_CROSS_CONSTANT_ID_0 SPIRV_CROSS_CONSTANT_ID_1 SPIRV_CROSS_CONSTANT_ID_2 SPIRV_CROSS_CONSTANT_ID_3
#pragma GCC poison SPIRV_CROSS_CONSTANT_ID_4 SPIRV_CROSS_CONSTANT_ID_5 SPIRV_CROSS_CONSTANT_ID_6 SPIRV_CROSS_CONSTANT_ID_7
#pragma GCC poison SPIRV_CROSS_CONSTANT_ID_8 SPIRV_CROSS_CONSTANT_ID_9 SPIRV_CROSS_CONSTANT_ID_10 SPIRV_CROSS_CONSTANT_ID_11

#define MSL_FN static inline __attribute__((always_inline))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef ulong uintptr_t;

namespace metal
{
template <typename T, int n> using vec = T __attribute__((ext_vector_type(n)));

template <typename T> struct msl_type {
    typedef T element;
    static constexpr int n = 1;
};
template <typename T, int N> struct msl_type<vec<T, N>> {
    typedef T element;
    static constexpr int n = N;
};

template <typename T, typename U> struct msl_same {
    static constexpr bool value = false;
};
template <typename T> struct msl_same<T, T> {
    static constexpr bool value = true;
};

/* V() is zero, V(scalar) is that in each element, V(vector) converts each element. */
template <typename V> MSL_FN constexpr V msl_vector()
{
    return (V)(0);
}
template <typename V, typename S> MSL_FN constexpr V msl_vector(S x)
{
    if constexpr (msl_type<S>::n == 1)
        return (V)((typename msl_type<V>::element)x);
    else if constexpr (msl_same<V, S>::value)
        return x;
    else
        return __builtin_convertvector(x, V);
}

/* A vector of booleans is what comparisons of 32-bit vectors give: 0 or -1 in each element. */
template <typename V, typename S> MSL_FN constexpr V msl_bool_vector(S x)
{
    if constexpr (msl_type<S>::n == 1)
        return (V)(x ? -1 : 0);
    else
        return __builtin_convertvector(x != (S)(0), V);
}

template <typename To, typename From> MSL_FN To as_type(From x)
{
    return __builtin_astype(x, To);
}

/* Three elements without padding. */
template <typename T> struct msl_packed3 {
    T x, y, z;

    msl_packed3() = default;
    msl_packed3(vec<T, 3> v) : x(v.x), y(v.y), z(v.z)
    {
    }
    operator vec<T, 3>() const
    {
        return (vec<T, 3>)(x, y, z);
    }
    operator vec<T, 3>() const constant
    {
        return (vec<T, 3>)(x, y, z);
    }
    T operator[](size_t i) const
    {
        return i == 0 ? x : i == 1 ? y : z;
    }
    T operator[](size_t i) const constant
    {
        return i == 0 ? x : i == 1 ? y : z;
    }
};
} // namespace metal

#define MSL_VECTORS(T, NAME)                                                                                                               \
    typedef metal::vec<T, 2> NAME##2;                                                                                                      \
    typedef metal::vec<T, 3> NAME##3;                                                                                                      \
    typedef metal::vec<T, 4> NAME##4;                                                                                                      \
    typedef metal::msl_packed3<T> packed_##NAME##3;                                                                                        \
    typedef T packed_##NAME##2 __attribute__((ext_vector_type(2), aligned(sizeof(T))));                                                    \
    typedef T packed_##NAME##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
MSL_VECTORS(char, char)
MSL_VECTORS(uchar, uchar)
MSL_VECTORS(short, short)
MSL_VECTORS(ushort, ushort)
MSL_VECTORS(int, int)
MSL_VECTORS(uint, uint)
MSL_VECTORS(long, long)
MSL_VECTORS(ulong, ulong)
MSL_VECTORS(half, half)
MSL_VECTORS(float, float)
typedef metal::vec<int, 2> bool2;
typedef metal::vec<int, 3> bool3;
typedef metal::vec<int, 4> bool4;

/* Constructors are macros of the same name, so that the name alone stays the type. Several parts make OpenCL's vector literal. */
#define MSL_NOTHING
#define MSL_PART_COUNT(a, b, c, d, COUNT, ...) COUNT
#define MSL_PARTS(...) MSL_PART_COUNT(__VA_ARGS__, MANY, MANY, MANY, ONE, 0)
#define MSL_CONSTRUCT_ONE(V, x) metal::msl_vector<V>(x)
#define MSL_CONSTRUCT_MANY(V, ...) ((V)(__VA_ARGS__))
#define MSL_JOIN(a, b) a##b
#define MSL_CONSTRUCT(PARTS, V, ...) MSL_JOIN(MSL_CONSTRUCT_, PARTS)(V, __VA_ARGS__)
#define char2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), char2, __VA_ARGS__)
#define char3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), char3, __VA_ARGS__)
#define char4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), char4, __VA_ARGS__)
#define uchar2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uchar2, __VA_ARGS__)
#define uchar3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uchar3, __VA_ARGS__)
#define uchar4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uchar4, __VA_ARGS__)
#define short2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), short2, __VA_ARGS__)
#define short3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), short3, __VA_ARGS__)
#define short4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), short4, __VA_ARGS__)
#define ushort2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ushort2, __VA_ARGS__)
#define ushort3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ushort3, __VA_ARGS__)
#define ushort4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ushort4, __VA_ARGS__)
#define int2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), int2, __VA_ARGS__)
#define int3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), int3, __VA_ARGS__)
#define int4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), int4, __VA_ARGS__)
#define uint2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uint2, __VA_ARGS__)
#define uint3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uint3, __VA_ARGS__)
#define uint4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), uint4, __VA_ARGS__)
#define long2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), long2, __VA_ARGS__)
#define long3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), long3, __VA_ARGS__)
#define long4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), long4, __VA_ARGS__)
#define ulong2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ulong2, __VA_ARGS__)
#define ulong3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ulong3, __VA_ARGS__)
#define ulong4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), ulong4, __VA_ARGS__)
#define half2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), half2, __VA_ARGS__)
#define half3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), half3, __VA_ARGS__)
#define half4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), half4, __VA_ARGS__)
#define float2(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), float2, __VA_ARGS__)
#define float3(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), float3, __VA_ARGS__)
#define float4(...) MSL_CONSTRUCT(MSL_PARTS(__VA_ARGS__), float4, __VA_ARGS__)
#define MSL_CONSTRUCT_BOOL_ONE(V, x) metal::msl_bool_vector<V>(x)
#define MSL_CONSTRUCT_BOOL_MANY(V, ...) metal::msl_bool_vector<V>((V)(__VA_ARGS__))
#define MSL_CONSTRUCT_BOOL(PARTS, V, ...) MSL_JOIN(MSL_CONSTRUCT_BOOL_, PARTS)(V, __VA_ARGS__)
#define bool2(...) MSL_CONSTRUCT_BOOL(MSL_PARTS(__VA_ARGS__), bool2, __VA_ARGS__)
#define bool3(...) MSL_CONSTRUCT_BOOL(MSL_PARTS(__VA_ARGS__), bool3, __VA_ARGS__)
#define bool4(...) MSL_CONSTRUCT_BOOL(MSL_PARTS(__VA_ARGS__), bool4, __VA_ARGS__)
