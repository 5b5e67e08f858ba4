/* Many requests on one engine. A thread of its own owns the engine and runs passes in which rows of all requests stand side by side: one
 * row of each request that decodes first, then prompts in bounded chunks, so that an expert that is read serves every row that wants it.
 *
 * Order: a request that waits for a place is admitted in order of arrival; at most `max_running` run and `max_waiting` wait, further ones
 * are refused. One whose prompt begins with what another is just computing waits until that is done, while later ones pass. What runs
 * shares each pass: prompts divide what room there is evenly, so that a short prompt is not behind a long one.
 *
 * Prefixes: a request begins with what a kept session, or that of a request that runs, shares with its prompt, up to the last mark there
 * (prefix.h). Marks are set at the end of a prompt, at the end of an answer, every `mark_interval` tokens of a prompt, and where a prompt
 * parts from another. Sessions that nobody uses are kept, the least recently used one is given up first, within `cache_bytes`. What a
 * request answers never depends on what was kept, nor on what runs beside it.
 *
 * Trouble stays with the request that has it: logits that are no numbers end that request and close its session; a pass that breaks is run
 * again request by request. */
#ifndef K3_APPS_SERVER_SCHEDULER_H
#define K3_APPS_SERVER_SCHEDULER_H

#include <stddef.h>
#include <stdint.h>

#include "k3.h"

typedef struct srv_scheduler srv_scheduler;
typedef struct srv_job srv_job;

typedef struct srv_limits {
    int max_running, max_waiting;
    int64_t context;          /* tokens of prompt and answer together; 0: the model's */
    int64_t mark_interval;    /* tokens; 0: no marks inside a prompt */
    uint64_t cache_bytes;     /* of kept sessions that no request uses */
    const char *cache_folder; /* NULL: kept sessions are not written; else they are there again after a restart. */
} srv_limits;

/* A token of an answer. What ends a message (k3_info.eos_id) comes as a token too, the last one. */
typedef struct srv_token {
    int32_t id;
    float logprob;          /* of raw logits; set where n_top >= 0 was asked */
    const int32_t *top_ids; /* [n_top], falling */
    const float *top_logprobs;
    int n_top;
} srv_token;

typedef enum srv_end {
    SRV_END_STOP,      /* the sink asked for it, or the model ended the message (eos) */
    SRV_END_LENGTH,    /* max_tokens, or the context is full */
    SRV_END_CANCELLED, /* srv_cancel */
    SRV_END_ERROR      /* err tells */
} srv_end;

/* Called on the scheduler's thread, between passes; must not block and must not call the scheduler, except srv_cancel. */
typedef struct srv_sink {
    void (*begin)(void *user, int64_t n_cached);               /* admitted: so many tokens of the prompt need not be computed */
    void (*progress)(void *user, int64_t n_done);              /* tokens of the prompt that are computed or were kept; may be NULL */
    int (*token)(void *user, const srv_token *token);          /* nonzero: the answer ends here, this token included (a stop string) */
    void (*end)(void *user, srv_end how, const k3_error *err); /* once, the last call; err is NULL but for SRV_END_ERROR */
    void *user;
} srv_sink;

typedef struct srv_settings {
    const int32_t *ids; /* [n] prompt; copied */
    size_t n;
    k3_sampling sampling;
    k3_adjustment adjust; /* its arrays are copied */
    int64_t max_tokens;   /* new tokens; <= 0: as many as the context leaves */
    int n_top;            /* -1: no log-probabilities; else for so many alternatives, 0 to 20 */
    /* Each NULL, or narrows logits [n] before each pick, and takes each picked id before the sink does; called on the scheduler's thread.
     * Nonzero is an error of this request. */
    k3_status (*constrain)(void *user, float *logits, size_t n, k3_error *err);
    k3_status (*accept)(void *user, int32_t id, k3_error *err);
    void *constraint;
} srv_settings;

k3_status srv_scheduler_open(srv_scheduler **out, k3_engine *engine, const srv_limits *limits, k3_error *err);
/* Ends every request as cancelled, then the thread; handles stay valid until srv_release, which may come later. The engine stays open. */
void srv_scheduler_close(srv_scheduler *scheduler);

/* Queues a request. Refused at once, nothing queued and no sink called: K3_E_INVALID for an empty prompt, ids outside the vocabulary,
 * settings out of range or a prompt that does not fit the context with one token more; K3_E_NOMEM when max_waiting wait already. */
k3_status srv_submit(srv_job **out, srv_scheduler *scheduler, const srv_settings *settings, const srv_sink *sink, k3_error *err);
/* Any thread, any number of times until srv_release: the request ends, queued or running, within one layer of a pass that serves cancelled
 * requests only, within one pass otherwise. */
void srv_cancel(srv_job *job);
/* Gives the handle up; blocks until `end` has returned (srv_cancel first to make that soon). */
void srv_release(srv_job *job);

typedef struct srv_counts {
    int running, waiting;
    uint64_t requests, refused, cancelled, failed;
    uint64_t prompt_tokens, cached_tokens, new_tokens; /* cached: of the prompt tokens */
    uint64_t passes, rows;
    double prompt_seconds, decode_seconds; /* of passes, shared out by rows */
    char notice[300];                      /* what was wrong with the folder of kept sessions last; "" */
} srv_counts;
void srv_count(srv_scheduler *scheduler, srv_counts *out);

#endif
