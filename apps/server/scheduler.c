#include "scheduler.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fail.h"
#include "job.h"

enum { STACK_BYTES = 8 << 20 };

struct srv_scheduler {
    k3_engine *engine;
    srv_limits limits;
    size_t vocab;
    int eos, pass_rows;
    pthread_t thread;

    /* Of the thread. */
    srv_prefix store;
    srv_scratch scratch;
    srv_job **pass; /* [max_running] of the pass at hand, then what it is made of */
    int n_pass;
    k3_session **sessions;
    const int32_t **ids;
    size_t *n_ids;

    pthread_mutex_t lock; /* of all that follows, and of what job.h says */
    pthread_cond_t wake, ended;
    srv_job *first, *last; /* wait */
    srv_job **running;     /* [max_running] */
    int n_running, n_waiting;
    int n_alive; /* in the pass at hand, and not cancelled */
    int is_closing, is_saving;
    int n_refs; /* the scheduler itself, and each handle */
    srv_counts counts;
};

/* ---- ends ------------------------------------------------------------------------------------------------------ */

static void unref(srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    int is_last = --s->n_refs == 0;
    pthread_mutex_unlock(&s->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&s->wake);
    pthread_cond_destroy(&s->ended);
    pthread_mutex_destroy(&s->lock);
    free(s->scratch.logits);
    free(s->pass);
    free(s->sessions);
    free(s->ids);
    free(s->n_ids);
    free(s->running);
    free(s);
}

static void leave(srv_scheduler *s, const srv_job *job)
{
    for (int i = 0; i < s->n_running; i++)
        if (s->running[i] == job) {
            memmove(s->running + i, s->running + i + 1, (size_t)(s->n_running - i - 1) * sizeof *s->running);
            s->n_running--;
            return;
        }
}

/* The handle may be gone when this returns. */
static void end_job(srv_scheduler *s, srv_job *job, srv_end how, const k3_error *err)
{
    if (job->kept)
        srv_prefix_give(&s->store, job->kept, how != SRV_END_ERROR);
    pthread_mutex_lock(&s->lock);
    leave(s, job);
    s->counts.cancelled += how == SRV_END_CANCELLED;
    s->counts.failed += how == SRV_END_ERROR;
    pthread_mutex_unlock(&s->lock);
    job->sink.end(job->sink.user, how, how == SRV_END_ERROR ? err : NULL);
    pthread_mutex_lock(&s->lock);
    job->is_ended = 1;
    pthread_cond_broadcast(&s->ended);
    pthread_mutex_unlock(&s->lock);
}

/* ---- between passes -------------------------------------------------------------------------------------------- */

static void set_mark(srv_scheduler *s, srv_job *job, int64_t length)
{
    srv_prefix_mark(&s->store, job->kept);
    if (job->stray && job->stray != length)
        k3_session_unmark(job->kept->session, job->stray);
    job->stray = srv_job_keeps_mark(job, length, s->limits.mark_interval) ? 0 : length;
}

/* The session has got longer, or has been long enough from the start. */
static void go_on(srv_scheduler *s, srv_job *job)
{
    int64_t length = k3_session_length(job->kept->session);
    k3_error err = {K3_OK, ""};
    srv_end how = SRV_END_ERROR;
    int is_over = 0;
    k3_status status = length < job->n ? srv_job_check(job, s->vocab, &err) : K3_OK;
    if (status == K3_OK && (length <= job->n_prompt || (s->limits.mark_interval && length % s->limits.mark_interval == 0)))
        set_mark(s, job, length);
    if (status == K3_OK && length <= job->n_prompt && job->sink.progress)
        job->sink.progress(job->sink.user, length);
    if (status == K3_OK && length == job->n) {
        status = srv_job_pick(job, &is_over, &how, &s->scratch, s->eos, &err);
        pthread_mutex_lock(&s->lock);
        s->counts.new_tokens += status == K3_OK;
        pthread_mutex_unlock(&s->lock);
    }
    if (status != K3_OK)
        end_job(s, job, SRV_END_ERROR, &err);
    else if (is_over)
        end_job(s, job, how, NULL);
}

static void start(srv_scheduler *s, srv_job *job)
{
    k3_error err = {K3_OK, ""};
    if (srv_prefix_take(&job->kept, &job->branch, &s->store, job->ids, job->n_prompt, &err) != K3_OK) {
        job->kept = NULL;
        end_job(s, job, SRV_END_ERROR, &err);
        return;
    }
    int64_t n_cached = k3_session_length(job->kept->session);
    pthread_mutex_lock(&s->lock);
    s->counts.prompt_tokens += (uint64_t)job->n_prompt;
    s->counts.cached_tokens += (uint64_t)n_cached;
    pthread_mutex_unlock(&s->lock);
    job->sink.begin(job->sink.user, n_cached);
    if (n_cached == job->n_prompt)
        go_on(s, job);
}

/* Takes *at, which follows `before`, from the queue. */
static void unqueue(srv_scheduler *s, srv_job **at, srv_job *before)
{
    if (s->last == *at)
        s->last = before;
    *at = (*at)->next;
    s->n_waiting--;
}

/* A cancelled request that runs or waits; it waits no longer. */
static srv_job *find_cancelled(srv_scheduler *s)
{
    srv_job *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_running && !found; i++)
        found = s->running[i]->is_cancelled ? s->running[i] : NULL;
    for (srv_job **at = &s->first, *before = NULL; *at && !found; before = *at, at = &before->next)
        if ((*at)->is_cancelled) {
            found = *at;
            unqueue(s, at, before);
            break;
        }
    pthread_mutex_unlock(&s->lock);
    return found;
}

/* A request that runs computes what this one begins with: it is cheaper to wait for that, and begin there. The other gets a mark where the
 * two prompts part. */
static int should_wait(srv_scheduler *s, const srv_job *job)
{
    int64_t reach = -1;
    for (int i = 0; i < s->n_running; i++) {
        srv_job *other = s->running[i];
        int64_t length = other->kept ? k3_session_length(other->kept->session) : 0;
        int64_t common = srv_prefix_common(other->ids, other->n_prompt, job->ids, job->n_prompt);
        if (common <= length || common < SRV_WORTH_A_MARK)
            continue;
        reach = reach < 0 ? srv_prefix_reach(&s->store, job->ids, job->n_prompt) : reach;
        if (common - reach < SRV_WORTH_A_MARK)
            continue;
        if (other->branch <= length || other->branch > common)
            other->branch = common;
        return 1;
    }
    return 0;
}

static srv_job *admit(srv_scheduler *s)
{
    srv_job *job = NULL;
    pthread_mutex_lock(&s->lock);
    for (srv_job **at = &s->first, *before = NULL; *at && s->n_running < s->limits.max_running; before = *at, at = &before->next)
        if (!should_wait(s, *at)) {
            job = *at;
            unqueue(s, at, before);
            s->running[s->n_running++] = job;
            break;
        }
    pthread_mutex_unlock(&s->lock);
    return job;
}

/* Nothing runs or waits: sessions are written, then the thread sleeps. 0: the scheduler closes and nothing is left. */
static int wait_for_work(srv_scheduler *s)
{
    int may_save = 1;
    pthread_mutex_lock(&s->lock);
    memcpy(s->counts.notice, s->store.notice, sizeof s->counts.notice);
    while (!s->first && !s->n_running && !s->is_closing) {
        if (!may_save || !srv_prefix_has_unsaved(&s->store)) {
            pthread_cond_wait(&s->wake, &s->lock);
            continue;
        }
        s->is_saving = 1;
        pthread_mutex_unlock(&s->lock);
        may_save = srv_prefix_save(&s->store);
        pthread_mutex_lock(&s->lock);
        memcpy(s->counts.notice, s->store.notice, sizeof s->counts.notice);
        s->is_saving = 0;
        k3_engine_cancel(s->engine, 0);
    }
    int has_work = s->first || s->n_running;
    pthread_mutex_unlock(&s->lock);
    return has_work || !s->is_closing;
}

/* ---- passes ---------------------------------------------------------------------------------------------------- */

static void add(srv_scheduler *s, srv_job *job, int64_t n)
{
    job->from = k3_session_length(job->kept->session);
    job->n_now = n;
    s->pass[s->n_pass++] = job;
}

/* Prompts that are to be computed, the shortest rest first. */
static int list_prompts(srv_scheduler *s, srv_job **prompts)
{
    int n = 0;
    for (int i = 0; i < s->n_running; i++) {
        srv_job *job = s->running[i];
        int at = n;
        if (srv_job_pending(job) < 2)
            continue;
        for (; at > 0 && srv_job_pending(prompts[at - 1]) > srv_job_pending(job); at--)
            prompts[at] = prompts[at - 1];
        prompts[at] = job;
        n++;
    }
    return n;
}

/* The rows of the next pass. Prompts beside requests that decode get a quarter of the rows that fit, so that a token does not wait long;
 * they divide it evenly, and what one does not need the others have. */
static void compose(srv_scheduler *s)
{
    s->n_pass = 0;
    for (int i = 0; i < s->n_running; i++) {
        srv_job *job = s->running[i];
        if (k3_session_length(job->kept->session) < job->alone_until) {
            int64_t chunk = srv_job_chunk(job, s->limits.mark_interval);
            add(s, job, chunk < s->pass_rows ? chunk : s->pass_rows);
            return;
        }
    }
    for (int i = 0; i < s->n_running; i++)
        if (srv_job_pending(s->running[i]) == 1)
            add(s, s->running[i], 1);
    srv_job **prompts = s->pass + s->n_pass;
    int n = list_prompts(s, prompts);
    int64_t room = s->n_pass ? (s->pass_rows + 3) / 4 : s->pass_rows;
    room = room < n ? n : room;
    for (int i = 0; i < n; i++) {
        int64_t chunk = srv_job_chunk(prompts[i], s->limits.mark_interval), share = room / (n - i);
        add(s, prompts[i], chunk < share ? chunk : share);
        room -= prompts[i]->n_now;
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* From here on srv_cancel can end the pass. 0: nobody wants it. */
static int enter_pass(srv_scheduler *s)
{
    pthread_mutex_lock(&s->lock);
    s->n_alive = 0;
    for (int i = 0; i < s->n_pass; i++) {
        s->pass[i]->is_in_pass = 1;
        s->n_alive += !s->pass[i]->is_cancelled;
    }
    int is_wanted = s->n_alive > 0;
    pthread_mutex_unlock(&s->lock);
    return is_wanted;
}

/* Returns 0 if everything in it was cancelled. */
static int leave_pass(srv_scheduler *s, double took)
{
    uint64_t rows = 0, of_prompts = 0;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->n_pass; i++) {
        srv_job *job = s->pass[i];
        job->is_in_pass = 0;
        rows += (uint64_t)job->n_now;
        of_prompts += job->from < job->n_prompt ? (uint64_t)job->n_now : 0;
    }
    int is_wanted = s->n_alive > 0;
    s->n_alive = 0;
    k3_engine_cancel(s->engine, 0);
    s->counts.passes += took > 0;
    s->counts.rows += took > 0 ? rows : 0;
    s->counts.prompt_seconds += rows ? took * (double)of_prompts / (double)rows : 0;
    s->counts.decode_seconds += rows ? took * (double)(rows - of_prompts) / (double)rows : 0;
    pthread_mutex_unlock(&s->lock);
    return is_wanted;
}

/* A pass broke; sessions that it did not serve are back at their last marks, before what is to be computed. */
static void part(srv_scheduler *s, k3_status status, const k3_error *err)
{
    srv_job *left = NULL;
    if (status == K3_E_NOMEM && srv_prefix_shed(&s->store))
        return;
    for (int i = 0; i < s->n_pass; i++)
        if (s->pass[i]) {
            left = s->pass[i];
            left->alone_until = left->from + left->n_now;
        }
    if (s->n_pass == 1 && left)
        end_job(s, left, SRV_END_ERROR, err);
}

static void run_pass(srv_scheduler *s)
{
    k3_error err = {K3_OK, ""};
    compose(s);
    for (int i = 0; i < s->n_pass; i++) {
        s->sessions[i] = s->pass[i]->kept->session;
        s->ids[i] = s->pass[i]->ids + s->pass[i]->from;
        s->n_ids[i] = (size_t)s->pass[i]->n_now;
    }
    double start = seconds(), took = 0;
    k3_status status = K3_E_CANCELLED;
    if (enter_pass(s)) {
        status = k3_sessions_append(s->sessions, s->ids, s->n_ids, (size_t)s->n_pass, &err);
        took = seconds() - start;
    }
    int is_wanted = leave_pass(s, took);
    for (int i = 0; i < s->n_pass; i++) {
        srv_job *job = s->pass[i];
        if (k3_session_length(job->kept->session) == job->from + job->n_now) {
            s->pass[i] = NULL;
            go_on(s, job);
        }
    }
    if (status != K3_OK && is_wanted)
        part(s, status, &err);
}

static void *work(void *user)
{
    srv_scheduler *s = user;
    while (wait_for_work(s)) {
        for (srv_job *job; (job = find_cancelled(s));)
            end_job(s, job, SRV_END_CANCELLED, NULL);
        for (srv_job *job; (job = admit(s));)
            start(s, job);
        if (s->n_running)
            run_pass(s);
    }
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------------------------- */

static k3_status new_arrays(srv_scheduler *s, k3_error *err)
{
    size_t n = (size_t)s->limits.max_running;
    s->scratch.vocab = s->vocab;
    s->scratch.logits = malloc(s->vocab * sizeof *s->scratch.logits);
    s->pass = calloc(n, sizeof(srv_job *));
    s->sessions = calloc(n, sizeof(k3_session *));
    s->ids = calloc(n, sizeof(int32_t *));
    s->n_ids = calloc(n, sizeof *s->n_ids);
    s->running = calloc(n, sizeof(srv_job *));
    if (s->scratch.logits && s->pass && s->sessions && s->ids && s->n_ids && s->running)
        return K3_OK;
    return srv_fail(err, K3_E_NOMEM, "scheduler: no memory for %d requests", s->limits.max_running);
}

/* Signals are for the thread that opens. */
static int start_thread(srv_scheduler *s)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int failed = pthread_attr_init(&attributes);
    if (failed)
        return failed;
    sigfillset(&all);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&s->thread, &attributes, work, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed;
}

k3_status srv_scheduler_open(srv_scheduler **out, k3_engine *engine, const srv_limits *limits, k3_error *err)
{
    const k3_info *info = k3_engine_info(engine);
    *out = NULL;
    if (limits->max_running < 1 || limits->max_waiting < 0 || limits->context < 0 || limits->mark_interval < 0)
        return srv_fail(err, K3_E_INVALID,
                        "scheduler: %d running and %d waiting requests, context %lld, marks every %lld tokens; at least "
                        "1, 0, 0 and 0 wanted",
                        limits->max_running, limits->max_waiting, (long long)limits->context, (long long)limits->mark_interval);
    srv_scheduler *s = calloc(1, sizeof *s);
    if (!s)
        return srv_fail(err, K3_E_NOMEM, "scheduler: out of memory");
    s->engine = engine;
    s->limits = *limits;
    if (!s->limits.context || s->limits.context > info->context_length)
        s->limits.context = info->context_length;
    s->vocab = (size_t)info->vocab_size;
    s->eos = info->eos_id;
    s->pass_rows = info->pass_rows;
    s->n_refs = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    pthread_cond_init(&s->ended, NULL);
    k3_status status = new_arrays(s, err);
    if (status == K3_OK)
        status = srv_prefix_open(&s->store, engine, limits->cache_folder, limits->cache_bytes, err);
    if (status == K3_OK && start_thread(s)) {
        srv_prefix_close(&s->store);
        status = srv_fail(err, K3_E_NOMEM, "scheduler: the system starts no thread");
    }
    if (status != K3_OK) {
        unref(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

/* The lock is held. */
static void cancel(srv_scheduler *s, srv_job *job)
{
    if (job->is_cancelled)
        return;
    job->is_cancelled = 1;
    if (job->is_in_pass && --s->n_alive == 0)
        k3_engine_cancel(s->engine, 1);
    pthread_cond_signal(&s->wake);
}

void srv_scheduler_close(srv_scheduler *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->is_closing = 1;
    for (srv_job *job = s->first; job; job = job->next)
        cancel(s, job);
    for (int i = 0; i < s->n_running; i++)
        cancel(s, s->running[i]);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    srv_prefix_close(&s->store);
    unref(s);
}

/* ---- requests -------------------------------------------------------------------------------------------------- */

static k3_status enqueue(srv_scheduler *s, srv_job *job, k3_error *err)
{
    int most = s->limits.max_running + s->limits.max_waiting;
    pthread_mutex_lock(&s->lock);
    int is_full = s->n_running + s->n_waiting >= most;
    s->counts.refused += is_full != 0;
    if (!is_full) {
        *(s->first ? &s->last->next : &s->first) = job;
        s->last = job;
        s->n_waiting++;
        s->n_refs++;
        s->counts.requests++;
        if (s->is_saving)
            k3_engine_cancel(s->engine, 1);
        pthread_cond_signal(&s->wake);
    }
    pthread_mutex_unlock(&s->lock);
    return is_full ? srv_fail(err, K3_E_NOMEM, "busy: %d requests run and wait already; try again later", most) : K3_OK;
}

k3_status srv_submit(srv_job **out, srv_scheduler *s, const srv_settings *settings, const srv_sink *sink, k3_error *err)
{
    *out = NULL;
    srv_job *job;
    k3_status status = srv_job_open(&job, settings, sink, s->vocab, s->limits.context, err);
    if (status != K3_OK)
        return status;
    job->scheduler = s;
    *out = job; /* before the sink can be called, which may want to cancel */
    status = enqueue(s, job, err);
    if (status != K3_OK) {
        *out = NULL;
        srv_job_close(job);
    }
    return status;
}

void srv_cancel(srv_job *job)
{
    srv_scheduler *s = job->scheduler;
    pthread_mutex_lock(&s->lock);
    cancel(s, job);
    pthread_mutex_unlock(&s->lock);
}

void srv_release(srv_job *job)
{
    if (!job)
        return;
    srv_scheduler *s = job->scheduler;
    pthread_mutex_lock(&s->lock);
    while (!job->is_ended)
        pthread_cond_wait(&s->ended, &s->lock);
    pthread_mutex_unlock(&s->lock);
    srv_job_close(job);
    unref(s);
}

void srv_count(srv_scheduler *s, srv_counts *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->counts;
    out->running = s->n_running;
    out->waiting = s->n_waiting;
    pthread_mutex_unlock(&s->lock);
}
