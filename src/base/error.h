/* Failing with one sentence. `return k3_fail(err, K3_E_IO, "...")` is the whole error path of a function. */
#ifndef K3_BASE_ERROR_H
#define K3_BASE_ERROR_H

#include "k3.h"

/* Fills err (may be NULL) and returns status. The text is cut to the error's size. */
k3_status k3_fail(k3_error *err, k3_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Puts a prefix such as "model.safetensors: " before the text that is already there. */
k3_status k3_fail_within(k3_error *err, k3_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

#define K3_TRY(call)                                                                                                                       \
    do {                                                                                                                                   \
        k3_status k3_try_status = (call);                                                                                                  \
        if (k3_try_status != K3_OK)                                                                                                        \
            return k3_try_status;                                                                                                          \
    } while (0)

#endif
