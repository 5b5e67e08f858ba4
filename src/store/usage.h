/* Use counts of experts in a file, so that a run can begin with what earlier ones wanted. Only where the user names a file. */
#ifndef K3_STORE_USAGE_H
#define K3_STORE_USAGE_H

#include "store/policy.h"

typedef struct k3_usage {
    uint64_t model; /* a number that tells the model from others */
    int n_layers, n_experts;
} k3_usage;

/* Writes a neighbour of the file and renames it: a crash or a full disk leaves the old one. */
k3_status k3_usage_save(const k3_policy *p, const k3_usage *of, const char *path, k3_error *err);
/* Gives the policy the counts of the file. A file that is missing (K3_E_NOT_FOUND), damaged or of another model (K3_E_FORMAT) changes
 * nothing. */
k3_status k3_usage_load(k3_policy *p, const k3_usage *of, const char *path, k3_error *err);
/* What to fill slots with at the start: the items used in the largest shares of their layers' visits, largest first. *n is how many there
 * is room for, and then how many there are; those never used are left out. */
k3_status k3_usage_most(const k3_policy *p, const k3_usage *of, int *items, int *n, k3_error *err);

#endif
