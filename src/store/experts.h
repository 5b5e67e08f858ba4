/* Routed experts by (layer, id), and who computes them. They stay in the shards as stored, MXFP4, and are read when they are wanted: into
 * slots of the host's memory for the CPU (store/stream.h), into slots of device memory for devices.
 *
 * A tier is a backend that computes experts. The order is: the main backend if it is a device, further devices, the CPU, which has every
 * expert. An expert is in a slot of one device at most; whoever has it computes it, else the CPU does. */
#ifndef K3_STORE_EXPERTS_H
#define K3_STORE_EXPERTS_H

#include "backend/backend.h"
#include "ckpt/ckpt.h"
#include "store/stream.h"

typedef struct k3_experts k3_experts;

typedef k3_status (*k3_backend_opener)(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err);

typedef struct k3_experts_config {
    k3_backend_opener open;
    k3_backend_config backend; /* of the further backends; the name is not read, vram counts for each */
    const char *devices;       /* backend names separated by commas, or NULL; a name given twice is opened twice */
    uint64_t slot_bytes;       /* k3_stream_slot_bytes if it is known; 0: it is asked for */
    k3_io_meter *meter;        /* of reads into the host's memory, or NULL */
    k3_io *beside;             /* reads the trunk ahead, or NULL; it outlives the store */
} k3_experts_config;

enum { K3_MAX_TIERS = 16 };

typedef struct k3_tier {
    k3_backend *be;
    const k3_expert **view; /* [E]: of the layer at hand, the experts that this tier computes; NULL elsewhere. The CPU's: see next */
    unsigned char *mine;    /* [E]: of the layer at hand, whether this tier computes it */
    int n_pairs;            /* (row, rank) pairs of the layer at hand */
    int n_slots;            /* the CPU has none */
    uint64_t pairs;         /* since the last reset */
} k3_tier;

/* Opens the tiers. `main` is the backend of the forward pass and outlives the store. */
k3_status k3_experts_open(k3_experts **out, const k3_ckpt *ckpt, k3_backend *main, const k3_experts_config *config, k3_error *err);
void k3_experts_close(k3_experts *experts);

k3_tier *k3_experts_tiers(k3_experts *experts, int *n, int *i_main);

/* Makes slots in what the devices have free, `keep_free` bytes of the main one left, and fills them if all experts fit. `ram` bytes of the
 * host's memory are for experts of the CPU, which are read as they are wanted; less than one takes is room for one. To be called once,
 * when everything else that lives on the devices is there. Too little memory means fewer slots, not a failure. */
k3_status k3_experts_load(k3_experts *experts, uint64_t keep_free, uint64_t ram, k3_progress progress, void *user, k3_error *err);
/* Counts of use that an earlier run has kept in a file; `model` tells the model from others. Before the first layer. What k3_usage_load
 * refuses changes nothing. */
k3_status k3_experts_remember(k3_experts *experts, uint64_t model, const char *path, k3_error *err);
/* Fills slots that are empty with the experts that were used most. Before the first layer. */
k3_status k3_experts_fill(k3_experts *experts, k3_progress progress, void *user, k3_error *err);
/* Keeps the counts in the file. */
k3_status k3_experts_keep(const k3_experts *experts, uint64_t model, const char *path, k3_error *err);
/* Gives up slots of the main device to make room there; 0: there are none. */
int k3_experts_shrink(k3_experts *experts);

/* If the main device has every expert: sets the experts and the table of addresses of a layer, so that nobody has to know what the router
 * chose. Returns 0, and sets nothing, if not. */
int k3_experts_whole(k3_experts *experts, k3_moe *moe, int layer);
/* Deals the pairs ids[T * K] of a layer to the tiers: fills n_pairs, and view of devices, and starts to read what the CPU lacks. Scale
 * bytes are checked when an expert is read: 255 is not a number in E8M0 and is refused by name. */
k3_status k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err);
/* The next experts of the layer that the CPU computes: sets its view to those that have arrived since, after waiting for one; *n is 0 when
 * there are no more. To be called until then. */
k3_status k3_experts_next(k3_experts *experts, int *n, k3_error *err);
/* A guess of a layer's choice would save time: not everything of it is in memory. */
int k3_experts_may_guess(const k3_experts *experts, int layer);
/* After assign: the layer is expected to choose ids[T * K], each row's in falling order. The CPU's share of them is read ahead into what
 * idle time the drive has. */
void k3_experts_guess(k3_experts *experts, int layer, const int32_t *ids, int T, int K);
/* Brings some of what the CPU computed in this layer into slots, for the next time. */
k3_status k3_experts_promote(k3_experts *experts, k3_error *err);

/* What the host's slots were asked for; all 0 where the CPU computes no experts. */
void k3_experts_stream_stats(k3_experts *experts, k3_stream_stat *out);
/* What fell back when the host's slots are read, k3_io_notice; "" if nothing did. */
const char *k3_experts_notice(const k3_experts *experts);
/* Who computed how many pairs, slots in use, uploads: lines of text. */
void k3_experts_report(k3_experts *experts, char *text, size_t size, int reset);
/* Experts resident on devices, and how many there are. */
void k3_experts_resident(const k3_experts *experts, int *n_resident, int *n_slots, int *n_experts);

/* Experts that the host's memory has room for, beside those on devices. */
int k3_experts_room(const k3_experts *experts);

uint64_t k3_experts_one_bytes(const k3_hparams *hp);  /* stored bytes of one expert */
uint64_t k3_experts_slot_bytes(const k3_hparams *hp); /* of one expert in device memory */

#endif
