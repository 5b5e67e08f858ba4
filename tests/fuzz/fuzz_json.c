/* Any bytes, all flags: no crash; a tree that parses is well-formed; its numbers convert or say no. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

static size_t walk(const k3_json *value, const k3_json *parent, size_t text_bytes)
{
    size_t n = 1, n_children = 0;
    int64_t integer;
    double real;
    if (k3_json_int(value, &integer) + k3_json_double(value, &real) && value->type != K3_JSON_NUMBER)
        abort();
    if (value->text && (strlen(value->text) > value->text_bytes || value->text[value->text_bytes] || value->text_bytes > text_bytes))
        abort();
    if (parent && parent->type == K3_JSON_OBJECT && (!value->key || value->key[value->key_bytes]))
        abort();
    /* A name that holds a NUL character cannot be asked for. */
    if (value->key && strlen(value->key) == value->key_bytes && !k3_json_get(parent, value->key))
        abort();
    if (!value->line || !value->column)
        abort();
    for (const k3_json *child = value->first; child; child = child->next, n_children++)
        n += walk(child, value, text_bytes);
    if (n_children != value->n_children)
        abort();
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = malloc(size); /* exact size, so that a read past the end is seen */
    if (!text)
        return 0;
    memcpy(text, data + 1, size - 1);
    const k3_json *root = NULL;
    k3_error err;
    k3_status status = k3_json_parse(&root, text, size - 1, data[0] & 7, &err);
    if ((status == K3_OK) != (root != NULL))
        abort();
    /* Looking every member up is quadratic: large objects would only slow the fuzzer down. */
    if (root && size < 4096)
        walk(root, NULL, size);
    k3_json_free(root);
    free(text);
    return 0;
}
