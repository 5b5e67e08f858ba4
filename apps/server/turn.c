#include "turn.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct srv_turn {
    const srv_ask *ask;
    const k3_engine *engine;
    srv_job *job;
    /* Used by the scheduler's thread only. */
    k3_chat_parser *parser;
    k3_stop *stop;
    k3_utf8 utf8;
    app_buffer content; /* as the model wrote it, stop strings included */
    size_t n_shown;     /* of it */
    struct held {       /* log-probabilities of tokens whose text was not shown yet */
        srv_entry entry;
        size_t at; /* where their text begins in the content; SIZE_MAX: it has not come yet */
    } * held;
    size_t n_held, held_capacity;
    int matched, done, n_calls;
    k3_status status;
    k3_error err;
    /* Shared, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    srv_batch pending;
    srv_state state;
    size_t i_id; /* ids up to here belong to earlier events */
    int has_news;
};

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void *grow(void *memory, size_t n, size_t *capacity, size_t size)
{
    if (n < *capacity)
        return memory;
    size_t wanted = 2 * *capacity + 16;
    char *bigger = app_alloc(wanted, size);
    if (n)
        memcpy(bigger, memory, n * size);
    free(memory);
    *capacity = wanted;
    return bigger;
}

void srv_batch_clear(srv_batch *batch)
{
    batch->n = batch->n_entries = batch->ids.n = 0;
    app_buffer_clear(&batch->text);
}

void srv_batch_free(srv_batch *batch)
{
    free(batch->events);
    free(batch->entries);
    free(batch->ids.ids);
    app_buffer_free(&batch->text);
    *batch = (srv_batch){0};
}

static void add_id(k3_tokens *ids, int32_t id)
{
    ids->ids = grow(ids->ids, ids->n, &ids->capacity, sizeof *ids->ids);
    ids->ids[ids->n++] = id;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void add_event(srv_turn *t, srv_event_kind kind, int index, const char *text, size_t n)
{
    srv_batch *b = &t->pending;
    b->events = grow(b->events, b->n, &b->capacity, sizeof *b->events);
    b->events[b->n++] = (srv_event){
        .kind = kind, .index = index, .at = b->text.n, .n = n, .i_entry = b->n_entries, .i_id = t->i_id, .n_ids = b->ids.n - t->i_id};
    t->i_id = b->ids.n;
    app_buffer_add(&b->text, text, n);
}

/* Tokens whose text has begun to be shown go out with the piece that shows it. */
static void add_entries(srv_turn *t)
{
    srv_batch *b = &t->pending;
    size_t n = 0;
    while (n < t->n_held && t->held[n].at < t->n_shown) {
        b->entries = grow(b->entries, b->n_entries, &b->entry_capacity, sizeof *b->entries);
        b->entries[b->n_entries++] = t->held[n++].entry;
    }
    if (!n)
        return;
    b->events[b->n - 1].n_entries = n;
    t->n_held -= n;
    memmove(t->held, t->held + n, t->n_held * sizeof *t->held);
}

static void show(srv_turn *t, const char *text, size_t n)
{
    if (!n)
        return;
    t->n_shown += n;
    add_event(t, SRV_CONTENT, 0, text, n);
    add_entries(t);
}

static void push_content(srv_turn *t, const char *text, size_t n)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    if (!n || t->status != K3_OK || t->matched)
        return;
    for (size_t i = t->n_held; i-- > 0 && t->held[i].at == SIZE_MAX;)
        t->held[i].at = t->content.n;
    app_buffer_add(&t->content, text, n);
    t->status = k3_stop_push(t->stop, &safe, &n_safe, &t->matched, text, n, &t->err);
    if (t->status == K3_OK)
        show(t, safe, n_safe);
}

static void flush_content(srv_turn *t)
{
    const char *safe = NULL;
    size_t n_safe = 0;
    if (t->matched)
        return;
    k3_stop_flush(t->stop, &safe, &n_safe);
    show(t, safe, n_safe);
}

static void on_event(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    srv_turn *t = user;
    int is_call = kind == K3_CHAT_CALL || kind == K3_CHAT_ARGUMENTS || kind == K3_CHAT_CALL_END;
    if (is_call && (t->matched || !t->ask->has_tools || t->ask->choice == SRV_CHOICE_NONE || (t->ask->one_call && index > 0)))
        return;
    switch (kind) {
    case K3_CHAT_REASONING:
        t->state.n_reasoning = t->state.n_new;
        t->n_held = 0;
        add_event(t, SRV_REASONING, 0, text, n);
        break;
    case K3_CHAT_CONTENT:
        push_content(t, text, n);
        break;
    case K3_CHAT_CALL:
        flush_content(t);
        add_event(t, SRV_CALL, index, text, n);
        break;
    case K3_CHAT_ARGUMENTS:
        add_event(t, SRV_ARGUMENTS, index, text, n);
        break;
    case K3_CHAT_CALL_END:
        t->n_calls++;
        add_event(t, SRV_CALL_END, index, "", 0);
        break;
    }
}

/* ---- the scheduler's calls --------------------------------------------------------------------------------------- */

static void wake(srv_turn *t)
{
    t->has_news = 1;
    pthread_cond_signal(&t->woken);
    pthread_mutex_unlock(&t->lock);
}

static void on_begin(void *user, int64_t n_cached)
{
    srv_turn *t = user;
    pthread_mutex_lock(&t->lock);
    t->state.has_begun = 1;
    t->state.n_cached = n_cached < t->ask->n_prompt ? n_cached : t->ask->n_prompt;
    wake(t);
}

/* A marker begins another element: what was held before it had no text to show. */
static void hold(srv_turn *t, const srv_token *token)
{
    if (k3_token_is_special(t->engine, token->id)) {
        while (t->n_held && t->held[t->n_held - 1].at == SIZE_MAX)
            t->n_held--;
        return;
    }
    t->held = grow(t->held, t->n_held, &t->held_capacity, sizeof *t->held);
    struct held *h = &t->held[t->n_held++];
    *h = (struct held){.entry = {.id = token->id, .logprob = token->logprob, .n_top = token->n_top < 20 ? token->n_top : 20},
                       .at = SIZE_MAX};
    for (int i = 0; i < h->entry.n_top; i++) {
        h->entry.top_ids[i] = token->top_ids[i];
        h->entry.top_logprobs[i] = token->top_logprobs[i];
    }
}

/* Text of an answer that is no chat. */
static void push_text(srv_turn *t, int32_t id)
{
    const char *bytes = NULL;
    size_t n = 0;
    t->status = k3_token_bytes(t->engine, &bytes, &n, id, &t->err);
    if (t->status != K3_OK)
        return;
    if (k3_token_is_special(t->engine, id)) {
        /* The released configuration names the one, the tokenizer's the other. */
        t->done = id == k3_engine_info(t->engine)->eos_id || (n == 5 && memcmp(bytes, "[EOS]", 5) == 0);
        return;
    }
    char *text = app_alloc(3 * (n + 3), 1);
    push_content(t, text, k3_utf8_push(&t->utf8, text, bytes, n));
    free(text);
}

static int on_token(void *user, const srv_token *token)
{
    srv_turn *t = user;
    pthread_mutex_lock(&t->lock);
    t->state.n_new++;
    add_id(&t->pending.ids, token->id);
    if (t->ask->n_top >= 0)
        hold(t, token);
    if (t->parser && t->status == K3_OK) {
        k3_status status = k3_chat_parser_push(t->parser, token->id, &t->done, &t->err);
        t->status = t->status == K3_OK ? status : t->status;
    } else if (t->status == K3_OK) {
        push_text(t, token->id);
    }
    int ends = t->done || t->matched || t->status != K3_OK || (t->ask->one_call && t->n_calls);
    wake(t);
    return ends;
}

/* Which of the stop strings it was: of those that end first the longest. */
static int matched_stop(const srv_turn *t)
{
    size_t first = SIZE_MAX;
    int best = -1;
    for (size_t i = 0; i < t->ask->n_stops; i++) {
        const app_buffer *s = &t->ask->stops[i];
        const char *found = t->content.n ? memmem(t->content.text, t->content.n, s->text, s->n) : NULL;
        size_t end = found ? (size_t)(found - t->content.text) + s->n : SIZE_MAX;
        if (end < first || (found && end == first && s->n > t->ask->stops[best].n)) {
            first = end;
            best = (int)i;
        }
    }
    return best;
}

static void on_end(void *user, srv_end how, const k3_error *err)
{
    srv_turn *t = user;
    pthread_mutex_lock(&t->lock);
    if (t->parser) {
        k3_chat_parser_finish(t->parser);
    } else {
        char rest[16];
        push_content(t, rest, k3_utf8_push(&t->utf8, rest, NULL, 0));
    }
    flush_content(t);
    t->state.finish = t->n_calls                                         ? SRV_FINISH_CALLS
                      : how == SRV_END_LENGTH && !t->done && !t->matched ? SRV_FINISH_LENGTH
                                                                         : SRV_FINISH_STOP;
    t->state.i_stop = t->matched ? matched_stop(t) : -1;
    t->state.was_cancelled = how == SRV_END_CANCELLED;
    t->state.has_failed = how == SRV_END_ERROR || how == SRV_END_CANCELLED || t->status != K3_OK;
    if (t->status != K3_OK)
        t->state.err = t->err;
    else if (err)
        t->state.err = *err;
    t->state.has_ended = 1;
    wake(t);
}

/* ---- the connection's calls -------------------------------------------------------------------------------------- */

k3_status srv_turn_open(srv_turn **out, const k3_engine *engine, const srv_ask *ask, k3_error *err)
{
    srv_turn *t = app_alloc(1, sizeof *t);
    const char **stops = app_alloc(ask->n_stops, sizeof *stops);
    size_t *lengths = app_alloc(ask->n_stops, sizeof *lengths);
    *t = (srv_turn){.ask = ask, .engine = engine, .state = {.i_stop = -1, .n_prompt = ask->n_prompt}};
    for (size_t i = 0; i < ask->n_stops; i++) {
        stops[i] = ask->stops[i].text;
        lengths[i] = ask->stops[i].n;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
#ifndef __APPLE__
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
#endif
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->woken, &attributes);
    pthread_condattr_destroy(&attributes);
    k3_status status = k3_stop_open(&t->stop, stops, lengths, ask->n_stops, err);
    if (status == K3_OK && ask->is_chat)
        status = k3_chat_parser_open(&t->parser, engine, ask->thinking, on_event, t, err);
    free(stops);
    free(lengths);
    if (status != K3_OK)
        srv_turn_close(t);
    else
        *out = t;
    return status;
}

srv_sink srv_turn_sink(srv_turn *turn)
{
    return (srv_sink){.begin = on_begin, .token = on_token, .end = on_end, .user = turn};
}

static k3_status narrow(void *user, float *logits, size_t n, k3_error *err)
{
    return k3_constraint_narrow(user, logits, n, err);
}

static k3_status follow(void *user, int32_t id, k3_error *err)
{
    return k3_constraint_push(user, id, err);
}

k3_status srv_turn_submit(srv_turn *turn, srv_scheduler *scheduler, k3_error *err)
{
    const srv_ask *ask = turn->ask;
    srv_settings settings = {.ids = ask->ids.ids,
                             .n = ask->ids.n,
                             .sampling = ask->sampling,
                             .adjust = ask->adjust,
                             .max_tokens = ask->max_tokens,
                             .n_top = ask->n_top,
                             .constrain = ask->constraint ? narrow : NULL,
                             .accept = ask->constraint ? follow : NULL,
                             .constraint = ask->constraint};
    srv_sink sink = srv_turn_sink(turn);
    return srv_submit(&turn->job, scheduler, &settings, &sink, err);
}

int srv_turn_wait(srv_turn *turn, double seconds)
{
    struct timespec until;
#ifdef __APPLE__
    clock_gettime(CLOCK_REALTIME, &until);
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
#endif
    until.tv_sec += (time_t)seconds;
    until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&turn->lock);
    while (!turn->has_news && pthread_cond_timedwait(&turn->woken, &turn->lock, &until) != ETIMEDOUT)
        ;
    int has_news = turn->has_news;
    pthread_mutex_unlock(&turn->lock);
    return has_news;
}

void srv_turn_take(srv_turn *turn, srv_batch *batch, srv_state *state)
{
    pthread_mutex_lock(&turn->lock);
    srv_batch empty = *batch;
    *batch = turn->pending;
    turn->pending = empty;
    for (size_t i = turn->i_id; i < batch->ids.n; i++)
        add_id(&turn->pending.ids, batch->ids.ids[i]);
    turn->i_id = 0;
    turn->has_news = 0;
    *state = turn->state;
    pthread_mutex_unlock(&turn->lock);
}

void srv_turn_cancel(srv_turn *turn)
{
    if (turn->job)
        srv_cancel(turn->job);
}

void srv_turn_close(srv_turn *turn)
{
    if (!turn)
        return;
    if (turn->job) {
        srv_cancel(turn->job);
        srv_release(turn->job);
    }
    k3_chat_parser_close(turn->parser);
    k3_stop_close(turn->stop);
    srv_batch_free(&turn->pending);
    app_buffer_free(&turn->content);
    free(turn->held);
    pthread_mutex_destroy(&turn->lock);
    pthread_cond_destroy(&turn->woken);
    free(turn);
}
