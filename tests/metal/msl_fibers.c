#include "msl_fibers.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "msl_switch.h"

#ifdef MSL_THREAD_SANITIZER
enum { FIBER_OF_ITS_OWN = 1 }; /* for each thread: the sanitizer tells threads apart by their fibers */
#else
enum { FIBER_OF_ITS_OWN = 0 };
#endif

#define MSL_FOR_KERNELS __attribute__((visibility("default")))

/* As shim/msl_runtime.h has them. */
typedef struct msl_slot {
    _Alignas(16) uint64_t words[8]; /* vectors of 16 bytes are laid down here */
} msl_slot;

typedef struct msl_seat {
    msl_slot *slots;
    uint32_t lane, width;
} msl_seat;

MSL_FOR_KERNELS void msl_barrier(uint32_t flags, int line);
MSL_FOR_KERNELS void msl_simdgroup_barrier(uint32_t flags, int line);
MSL_FOR_KERNELS msl_seat msl_sit(void);
MSL_FOR_KERNELS uint64_t msl_meet(void *site, bool whole);
MSL_FOR_KERNELS void msl_part(void);

typedef struct lanes {
    msl_slot slots[MSL_MAX_WIDTH];
    void *sites[MSL_MAX_WIDTH]; /* where lanes that wait do so */
    uint64_t waiting;
    uint64_t all;
    int running; /* lanes that neither wait, at an operation or a barrier, nor have returned */
    char departure, arrival;
} lanes;

typedef struct fiber_thread {
    msl_thread_ids ids;
    lanes *lanes;
    msl_fiber *fiber;
    uint64_t leads; /* lanes of the operation that this one completes */
} fiber_thread;

/* One group at a time. */
static struct {
    const msl_launch *launch;
    msl_group_ids ids;
    fiber_thread threads[MSL_MAX_THREADS];
    lanes simdgroups[MSL_MAX_THREADS / 8];
    msl_fiber fibers[MSL_MAX_THREADS], main;
    msl_fiber *running;
    fiber_thread *thread; /* that runs */
    fiber_thread *ready[MSL_MAX_THREADS];
    uint32_t first_ready, end_ready; /* modulo MSL_MAX_THREADS */
    uint16_t order[MSL_MAX_THREADS];
    uint32_t n, started, returned, waiting, n_fibers, made_fibers;
    void *site; /* of the barrier where threads wait */
    int line;
    uint32_t waits_first, flags;
    uint32_t random;
    char departure, arrival;
    bool failed;
    char *message;
    size_t message_size;
} g;

/* Ends the launch; a fiber does not come back from here. */
__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    int n = snprintf(g.message, g.message_size, "kernel %s, threadgroup (%u, %u, %u): ", g.launch->name, g.ids.group[0], g.ids.group[1],
                     g.ids.group[2]);
    if (n >= 0 && (size_t)n < g.message_size) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(g.message + n, g.message_size - (size_t)n, format, arguments);
        va_end(arguments);
    }
    g.failed = true;
    if (g.running != &g.main) {
        msl_fiber *from = g.running;
        g.running = &g.main;
        msl_fiber_switch(from, &g.main);
    }
}

static uint32_t random_below(uint32_t n)
{
    g.random ^= g.random << 13;
    g.random ^= g.random >> 17;
    g.random ^= g.random << 5;
    return (uint32_t)((uint64_t)g.random * n >> 32);
}

static void shuffle(void)
{
    if (g.launch->seed == 0)
        return;
    for (uint32_t i = g.n - 1; i > 0; i--) {
        uint32_t j = random_below(i + 1);
        uint16_t kept = g.order[i];
        g.order[i] = g.order[j];
        g.order[j] = kept;
    }
}

static void make_ready(fiber_thread *t)
{
    g.ready[g.end_ready++ % MSL_MAX_THREADS] = t;
}

/* All threads wait at one barrier: they go on, in a new order. */
static void open_barrier(void)
{
    if (g.flags != 0) {
        msl_order_acquire(&g.departure);
        msl_order_release(&g.arrival);
    }
    g.waiting = 0;
    for (uint32_t i = 0; i < g.ids.simdgroups; i++)
        g.simdgroups[i].running = __builtin_popcountll(g.simdgroups[i].all);
    shuffle();
    for (uint32_t i = 0; i < g.n; i++)
        make_ready(&g.threads[g.order[i]]);
}

static void go_to(msl_fiber *to)
{
    msl_fiber *from = g.running;
    if (from == to)
        return;
    g.running = to;
    msl_fiber_switch(from, to);
}

static void fiber_entry(void);

/* Leaves a thread that waits or has returned for the next one. */
static void go_on(void)
{
    if (g.first_ready != g.end_ready) {
        g.thread = g.ready[g.first_ready++ % MSL_MAX_THREADS];
        go_to(g.thread->fiber);
    } else if (g.started < g.n) {
        if (g.n_fibers == g.made_fibers) {
            if (!msl_fiber_start(&g.fibers[g.n_fibers], (int)g.n_fibers, fiber_entry)) {
                fail("no memory for stacks");
                return;
            }
            g.made_fibers++;
        }
        go_to(&g.fibers[g.n_fibers++]);
    } else if (g.waiting != 0) {
        fail("%u of %u threads return without the barrier of line %d, where thread %u waits", g.returned, g.n, g.line, g.waits_first);
    } else {
        go_to(&g.main);
    }
}

/* A lane stops. When no other one of its simdgroup runs, those that wait at the first place in the code complete their operation. Returns
 * whether the thread that runs is to do so. */
static bool stop(lanes *l)
{
    if (--l->running != 0 || l->waiting == 0)
        return false;
    void *site = NULL;
    uint64_t met = 0;
    for (uint64_t left = l->waiting; left != 0; left &= left - 1) {
        int lane = __builtin_ctzll(left);
        if (met == 0 || (char *)l->sites[lane] < (char *)site) {
            site = l->sites[lane];
            met = 0;
        }
        if (l->sites[lane] == site)
            met |= (uint64_t)1 << lane;
    }
    l->waiting &= ~met;
    l->running = __builtin_popcountll(met);
    fiber_thread *leader = g.thread;
    if (leader->lanes != l || (met >> leader->ids.lane & 1) == 0)
        leader = &g.threads[(uint32_t)(l - g.simdgroups) * g.ids.width + (uint32_t)__builtin_ctzll(met)];
    leader->leads = met;
    if (leader == g.thread)
        return true;
    make_ready(leader);
    return false;
}

void msl_barrier(uint32_t flags, int line)
{
    void *site = __builtin_return_address(0);
    fiber_thread *t = g.thread;
    if (g.waiting == 0) {
        g.site = site;
        g.line = line;
        g.waits_first = t->ids.index;
        g.flags = flags;
    } else if (site != g.site) {
        fail("thread %u waits at the barrier of line %d, thread %u at that of line %d%s", g.waits_first, g.line, t->ids.index, line,
             line == g.line ? " in another place" : "");
    }
    if (flags != 0)
        msl_order_release(&g.departure);
    g.waiting++;
    stop(t->lanes);
    if (g.waiting == g.n)
        open_barrier();
    go_on();
    if (flags != 0)
        msl_order_acquire(&g.arrival);
}

msl_seat msl_sit(void)
{
    return (msl_seat){.slots = g.thread->lanes->slots, .lane = g.thread->ids.lane, .width = g.ids.width};
}

uint64_t msl_meet(void *site, bool whole)
{
    fiber_thread *t = g.thread;
    lanes *l = t->lanes;
    l->sites[t->ids.lane] = site;
    l->waiting |= (uint64_t)1 << t->ids.lane;
    t->leads = 0;
    if (!stop(l))
        go_on();
    uint64_t leads = t->leads;
    if (whole && leads != 0 && leads != ~(uint64_t)0 >> (64 - g.ids.width))
        fail("%d of the %u lanes of simdgroup %u come to an operation that wants all of them", __builtin_popcountll(leads), g.ids.width,
             t->ids.simdgroup);
    return leads;
}

void msl_part(void)
{
    fiber_thread *t = g.thread;
    fiber_thread *first = t - t->ids.lane;
    for (uint64_t left = t->leads & ~((uint64_t)1 << t->ids.lane); left != 0; left &= left - 1)
        make_ready(first + __builtin_ctzll(left));
}

void msl_simdgroup_barrier(uint32_t flags, int line)
{
    fiber_thread *t = g.thread;
    lanes *l = t->lanes;
    if (flags != 0)
        msl_order_release(&l->departure);
    uint64_t met = msl_meet(__builtin_return_address(0), false);
    if (met != 0) {
        if (met != l->all)
            fail("%d of the %d lanes of simdgroup %u come to the simdgroup's barrier of line %d", __builtin_popcountll(met),
                 __builtin_popcountll(l->all), t->ids.simdgroup, line);
        if (flags != 0) {
            msl_order_acquire(&l->departure);
            msl_order_release(&l->arrival);
        }
        msl_part();
    }
    if (flags != 0)
        msl_order_acquire(&l->arrival);
}

/* What the compiler calls instead of using an index that is too large. */
MSL_FOR_KERNELS void __ubsan_handle_out_of_bounds_minimal_abort(void);
void __ubsan_handle_out_of_bounds_minimal_abort(void)
{
    fail("thread %u uses an index outside of an array", g.thread->ids.index);
}

static void fiber_entry(void)
{
    msl_fiber_arrived();
    msl_fiber *self = g.running;
    for (;;) {
        fiber_thread *t = &g.threads[g.order[g.started++]];
        t->fiber = self;
        g.thread = t;
        msl_order_acquire(&g.arrival);
        g.launch->thunk(g.launch->buffers, &g.ids, &t->ids);
        msl_order_release(&g.departure);
        g.returned++;
        stop(t->lanes);
        if (FIBER_OF_ITS_OWN || g.first_ready != g.end_ready || g.started == g.n)
            go_on();
    }
}

static void number_threads(void)
{
    const uint32_t *size = g.launch->threads;
    uint32_t width = g.launch->width;
    g.n = size[0] * size[1] * size[2];
    g.ids.simdgroups = (g.n + width - 1) / width;
    for (uint32_t i = 0; i < g.n; i++) {
        g.threads[i].ids = (msl_thread_ids){
            .position = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]},
            .index = i,
            .lane = i % width,
            .simdgroup = i / width,
        };
        g.threads[i].lanes = &g.simdgroups[i / width];
        g.order[i] = (uint16_t)i;
    }
    for (uint32_t i = 0; i < g.ids.simdgroups; i++) {
        uint32_t there = g.n - i * width < width ? g.n - i * width : width;
        g.simdgroups[i].all = ~(uint64_t)0 >> (64 - there);
    }
}

static void run_group(void)
{
    if (g.launch->memory_bytes != 0)
        memset(g.launch->memory, 0xff, g.launch->memory_bytes);
    for (uint32_t i = 0; i < g.ids.simdgroups; i++) {
        g.simdgroups[i].waiting = 0;
        g.simdgroups[i].running = __builtin_popcountll(g.simdgroups[i].all);
    }
    g.first_ready = g.end_ready = 0;
    g.started = g.returned = g.waiting = g.n_fibers = 0;
    shuffle();
    msl_order_release(&g.arrival);
    go_on();
    msl_order_acquire(&g.departure);
}

/* Threads are left where they are: their stacks start over. */
static void leave_threads(void)
{
    for (uint32_t i = 0; i < g.made_fibers; i++)
        msl_order_release_for(&g.fibers[i], &g.departure);
    msl_order_acquire(&g.departure);
    g.made_fibers = 0;
}

void msl_fibers_abandon(void)
{
    if (g.running == NULL || g.running == &g.main)
        return;
    g.running = &g.main;
    msl_fiber_jump(&g.main);
    leave_threads();
}

int msl_fibers_run(const msl_launch *launch, char *message, size_t message_size)
{
    msl_fibers_abandon();
    g.launch = launch;
    g.message = message;
    g.message_size = message_size;
    g.failed = false;
    g.random = launch->seed;
    g.running = &g.main;
    msl_fiber_adopt(&g.main);
    g.ids.width = launch->width;
    memcpy(g.ids.groups, launch->groups, sizeof g.ids.groups);
    memcpy(g.ids.threads, launch->threads, sizeof g.ids.threads);
    number_threads();
    uint32_t *at = g.ids.group;
    for (at[2] = 0; at[2] < launch->groups[2]; at[2]++)
        for (at[1] = 0; at[1] < launch->groups[1]; at[1]++)
            for (at[0] = 0; at[0] < launch->groups[0] && !g.failed; at[0]++)
                run_group();
    if (g.failed)
        leave_threads();
    return g.failed ? -1 : 0;
}
