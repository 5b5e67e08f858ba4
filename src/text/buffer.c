#include "text/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

char *k3_buffer_room(k3_buffer *buffer, size_t n)
{
    if (buffer->failed)
        return NULL;
    if (n > buffer->capacity - buffer->n) {
        size_t capacity = n < SIZE_MAX / 4 - buffer->n ? 64 + (buffer->n + n) * 2 : 0;
        char *bytes = capacity ? realloc(buffer->bytes, capacity) : NULL;
        if (!bytes) {
            k3_buffer_free(buffer);
            buffer->failed = 1;
            return NULL;
        }
        buffer->bytes = bytes;
        buffer->capacity = capacity;
    }
    return buffer->bytes + buffer->n;
}

void k3_buffer_add(k3_buffer *buffer, const char *bytes, size_t n)
{
    char *room = n > 0 ? k3_buffer_room(buffer, n) : NULL;
    if (!room)
        return;
    memcpy(room, bytes, n);
    buffer->n += n;
}

void k3_buffer_add_text(k3_buffer *buffer, const char *text)
{
    k3_buffer_add(buffer, text, strlen(text));
}

void k3_buffer_add_char(k3_buffer *buffer, char c)
{
    k3_buffer_add(buffer, &c, 1);
}

void k3_buffer_free(k3_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (k3_buffer){0};
}
