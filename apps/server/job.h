/* One request of the scheduler: what it asks, how far it is, and how its next token is picked. */
#ifndef K3_APPS_SERVER_JOB_H
#define K3_APPS_SERVER_JOB_H

#include "prefix.h"
#include "scheduler.h"

enum { SRV_MOST_TOP = 20 };

struct srv_job {
    srv_job *next; /* in the queue */
    srv_scheduler *scheduler;
    srv_settings settings; /* arrays are copies; ids and n are not used */
    srv_sink sink;
    k3_sampler *sampler;
    int32_t *ids; /* [n]: the prompt, then the answer */
    int64_t n, n_prompt, n_most, capacity;

    /* Of the scheduler's thread. */
    srv_kept *kept;      /* NULL until it runs */
    int64_t branch;      /* of the prompt, worth a mark; 0: none */
    int64_t stray;       /* a mark that the next one replaces; 0: none */
    int64_t alone_until; /* a pass with others broke before the session had this length: until then it has passes of its own */
    int64_t from, n_now; /* of the pass at hand: length before it, rows in it */

    /* Under the scheduler's lock. */
    int is_cancelled, is_in_pass, is_ended;
};

/* What a pick writes to; one for all requests. */
typedef struct srv_scratch {
    float *logits; /* [vocab] */
    size_t vocab;
    int32_t top_ids[SRV_MOST_TOP];
    float top_logprobs[SRV_MOST_TOP];
} srv_scratch;

/* Checks the settings and copies them. */
k3_status srv_job_open(srv_job **out, const srv_settings *settings, const srv_sink *sink, size_t vocab, int64_t context, k3_error *err);
void srv_job_close(srv_job *job);

/* Tokens that are still to be computed before the next pick; 0: it can be made. */
int64_t srv_job_pending(const srv_job *job);
/* How many of them a chunk may have at most: it ends where a mark is wanted. */
int64_t srv_job_chunk(const srv_job *job, int64_t mark_interval);
/* A mark there is more than the way back from a pass that breaks, which the next one replaces. */
int srv_job_keeps_mark(const srv_job *job, int64_t length, int64_t mark_interval);

/* After a chunk that is not the prompt's last: numbers came out of it. */
k3_status srv_job_check(const srv_job *job, size_t vocab, k3_error *err);
/* Picks the next token and hands it out. *is_over: the answer ends with it, in the way *how. */
k3_status srv_job_pick(srv_job *job, int *is_over, srv_end *how, srv_scratch *scratch, int eos, k3_error *err);

#endif
