/* Small helpers for JSON that comes in and goes out, and what is wrong with a request. */
#ifndef K3_APPS_SERVER_TEXT_H
#define K3_APPS_SERVER_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "buffer.h"
#include "json.h"
#include "k3.h"

/* Appends formatted text of any length; what is formatted must be safe inside JSON. */
void srv_add(app_buffer *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void srv_add_string(app_buffer *out, const app_buffer *text);
/* Fills memory with the system's random bytes. */
void srv_random(void *out, size_t n);
/* Appends `prefix` and 24 random hex digits. */
void srv_add_id(app_buffer *out, const char *prefix);
/* Appends a value word for word but for the space between its parts, so that it fits into a line of a stream; null if there is none. */
void srv_add_json(app_buffer *out, app_json value);

/* Why a request is refused, as HTTP tells it. Functions that take one return 1, or 0 after filling it. */
typedef struct srv_problem {
    int status;       /* of HTTP */
    const char *code; /* NULL: none */
    char param[64];   /* the field at fault; empty: none */
    char text[1200];
} srv_problem;

int srv_refuse(srv_problem *problem, const char *param, const char *format, ...) __attribute__((format(printf, 3, 4)));
int srv_deny(srv_problem *problem, int status, const char *code, const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Of an error that the library returned for what a client asked. */
int srv_deny_error(srv_problem *problem, const k3_error *err);
const char *srv_problem_type(const srv_problem *problem);
/* The error as the two families of clients read it: {"error":{"message","type","param","code"}}; with_type: "type":"error" before it. */
void srv_add_problem(app_buffer *out, const srv_problem *problem, int with_type);

/* The members of a request, read once. */
typedef struct srv_fields {
    app_json *keys, *values; /* [n] */
    size_t n, capacity;
    srv_problem *problem;
} srv_fields;

/* 1 for an object, else 0 with a problem. */
int srv_fields_read(srv_fields *fields, const char *text, size_t n, srv_problem *problem);
void srv_fields_free(srv_fields *fields);
/* The last member of this name; no value where it is missing or null. */
app_json srv_field(const srv_fields *fields, const char *name);
/* The member of any object; no value where it is missing or null. */
app_json srv_get(app_json object, const char *name);

/* These leave *out alone where the member is missing or null. */
int srv_field_number(const srv_fields *fields, const char *name, double low, double high, double *out);
int srv_field_int(const srv_fields *fields, const char *name, int64_t low, int64_t high, int64_t *out);
int srv_field_flag(const srv_fields *fields, const char *name, int *out);

int srv_is_array(app_json value);
int srv_is_object(app_json value);
int srv_is_string(app_json value);
size_t srv_length(app_json array);

#endif
