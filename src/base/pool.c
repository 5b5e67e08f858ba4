#include "base/pool.h"

#include "base/nodes.h"
#include "base/os.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* How often a worker looks for a new loop before it sleeps: some tens of microseconds, about the gap between two operations of a pass. */
enum { K3_SPINS = 4000 };

/* Rounds of pieces of a loop that differ in size. */
enum { K3_ROUNDS = 24 };

/* The word `gate` says which loop is open, if one is, and how many workers are inside. A worker that is late (the machine is shared) simply
 * does not enter; nobody waits for it. Fields of the loop change only while the gate is shut and empty. */
#define K3_GATE_OPEN 0x80000000u
#define K3_GATE_LOOP 32 /* number of the loop from this bit on */

/* What threads write at once lies this far apart: two lines, because processors fetch them in pairs. */
enum { K3_APART = 128 };

/* First item of the piece that a thread does next; -1: not known, or none. */
typedef struct k3_coming {
    _Alignas(K3_APART) int64_t first;
} k3_coming;

struct k3_pool {
    int n_threads;
    k3_coming *coming; /* [n_threads] */
    k3_nodes *nodes;   /* NULL: threads are where the system puts them */
    pthread_t *workers;
    int n_started;

    k3_pool_task task;
    void *arg;
    int64_t n, grain;
    uint64_t loop; /* number of the last one */
    int n_rounds;
    int64_t n_early;                                  /* pieces that may be taken before they are done: all but one a thread */
    int64_t first_of[K3_ROUNDS], piece_of[K3_ROUNDS]; /* items: the first of a round, and of each of its pieces */
    _Alignas(K3_APART) _Atomic int64_t next;          /* number of the next piece */
    _Alignas(K3_APART) _Atomic uint64_t gate;

    _Alignas(K3_APART) pthread_mutex_t lock;
    pthread_cond_t wake;
    _Atomic int n_asleep;
    _Atomic int stop;
};

typedef struct k3_worker {
    k3_pool *pool;
    int thread;
} k3_worker;

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* A round has a piece for each thread, and gives half of what is left: long runs first, and short ones at the end, where threads that are
 * early help those that are late. Pieces of the last round are as small as the grain, as many as it takes. */
static void plan_rounds(k3_pool *pool)
{
    int64_t at = 0;
    pool->n_rounds = 0;
    for (int64_t piece = pool->n; piece > pool->grain; at += piece * pool->n_threads) {
        piece = (pool->n - at) / (2 * pool->n_threads) / pool->grain * pool->grain;
        if (piece <= pool->grain || pool->n_rounds == K3_ROUNDS - 1)
            piece = pool->grain;
        pool->first_of[pool->n_rounds] = at;
        pool->piece_of[pool->n_rounds++] = piece;
    }
    int64_t before = (int64_t)(pool->n_rounds - 1) * pool->n_threads, left = pool->n - pool->first_of[pool->n_rounds - 1];
    pool->n_early = before + (left + pool->grain - 1) / pool->grain - pool->n_threads;
}

/* The next piece: its first item, or -1 if there is none, and the item after it. */
static int64_t take_piece(k3_pool *pool, int64_t *last)
{
    int64_t number = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
    int64_t whole = number / pool->n_threads, round = whole < pool->n_rounds ? whole : pool->n_rounds - 1;
    int64_t piece = pool->piece_of[round], first = pool->first_of[round] + (number - round * pool->n_threads) * piece;
    *last = pool->n - first < piece ? pool->n : first + piece;
    return first < pool->n ? first : -1;
}

/* A thread takes its next piece before it does the one it has, so that a task can know what comes: but for the last pieces, of which each
 * is for whoever is free. */
static void do_pieces(k3_pool *pool, int thread)
{
    int64_t last, first = take_piece(pool, &last);
    while (first >= 0) {
        int64_t next = -1, next_last = 0;
        int is_early = atomic_load_explicit(&pool->next, memory_order_relaxed) < pool->n_early;
        if (is_early)
            next = take_piece(pool, &next_last);
        pool->coming[thread].first = next;
        pool->task(pool->arg, first, last, thread);
        first = is_early ? next : take_piece(pool, &next_last);
        last = next_last;
    }
}

static int is_open_for(uint64_t gate, uint64_t served)
{
    return (gate & K3_GATE_OPEN) && gate >> K3_GATE_LOOP != served;
}

/* Steps through the gate if it is open for a loop other than `served`, which is updated; else 0. Looks before it writes: who waits does not
 * take the line from who works. */
static int enter(k3_pool *pool, uint64_t *served)
{
    uint64_t gate = atomic_load(&pool->gate);
    while (is_open_for(gate, *served))
        if (atomic_compare_exchange_weak(&pool->gate, &gate, gate + 1)) {
            *served = gate >> K3_GATE_LOOP;
            return 1;
        }
    return 0;
}

/* Waits for a loop this worker has not served; returns 0 when the pool closes. On return the gate is entered. */
static int wait_for_loop(k3_pool *pool, uint64_t *served)
{
    for (int spin = 0;; spin++) {
        if (atomic_load_explicit(&pool->stop, memory_order_relaxed))
            return 0;
        if (enter(pool, served))
            return 1;
        if (spin < K3_SPINS) {
            relax();
            continue;
        }
        pthread_mutex_lock(&pool->lock);
        atomic_fetch_add(&pool->n_asleep, 1);
        if (!is_open_for(atomic_load(&pool->gate), *served) && !atomic_load(&pool->stop))
            pthread_cond_wait(&pool->wake, &pool->lock);
        atomic_fetch_sub(&pool->n_asleep, 1);
        pthread_mutex_unlock(&pool->lock);
        spin = 0;
    }
}

static void *worker_main(void *arg)
{
    k3_worker worker = *(k3_worker *)arg;
    free(arg);
    uint64_t served = 0;
    k3_nodes_enter(worker.pool->nodes, worker.thread);
    while (wait_for_loop(worker.pool, &served)) {
        do_pieces(worker.pool, worker.thread);
        atomic_fetch_sub(&worker.pool->gate, 1);
    }
    return NULL;
}

static k3_status start_workers(k3_pool *pool, k3_error *err)
{
    for (int i = 1; i < pool->n_threads; i++) {
        k3_worker *worker = malloc(sizeof *worker);
        if (!worker)
            return k3_fail(err, K3_E_NOMEM, "thread pool: out of memory");
        *worker = (k3_worker){pool, i};
        if (pthread_create(&pool->workers[i - 1], NULL, worker_main, worker)) {
            free(worker);
            return k3_fail(err, K3_E_NOMEM, "thread pool: the system starts only %d of the %d threads asked for; use fewer (--threads)", i,
                           pool->n_threads);
        }
        pool->n_started++;
    }
    return K3_OK;
}

k3_status k3_pool_open(k3_pool **out, int n_threads, k3_error *err)
{
    return k3_pool_open_at(out, n_threads, "", err);
}

k3_status k3_pool_open_at(k3_pool **out, int n_threads, const char *root, k3_error *err)
{
    *out = NULL;
    if (n_threads < 0 || n_threads > 1024)
        return k3_fail(err, K3_E_INVALID, "threads: %d found, 0 (automatic) to 1024 wanted", n_threads);
    k3_pool *pool = aligned_alloc(K3_APART, sizeof *pool);
    if (!pool)
        return k3_fail(err, K3_E_NOMEM, "thread pool: out of memory");
    memset(pool, 0, sizeof *pool);
    pool->n_threads = n_threads ? n_threads : k3_os_cores();
    pool->nodes = k3_nodes_open(pool->n_threads, root);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->workers = calloc((size_t)pool->n_threads, sizeof *pool->workers);
    pool->coming = aligned_alloc(K3_APART, (size_t)pool->n_threads * sizeof *pool->coming);
    k3_status status = pool->workers && pool->coming ? start_workers(pool, err) : k3_fail(err, K3_E_NOMEM, "thread pool: out of memory");
    if (status != K3_OK) {
        k3_pool_close(pool);
        return status;
    }
    *out = pool;
    return K3_OK;
}

void k3_pool_close(k3_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_store(&pool->stop, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool->coming);
    k3_nodes_close(pool->nodes);
    free(pool);
}

int k3_pool_threads(const k3_pool *pool)
{
    return pool->n_threads;
}

int64_t k3_pool_coming(const k3_pool *pool, int thread)
{
    return pool->coming[thread].first;
}

void k3_pool_spread(const k3_pool *pool, void *at, size_t bytes)
{
    k3_nodes_spread(pool->nodes, at, bytes);
}

void k3_pool_run(k3_pool *pool, k3_pool_task task, void *arg, int64_t n, int64_t grain)
{
    if (n <= 0)
        return;
    if (grain < 1)
        grain = 1;
    if (pool->n_threads == 1 || n <= grain) {
        pool->coming[0].first = -1;
        task(arg, 0, n, 0);
        return;
    }
    pool->task = task;
    pool->arg = arg;
    pool->n = n;
    pool->grain = grain;
    plan_rounds(pool);
    pool->loop = (pool->loop + 1) & UINT32_MAX;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    atomic_store(&pool->gate, pool->loop << K3_GATE_LOOP | K3_GATE_OPEN);
    if (atomic_load(&pool->n_asleep)) {
        pthread_mutex_lock(&pool->lock);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
    }
    do_pieces(pool, 0);
    atomic_fetch_and(&pool->gate, ~(uint64_t)K3_GATE_OPEN);
    for (int spin = 0; (uint32_t)atomic_load(&pool->gate) != 0; spin++) {
        if (spin < K3_SPINS)
            relax();
        else
            k3_os_yield();
    }
}
