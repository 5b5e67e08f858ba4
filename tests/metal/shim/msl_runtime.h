/* What the executor gives to kernels (msl_fibers.c), and barriers. */
struct msl_group_ids {
    uint groups[3], threads[3], group[3], width, simdgroups;
};

struct msl_thread_ids {
    uint position[3], index, lane, simdgroup;
};

/* Where a lane lays down what it gives to a simdgroup operation and finds what it gets. */
struct msl_slot {
    ulong words[8] __attribute__((aligned(16)));
};

struct msl_seat {
    msl_slot *slots; /* of all lanes of the simdgroup */
    uint lane, width;
};

extern "C" {
void msl_barrier(uint flags, int line) __attribute__((nomerge));
void msl_simdgroup_barrier(uint flags, int line) __attribute__((nomerge));
msl_seat msl_sit(void);

/* Waits at `site` for the lanes of the simdgroup that come there. One of them gets their mask, does for all of them what is to be done with
 * their slots, and lets them go with msl_part(); the others get 0. With `whole` it is an error when a lane is missing. */
ulong msl_meet(void *site, bool whole);
void msl_part(void);
}

/* An operation of a simdgroup is a function of its own: the address it returns to tells one use from another. What lanes exchange orders no
 * memory, and so is invisible to the thread sanitizer. */
#define MSL_MEETING static __attribute__((noinline, nomerge, no_sanitize("thread")))
#define MSL_SITE __builtin_return_address(0)

namespace metal
{
enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8 };

MSL_FN constexpr mem_flags operator|(mem_flags a, mem_flags b)
{
    return (mem_flags)((uint)a | (uint)b);
}

MSL_FN void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE())
{
    msl_barrier((uint)flags, line);
}

MSL_FN void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE())
{
    msl_simdgroup_barrier((uint)flags, line);
}

/* Passes a built-in attribute on as a parameter's type: uint or ushort, of one to three elements. */
template <typename T> MSL_FN T msl_attribute(const uint *x)
{
    if constexpr (msl_type<T>::n == 1)
        return (T)x[0];
    else if constexpr (msl_type<T>::n == 2)
        return msl_vector<T>((vec<uint, 2>)(x[0], x[1]));
    else
        return msl_vector<T>((vec<uint, 3>)(x[0], x[1], x[2]));
}
template <typename T> MSL_FN T msl_attribute(uint x)
{
    return (T)x;
}
template <typename T> MSL_FN T msl_attribute_product(const uint *x, const uint *y)
{
    uint z[3] = {x[0] * y[0], x[1] * y[1], x[2] * y[2]};
    return msl_attribute<T>(z);
}
template <typename T> MSL_FN T msl_attribute_in_grid(const msl_group_ids *group, const msl_thread_ids *in)
{
    uint z[3];
    for (int i = 0; i < 3; i++)
        z[i] = group->group[i] * group->threads[i] + in->position[i];
    return msl_attribute<T>(z);
}
} // namespace metal

/* Where the section of the kernel's threadgroup variables begins and ends; it is not there when there are none. */
extern "C" {
extern __global char __start_msl_threadgroup __attribute__((weak, visibility("hidden")));
extern __global char __stop_msl_threadgroup __attribute__((weak, visibility("hidden")));
}
