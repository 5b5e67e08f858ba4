#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- out --------------------------------------------------------------------------------------------------------- */

static void add_formatted(app_buffer *out, const char *format, va_list arguments)
{
    char text[512];
    va_list again;
    va_copy(again, arguments);
    int n = vsnprintf(text, sizeof text, format, arguments);
    if (n >= 0 && (size_t)n < sizeof text) {
        app_buffer_add(out, text, (size_t)n);
    } else if (n > 0) {
        char *long_text = app_alloc((size_t)n + 1, 1);
        vsnprintf(long_text, (size_t)n + 1, format, again);
        app_buffer_add(out, long_text, (size_t)n);
        free(long_text);
    }
    va_end(again);
}

void srv_add(app_buffer *out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_formatted(out, format, arguments);
    va_end(arguments);
}

void srv_add_string(app_buffer *out, const app_buffer *text)
{
    app_buffer_json(out, text->text, text->n);
}

void srv_random(void *out, size_t n)
{
    if (getentropy(out, n) == 0)
        return;
    perror("k3: random numbers of the system");
    exit(1);
}

void srv_add_id(app_buffer *out, const char *prefix)
{
    unsigned char bytes[12];
    srv_random(bytes, sizeof bytes);
    app_buffer_text(out, prefix);
    for (size_t i = 0; i < sizeof bytes; i++)
        srv_add(out, "%02x", bytes[i]);
}

void srv_add_json(app_buffer *out, app_json value)
{
    size_t from = 0;
    for (size_t i = 0, is_inside = 0; i < value.n; i++) {
        char c = value.text[i];
        if (c == '"')
            is_inside = !is_inside;
        else if (c == '\\')
            i++;
        if (is_inside || (c != ' ' && c != '\t' && c != '\n' && c != '\r'))
            continue;
        app_buffer_add(out, value.text + from, i - from);
        from = i + 1;
    }
    if (value.text)
        app_buffer_add(out, value.text + from, value.n - from);
    else
        app_buffer_text(out, "null");
}

/* ---- problems ---------------------------------------------------------------------------------------------------- */

int srv_refuse(srv_problem *problem, const char *param, const char *format, ...)
{
    va_list arguments;
    *problem = (srv_problem){.status = 400};
    snprintf(problem->param, sizeof problem->param, "%s", param ? param : "");
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return 0;
}

int srv_deny(srv_problem *problem, int status, const char *code, const char *format, ...)
{
    va_list arguments;
    *problem = (srv_problem){.status = status, .code = code};
    va_start(arguments, format);
    vsnprintf(problem->text, sizeof problem->text, format, arguments);
    va_end(arguments);
    return 0;
}

int srv_deny_error(srv_problem *problem, const k3_error *err)
{
    int status = err->status == K3_E_INVALID || err->status == K3_E_UNSUPPORTED || err->status == K3_E_FORMAT ? 400 : 500;
    return srv_deny(problem, status, NULL, "%s", err->text);
}

const char *srv_problem_type(const srv_problem *problem)
{
    switch (problem->status) {
    case 400:
    case 405:
    case 408:
    case 415:
        return "invalid_request_error";
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return "api_error";
    }
}

void srv_add_problem(app_buffer *out, const srv_problem *problem, int with_type)
{
    app_buffer_text(out, with_type ? "{\"type\":\"error\",\"error\":{\"message\":" : "{\"error\":{\"message\":");
    app_buffer_json(out, problem->text, strlen(problem->text));
    srv_add(out, ",\"type\":\"%s\",\"param\":", srv_problem_type(problem));
    if (problem->param[0])
        app_buffer_json(out, problem->param, strlen(problem->param));
    else
        app_buffer_text(out, "null");
    srv_add(out, problem->code ? ",\"code\":\"%s\"}}" : ",\"code\":null}}", problem->code);
}

/* ---- in ---------------------------------------------------------------------------------------------------------- */

/* The place of the first byte that is no UTF-8; n: there is none. */
static size_t utf8_length(const char *text, size_t n)
{
    enum { PIECE = 1024 };
    char valid[3 * (PIECE + 3)];
    k3_utf8 utf8 = {0};
    size_t done = 0;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t n_valid = k3_utf8_push(&utf8, valid, text + at, n - at < PIECE ? n - at : PIECE);
        for (size_t i = 0; i < n_valid; i++, done++)
            if (valid[i] != text[done])
                return done;
    }
    return done;
}

int srv_fields_read(srv_fields *fields, const char *text, size_t n, srv_problem *problem)
{
    size_t wrong = utf8_length(text, n), at = 0;
    if (wrong < n)
        return srv_refuse(problem, NULL, "the body is no UTF-8: byte %zu of %zu is wrong", wrong + 1, n);
    app_json body = app_json_whole(text, n, &wrong), key, value;
    *fields = (srv_fields){.problem = problem};
    if (!body.text)
        return srv_refuse(problem, NULL, "the body is no JSON: byte %zu of %zu is wrong", wrong + 1, n);
    if (!srv_is_object(body))
        return srv_refuse(problem, NULL, "the body is JSON, but a JSON object is wanted");
    while (app_json_next(&key, &value, &at, body)) {
        if (fields->n == fields->capacity) {
            size_t capacity = 2 * fields->capacity + 32;
            app_json *memory = app_alloc(2 * capacity, sizeof *memory);
            if (fields->n) {
                memcpy(memory, fields->keys, fields->n * sizeof *memory);
                memcpy(memory + capacity, fields->values, fields->n * sizeof *memory);
            }
            free(fields->keys);
            fields->keys = memory;
            fields->values = memory + capacity;
            fields->capacity = capacity;
        }
        fields->keys[fields->n] = key;
        fields->values[fields->n++] = value;
    }
    return 1;
}

void srv_fields_free(srv_fields *fields)
{
    free(fields->keys);
    *fields = (srv_fields){0};
}

app_json srv_field(const srv_fields *fields, const char *name)
{
    for (size_t i = fields->n; i-- > 0;)
        if (app_json_is(fields->keys[i], name))
            return app_json_kind(fields->values[i]) == 'n' ? (app_json){NULL, 0} : fields->values[i];
    return (app_json){NULL, 0};
}

app_json srv_get(app_json object, const char *name)
{
    app_json value = app_json_get(object, name);
    return app_json_kind(value) == 'n' ? (app_json){NULL, 0} : value;
}

int srv_field_number(const srv_fields *fields, const char *name, double low, double high, double *out)
{
    app_json value = srv_field(fields, name);
    double x;
    if (!value.text)
        return 1;
    if (!app_json_double(value, &x) || !(x >= low && x <= high))
        return srv_refuse(fields->problem, name, "%s is %.*s, wanted a number from %g to %g", name, value.n < 40 ? (int)value.n : 40,
                          value.text, low, high);
    *out = x;
    return 1;
}

int srv_field_int(const srv_fields *fields, const char *name, int64_t low, int64_t high, int64_t *out)
{
    app_json value = srv_field(fields, name);
    int64_t x;
    if (!value.text)
        return 1;
    if (!app_json_int(value, &x) || x < low || x > high)
        return srv_refuse(fields->problem, name, "%s is %.*s, wanted a whole number from %lld to %lld", name,
                          value.n < 40 ? (int)value.n : 40, value.text, (long long)low, (long long)high);
    *out = x;
    return 1;
}

int srv_field_flag(const srv_fields *fields, const char *name, int *out)
{
    app_json value = srv_field(fields, name);
    char kind = app_json_kind(value);
    if (!kind)
        return 1;
    if (kind != 't' && kind != 'f')
        return srv_refuse(fields->problem, name, "%s is %.*s, wanted true or false", name, value.n < 40 ? (int)value.n : 40, value.text);
    *out = kind == 't';
    return 1;
}

int srv_is_array(app_json value)
{
    return app_json_kind(value) == '[';
}

int srv_is_object(app_json value)
{
    return app_json_kind(value) == '{';
}

int srv_is_string(app_json value)
{
    return app_json_kind(value) == '"';
}

size_t srv_length(app_json array)
{
    app_json value;
    size_t n = 0;
    for (size_t at = 0; app_json_next(NULL, &value, &at, array);)
        n++;
    return n;
}
