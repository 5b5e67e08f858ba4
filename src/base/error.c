#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

k3_status k3_fail(k3_error *err, k3_status status, const char *format, ...)
{
    if (!err)
        return status;
    va_list args;
    va_start(args, format);
    err->status = status;
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}

k3_status k3_fail_within(k3_error *err, k3_status status, const char *format, ...)
{
    if (!err)
        return status;
    char inner[sizeof err->text];
    memcpy(inner, err->text, sizeof inner);
    inner[sizeof inner - 1] = 0;
    va_list args;
    va_start(args, format);
    err->status = status;
    int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof err->text)
        snprintf(err->text + n, sizeof err->text - (size_t)n, "%s", inner);
    return status;
}
