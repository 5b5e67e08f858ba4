#include "fake_scheduler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct srv_scheduler {
    int unused;
};

struct srv_job {
    fake_script script;
    int32_t *ids; /* a copy of the script's */
    srv_sink sink;
    int64_t max_tokens;
    int n_top, is_cancelled, has_ended;
    pthread_t thread;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static fake_script playing;
static fake_seen seen;
static int n_released;

void fake_play(const fake_script *script)
{
    pthread_mutex_lock(&lock);
    playing = *script;
    n_released = 0;
    pthread_mutex_unlock(&lock);
}

void fake_release(void)
{
    pthread_mutex_lock(&lock);
    n_released = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

const fake_seen *fake_look(void)
{
    return &seen;
}

void fake_reset(void)
{
    pthread_mutex_lock(&lock);
    memset(&seen, 0, sizeof seen);
    pthread_mutex_unlock(&lock);
}

void fake_wait_ended(int n)
{
    pthread_mutex_lock(&lock);
    while (seen.n_ended < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void fake_wait_tokens(size_t n)
{
    pthread_mutex_lock(&lock);
    while (seen.n_tokens < n)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* 1 if the request was cancelled. */
static int pause_job(srv_job *job, int waits)
{
    pthread_mutex_lock(&lock);
    while (waits && !n_released && !job->is_cancelled)
        pthread_cond_wait(&changed, &lock);
    int cancelled = job->is_cancelled;
    pthread_mutex_unlock(&lock);
    return cancelled;
}

static srv_end play(srv_job *job)
{
    const fake_script *s = &job->script;
    if (pause_job(job, s->wait_to_begin))
        return SRV_END_CANCELLED;
    job->sink.begin(job->sink.user, s->n_cached);
    for (size_t i = 0; i < s->n; i++) {
        int32_t top_ids[20];
        float top[20];
        if (pause_job(job, i == s->stop_before))
            return SRV_END_CANCELLED;
        for (int k = 0; k < 20; k++) {
            top_ids[k] = k ? 32 + k : s->ids[i];
            top[k] = -0.5f * (float)(k + 1);
        }
        srv_token token = {.id = s->ids[i], .logprob = -0.5f, .top_ids = top_ids, .top_logprobs = top, .n_top = job->n_top};
        int ends = job->sink.token(job->sink.user, &token);
        pthread_mutex_lock(&lock);
        seen.n_tokens++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        if (ends)
            return SRV_END_STOP;
        if (job->max_tokens > 0 && (int64_t)i + 1 >= job->max_tokens)
            return SRV_END_LENGTH;
    }
    if (pause_job(job, s->stop_before == s->n))
        return SRV_END_CANCELLED;
    return s->error ? SRV_END_ERROR : SRV_END_LENGTH;
}

static void *run(void *user)
{
    srv_job *job = user;
    srv_end how = play(job);
    k3_error err = {.status = K3_E_NUMERIC};
    snprintf(err.text, sizeof err.text, "%s", job->script.error ? job->script.error : "");
    job->sink.end(job->sink.user, how, how == SRV_END_ERROR ? &err : NULL);
    pthread_mutex_lock(&lock);
    job->has_ended = 1;
    seen.n_ended++;
    seen.n_running--;
    seen.n_cancelled += how == SRV_END_CANCELLED;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

k3_status srv_scheduler_open(srv_scheduler **out, k3_engine *engine, const srv_limits *limits, k3_error *err)
{
    (void)engine, (void)limits, (void)err;
    *out = calloc(1, sizeof **out);
    return K3_OK;
}

void srv_scheduler_close(srv_scheduler *scheduler)
{
    free(scheduler);
}

static void look(const srv_settings *s)
{
    seen.n = s->n < sizeof seen.ids / sizeof *seen.ids ? s->n : sizeof seen.ids / sizeof *seen.ids;
    memcpy(seen.ids, s->ids, seen.n * sizeof *seen.ids);
    seen.sampling = s->sampling;
    seen.presence = s->adjust.presence;
    seen.frequency = s->adjust.frequency;
    seen.repetition = s->adjust.repetition;
    seen.window = s->adjust.window;
    seen.n_biases = s->adjust.n_biases;
    for (size_t i = 0; i < s->adjust.n_biases && i < 8; i++) {
        seen.bias_ids[i] = s->adjust.bias_ids[i];
        seen.biases[i] = s->adjust.biases[i];
    }
    seen.max_tokens = s->max_tokens;
    seen.n_top = s->n_top;
    seen.is_narrowed = s->constrain && s->accept && s->constraint;
}

k3_status srv_submit(srv_job **out, srv_scheduler *scheduler, const srv_settings *settings, const srv_sink *sink, k3_error *err)
{
    (void)scheduler;
    pthread_mutex_lock(&lock);
    k3_status refusal = playing.refusal;
    srv_job *job = calloc(1, sizeof *job);
    *job = (srv_job){.script = playing, .sink = *sink, .max_tokens = settings->max_tokens, .n_top = settings->n_top};
    if (refusal == K3_OK && playing.n) {
        job->ids = malloc(playing.n * sizeof *job->ids);
        memcpy(job->ids, playing.ids, playing.n * sizeof *job->ids);
        job->script.ids = job->ids;
    }
    if (refusal == K3_OK) {
        look(settings);
        seen.n_submitted++;
        seen.n_running++;
    }
    pthread_mutex_unlock(&lock);
    if (refusal != K3_OK) {
        free(job);
        *err = (k3_error){refusal, "the queue is full"};
        return refusal;
    }
    *out = job;
    return pthread_create(&job->thread, NULL, run, job) == 0 ? K3_OK : K3_E_NOMEM;
}

void srv_cancel(srv_job *job)
{
    pthread_mutex_lock(&lock);
    job->is_cancelled = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

void srv_release(srv_job *job)
{
    pthread_join(job->thread, NULL);
    free(job->ids);
    free(job);
}

void srv_count(srv_scheduler *scheduler, srv_counts *out)
{
    (void)scheduler;
    *out = (srv_counts){.requests = (uint64_t)seen.n_submitted, .new_tokens = seen.n_tokens};
}
