/* Atomics on int and uint. They order nothing but themselves, as Metal's do. */
namespace metal
{
enum memory_order { memory_order_relaxed };

#define MSL_ATOMIC(NAME)                                                                                                                   \
    template <typename P, typename V> MSL_FN auto atomic_##NAME##_explicit(P at, V x, memory_order)                                        \
    {                                                                                                                                      \
        return __opencl_atomic_##NAME(at, x, __ATOMIC_RELAXED, 1);                                                                         \
    }
MSL_ATOMIC(fetch_add)
MSL_ATOMIC(fetch_sub)
MSL_ATOMIC(fetch_and)
MSL_ATOMIC(fetch_or)
MSL_ATOMIC(fetch_xor)
MSL_ATOMIC(fetch_min)
MSL_ATOMIC(fetch_max)
MSL_ATOMIC(exchange)

template <typename P> MSL_FN auto atomic_load_explicit(P at, memory_order)
{
    return __opencl_atomic_load(at, __ATOMIC_RELAXED, 1);
}
template <typename P, typename V> MSL_FN void atomic_store_explicit(P at, V x, memory_order)
{
    __opencl_atomic_store(at, x, __ATOMIC_RELAXED, 1);
}
template <typename P, typename V> MSL_FN bool atomic_compare_exchange_weak_explicit(P at, thread V *seen, V x, memory_order, memory_order)
{
    return __opencl_atomic_compare_exchange_weak(at, seen, x, __ATOMIC_RELAXED, __ATOMIC_RELAXED, 1);
}
} // namespace metal
