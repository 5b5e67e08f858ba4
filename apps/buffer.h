/* Text that grows. Running out of memory ends the program with a message: an app has nobody to hand that to. */
#ifndef K3_APPS_BUFFER_H
#define K3_APPS_BUFFER_H

#include <stddef.h>

typedef struct app_buffer {
    char *text; /* 0-terminated once anything was added; NULL before */
    size_t n, capacity;
} app_buffer;

void app_buffer_add(app_buffer *b, const char *bytes, size_t n);
void app_buffer_text(app_buffer *b, const char *text);
/* A JSON string with its quotes. Invalid UTF-8 becomes U+FFFD: JSON has no bytes. */
void app_buffer_json(app_buffer *b, const char *bytes, size_t n);
void app_buffer_clear(app_buffer *b);
void app_buffer_free(app_buffer *b);

void *app_alloc(size_t n, size_t size);
/* A whole file, "-" for standard input; a message on stderr and NULL if it cannot be read. */
char *app_read_file(const char *path, size_t *n_bytes);

#endif
