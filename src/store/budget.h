/* One plan for the host's memory, made before anything is loaded: what is free, or what --ram allows of it, is dealt to what every token
 * needs first, then to the trunk, each byte of which is read every token if it is not there, then to experts, of which a token wants few.
 */
#ifndef K3_STORE_BUDGET_H
#define K3_STORE_BUDGET_H

#include "store/trunk.h"

typedef struct k3_budget_facts {
    uint64_t available;           /* bytes free for new use, k3_os_memory_available() */
    uint64_t ram;                 /* bytes that the user allows; 0: what is available less a reserve */
    uint64_t scratch, sessions;   /* of passes; of the conversations that room is kept for */
    const k3_trunk_sizes *trunk;  /* NULL: it lives on a device */
    uint64_t expert_slot;         /* bytes of an expert in memory */
    int n_experts, n_experts_now; /* of all layers; those that a layer wants of one row */
} k3_budget_facts;

typedef struct k3_budget {
    uint64_t available, reserve;                      /* what was free, and what of it is left to other programs */
    uint64_t limit;                                   /* that peak may reach */
    uint64_t scratch, sessions, trunk, experts, peak; /* peak: their sum */
    k3_trunk_plan trunk_plan;
    int n_slots;    /* of experts */
    int is_clamped; /* the user allowed more than there is */
} k3_budget;

/* K3_E_NOMEM if less is allowed than the smallest plan takes; the message has its parts. */
k3_status k3_budget_make(k3_budget *out, const k3_budget_facts *facts, k3_error *err);

#endif
