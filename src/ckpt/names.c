#include "ckpt/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST_NAME = 200, TAIL_ROOM = 32 };

void k3_names_add(k3_names *names, const char *format, ...)
{
    char name[LONGEST_NAME];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (wanted >= (int)sizeof name)
        memcpy(name + sizeof name - 4, "...", 4);
    for (char *c = name; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    names->n++;
    size_t n = strlen(name);
    if (names->n_shown + 1 < names->n || (names->limit && names->n > names->limit) ||
        names->n_bytes + n + 2 + TAIL_ROOM > sizeof names->text)
        return;
    names->n_bytes +=
        (size_t)snprintf(names->text + names->n_bytes, sizeof names->text - names->n_bytes, "%s%s", names->n_bytes ? ", " : "", name);
    names->n_shown++;
}

const char *k3_names_end(k3_names *names)
{
    if (names->n > names->n_shown)
        snprintf(names->text + names->n_bytes, sizeof names->text - names->n_bytes, " and %zu more", names->n - names->n_shown);
    return names->text;
}
