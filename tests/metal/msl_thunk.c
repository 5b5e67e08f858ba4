#include "msl_thunk.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "msl.h"

/* A piece of text. */
typedef struct piece {
    const char *at;
    int n;
} piece;

/* How a built-in attribute is had from the group's and the thread's. */
static const struct {
    const char *name, *value;
} attributes[] = {
    {"thread_position_in_grid", "_in_grid<%.*s>(group, in)"},
    {"threads_per_grid", "_product<%.*s>(group->groups, group->threads)"},
    {"thread_position_in_threadgroup", "<%.*s>(in->position)"},
    {"threads_per_threadgroup", "<%.*s>(group->threads)"},
    {"dispatch_threads_per_threadgroup", "<%.*s>(group->threads)"},
    {"threadgroup_position_in_grid", "<%.*s>(group->group)"},
    {"threadgroups_per_grid", "<%.*s>(group->groups)"},
    {"thread_index_in_threadgroup", "<%.*s>(in->index)"},
    {"thread_index_in_simdgroup", "<%.*s>(in->lane)"},
    {"simdgroup_index_in_threadgroup", "<%.*s>(in->simdgroup)"},
    {"simdgroups_per_threadgroup", "<%.*s>(group->simdgroups)"},
    {"dispatch_simdgroups_per_threadgroup", "<%.*s>(group->simdgroups)"},
    {"thread_execution_width", "<%.*s>(group->width)"},
    {"threads_per_simdgroup", "<%.*s>(group->width)"},
    {"thread_index_in_quadgroup", "<%.*s>(in->lane %% 4)"},
    {"quadgroup_index_in_threadgroup", "<%.*s>(in->index / 4)"},
};

static bool in_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static piece trim(const char *at, const char *end)
{
    while (at < end && isspace((unsigned char)*at))
        at++;
    while (at < end && isspace((unsigned char)end[-1]))
        end--;
    return (piece){at, (int)(end - at)};
}

/* Past a word, and spaces before it; NULL when something else stands there. */
static const char *past(const char *at, const char *word)
{
    size_t n = strlen(word);
    while (isspace((unsigned char)*at))
        at++;
    return strncmp(at, word, n) == 0 && !(in_name(word[n - 1]) && in_name(at[n])) ? at + n : NULL;
}

/* What follows the parenthesis that opens the parameter list of `kernel void entry(`. */
static const char *find_parameters(const char *source, const char *entry)
{
    for (const char *at = source; (at = strstr(at, "kernel")) != NULL; at++) {
        if (at > source && in_name(at[-1]))
            continue;
        const char *next = past(at, "kernel");
        if (next != NULL && (next = past(next, "void")) != NULL && (next = past(next, entry)) != NULL && (next = past(next, "(")) != NULL)
            return next;
    }
    return NULL;
}

/* The end of a parameter that begins here: its comma, or the list's closing parenthesis; NULL when the text ends before. */
static const char *end_of(const char *at)
{
    int depth = 0;
    for (; *at != '\0'; at++) {
        if (depth == 0 && (*at == ',' || *at == ')'))
            return at;
        if (strchr("([{<", *at) != NULL)
            depth++;
        else if (strchr(")]}>", *at) != NULL)
            depth--;
    }
    return NULL;
}

/* "device float *x": type and name. */
static piece type_of(piece declaration)
{
    const char *end = declaration.at + declaration.n;
    while (end > declaration.at && in_name(end[-1]))
        end--;
    return trim(declaration.at, end);
}

static int write_buffer(FILE *out, piece type, int index, uint32_t *buffers, char *message, size_t message_size)
{
    if (index < 0 || index >= MSL_MAX_BUFFERS) {
        snprintf(message, message_size, "there is no [[buffer(%d)]]", index);
        return -1;
    }
    if ((*buffers >> index & 1) != 0) {
        snprintf(message, message_size, "two parameters are at [[buffer(%d)]]", index);
        return -1;
    }
    *buffers |= (uint32_t)1 << index;
    bool reference = type.n > 0 && type.at[type.n - 1] == '&';
    if (!reference && (type.n == 0 || type.at[type.n - 1] != '*')) {
        snprintf(message, message_size, "the parameter at [[buffer(%d)]] is neither pointer nor reference", index);
        return -1;
    }
    fprintf(out, reference ? "*(%.*s *)buffers[%d]" : "(%.*s)buffers[%d]", reference ? type.n - 1 : type.n, type.at, index);
    return 0;
}

static int write_argument(FILE *out, piece parameter, uint32_t *buffers, char *message, size_t message_size)
{
    const char *end = parameter.at + parameter.n;
    const char *open = memchr(parameter.at, '[', (size_t)parameter.n);
    if (open == NULL || open + 1 >= end || open[1] != '[') {
        snprintf(message, message_size, "parameter \"%.*s\" has no attribute", parameter.n, parameter.at);
        return -1;
    }
    piece type = type_of(trim(parameter.at, open));
    const char *name = open + 2;
    while (isspace((unsigned char)*name))
        name++;
    int n = 0;
    while (in_name(name[n]))
        n++;
    if (n == 6 && strncmp(name, "buffer", 6) == 0 && name[n] == '(')
        return write_buffer(out, type, atoi(name + n + 1), buffers, message, message_size);
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (strncmp(name, attributes[i].name, (size_t)n) == 0 && attributes[i].name[n] == '\0') {
            fputs("metal::msl_attribute", out);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            fprintf(out, attributes[i].value, type.n, type.at);
#pragma GCC diagnostic pop
            return 0;
        }
    snprintf(message, message_size, "attribute [[%.*s]] is unknown", n, name);
    return -1;
}

int msl_write_thunk(FILE *out, const char *source, const char *entry, uint32_t *buffers, char *message, size_t message_size)
{
    *buffers = 0;
    const char *at = find_parameters(source, entry);
    if (at == NULL) {
        snprintf(message, message_size, "there is no kernel void %s(", entry);
        return -1;
    }
    fputs("extern \"C\" void msl_threadgroup_memory(ulong *range)\n"
          "{\n    range[0] = (ulong)&__start_msl_threadgroup;\n    range[1] = (ulong)&__stop_msl_threadgroup;\n}\n",
          out);
    fprintf(out,
            "extern \"C\" void msl_thunk(const ulong *buffers, const msl_group_ids *group, const msl_thread_ids *in)\n"
            "{\n    (void)buffers, (void)group, (void)in;\n    %s(",
            entry);
    for (const char *end; (end = end_of(at)) != NULL; at = end + 1) {
        piece parameter = trim(at, end);
        if (parameter.n != 0 && write_argument(out, parameter, buffers, message, message_size) != 0)
            return -1;
        if (*end == ')') {
            fputs(");\n}\n", out);
            return 0;
        }
        fputs(", ", out);
    }
    snprintf(message, message_size, "the parameter list of %s does not end", entry);
    return -1;
}
