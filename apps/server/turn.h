/* One answer under way. The scheduler's thread turns ids into events: reasoning, content, calls with their arguments, the end. A
 * connection's thread takes them. Streams and whole answers are made of the same events. */
#ifndef K3_APPS_SERVER_TURN_H
#define K3_APPS_SERVER_TURN_H

#include "ask.h"

typedef enum srv_event_kind {
    SRV_REASONING,
    SRV_CONTENT,
    SRV_CALL, /* text: the name; its arguments follow */
    SRV_ARGUMENTS,
    SRV_CALL_END
} srv_event_kind;

/* Log-probabilities of one token of the content. */
typedef struct srv_entry {
    int32_t id;
    float logprob;
    int n_top;
    int32_t top_ids[20];
    float top_logprobs[20];
} srv_entry;

typedef struct srv_event {
    srv_event_kind kind;
    int index;                 /* of the call */
    size_t at, n;              /* text, in the batch's */
    size_t i_entry, n_entries; /* log-probabilities of content, in the batch's */
    size_t i_id, n_ids;        /* ids since the event before */
} srv_event;

typedef struct srv_batch {
    srv_event *events;
    srv_entry *entries;
    size_t n, capacity, n_entries, entry_capacity;
    app_buffer text;
    k3_tokens ids;
} srv_batch;

void srv_batch_clear(srv_batch *batch);
void srv_batch_free(srv_batch *batch);

typedef enum srv_finish { SRV_FINISH_STOP, SRV_FINISH_LENGTH, SRV_FINISH_CALLS } srv_finish;

typedef struct srv_turn srv_turn;

/* What is known of an answer so far. */
typedef struct srv_state {
    int has_begun, has_ended, has_failed, was_cancelled;
    srv_finish finish;
    int i_stop; /* the stop string that ended it; -1: none */
    int64_t n_prompt, n_cached, n_new, n_reasoning;
    k3_error err;
} srv_state;

/* Takes what it needs of the request, which must outlive it. */
k3_status srv_turn_open(srv_turn **out, const k3_engine *engine, const srv_ask *ask, k3_error *err);
/* Queues it. */
k3_status srv_turn_submit(srv_turn *turn, srv_scheduler *scheduler, k3_error *err);
/* The functions that the scheduler calls. */
srv_sink srv_turn_sink(srv_turn *turn);
/* Waits until there is something new, at most so long: nonzero if there is. */
int srv_turn_wait(srv_turn *turn, double seconds);
/* Moves all new events into an empty batch and tells the state after them. */
void srv_turn_take(srv_turn *turn, srv_batch *batch, srv_state *state);
/* Any thread. */
void srv_turn_cancel(srv_turn *turn);
/* Ends what still runs. */
void srv_turn_close(srv_turn *turn);

#endif
