/* Text that grows within a room of fixed size, as lines or as JSON. */
#ifndef K3_ENGINE_PRINTER_H
#define K3_ENGINE_PRINTER_H

#include <stddef.h>

typedef struct k3_printer {
    char *text;
    size_t n, size; /* n may pass size: what has no room is left out */
} k3_printer;

__attribute__((format(printf, 2, 3))) void k3_say(k3_printer *p, const char *format, ...);
/* A string of JSON; bytes that are no UTF-8 stay what they are. */
void k3_say_string(k3_printer *p, const char *text);

#endif
