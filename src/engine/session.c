#include "engine/engine.h"

#include "sample/sampler.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening and losing ------------------------------------------------------------------------------------ */

static k3_status enlist(k3_engine *engine, k3_session *s, k3_error *err)
{
    if (engine->n_sessions == engine->max_sessions) {
        size_t max = engine->max_sessions ? 2 * engine->max_sessions : 8;
        k3_session **grown = realloc(engine->sessions, max * sizeof *grown);
        if (!grown)
            return k3_fail(err, K3_E_NOMEM, "session: out of memory");
        engine->sessions = grown;
        engine->max_sessions = max;
    }
    engine->sessions[engine->n_sessions++] = s;
    return K3_OK;
}

static void delist(k3_engine *engine, const k3_session *s)
{
    for (size_t i = 0; i < engine->n_sessions; i++)
        if (engine->sessions[i] == s) {
            engine->sessions[i] = engine->sessions[--engine->n_sessions];
            return;
        }
}

static k3_status nothing(k3_session *s, const void *argument, k3_error *err)
{
    (void)s;
    (void)argument;
    (void)err;
    return K3_OK;
}

k3_status k3_session_open(k3_session **out, k3_engine *engine, k3_error *err)
{
    *out = NULL;
    k3_session *s = calloc(1, sizeof *s);
    if (!s)
        return k3_fail(err, K3_E_NOMEM, "session: out of memory");
    s->engine = engine;
    s->is_stale = 1;
    s->logits = malloc((size_t)engine->hp->vocab * sizeof *s->logits);
    k3_status status = s->logits ? enlist(engine, s, err) : k3_fail(err, K3_E_NOMEM, "session: out of memory");
    if (status == K3_OK)
        status = k3_state_open(&s->state, engine->hp, engine->cache_type, err);
    if (status == K3_OK)
        status = k3_session_try(s, nothing, NULL, err);
    if (status != K3_OK) {
        k3_session_close(s);
        return status;
    }
    *out = s;
    return K3_OK;
}

static void lose_mark(k3_session *s, k3_mark *mark)
{
    if (mark->fixed)
        s->engine->be->memory->release(s->engine->be, mark->fixed);
    mark->fixed = NULL;
}

static void forget_marks(k3_session *s, int keep)
{
    while (s->n_marks > keep) {
        k3_mark *mark = &s->marks[--s->n_marks];
        lose_mark(s, mark);
        free(mark->logits);
    }
}

void k3_session_lose(k3_session *s)
{
    for (int i = 0; i < s->n_marks; i++)
        lose_mark(s, &s->marks[i]);
    k3_state_lose(s->state);
    s->is_stale = 1;
}

void k3_session_close(k3_session *s)
{
    if (!s)
        return;
    delist(s->engine, s);
    forget_marks(s, 0);
    k3_state_close(s->state);
    free(s->marks);
    free(s->ids);
    free(s->logits);
    free(s);
}

int64_t k3_session_length(const k3_session *s)
{
    return s->state->length;
}

const int32_t *k3_session_ids(const k3_session *s)
{
    return s->ids;
}

const float *k3_session_logits(const k3_session *s)
{
    return s->has_logits ? s->logits : NULL;
}

/* ---- marks --------------------------------------------------------------------------------------------------- */

/* Copies the fixed part of the state to a mark. */
static k3_status fill_mark(k3_session *s, k3_mark *mark, k3_error *err)
{
    k3_backend *be = s->engine->be;
    if (!mark->fixed)
        mark->fixed = be->memory->alloc(be, s->state->fixed->bytes, "session mark");
    if (mark->fixed)
        be->memory->copy(be, (k3_ref){mark->fixed, 0}, (k3_ref){s->state->fixed, 0}, mark->fixed->bytes);
    k3_status status = be->sync(be, err);
    if (status == K3_OK && !mark->fixed)
        status = k3_fail(err, K3_E_NOMEM, "session mark: no memory for %llu bytes", (unsigned long long)s->state->fixed->bytes);
    if (status != K3_OK)
        lose_mark(s, mark);
    return status;
}

k3_status k3_session_new_mark(k3_session *s, int64_t length, int has_logits, k3_error *err)
{
    if (s->n_marks == s->max_marks) {
        int max = s->max_marks ? 2 * s->max_marks : 4;
        k3_mark *grown = realloc(s->marks, (size_t)max * sizeof *grown);
        if (!grown)
            return k3_fail(err, K3_E_NOMEM, "session mark: out of memory");
        s->marks = grown;
        s->max_marks = max;
    }
    size_t logits_bytes = (size_t)s->engine->hp->vocab * sizeof *s->logits;
    k3_mark mark = {.length = length};
    if (has_logits && !(mark.logits = malloc(logits_bytes)))
        return k3_fail(err, K3_E_NOMEM, "session mark: no memory for %zu bytes", logits_bytes);
    k3_status status = fill_mark(s, &mark, err);
    if (status != K3_OK) {
        free(mark.logits);
        return status;
    }
    s->marks[s->n_marks++] = mark;
    return K3_OK;
}

static k3_status add_mark(k3_session *s, const void *argument, k3_error *err)
{
    (void)argument;
    if (s->n_marks && s->marks[s->n_marks - 1].length == s->state->length)
        return K3_OK;
    K3_TRY(k3_session_new_mark(s, s->state->length, s->has_logits, err));
    if (s->has_logits)
        memcpy(s->marks[s->n_marks - 1].logits, s->logits, (size_t)s->engine->hp->vocab * sizeof *s->logits);
    return K3_OK;
}

k3_status k3_session_mark(k3_session *s, k3_error *err)
{
    return k3_session_try(s, add_mark, NULL, err);
}

/* Marks at or before a length. */
static int marks_before(const k3_session *s, int64_t length)
{
    int n = s->n_marks;
    while (n && s->marks[n - 1].length > length)
        n--;
    return n;
}

int64_t k3_session_mark_before(const k3_session *s, int64_t length)
{
    int n = marks_before(s, length);
    return n ? s->marks[n - 1].length : 0;
}

void k3_session_unmark(k3_session *s, int64_t length)
{
    int n = marks_before(s, length);
    if (!n || s->marks[n - 1].length != length)
        return;
    lose_mark(s, &s->marks[n - 1]);
    free(s->marks[n - 1].logits);
    memmove(s->marks + n - 1, s->marks + n, (size_t)(s->n_marks - n) * sizeof *s->marks);
    s->n_marks--;
}

uint64_t k3_session_bytes(const k3_session *s)
{
    uint64_t logits = (uint64_t)s->engine->hp->vocab * sizeof *s->logits;
    uint64_t bytes = k3_state_bytes(s->state) + logits + (uint64_t)s->ids_capacity * sizeof *s->ids;
    for (int i = 0; i < s->n_marks; i++)
        bytes += (s->marks[i].fixed ? s->marks[i].fixed->bytes : 0) + (s->marks[i].logits ? logits : 0);
    return bytes;
}

/* Drops what lies beyond a length: marks, then tokens. Returns the mark that the session stands at now; NULL: it is empty. */
static const k3_mark *cut(k3_session *s, int64_t length)
{
    int keep = marks_before(s, length);
    forget_marks(s, keep);
    const k3_mark *mark = keep ? &s->marks[keep - 1] : NULL;
    s->has_logits = mark && mark->logits;
    if (s->has_logits)
        memcpy(s->logits, mark->logits, (size_t)s->engine->hp->vocab * sizeof *s->logits);
    s->state->length = mark ? mark->length : 0;
    return mark;
}

k3_status k3_session_rewind(k3_session *s, int64_t length, k3_error *err)
{
    if (length < 0 || length > s->state->length)
        return k3_fail(err, K3_E_INVALID, "rewind to %lld: the session holds %lld tokens", (long long)length, (long long)s->state->length);
    const k3_mark *mark = cut(s, length);
    k3_backend *be = s->state->be;
    s->is_stale = 1;
    if (!mark || !mark->fixed || !be)
        return K3_OK;
    be->memory->copy(be, (k3_ref){s->state->fixed, 0}, (k3_ref){mark->fixed, 0}, s->state->fixed->bytes);
    k3_error own;
    err = err ? err : &own;
    k3_status status = be->sync(be, err);
    s->is_stale = status != K3_OK;
    return k3_machine_recover(s->engine, &status, 0, err) ? K3_OK : status;
}

/* ---- computing again ------------------------------------------------------------------------------------------ */

static k3_status replay(k3_session *s, int64_t to, int64_t total, k3_error *err)
{
    k3_engine *engine = s->engine;
    for (int64_t at = s->state->length; at < to; at = s->state->length) {
        if (engine->config.progress && engine->config.progress(engine->config.user, "computing again", (uint64_t)at, (uint64_t)total))
            return k3_fail(err, K3_E_CANCELLED, "cancelled after computing %lld of %lld tokens again", (long long)at, (long long)total);
        int n = to - at < engine->chunk_rows ? (int)(to - at) : engine->chunk_rows;
        k3_span span = {s->state, 0, n};
        k3_pass pass = {.ids = s->ids + at, .n_rows = n, .spans = &span, .n_spans = 1, .is_cancelled = &engine->is_cancelled};
        K3_TRY(k3_forward_run(engine->forward, &pass, err));
    }
    return K3_OK;
}

static k3_status replay_all(k3_session *s, int64_t length, k3_error *err)
{
    /* Without the cache a mark's copy is worth nothing. */
    for (int i = 0; !s->state->be && i < s->n_marks; i++)
        lose_mark(s, &s->marks[i]);
    K3_TRY(k3_state_restart(s->state, s->engine->be, err));
    K3_TRY(k3_state_reserve(s->state, length, err));
    for (int i = 0; i < s->n_marks; i++) {
        K3_TRY(replay(s, s->marks[i].length, length, err));
        K3_TRY(fill_mark(s, &s->marks[i], err));
    }
    return replay(s, length, length, err);
}

/* Makes the state what the ids say. What has rows that were injected, which are not kept, ends at the last mark before them. */
static k3_status revive(k3_session *s, k3_error *err)
{
    int64_t length = s->state->length, known = 0;
    if (!s->is_stale)
        return K3_OK;
    while (known < length && s->ids[known] >= 0)
        known++;
    if (known < length) {
        cut(s, known);
        return k3_fail(err, K3_E_UNSUPPORTED,
                       "the device failed, and token %lld is a row that was injected and cannot be computed again; the session is back at "
                       "%lld tokens",
                       (long long)known, (long long)s->state->length);
    }
    k3_status status = replay_all(s, length, err);
    s->state->length = length;
    s->is_stale = status != K3_OK;
    return status;
}

k3_status k3_session_try(k3_session *s, k3_session_action action, const void *argument, k3_error *err)
{
    k3_error own;
    err = err ? err : &own;
    k3_status status;
    do {
        status = k3_machine_ready(s->engine, err);
        if (status == K3_OK)
            status = revive(s, err);
        if (status == K3_OK)
            status = action(s, argument, err);
    } while (status != K3_OK && k3_machine_recover(s->engine, &status, 0, err));
    return status;
}

/* ---- appending ------------------------------------------------------------------------------------------- */

struct k3_job {
    k3_session *session;
    const int32_t *ids;
    const float *rows; /* NULL, or [n, hidden] */
    float *logits;     /* NULL, or [n, vocab]: every row */
    size_t n, done;
    const k3_draw *draw; /* NULL, or of the last row: an id is wanted, and the job is alone in its call */
    int32_t pick;        /* the id, if the backend draws; otherwise there are logits */
};

static k3_status keep_ids(k3_session *s, int64_t n, k3_error *err)
{
    int64_t need = s->state->length + n;
    if (need <= s->ids_capacity)
        return K3_OK;
    int64_t capacity = need + need / 2 + 64;
    int32_t *grown = realloc(s->ids, (size_t)capacity * sizeof *grown);
    if (!grown)
        return k3_fail(err, K3_E_NOMEM, "session: no memory for %lld ids", (long long)capacity);
    s->ids = grown;
    s->ids_capacity = capacity;
    return K3_OK;
}

static k3_status reserve_state(k3_session *s, const void *length, k3_error *err)
{
    int64_t before = s->state->capacity;
    K3_TRY(k3_state_reserve(s->state, *(const int64_t *)length, err));
    if (s->state->capacity != before)
        k3_machine_tell_growth(s->engine);
    return K3_OK;
}

typedef struct fork_target {
    k3_session *to;
    int64_t length;
} fork_target;

/* The mark's copy, the cache's prefix, the ids. Where the copy is lost the new session computes its state when it is used. */
static k3_status copy_to(k3_session *s, const void *argument, k3_error *err)
{
    const fork_target *target = argument;
    k3_session *to = target->to;
    k3_backend *be = s->state->be;
    int n = marks_before(s, target->length);
    if (!n)
        return K3_OK;
    const k3_mark *mark = &s->marks[n - 1];
    uint64_t bytes = (uint64_t)mark->length * k3_state_cache_row_bytes(s->state);
    K3_TRY(revive(to, err));
    K3_TRY(keep_ids(to, mark->length, err));
    K3_TRY(reserve_state(to, &mark->length, err));
    if (mark->fixed)
        be->memory->copy(be, (k3_ref){to->state->fixed, 0}, (k3_ref){mark->fixed, 0}, mark->fixed->bytes);
    for (int l = 0; l < s->engine->hp->n_layers && bytes; l++)
        if (s->engine->hp->is_mla[l])
            be->memory->copy(be, k3_state_cache(to->state, l), k3_state_cache(s->state, l), bytes);
    K3_TRY(be->sync(be, err));
    memcpy(to->ids, s->ids, (size_t)mark->length * sizeof *s->ids);
    to->state->length = mark->length;
    to->is_stale = !mark->fixed;
    to->has_logits = mark->logits != NULL;
    if (mark->logits)
        memcpy(to->logits, mark->logits, (size_t)s->engine->hp->vocab * sizeof *s->logits);
    return K3_OK;
}

k3_status k3_session_fork(k3_session **out, k3_session *s, int64_t length, k3_error *err)
{
    K3_TRY(k3_session_open(out, s->engine, err));
    k3_status status = k3_session_try(s, copy_to, &(fork_target){*out, length}, err);
    if (status == K3_OK && (*out)->state->length)
        status = k3_session_mark(*out, err);
    if (status != K3_OK) {
        k3_session_close(*out);
        *out = NULL;
    }
    return status;
}

/* Everything that can be wrong with a request is found here, before any state changes. */
static k3_status check_job(const k3_job *job, k3_error *err)
{
    const k3_hparams *hp = job->session->engine->hp;
    int64_t length = job->session->state->length;
    if (!job->n)
        return k3_fail(err, K3_E_INVALID, "append: no tokens given; at least 1 wanted");
    if (job->n > (size_t)(hp->context - length))
        return k3_fail(err, K3_E_INVALID, "append: %zu tokens after %lld exceed the context of %d", job->n, (long long)length, hp->context);
    for (size_t i = 0; i < job->n; i++)
        if (job->ids[i] >= hp->vocab || (job->ids[i] < 0 && !job->rows))
            return k3_fail(err, K3_E_INVALID, "token %zu: id %d is outside the vocabulary (0 to %d)", i, job->ids[i], hp->vocab - 1);
    K3_TRY(keep_ids(job->session, (int64_t)job->n, err));
    length += (int64_t)job->n;
    return k3_session_try(job->session, reserve_state, &length, err);
}

void k3_packing_free(k3_packing *p)
{
    free(p->jobs);
    free(p->ids);
    free(p->want);
    free(p->rows);
    free(p->logits);
    *p = (k3_packing){0};
}

/* Grows *block to n items of `size` bytes; the old contents are not kept. */
static k3_status grow(void **block, size_t *have, size_t n, size_t size, k3_error *err)
{
    if (n <= *have)
        return K3_OK;
    free(*block);
    *block = malloc(n * size);
    *have = *block ? n : 0;
    return *block ? K3_OK : k3_fail(err, K3_E_NOMEM, "append: no memory for %zu items of %zu bytes", n, size);
}

static k3_status reserve(k3_packing *p, const k3_engine *engine, const k3_job *jobs, size_t n_jobs, k3_error *err)
{
    size_t total = 0, wanted = 0, chunk = (size_t)engine->chunk_rows;
    p->injects = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        total += jobs[i].n;
        wanted += jobs[i].logits ? jobs[i].n : 1;
        p->injects |= jobs[i].rows != NULL;
    }
    size_t rows = total < chunk ? total : chunk;
    K3_TRY(grow((void **)&p->ids, &p->max_ids, rows, sizeof *p->ids, err));
    K3_TRY(grow((void **)&p->want, &p->max_want, rows, sizeof *p->want, err));
    if (p->injects)
        K3_TRY(grow((void **)&p->rows, &p->max_rows, rows, (size_t)engine->hp->hidden * sizeof *p->rows, err));
    return grow((void **)&p->logits, &p->max_logits, wanted < rows ? wanted : rows, (size_t)engine->hp->vocab * sizeof *p->logits, err);
}

static void pack_job(k3_packing *p, const k3_engine *engine, k3_job *job)
{
    size_t left = job->n - job->done, room = (size_t)(engine->chunk_rows - p->n_rows), n = left < room ? left : room;
    size_t hidden = (size_t)engine->hp->hidden;
    p->spans[p->n_spans] = (k3_span){job->session->state, p->n_rows, (int)n};
    p->span_jobs[p->n_spans++] = job;
    memcpy(p->ids + p->n_rows, job->ids + job->done, n * sizeof *p->ids);
    if (p->injects && job->rows)
        memcpy(p->rows + (size_t)p->n_rows * hidden, job->rows + job->done * hidden, n * hidden * sizeof *p->rows);
    for (size_t i = 0; i < n; i++)
        if (job->logits || job->done + i + 1 == job->n)
            p->want[p->n_want++] = p->n_rows + (int32_t)i;
    p->n_rows += (int)n;
}

/* Hands the logits of a finished pass to their owners and records the ids. */
static void unpack(k3_packing *p, const k3_engine *engine)
{
    size_t vocab = (size_t)engine->hp->vocab;
    const float *logits = p->logits;
    int i_want = 0;
    for (int i = 0; i < p->n_spans; i++) {
        k3_job *job = p->span_jobs[i];
        k3_session *s = job->session;
        int end = p->spans[i].first + p->spans[i].n, is_picked = job->draw && engine->be->ops->sample;
        for (; i_want < p->n_want && p->want[i_want] < end; i_want++, logits += vocab) {
            size_t row = job->done + (size_t)(p->want[i_want] - p->spans[i].first);
            if (job->logits)
                memcpy(job->logits + row * vocab, logits, vocab * sizeof *logits);
            if (row + 1 == job->n && !is_picked)
                memcpy(s->logits, logits, vocab * sizeof *logits);
        }
        memcpy(s->ids + s->state->length - p->spans[i].n, job->ids + job->done, (size_t)p->spans[i].n * sizeof *s->ids);
        job->done += (size_t)p->spans[i].n;
        s->has_logits = job->done == job->n && !is_picked;
    }
}

/* A pass that broke leaves undefined states: their sessions go back to the last mark that still holds. */
static void roll_back(k3_packing *p)
{
    for (int i = 0; i < p->n_spans; i++) {
        k3_session *s = p->span_jobs[i]->session;
        k3_session_rewind(s, s->state->length, NULL);
    }
}

/* Brings the sessions of a pass to where it starts, which is work only after a failure, and runs it. */
static k3_status run_once(k3_engine *engine, const k3_pass *pass, k3_error *err)
{
    K3_TRY(k3_machine_ready(engine, err));
    for (int i = 0; i < pass->n_spans; i++) {
        k3_session *s = engine->packing.span_jobs[i]->session;
        K3_TRY(revive(s, err));
        K3_TRY(k3_state_reserve(s->state, s->state->length + pass->spans[i].n, err));
    }
    k3_status status = k3_forward_run(engine->forward, pass, err);
    for (int i = 0; status != K3_OK && i < pass->n_spans; i++)
        engine->packing.span_jobs[i]->session->is_stale = 1;
    return status;
}

/* A pass that fails with the device is run again as a whole: nothing of it is ever handed out. */
static k3_status run_pass(k3_engine *engine, const k3_pass *pass, k3_error *err)
{
    k3_error own;
    err = err ? err : &own;
    k3_status status;
    do {
        status = run_once(engine, pass, err);
    } while (status != K3_OK && k3_machine_recover(engine, &status, 1, err));
    if (status == K3_OK)
        k3_machine_trust(engine);
    k3_engine_watch_drives(engine);
    return status;
}

static k3_status run_jobs(k3_engine *engine, k3_job *jobs, size_t n_jobs, k3_error *err)
{
    uint64_t total = 0, done = 0;
    for (size_t i = 0; i < n_jobs; i++) {
        K3_TRY(check_job(&jobs[i], err));
        total += jobs[i].n;
    }
    k3_packing *p = &engine->packing;
    K3_TRY(reserve(p, engine, jobs, n_jobs, err));
    k3_status status = K3_OK;
    for (size_t first = 0; status == K3_OK && done < total;) {
        if (total > (uint64_t)engine->chunk_rows && engine->config.progress &&
            engine->config.progress(engine->config.user, "prefill", done, total)) {
            status =
                k3_fail(err, K3_E_CANCELLED, "cancelled after %llu of %llu tokens", (unsigned long long)done, (unsigned long long)total);
            break;
        }
        p->n_rows = p->n_spans = p->n_want = 0;
        while (first < n_jobs && jobs[first].done == jobs[first].n)
            first++;
        for (size_t i = first; i < n_jobs && p->n_rows < engine->chunk_rows && p->n_spans < K3_MAX_SESSIONS_A_PASS; i++)
            pack_job(p, engine, &jobs[i]);
        k3_pass pass = {.ids = p->ids,
                        .rows = p->injects ? p->rows : NULL,
                        .n_rows = p->n_rows,
                        .spans = p->spans,
                        .n_spans = p->n_spans,
                        .want = p->want,
                        .n_want = p->n_want,
                        .logits = p->logits,
                        .draws = jobs[0].draw,
                        .picks = &jobs[0].pick,
                        .is_cancelled = &engine->is_cancelled};
        status = run_pass(engine, &pass, err);
        if (status == K3_OK)
            unpack(p, engine);
        else
            roll_back(p);
        done += (uint64_t)p->n_rows;
    }
    return status;
}

k3_status k3_session_append(k3_session *s, const int32_t *ids, size_t n, k3_error *err)
{
    return run_jobs(s->engine, &(k3_job){.session = s, .ids = ids, .n = n}, 1, err);
}

k3_status k3_session_append_pick(k3_session *s, k3_sampler *sampler, int32_t *id, const int32_t *ids, size_t n, k3_error *err)
{
    k3_sampling how;
    double u = k3_sampler_next(sampler, &how);
    k3_draw draw = {how.temperature, how.top_p, how.min_p, how.top_k, u};
    k3_job job = {.session = s, .ids = ids, .n = n, .draw = &draw};
    K3_TRY(run_jobs(s->engine, &job, 1, err));
    if (s->has_logits)
        return k3_sampler_pick(sampler, id, s->logits, (size_t)s->engine->hp->vocab, err);
    if (job.pick < 0)
        return k3_fail(err, K3_E_NUMERIC, "logits after token %lld: NaN, +inf or all -inf; finite numbers wanted",
                       (long long)s->state->length - 1);
    k3_sampler_count(sampler);
    *id = job.pick;
    return K3_OK;
}

k3_status k3_session_append_rows(k3_session *s, const int32_t *ids, const float *rows, size_t n, k3_error *err)
{
    return run_jobs(s->engine, &(k3_job){.session = s, .ids = ids, .rows = rows, .n = n}, 1, err);
}

k3_status k3_session_score(k3_session *s, float *logits, const int32_t *ids, size_t n, k3_error *err)
{
    return run_jobs(s->engine, &(k3_job){.session = s, .ids = ids, .logits = logits, .n = n}, 1, err);
}

k3_status k3_sessions_append(k3_session **sessions, const int32_t *const *ids, const size_t *n, size_t n_sessions, k3_error *err)
{
    if (!n_sessions)
        return k3_fail(err, K3_E_INVALID, "append: no sessions given");
    for (size_t i = 0; i < n_sessions; i++)
        for (size_t j = 0; j < i; j++)
            if (sessions[i] == sessions[j] || sessions[i]->engine != sessions[j]->engine)
                return k3_fail(err, K3_E_INVALID, "append: sessions %zu and %zu are %s", j, i,
                               sessions[i] == sessions[j] ? "the same" : "of different engines");
    k3_engine *engine = sessions[0]->engine;
    K3_TRY(grow((void **)&engine->packing.jobs, &engine->packing.max_jobs, n_sessions, sizeof(k3_job), err));
    k3_job *jobs = engine->packing.jobs;
    for (size_t i = 0; i < n_sessions; i++)
        jobs[i] = (k3_job){.session = sessions[i], .ids = ids[i], .n = n[i]};
    return run_jobs(engine, jobs, n_sessions, err);
}
