/* Routed experts in the host's memory, for the CPU: slots of memory that experts are read into when a layer wants them, by reads that run
 * while others are computed. An expert's six tensors lie together in the released files, so one expert is one read.
 *
 * Between the last read of a layer and the choice of the next one the drive would be idle: then it reads the experts that the next layer
 * is expected to want. Such a guess takes no time from what is wanted: it starts only while nothing else is read, it is taken back if it
 * has not started when the layer's choice is known, and at least half of the slots are never on loan to guesses under way. */
#ifndef K3_STORE_STREAM_H
#define K3_STORE_STREAM_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "io/io.h"
#include "store/usage.h"

typedef struct k3_stream k3_stream;

typedef struct k3_stream_stat {
    uint64_t wanted, hits; /* experts that layers wanted, and that were there */
    uint64_t wait_ns;      /* in which nothing could be computed for want of an expert */
    /* Of layers that were guessed: experts that they wanted, those of them that the guess named, and all that it named. */
    uint64_t guess_wanted, guess_right, guess_named;
    uint64_t ahead, ahead_used; /* experts read ahead, and those of them that the layer then wanted, come or still coming */
    k3_io_stat io;
} k3_stream_stat;

typedef struct k3_stream_sizes {
    uint64_t slot; /* bytes of memory that a slot takes: an expert with what aligned reads need around it */
    /* What a token reads of each layer from each drive if it wants every expert as often as the others, and none is in memory. */
    uint64_t wanted[K3_MAX_LAYERS][K3_MAX_DRIVES];
} k3_stream_sizes;

/* Looks at every expert. */
void k3_stream_measure(k3_stream_sizes *out, const k3_ckpt *ckpt);
uint64_t k3_stream_slot_bytes(const k3_ckpt *ckpt);

typedef struct k3_stream_config {
    const k3_ckpt *ckpt;
    k3_backend *cpu;     /* computes from the slots */
    int n_slots;         /* at least 1; their memory is taken as it is used */
    uint64_t slot_bytes; /* k3_stream_sizes.slot */
    k3_io_meter *meter;  /* of its reads, or NULL */
    k3_io *beside;       /* reads other things ahead from the same drives, or NULL: k3_io_config */
} k3_stream_config;

k3_status k3_stream_open(k3_stream **out, const k3_stream_config *config, k3_error *err);
void k3_stream_close(k3_stream *stream);

/* A layer wants the experts ids[n], each once. Those that are missing are read in the order of their places on the drive. What was begun
 * before has been handed out. After a failure nothing is in flight. */
k3_status k3_stream_begin(k3_stream *stream, int layer, const int32_t *ids, int n, k3_error *err);
/* Hands out experts that are there: sets view[id], after taking back what the call before handed out. Waits until there is at least one;
 * *n is 0 when all have been handed out. A read that fails, or an expert whose scales hold 255, which is not a number in E8M0, is a
 * failure by name; then nothing is in flight, and view is empty. */
k3_status k3_stream_next(k3_stream *stream, const k3_expert **view, int *n, k3_error *err);

/* After begin, and before all is handed out: the layer after it is expected to want ids[n], the likeliest first, each once. What is there
 * already is no read. A guess that cannot be read is no failure: whoever wants that expert hears of it. */
void k3_stream_guess(k3_stream *stream, int layer, const int32_t *ids, int n);
/* A guess could bring enough to be worth making: where all experts have room, the last few of them are not. */
int k3_stream_may_guess(const k3_stream *stream, int n_experts);
/* An expert of the layer that was begun last, handed out and taken back: it is elsewhere now, and its slot is free. */
void k3_stream_forget(k3_stream *stream, int id);

/* Reads experts ids[n] of a layer into slots that are free, as many as there are at least, before anything is wanted; counts no use. */
k3_status k3_stream_fill(k3_stream *stream, int layer, const int32_t *ids, int n, k3_error *err);
/* k3_usage_load, before anything is wanted. */
k3_status k3_stream_remember(k3_stream *stream, const k3_usage *of, const char *path, k3_error *err);

int k3_stream_slots(const k3_stream *stream, int *n_used);
void k3_stream_stats(k3_stream *stream, k3_stream_stat *out, int reset);
/* How reads are made, and what fell back: a line each. */
const char *k3_stream_describe(k3_stream *stream);
const char *k3_stream_notice(k3_stream *stream);

#endif
