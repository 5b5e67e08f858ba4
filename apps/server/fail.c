#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

k3_status srv_fail(k3_error *err, k3_status status, const char *format, ...)
{
    va_list args;
    if (!err)
        return status;
    err->status = status;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    return status;
}
