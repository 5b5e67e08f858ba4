/* Sessions that are kept so that a prompt that begins like an earlier one need not be computed from its start. A session goes back to its
 * marks only, and a second session can be made from the first at a mark; so what is shared is the marks at or before where two prompts
 * part.
 *
 * In a folder each kept session is a file of its own, written when nothing else is to be done, and gone when the session is given up. A
 * folder serves one store at a time. For the scheduler's thread only. */
#ifndef K3_APPS_SERVER_PREFIX_H
#define K3_APPS_SERVER_PREFIX_H

#include <stdint.h>

#include "k3.h"

/* Tokens that a mark where two prompts part, or waiting for one, has to save at least. */
enum { SRV_WORTH_A_MARK = 32 };

typedef struct srv_kept {
    k3_session *session;
    int is_used;       /* by a request */
    int is_saved;      /* its file holds it as it is */
    unsigned file;     /* number in its name; 0: there is none */
    uint64_t last_use; /* counts uses of all sessions */
    int64_t fork; /* where a second session was made from it, or it from a first, the last time: what many prompts begin with; 0: nowhere */
} srv_kept;

typedef struct srv_prefix {
    k3_engine *engine;
    char *folder;       /* NULL: nothing is written */
    uint64_t max_bytes; /* of sessions that no request uses */
    srv_kept **kept;    /* [n] */
    size_t n, capacity;
    uint64_t uses;
    unsigned last_file;
    char notice[300]; /* what was wrong with the folder or a file in it last; "" */
} srv_prefix;

/* `folder` is made if it is not there, and what it holds for this model is loaded, latest first, as far as max_bytes go. What is damaged is
 * deleted, what belongs to another model stays; `notice` tells. */
k3_status srv_prefix_open(srv_prefix *store, k3_engine *engine, const char *folder, uint64_t max_bytes, k3_error *err);
/* Writes what is not written. No session is in use. */
void srv_prefix_close(srv_prefix *store);

/* A session for the prompt ids [n] that holds as many of them as any kept one can give: itself, if it ends there and nobody uses it, else a
 * second one made from it. It holds all n only if their logits are there. *branch is where the prompt parts from the kept session that it
 * shares most with, if a mark there would have saved work; 0: nowhere. */
k3_status srv_prefix_take(srv_kept **out, int64_t *branch, srv_prefix *store, const int32_t *ids, int64_t n, k3_error *err);
/* How many of the ids that would be now; and how many two lists of ids have in common at their beginning. */
int64_t srv_prefix_reach(const srv_prefix *store, const int32_t *ids, int64_t n);
int64_t srv_prefix_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b);
/* The request is done with it. What is not good is closed; else it is marked where it ends and kept, within max_bytes. */
void srv_prefix_give(srv_prefix *store, srv_kept *kept, int is_good);
/* Marks the session where it stands, as far as there is memory. Its marks grow fewer where they alone exceed max_bytes. */
void srv_prefix_mark(srv_prefix *store, srv_kept *kept);
/* Gives up the session that was used longest ago; 0: all are in use. */
int srv_prefix_shed(srv_prefix *store);
int srv_prefix_has_unsaved(const srv_prefix *store);
/* Writes one session. 0: nothing is left to write, or k3_engine_cancel ended it and it is tried again the next time. */
int srv_prefix_save(srv_prefix *store);

#endif
