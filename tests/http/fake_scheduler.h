/* A scheduler that replays chosen ids, a thread for each request, so that tests know what the model says. */
#ifndef K3_TESTS_FAKE_SCHEDULER_H
#define K3_TESTS_FAKE_SCHEDULER_H

#include "server/scheduler.h"

/* What every request from now on gets. */
typedef struct fake_script {
    const int32_t *ids; /* [n] */
    size_t n;
    int64_t n_cached;
    size_t stop_before; /* waits before this token until fake_release; SIZE_MAX: never */
    int wait_to_begin;  /* waits before the beginning until fake_release */
    k3_status refusal;  /* of srv_submit */
    const char *error;  /* ends with this error instead of an end; NULL: none */
} fake_script;

void fake_play(const fake_script *script);
void fake_release(void);

/* What was asked last, and what became of all. */
typedef struct fake_seen {
    int32_t ids[65536];
    size_t n;
    k3_sampling sampling;
    float presence, frequency, repetition;
    int32_t bias_ids[8];
    float biases[8];
    size_t n_biases;
    int64_t window, max_tokens;
    int n_top, is_narrowed;
    int n_submitted, n_running, n_cancelled, n_ended;
    size_t n_tokens; /* of all requests */
} fake_seen;
const fake_seen *fake_look(void);
/* Waits until so many requests have ended. */
void fake_wait_ended(int n);
void fake_wait_tokens(size_t n);
void fake_reset(void);

#endif
