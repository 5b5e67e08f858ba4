/* What an engine and a session are made of. Only src/engine includes this. */
#ifndef K3_ENGINE_ENGINE_H
#define K3_ENGINE_ENGINE_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "constrain/token_trie.h"
#include "model/forward.h"
#include "store/budget.h"
#include "store/drive_watch.h"
#include "store/drives.h"
#include "store/experts.h"
#include "store/stream.h"
#include "text/vocab.h"

#include <stdatomic.h>

enum { K3_MAX_SESSIONS_A_PASS = 64 };
#define K3_GUESSED "the system does not tell how much memory is free: half of the machine's is counted on"

typedef struct k3_job k3_job;

/* The pass in the making, kept between calls so that a token allocates nothing. `want` lists rows whose logits are kept; logits go to one
 * block and are handed out afterwards. */
typedef struct k3_packing {
    k3_job *jobs;  /* [max_jobs] */
    int32_t *ids;  /* [max_ids] */
    int32_t *want; /* [max_want] */
    float *rows;   /* [max_rows, hidden] */
    float *logits; /* [max_logits, vocab] */
    size_t max_jobs, max_ids, max_want, max_rows, max_logits;
    int n_rows, n_spans, n_want, injects;
    k3_span spans[K3_MAX_SESSIONS_A_PASS];
    k3_job *span_jobs[K3_MAX_SESSIONS_A_PASS];
} k3_packing;

/* What plans for memory are made from. Places and rates are found once, for all machines. */
typedef struct k3_planning {
    k3_trunk_sizes trunk;
    k3_stream_sizes experts; /* slot 0: not looked at yet, or there are none */
    k3_drives drives;
    k3_budget_facts facts; /* of the last plan */
} k3_planning;

/* A drive, and how much of what the meter counts its watch has seen. */
typedef struct k3_watched {
    k3_drive_watch watch;
    uint64_t bytes, busy_ns;
} k3_watched;

struct k3_engine {
    k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_vocab *vocab;       /* NULL without tiktoken.model */
    k3_shared_trie *trie;  /* of its tokens, made when it is first needed; NULL like vocab */
    k3_config config;      /* as opened; its names are these copies */
    k3_budget budget;      /* of the host's memory */
    k3_planning *planning; /* what that is made from */
    k3_io_meter *meter;    /* of all reads of a machine */
    char *backend_name, *expert_devices, *kernel_cache, *kernels, *usage;
    k3_backend_opener open_backend;
    k3_packing packing;
    atomic_int is_cancelled; /* k3_engine_cancel */
    k3_session **sessions;   /* [n_sessions], all that are open */
    size_t n_sessions, max_sessions;
    k3_type cache_type;
    k3_trunk trunk;
    int has_trunk, chunk_rows;
    uint64_t fingerprint; /* of the dimensions and the arithmetic: a saved session fits an equal one only */
    k3_info info;
    char plan[1500], note[300], notice[400], usage_note[300]; /* usage_note: why a file of use counts is not used, or not written */
    char lock_note[200], cache_note[300], drive_notice[500];  /* cache_note: why compiled kernels are not kept */
    k3_watched watched[K3_MAX_DRIVES];

    /* The machine. be == NULL: none stands, and the next call tries the CPU. */
    k3_backend *be;
    k3_weights *weights;
    k3_experts *experts;
    k3_forward *forward;
    int guesses_memory; /* the system did not tell how much is free */
    int keeps_usage;    /* use counts go to the file when the machine closes */
    int plans_only;     /* nothing is loaded: the backend is there and nothing else */
    int was_device;     /* the last backend that opened was one */
    int was_reopened;   /* after a failure, and not yet trusted again */
    int n_trusted;      /* passes since then */
};

typedef struct k3_mark {
    int64_t length;
    k3_buf *fixed; /* copy of the KDA state there, NULL if it was lost; the MLA cache only grows, so its prefix still stands */
    float *logits; /* [vocab], or NULL if there were none: what follows can be sampled again without computing anything */
} k3_mark;

struct k3_session {
    k3_engine *engine;
    k3_state *state;
    int is_stale; /* the state's contents are gone: they are computed again from the ids before they are used */
    int32_t *ids; /* [state->length]; -1 for injected rows */
    int64_t ids_capacity;
    float *logits; /* [vocab] of the last token */
    int has_logits;
    k3_mark *marks;
    int n_marks, max_marks;
};

void k3_packing_free(k3_packing *packing);

/* k3_engine_open on backends that `open` gives. */
k3_status k3_engine_open_on(k3_engine **out, const char *model, const k3_config *config, k3_backend_opener open, k3_error *err);

/* Everything but the machine and the vocabulary. */
k3_status k3_engine_prepare(k3_engine *engine, const char *model, const k3_config *config, k3_error *err);

/* Opens the configured backend; a GPU that "auto" took and that fails in any way makes room for the CPU. */
k3_status k3_machine_open(k3_engine *engine, k3_error *err);
void k3_machine_close(k3_engine *engine);
/* There is a machine, or there is one again. */
k3_status k3_machine_ready(k3_engine *engine, k3_error *err);
/* After a failure: 1 if what failed may be tried again, because the device was opened again, the CPU took its place, or memory was freed.
 * *status and err, which holds the failure, tell if the replacement failed too. All sessions may have become stale. */
int k3_machine_recover(k3_engine *engine, k3_status *status, int in_pass, k3_error *err);
/* A pass has gone well. */
void k3_machine_trust(k3_engine *engine);
/* After a pass: what drives have delivered, and a notice if one has become slower. */
void k3_engine_watch_drives(k3_engine *engine);
/* Makes the budget of `available` bytes of the host's memory. */
k3_status k3_machine_budget(k3_engine *engine, int is_device, uint64_t available, k3_error *err);
/* The drives' rates are known afterwards: as stated, or measured now. */
k3_status k3_machine_rates(k3_engine *engine, k3_error *err);
/* Bytes per second of the memory that is computed from: read of the host's, or copied inside a device; 0: no room to measure it. */
double k3_machine_memory_rate(k3_engine *engine);
/* What the drives together deliver a second: as stated, or measured, by reads of the sizes and as many at once as those of a pass. Several
 * drives: by the share that each delivered since the engine was opened. 0: unknown. */
double k3_engine_disk_rate(k3_engine *engine);
/* Device memory that experts leave to sessions: states and marks of two, and a cache of some thousand tokens each. More is taken from the
 * experts when it is asked for. */
uint64_t k3_machine_reserved_bytes(const k3_engine *engine);
/* A conversation has grown: says so where all of them hold more of the host's memory than was planned for. */
void k3_machine_tell_growth(k3_engine *engine);
const char *k3_trunk_name(k3_trunk trunk);
/* A number that tells the model from others, however it is computed. */
uint64_t k3_engine_model(const k3_engine *engine);

/* Adds a mark that is to be filled: a copy of the state's fixed part, of any contents, and room for logits if `has_logits`. */
k3_status k3_session_new_mark(k3_session *session, int64_t length, int has_logits, k3_error *err);
/* The backend goes: its memory is released, the ids stay. */
void k3_session_lose(k3_session *session);
/* Does something with a session whose state stands, again if the device fails meanwhile. */
typedef k3_status (*k3_session_action)(k3_session *session, const void *argument, k3_error *err);
k3_status k3_session_try(k3_session *session, k3_session_action action, const void *argument, k3_error *err);

#endif
