#include "buffer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "k3.h"

void *app_alloc(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size ? size : 1);
    if (!memory) {
        fprintf(stderr, "k3: no memory for %zu times %zu bytes\n", n, size);
        exit(1);
    }
    return memory;
}

void app_buffer_add(app_buffer *b, const char *bytes, size_t n)
{
    if (b->n + n + 1 > b->capacity) {
        size_t capacity = 2 * (b->n + n) + 64;
        char *text = app_alloc(capacity, 1);
        if (b->n)
            memcpy(text, b->text, b->n);
        free(b->text);
        b->text = text;
        b->capacity = capacity;
    }
    if (n)
        memcpy(b->text + b->n, bytes, n);
    b->n += n;
    b->text[b->n] = 0;
}

void app_buffer_text(app_buffer *b, const char *text)
{
    app_buffer_add(b, text, strlen(text));
}

void app_buffer_json(app_buffer *b, const char *bytes, size_t n)
{
    k3_utf8 utf8 = {0};
    char *text = app_alloc(3 * (n + 6), 1);
    size_t n_text = n ? k3_utf8_push(&utf8, text, bytes, n) : 0;
    n_text += k3_utf8_push(&utf8, text + n_text, NULL, 0);
    app_buffer_text(b, "\"");
    for (size_t i = 0, from = 0; i <= n_text; i++) {
        unsigned char c = i < n_text ? (unsigned char)text[i] : 0;
        if (i < n_text && c >= 0x20 && c != '"' && c != '\\')
            continue;
        char escape[8] = "";
        app_buffer_add(b, text + from, i - from);
        from = i + 1;
        if (c == '"' || c == '\\')
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (c == '\n' || c == '\t')
            snprintf(escape, sizeof escape, c == '\n' ? "\\n" : "\\t");
        else if (i < n_text)
            snprintf(escape, sizeof escape, "\\u%04x", c);
        app_buffer_text(b, escape);
    }
    app_buffer_text(b, "\"");
    free(text);
}

void app_buffer_clear(app_buffer *b)
{
    b->n = 0;
    if (b->text)
        b->text[0] = 0;
}

void app_buffer_free(app_buffer *b)
{
    free(b->text);
    *b = (app_buffer){0};
}

char *app_read_file(const char *path, size_t *n_bytes)
{
    int is_stdin = strcmp(path, "-") == 0;
    const char *name = is_stdin ? "standard input" : path;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "k3: %s: %s\n", name, strerror(errno));
        return NULL;
    }
    app_buffer b = {0};
    char block[16384];
    size_t n;
    errno = 0;
    while ((n = fread(block, 1, sizeof block, file)))
        app_buffer_add(&b, block, n);
    int failed = ferror(file);
    if (failed)
        fprintf(stderr, "k3: %s: %s\n", name, strerror(errno));
    if (!is_stdin)
        fclose(file);
    if (failed) {
        app_buffer_free(&b);
        return NULL;
    }
    app_buffer_add(&b, "", 0);
    *n_bytes = b.n;
    return b.text;
}
