/* What `k3 bench` found, and the ways to show it. */
#ifndef K3_APPS_BENCH_H
#define K3_APPS_BENCH_H

#include <stdarg.h>
#include <stdio.h>

#include "buffer.h"
#include "json.h"
#include "k3.h"

enum { BENCH_MAX_LIST = 32, BENCH_MAX_ROWS = BENCH_MAX_LIST + 1 };

/* Runs of one kind. */
typedef struct bench_row {
    int is_decode, is_cold; /* is_cold: the first run, which finds nothing in memory but what loading left there */
    size_t context;         /* tokens before the first one */
    size_t n;               /* tokens of a run: one pass each, or a prompt */
    size_t runs;
    double seconds;     /* of the median run */
    double bytes, macs; /* a token on average: weights and cache read by a decoded one; multiply-adds */
    double memory_rate; /* of a decode: bytes per second that memory gives right before and after its runs, the median; 0: unknown */
    double disk_bytes;  /* a run on average */
    double disk_rate;   /* bytes per second while something was read; 0: nothing was */
    double prompt_tokens, prompt_seconds; /* of a warm decode: what was computed to get to its context, and how long it took */
    char *stats;                          /* k3_engine_stats_json of all runs */
} bench_row;

typedef struct bench_report {
    const char *model;
    const k3_info *info;
    k3_ceilings ceilings;
    const char *products;               /* the ceiling that prefill is held against: "int8", "bf16", "f32"; NULL: there is none */
    double macs_per_s;                  /* of it */
    bench_row rows[2 * BENCH_MAX_ROWS]; /* prefill, then decode */
    size_t n_rows;
    struct {
        const char *what; /* "prompt" or "context" */
        size_t n;
        char why[160];
    } left_out[2 * BENCH_MAX_LIST];
    size_t n_left_out;
} bench_report;

double bench_rate(const bench_row *row); /* tokens per second */
/* Of a decoded token at a context, or of a token of a prompt of n tokens, on average. */
double bench_decode_bytes(const k3_info *info, double context);
double bench_decode_macs(const k3_info *info, double context);
double bench_prefill_macs(const k3_info *info, double n);
/* A member of a row's stats; 0 if it is not there. */
double bench_number(app_json object, const char *name);

/* Shares of ceilings; 0: there is none, or nothing to hold against it. */
double bench_memory_share(const bench_row *row);
double bench_arithmetic_share(const bench_report *report, const bench_row *row);

/* "3.44 GB": three digits and a prefix of 1000s. */
typedef struct bench_scaled_text {
    char text[32];
} bench_scaled_text;
bench_scaled_text bench_scaled(double x, const char *unit);

/* Adds at most 511 bytes. */
__attribute__((format(printf, 2, 3))) static inline void say(app_buffer *out, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    app_buffer_text(out, line);
}

void bench_text(app_buffer *out, const bench_report *report);
void bench_json(app_buffer *out, const bench_report *report);
void bench_svg(app_buffer *out, const bench_report *report);

#endif
