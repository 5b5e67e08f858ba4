/* What every backend refuses. */
#ifndef K3_TESTS_BACKEND_REFUSALS_H
#define K3_TESTS_BACKEND_REFUSALS_H

#include "backend/backend.h"

/* Types and shapes that no backend computes, one after another on one backend: each refusal names the operation, what was found and what
 * was wanted. */
void check_refusals(k3_backend *be);

#endif
