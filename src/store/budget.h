/* One plan for the host's memory, made before anything is loaded: what is free, or what --ram allows of it, is dealt to what every token
 * needs first, then to the trunk, each byte of which is read every token if it is not there, then to experts, of which a token wants few.
 * That order is right for any one drive, whatever its rate. Where a model lies on several it depends on what each of them has to deliver
 * and how fast it is: memory goes where it saves most time. */
#ifndef K3_STORE_BUDGET_H
#define K3_STORE_BUDGET_H

#include "store/stream.h"
#include "store/trunk.h"

typedef struct k3_budget_facts {
    uint64_t available;             /* bytes free for new use, k3_os_memory_available() */
    uint64_t ram;                   /* bytes that the user allows; 0: what is available less a reserve */
    uint64_t scratch, sessions;     /* of passes; of the conversations that room is kept for */
    const k3_trunk_sizes *trunk;    /* NULL: it lives on a device */
    uint64_t expert_slot;           /* bytes of an expert in memory */
    int n_experts, n_experts_now;   /* of all layers; those that a layer wants of one row */
    int n_drives;                   /* that the model lies on */
    const double *rates;            /* [n_drives] bytes per second; NULL: not known, and not asked for where there is one drive */
    const k3_stream_sizes *experts; /* where they lie; with rates only */
} k3_budget_facts;

typedef struct k3_budget {
    uint64_t available, reserve;                      /* what was free, and what of it is left to other programs */
    uint64_t limit;                                   /* that peak may reach */
    uint64_t scratch, sessions, trunk, experts, peak; /* peak: their sum */
    k3_trunk_plan trunk_plan;
    int n_slots;    /* of experts */
    int is_clamped; /* the user allowed more than there is */
} k3_budget;

/* Seconds a token in which the drives deliver what is not in memory with n_slots experts there, when the router likes none better than
 * another. Drives work at the same time, but layers follow one another: reading runs one layer ahead. So a layer takes as long as the drive
 * that has most to do for it, and the token is the sum over its layers, and then the head:
 *     sum over layers of max over drives (trunk bytes of the layer on the drive + wanted bytes of its experts * share missing) / rate
 *         + max over drives (bytes of the head / rate)
 * `bytes` gets what each drive delivers, or is NULL. Rows of the embedding are too few to count. */
double k3_budget_seconds(const k3_budget_facts *facts, const k3_trunk_plan *plan, int n_slots, double bytes[K3_MAX_DRIVES]);

/* K3_E_NOMEM if less is allowed than the smallest plan takes; the message has its parts. */
k3_status k3_budget_make(k3_budget *out, const k3_budget_facts *facts, k3_error *err);

#endif
