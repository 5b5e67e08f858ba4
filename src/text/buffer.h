/* Growing bytes. Running out of memory sticks: the buffer is then empty for good, and one check at the end is enough. Zero-initialise. */
#ifndef K3_TEXT_BUFFER_H
#define K3_TEXT_BUFFER_H

#include <stddef.h>

typedef struct k3_buffer {
    char *bytes;
    size_t n, capacity;
    int failed;
} k3_buffer;

/* Room for n more bytes at the end; NULL when there is no memory. */
char *k3_buffer_room(k3_buffer *buffer, size_t n);
void k3_buffer_add(k3_buffer *buffer, const char *bytes, size_t n);
void k3_buffer_add_text(k3_buffer *buffer, const char *text); /* 0-terminated */
void k3_buffer_add_char(k3_buffer *buffer, char c);
void k3_buffer_free(k3_buffer *buffer);

#endif
