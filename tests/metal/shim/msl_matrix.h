/* Matrices of 8 x 8 that a simdgroup holds together: lane l of w has elements l * 64 / w and those that follow, by rows. Which lane has
 * what is no kernel's business. */
namespace metal
{
template <typename T, int columns, int rows = columns> struct simdgroup_matrix {
    static_assert(columns == 8 && rows == 8, "simdgroup matrices are 8 x 8");
    T msl_own[8];

    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T x)
    {
        for (int i = 0; i < 8; i++)
            msl_own[i] = x;
    }
};
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;

template <typename T, int columns, int rows = columns> MSL_FN simdgroup_matrix<T, columns, rows> make_filled_simdgroup_matrix(T x)
{
    return simdgroup_matrix<T, columns, rows>(x);
}

/* Every lane has to come: a matrix operation that part of a simdgroup executes is an error. */
MSL_FN msl_seat msl_whole(void *site)
{
    if (msl_meet(site, true) != 0)
        msl_part();
    return msl_sit();
}

MSL_MEETING msl_seat msl_whole_site()
{
    return msl_whole(MSL_SITE);
}

/* Element (row, column) of a matrix of `stride` elements a row, or (column, row) of it. */
MSL_FN ulong msl_element(uint i, ulong stride, vec<ulong, 2> origin, bool transpose)
{
    ulong row = i / 8, column = i % 8;
    return transpose ? (origin.x + column) * stride + origin.y + row : (origin.y + row) * stride + origin.x + column;
}

#define MSL_MATRIX_MEMORY(SPACE)                                                                                                           \
    template <typename T>                                                                                                                  \
    MSL_FN void simdgroup_load(thread simdgroup_matrix<T, 8, 8> &to, const SPACE T *from, ulong stride = 8, vec<ulong, 2> origin = 0,      \
                               bool transpose = false)                                                                                     \
    {                                                                                                                                      \
        msl_seat seat = msl_whole_site();                                                                                                  \
        uint n = 64 / seat.width;                                                                                                          \
        for (uint i = 0; i < n; i++)                                                                                                       \
            to.msl_own[i] = from[msl_element(seat.lane * n + i, stride, origin, transpose)];                                               \
    }                                                                                                                                      \
    template <typename T>                                                                                                                  \
    MSL_FN void simdgroup_store(simdgroup_matrix<T, 8, 8> from, SPACE T *to, ulong stride = 8, vec<ulong, 2> origin = 0,                   \
                                bool transpose = false)                                                                                    \
    {                                                                                                                                      \
        msl_seat seat = msl_whole_site();                                                                                                  \
        uint n = 64 / seat.width;                                                                                                          \
        for (uint i = 0; i < n; i++)                                                                                                       \
            to[msl_element(seat.lane * n + i, stride, origin, transpose)] = from.msl_own[i];                                               \
    }
MSL_MATRIX_MEMORY(device)
MSL_MATRIX_MEMORY(threadgroup)

/* One lane computes d = a b + c for all, from and into the places that each lane names. */
template <typename D, typename A, typename B, typename C>
MSL_MEETING void msl_multiply(thread D *d, const thread A *a, const thread B *b, const thread C *c)
{
    msl_seat seat = msl_sit();
    thread ulong *own = (thread ulong *)seat.slots[seat.lane].words;
    own[0] = (ulong)d, own[1] = (ulong)a, own[2] = (ulong)b, own[3] = (ulong)c;
    if (msl_meet(MSL_SITE, true) == 0)
        return;
    float x[64], y[64], z[64];
    uint n = 64 / seat.width;
    for (uint i = 0; i < 64; i++) {
        msl_slot *at = &seat.slots[i / n];
        x[i] = ((const thread A *)at->words[1])[i % n];
        y[i] = ((const thread B *)at->words[2])[i % n];
        z[i] = ((const thread C *)at->words[3])[i % n];
    }
    for (uint row = 0; row < 8; row++)
        for (uint k = 0; k < 8; k++)
            for (uint column = 0; column < 8; column++)
                z[8 * row + column] = __builtin_fmaf(x[8 * row + k], y[8 * k + column], z[8 * row + column]);
    for (uint i = 0; i < 64; i++)
        ((thread D *)seat.slots[i / n].words[0])[i % n] = (D)z[i];
    msl_part();
}

template <typename D, typename A, typename B, typename C>
MSL_FN void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                          simdgroup_matrix<C, 8, 8> c)
{
    msl_multiply(d.msl_own, a.msl_own, b.msl_own, c.msl_own);
}

template <typename D, typename A, typename B>
MSL_FN void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8> &d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b)
{
    simdgroup_matrix<D, 8, 8> zero(0);
    msl_multiply(d.msl_own, a.msl_own, b.msl_own, zero.msl_own);
}
} // namespace metal
