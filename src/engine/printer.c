#include "engine/printer.h"

#include <stdarg.h>
#include <stdio.h>

void k3_say(k3_printer *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (p->n < p->size)
        p->n += (size_t)vsnprintf(p->text + p->n, p->size - p->n, format, args);
    va_end(args);
}

void k3_say_string(k3_printer *p, const char *text)
{
    k3_say(p, "\"");
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            k3_say(p, "\\u%04x", (unsigned)*text);
        else
            k3_say(p, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    k3_say(p, "\"");
}
