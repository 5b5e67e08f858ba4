#include "server/clients.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t change = PTHREAD_COND_INITIALIZER;
static int is_open = 1;

void must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("status %d: %s", (int)status, err->text);
}

void refused(k3_status status, k3_status wanted, const k3_error *err, const char *part)
{
    if (status != wanted || !strstr(err->text, part))
        fail_msg("status %d, \"%s\"; wanted %d and \"%s\"", (int)status, status ? err->text : "", (int)wanted, part);
}

static void set_gate(int open)
{
    pthread_mutex_lock(&lock);
    is_open = open;
    pthread_cond_broadcast(&change);
    pthread_mutex_unlock(&lock);
}

void clients_go(void)
{
    set_gate(1);
}

void clients_hold(void)
{
    set_gate(0);
}

static void begin(void *user, int64_t n_cached)
{
    client *c = user;
    c->n_begins++;
    c->n_cached = n_cached;
    pthread_mutex_lock(&lock);
    while (c->holds && !is_open)
        pthread_cond_wait(&change, &lock);
    pthread_mutex_unlock(&lock);
}

static void progress(void *user, int64_t n_done)
{
    client *c = user;
    c->n_done = n_done;
    if (c->cancel_done && n_done >= c->cancel_done)
        srv_cancel(c->job);
}

static int token(void *user, const srv_token *t)
{
    client *c = user;
    if (!c->n && c->other) {
        c->other_n = c->other->n;
        c->other_done = c->other->n_done;
    }
    if (c->n < CLIENT_NEW) {
        c->ids[c->n] = t->id;
        c->logprobs[c->n] = t->logprob;
    }
    c->n++;
    if (c->cancel_after && c->n == c->cancel_after)
        srv_cancel(c->job);
    return c->stop_after && c->n >= c->stop_after;
}

static void end(void *user, srv_end how, const k3_error *err)
{
    client *c = user;
    c->n_ends++;
    c->how = how;
    if (err)
        c->err = *err;
}

void client_text(int32_t *ids, int n)
{
    for (int i = 0; i < n; i++)
        ids[i] = (i * i % 241 + 73 * i + 5) % 250;
}

client client_new(const int32_t *ids, size_t n, int64_t max_tokens)
{
    return (client){.settings = {.ids = ids, .n = n, .sampling = {.top_p = 1}, .max_tokens = max_tokens, .n_top = -1}};
}

void client_submit(client *c, srv_scheduler *scheduler)
{
    k3_error err;
    srv_sink sink = {begin, progress, token, end, c};
    must(srv_submit(&c->job, scheduler, &c->settings, &sink, &err), &err);
}

void client_wait(client *c)
{
    srv_release(c->job);
    c->job = NULL;
    assert_int_equal(c->n_ends, 1);
    assert_true(c->n_begins <= 1);
}

void client_run(client *c, srv_scheduler *scheduler)
{
    client_submit(c, scheduler);
    client_wait(c);
    if (c->how == SRV_END_ERROR)
        fail_msg("%s", c->err.text);
}

void client_solo(client *c, k3_engine *engine)
{
    const srv_settings *s = &c->settings;
    size_t vocab = (size_t)k3_engine_info(engine)->vocab_size, n = s->n;
    int32_t *history = malloc((n + CLIENT_NEW) * sizeof *history);
    float *logits = malloc(vocab * sizeof *logits);
    k3_session *session;
    k3_sampler *sampler;
    k3_error err;
    memcpy(history, s->ids, n * sizeof *history);
    must(k3_session_open(&session, engine, &err), &err);
    must(k3_sampler_open(&sampler, &s->sampling, &err), &err);
    must(k3_session_append(session, history, n, &err), &err);
    for (c->n = 0; c->n < s->max_tokens;) {
        int32_t id;
        memcpy(logits, k3_session_logits(session), vocab * sizeof *logits);
        must(k3_logits_adjust(logits, vocab, &s->adjust, history, n, &err), &err);
        must(k3_sampler_pick(sampler, &id, logits, vocab, &err), &err);
        if (s->n_top >= 0)
            must(k3_logprobs(&c->logprobs[c->n], NULL, NULL, 0, id, k3_session_logits(session), vocab, &err), &err);
        history[n++] = c->ids[c->n++] = id;
        if (id == k3_engine_info(engine)->eos_id)
            break;
        must(k3_session_append(session, &id, 1, &err), &err);
    }
    k3_sampler_close(sampler);
    k3_session_close(session);
    free(history);
    free(logits);
}

void client_equal(const client *got, const client *want)
{
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, (size_t)want->n * sizeof *want->ids);
    assert_memory_equal(got->logprobs, want->logprobs, (size_t)want->n * sizeof *want->logprobs);
}

srv_scheduler *scheduler_open(k3_engine *engine, const srv_limits *limits)
{
    srv_scheduler *scheduler;
    k3_error err;
    must(srv_scheduler_open(&scheduler, engine, limits, &err), &err);
    return scheduler;
}
