/* One sentence as an error. */
#ifndef K3_APPS_SERVER_FAIL_H
#define K3_APPS_SERVER_FAIL_H

#include "k3.h"

/* Formats the text into err, which may be NULL, and returns the status. */
__attribute__((format(printf, 3, 4))) k3_status srv_fail(k3_error *err, k3_status status, const char *format, ...);

#endif
