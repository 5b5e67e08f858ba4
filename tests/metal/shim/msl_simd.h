/* Operations over the lanes of a simdgroup that are there. */
namespace metal
{
/* 64-bit elements are not exchanged by Metal. */
template <typename T> MSL_FN T *msl_value(msl_seat seat, uint lane, uint word = 0)
{
    static_assert(sizeof(typename msl_type<T>::element) <= 4 && sizeof(T) <= 16, "a type that simdgroups do not exchange");
    return (T *)&seat.slots[lane].words[word];
}

#define MSL_FOR_LANES(l, lanes) for (ulong left = lanes, l = 0; left != 0 && (l = __builtin_ctzl(left), true); left &= left - 1)

/* x: what is gathered so far; y: what the next lane gives. Lanes gather with those of their `team` only: 4 lanes or all. */
#define MSL_REDUCE(NAME, TEAM, EXPRESSION)                                                                                                 \
    template <typename T> MSL_MEETING T NAME(T given)                                                                                      \
    {                                                                                                                                      \
        msl_seat seat = msl_sit();                                                                                                         \
        *msl_value<T>(seat, seat.lane) = given;                                                                                            \
        if (ulong all = msl_meet(MSL_SITE, false)) {                                                                                       \
            for (uint first = 0; first < seat.width; first += TEAM) {                                                                      \
                ulong lanes = all & (~0ul >> (64 - TEAM) << first);                                                                        \
                if (lanes == 0)                                                                                                            \
                    continue;                                                                                                              \
                ulong others = lanes & (lanes - 1);                                                                                        \
                T x = *msl_value<T>(seat, __builtin_ctzl(lanes));                                                                          \
                MSL_FOR_LANES(l, others)                                                                                                   \
                {                                                                                                                          \
                    T y = *msl_value<T>(seat, l);                                                                                          \
                    x = EXPRESSION;                                                                                                        \
                }                                                                                                                          \
                MSL_FOR_LANES(l, lanes)                                                                                                    \
                {                                                                                                                          \
                    *msl_value<T>(seat, l) = x;                                                                                            \
                }                                                                                                                          \
            }                                                                                                                              \
            msl_part();                                                                                                                    \
        }                                                                                                                                  \
        return *msl_value<T>(seat, seat.lane);                                                                                             \
    }
#define MSL_REDUCTION(NAME, EXPRESSION)                                                                                                    \
    MSL_REDUCE(simd_##NAME, 64, EXPRESSION)                                                                                                \
    MSL_REDUCE(quad_##NAME, 4, EXPRESSION)
MSL_REDUCTION(sum, x + y)
MSL_REDUCTION(product, x *y)
MSL_REDUCTION(max, max(x, y))
MSL_REDUCTION(min, min(x, y))
MSL_REDUCTION(and, x &y)
MSL_REDUCTION(or, x | y)
MSL_REDUCTION(xor, x ^ y)

#define MSL_PREFIX(NAME, FIRST, EXPRESSION, INCLUSIVE)                                                                                     \
    template <typename T> MSL_MEETING T NAME(T given)                                                                                      \
    {                                                                                                                                      \
        msl_seat seat = msl_sit();                                                                                                         \
        *msl_value<T>(seat, seat.lane) = given;                                                                                            \
        if (ulong all = msl_meet(MSL_SITE, false)) {                                                                                       \
            T x = (T)(FIRST);                                                                                                              \
            MSL_FOR_LANES(l, all)                                                                                                          \
            {                                                                                                                              \
                T y = *msl_value<T>(seat, l), next = EXPRESSION;                                                                           \
                *msl_value<T>(seat, l) = INCLUSIVE ? next : x;                                                                             \
                x = next;                                                                                                                  \
            }                                                                                                                              \
            msl_part();                                                                                                                    \
        }                                                                                                                                  \
        return *msl_value<T>(seat, seat.lane);                                                                                             \
    }
MSL_PREFIX(simd_prefix_exclusive_sum, 0, x + y, false)
MSL_PREFIX(simd_prefix_inclusive_sum, 0, x + y, true)
MSL_PREFIX(simd_prefix_exclusive_product, 1, x *y, false)
MSL_PREFIX(simd_prefix_inclusive_product, 1, x *y, true)

/* The value of lane `from`; all ones, which no kernel may depend on, when that lane is not there. Each lane's wish lies behind its value
 * (word 2), what it gets behind that (word 4). */
template <typename T> MSL_FN T msl_fetch(void *site, msl_seat seat, T given, uint from)
{
    *msl_value<T>(seat, seat.lane) = given;
    *msl_value<uint>(seat, seat.lane, 2) = from;
    if (ulong all = msl_meet(site, false)) {
        MSL_FOR_LANES(l, all)
        {
            uint wish = *msl_value<uint>(seat, l, 2);
            if (wish < seat.width && (all >> wish & 1) != 0)
                *msl_value<T>(seat, l, 4) = *msl_value<T>(seat, wish);
            else
                seat.slots[l].words[4] = seat.slots[l].words[5] = ~0ul;
        }
        msl_part();
    }
    return *msl_value<T>(seat, seat.lane, 4);
}

#define MSL_FETCH(NAME, FROM)                                                                                                              \
    template <typename T> MSL_MEETING T NAME(T given, ushort by)                                                                           \
    {                                                                                                                                      \
        msl_seat seat = msl_sit();                                                                                                         \
        return msl_fetch(MSL_SITE, seat, given, FROM);                                                                                     \
    }
MSL_FETCH(simd_shuffle, by)
MSL_FETCH(simd_broadcast, by)
MSL_FETCH(simd_shuffle_xor, seat.lane ^ by)
MSL_FETCH(simd_shuffle_down, seat.lane + by < seat.width ? seat.lane + by : seat.lane)
MSL_FETCH(simd_shuffle_up, seat.lane >= by ? seat.lane - by : seat.lane)
MSL_FETCH(simd_shuffle_rotate_down, (seat.lane + by) % seat.width)
MSL_FETCH(simd_shuffle_rotate_up, (seat.lane + seat.width - by % seat.width) % seat.width)
MSL_FETCH(quad_shuffle, (seat.lane & ~3u) + by)
MSL_FETCH(quad_broadcast, (seat.lane & ~3u) + by)
MSL_FETCH(quad_shuffle_xor, seat.lane ^ (by & 3u))

template <typename T> MSL_MEETING T simd_broadcast_first(T given)
{
    msl_seat seat = msl_sit();
    *msl_value<T>(seat, seat.lane) = given;
    if (ulong all = msl_meet(MSL_SITE, false)) {
        T first = *msl_value<T>(seat, __builtin_ctzl(all));
        MSL_FOR_LANES(l, all)
        {
            *msl_value<T>(seat, l) = first;
        }
        msl_part();
    }
    return *msl_value<T>(seat, seat.lane);
}

/* Masks of the lanes that are there (word 1) and of those that say yes (word 0). */
MSL_FN msl_slot msl_vote(void *site, bool yes)
{
    msl_seat seat = msl_sit();
    seat.slots[seat.lane].words[0] = yes;
    if (ulong all = msl_meet(site, false)) {
        ulong votes = 0;
        MSL_FOR_LANES(l, all)
        {
            votes |= seat.slots[l].words[0] << l;
        }
        MSL_FOR_LANES(l, all)
        {
            seat.slots[l].words[0] = votes;
            seat.slots[l].words[1] = all;
        }
        msl_part();
    }
    return seat.slots[seat.lane];
}

struct simd_vote {
    typedef ulong vote_t;
    vote_t votes, lanes;

    explicit operator vote_t() const
    {
        return votes;
    }
    bool all() const
    {
        return votes == lanes;
    }
    bool any() const
    {
        return votes != 0;
    }
};

MSL_MEETING simd_vote simd_ballot(bool yes)
{
    msl_slot vote = msl_vote(MSL_SITE, yes);
    return simd_vote{vote.words[0], vote.words[1]};
}
MSL_MEETING simd_vote simd_active_threads_mask()
{
    msl_slot vote = msl_vote(MSL_SITE, true);
    return simd_vote{vote.words[0], vote.words[1]};
}
MSL_MEETING bool simd_all(bool yes)
{
    msl_slot vote = msl_vote(MSL_SITE, yes);
    return vote.words[0] == vote.words[1];
}
MSL_MEETING bool simd_any(bool yes)
{
    return msl_vote(MSL_SITE, yes).words[0] != 0;
}
MSL_MEETING bool simd_is_first()
{
    return (uint)__builtin_ctzl(msl_vote(MSL_SITE, true).words[1]) == msl_sit().lane;
}
} // namespace metal
