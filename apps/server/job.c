#include "job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fail.h"

/* ---- opening --------------------------------------------------------------------------------------------------- */

/* The ranges of what changes logits are known to k3_logits_adjust, which is asked with logits that nobody reads. */
static k3_status check_adjustment(const k3_adjustment *adjust, size_t vocab, k3_error *err)
{
    float *logits = calloc(vocab, sizeof *logits);
    k3_status status = logits ? k3_logits_adjust(logits, vocab, adjust, NULL, 0, err) : srv_fail(err, K3_E_NOMEM, "request: out of memory");
    free(logits);
    return status;
}

static k3_status check(const srv_settings *s, size_t vocab, int64_t context, k3_error *err)
{
    if (!s->n)
        return srv_fail(err, K3_E_INVALID, "prompt: no tokens given; at least 1 wanted");
    if (s->n >= (uint64_t)context)
        return srv_fail(err, K3_E_INVALID, "prompt: %zu tokens leave no room for an answer in the context of %lld", s->n,
                        (long long)context);
    for (size_t i = 0; i < s->n; i++)
        if (s->ids[i] < 0 || (size_t)s->ids[i] >= vocab)
            return srv_fail(err, K3_E_INVALID, "prompt: token %zu: id %d is outside the vocabulary (0 to %zu)", i, s->ids[i], vocab - 1);
    if (s->n_top < -1 || s->n_top > SRV_MOST_TOP || (s->n_top > 0 && (size_t)s->n_top > vocab))
        return srv_fail(err, K3_E_INVALID, "log-probabilities: %d alternatives asked for; 0 to %d wanted, or -1", s->n_top,
                        (int)SRV_MOST_TOP);
    return check_adjustment(&s->adjust, vocab, err);
}

static void *copy_of(const void *from, size_t n_bytes)
{
    void *copy = malloc(n_bytes ? n_bytes : 1);
    if (copy && n_bytes)
        memcpy(copy, from, n_bytes);
    return copy;
}

k3_status srv_job_open(srv_job **out, const srv_settings *settings, const srv_sink *sink, size_t vocab, int64_t context, k3_error *err)
{
    *out = NULL;
    k3_status status = check(settings, vocab, context, err);
    if (status != K3_OK)
        return status;
    srv_job *job = calloc(1, sizeof *job);
    if (!job)
        return srv_fail(err, K3_E_NOMEM, "request: out of memory");
    size_t n_biases = settings->adjust.n_biases;
    int64_t room = context - (int64_t)settings->n;
    job->settings = *settings;
    job->sink = *sink;
    job->n = job->n_prompt = job->capacity = (int64_t)settings->n;
    job->n_most = job->n + (settings->max_tokens > 0 && settings->max_tokens < room ? settings->max_tokens : room);
    job->ids = copy_of(settings->ids, settings->n * sizeof *job->ids);
    job->settings.adjust.bias_ids = copy_of(settings->adjust.bias_ids, n_biases * sizeof(int32_t));
    job->settings.adjust.biases = copy_of(settings->adjust.biases, n_biases * sizeof(float));
    if (!job->ids || !job->settings.adjust.bias_ids || !job->settings.adjust.biases)
        status = srv_fail(err, K3_E_NOMEM, "request: no memory for %zu ids", settings->n);
    if (status == K3_OK)
        status = k3_sampler_open(&job->sampler, &settings->sampling, err);
    if (status != K3_OK) {
        srv_job_close(job);
        return status;
    }
    *out = job;
    return K3_OK;
}

/* The arrays are this job's own, though the settings do not let others write to them. */
static void free_array(const void *array)
{
    union {
        const void *in;
        void *out;
    } p = {array};
    free(p.out);
}

void srv_job_close(srv_job *job)
{
    if (!job)
        return;
    k3_sampler_close(job->sampler);
    free_array(job->settings.adjust.bias_ids);
    free_array(job->settings.adjust.biases);
    free(job->ids);
    free(job);
}

/* ---- how far it is --------------------------------------------------------------------------------------------- */

int64_t srv_job_pending(const srv_job *job)
{
    return job->n - k3_session_length(job->kept->session);
}

int64_t srv_job_chunk(const srv_job *job, int64_t mark_interval)
{
    int64_t length = k3_session_length(job->kept->session), end = length < job->n_prompt ? job->n_prompt : job->n;
    if (length < job->branch && job->branch < end)
        end = job->branch;
    if (length < job->n_prompt && mark_interval > 0 && end > (length / mark_interval + 1) * mark_interval)
        end = (length / mark_interval + 1) * mark_interval;
    return end - length;
}

int srv_job_keeps_mark(const srv_job *job, int64_t length, int64_t mark_interval)
{
    int is_inside = length < job->n_prompt && (length == job->branch || (mark_interval > 0 && length % mark_interval == 0));
    return is_inside || length == job->n_prompt;
}

k3_status srv_job_check(const srv_job *job, size_t vocab, k3_error *err)
{
    const float *logits = k3_session_logits(job->kept->session);
    for (size_t i = 0; logits && i < vocab; i++)
        if (!isfinite(logits[i]))
            return srv_fail(err, K3_E_NUMERIC, "prompt: the logits after token %lld are no numbers, that of id %zu is %g",
                            (long long)k3_session_length(job->kept->session) - 1, i, (double)logits[i]);
    return K3_OK;
}

/* ---- picking --------------------------------------------------------------------------------------------------- */

static int is_plain(const srv_settings *s)
{
    const k3_adjustment *a = &s->adjust;
    int has_penalty = a->presence != 0 || a->frequency != 0 || a->repetition != 0;
    return !s->constrain && !a->n_biases && (!has_penalty || a->window == 0);
}

static k3_status pick(srv_job *job, int32_t *id, const float *raw, srv_scratch *scratch, k3_error *err)
{
    const srv_settings *s = &job->settings;
    k3_status status = K3_OK;
    if (is_plain(s))
        return k3_sampler_pick(job->sampler, id, raw, scratch->vocab, err);
    memcpy(scratch->logits, raw, scratch->vocab * sizeof *raw);
    status = k3_logits_adjust(scratch->logits, scratch->vocab, &s->adjust, job->ids, (size_t)job->n, err);
    if (status == K3_OK && s->constrain)
        status = s->constrain(s->constraint, scratch->logits, scratch->vocab, err);
    return status == K3_OK ? k3_sampler_pick(job->sampler, id, scratch->logits, scratch->vocab, err) : status;
}

static k3_status keep_id(srv_job *job, int32_t id, k3_error *err)
{
    if (job->n == job->capacity) {
        int64_t capacity = job->capacity + job->capacity / 2 + 64;
        int32_t *grown = realloc(job->ids, (size_t)capacity * sizeof *grown);
        if (!grown)
            return srv_fail(err, K3_E_NOMEM, "request: no memory for %lld ids", (long long)capacity);
        job->ids = grown;
        job->capacity = capacity;
    }
    job->ids[job->n++] = id;
    return K3_OK;
}

k3_status srv_job_pick(srv_job *job, int *is_over, srv_end *how, srv_scratch *scratch, int eos, k3_error *err)
{
    const srv_settings *s = &job->settings;
    const float *raw = k3_session_logits(job->kept->session);
    srv_token token = {.top_ids = scratch->top_ids, .top_logprobs = scratch->top_logprobs};
    k3_status status = pick(job, &token.id, raw, scratch, err);
    if (status == K3_OK && s->n_top >= 0) {
        token.n_top = s->n_top;
        status = k3_logprobs(&token.logprob, scratch->top_ids, scratch->top_logprobs, (size_t)s->n_top, token.id, raw, scratch->vocab, err);
    }
    if (status == K3_OK)
        status = keep_id(job, token.id, err);
    if (status == K3_OK && s->accept)
        status = s->accept(s->constraint, token.id, err);
    if (status != K3_OK)
        return status;
    int is_stopped = job->sink.token(job->sink.user, &token) != 0 || token.id == eos;
    *is_over = is_stopped || job->n == job->n_most;
    *how = is_stopped ? SRV_END_STOP : SRV_END_LENGTH;
    return K3_OK;
}
