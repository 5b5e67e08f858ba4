/* The figures of `k3 bench` as text and as JSON. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

double bench_number(app_json object, const char *name)
{
    app_json value = app_json_get(object, name);
    return app_json_kind(value) == '0' ? strtod(value.text, NULL) : 0;
}

static app_json stats_of(const bench_row *row)
{
    size_t wrong;
    return app_json_whole(row->stats, strlen(row->stats), &wrong);
}

double bench_memory_share(const bench_row *row)
{
    return row->is_decode && row->memory_rate > 0 ? bench_rate(row) * row->bytes / row->memory_rate : 0;
}

double bench_arithmetic_share(const bench_report *r, const bench_row *row)
{
    return r->macs_per_s > 0 ? bench_rate(row) * row->macs / r->macs_per_s : 0;
}

static double disk_share(const bench_report *r, const bench_row *row)
{
    return r->ceilings.disk_bytes_per_s > 0 ? row->disk_rate / r->ceilings.disk_bytes_per_s : 0;
}

/* ---- text ------------------------------------------------------------------------------------------------------------------ */

bench_scaled_text bench_scaled(double x, const char *unit)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    bench_scaled_text s;
    int i = 0;
    for (; x >= 999.5 && i < 5; i++)
        x /= 1000;
    int digits = (!i && x >= 99.95) || x <= 0 ? 0 : x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    snprintf(s.text, sizeof s.text, "%.*f%s%s%.12s", digits, x, i || *unit ? " " : "", prefixes[i], unit);
    return s;
}

static bench_scaled_text percent(double share)
{
    bench_scaled_text s = {"-"};
    if (share > 0)
        snprintf(s.text, sizeof s.text, "%.1f %%", 100 * share);
    return s;
}

static bench_scaled_text or_none(double x, const char *unit)
{
    return x > 0 ? bench_scaled(x, unit) : (bench_scaled_text){"-"};
}

static void say_ceilings(app_buffer *out, const bench_report *r)
{
    const k3_ceilings *c = &r->ceilings;
    const k3_info *info = r->info;
    say(out, "ceilings   memory %s, disk %s; multiply-adds (macs) a second: int8 %s, bf16 %s, f32 %s\n",
        or_none(c->memory_bytes_per_s, "B/s").text, or_none(c->disk_bytes_per_s, "B/s").text, or_none(c->int8_macs_per_s, "").text,
        or_none(c->bf16_macs_per_s, "").text, or_none(c->f32_macs_per_s, "").text);
    say(out, "a token    %s of weights, %s of states, %s macs; for each token before it %s, %s macs\n\n",
        bench_scaled((double)info->token_bytes, "B").text, bench_scaled((double)info->state_bytes, "B").text,
        bench_scaled((double)info->token_macs, "").text, bench_scaled((double)info->context_bytes, "B").text,
        bench_scaled((double)info->context_macs, "").text);
}

static void say_row(app_buffer *out, const bench_report *r, const bench_row *row)
{
    int is_decode = row->is_decode;
    say(out, "%-10s %8zu %12.2f %12s %10s %13s %9s\n", row->is_cold ? "first run" : "", is_decode ? row->context : row->n, bench_rate(row),
        bench_scaled(bench_rate(row) * (is_decode ? row->bytes : row->macs), is_decode ? "B/s" : "").text,
        percent(is_decode ? bench_memory_share(row) : bench_arithmetic_share(r, row)).text, or_none(row->disk_bytes, "B").text,
        percent(disk_share(r, row)).text);
}

static void say_rows(app_buffer *out, const bench_report *r, int is_decode)
{
    char of[32];
    snprintf(of, sizeof of, "of %s", is_decode ? "memory" : r->products ? r->products : "ceiling");
    say(out, "%-10s %8s %12s %12s %10s %13s %9s\n", is_decode ? "decode" : "prefill", is_decode ? "context" : "rows", "tokens/s",
        is_decode ? "moved" : "macs/s", of, "from disk", "of disk");
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode == is_decode)
            say_row(out, r, &r->rows[i]);
    app_buffer_text(out, "\n");
}

/* The rows whose time is told by operation: the longest prompt and the first context that are warm. */
static const bench_row *row_to_tell(const bench_report *r, int is_decode)
{
    const bench_row *best = NULL;
    for (size_t i = 0; i < r->n_rows; i++) {
        const bench_row *row = &r->rows[i];
        if (row->is_decode == is_decode && (!best || best->is_cold || (!is_decode && !row->is_cold && row->n > best->n)))
            best = row;
    }
    return best;
}

/* Seconds of an operation on all backends. */
static double op_seconds(const bench_row *row, const char *name)
{
    app_json list = app_json_get(stats_of(row), "operations"), op;
    double sum = 0;
    for (size_t at = 0; app_json_next(NULL, &op, &at, list);)
        if (app_json_is(app_json_get(op, "name"), name))
            sum += bench_number(op, "seconds");
    return sum;
}

typedef struct op_list {
    char names[64][32];
    double share[64]; /* to sort by */
    size_t n;
} op_list;

static void add_ops(op_list *ops, const bench_row *row)
{
    app_json list = app_json_get(stats_of(row), "operations"), op;
    double seconds = bench_number(stats_of(row), "seconds");
    for (size_t at = 0; app_json_next(NULL, &op, &at, list) && ops->n < 64;) {
        app_buffer name = {0};
        size_t i = 0;
        app_json_decode(&name, app_json_get(op, "name"));
        while (i < ops->n && strcmp(ops->names[i], name.text) != 0)
            i++;
        if (i == ops->n)
            snprintf(ops->names[ops->n++], sizeof *ops->names, "%s", name.text);
        ops->share[i] += seconds > 0 ? bench_number(op, "seconds") / seconds : 0;
        app_buffer_free(&name);
    }
}

static void say_share(app_buffer *out, const char *name, const bench_row *const *rows, const double *seconds)
{
    say(out, "%-20s", name);
    for (int k = 0; k < 2; k++)
        if (rows[k])
            say(out, " %16s", percent(seconds[k] / bench_number(stats_of(rows[k]), "seconds")).text);
    app_buffer_text(out, "\n");
}

/* Each operation's share, the largest first, waits, and what is left of the time. */
static void say_operations(app_buffer *out, const bench_report *r)
{
    static const char *const waits[][2] = {{"waiting_for_experts", "waiting for experts"}, {"waiting_for_trunk", "waiting for trunk"}};
    const bench_row *rows[2] = {row_to_tell(r, 0), row_to_tell(r, 1)};
    double rest[2] = {0}, seconds[2];
    op_list ops = {.n = 0};
    say(out, "%-20s", "time");
    for (int k = 0; k < 2; k++)
        if (rows[k]) {
            char title[40];
            snprintf(title, sizeof title, "%s %zu", k ? "decode at" : "prefill of", k ? rows[k]->context : rows[k]->n);
            say(out, " %16s", title);
            add_ops(&ops, rows[k]);
            rest[k] = bench_number(stats_of(rows[k]), "seconds");
        }
    app_buffer_text(out, "\n");
    for (size_t left = ops.n; left; left--) {
        size_t best = 0;
        for (size_t i = 1; i < ops.n; i++)
            best = ops.share[i] > ops.share[best] ? i : best;
        for (int k = 0; k < 2; k++) {
            seconds[k] = rows[k] ? op_seconds(rows[k], ops.names[best]) : 0;
            rest[k] -= seconds[k];
        }
        if (ops.share[best] >= 0.001)
            say_share(out, ops.names[best], rows, seconds);
        ops.share[best] = -1;
    }
    for (int w = 0; w < 2; w++) {
        for (int k = 0; k < 2; k++) {
            seconds[k] = rows[k] ? bench_number(app_json_get(stats_of(rows[k]), "parts"), waits[w][0]) : 0;
            rest[k] -= seconds[k];
        }
        if (seconds[0] > 0 || seconds[1] > 0)
            say_share(out, waits[w][1], rows, seconds);
    }
    say_share(out, "other", rows, rest);
}

void bench_text(app_buffer *out, const bench_report *r)
{
    say_ceilings(out, r);
    say_rows(out, r, 0);
    say_rows(out, r, 1);
    say_operations(out, r);
    for (size_t i = 0; i < r->n_left_out; i++)
        say(out, "%s%s %zu is left out: %s\n", i ? "" : "\n", r->left_out[i].what, r->left_out[i].n, r->left_out[i].why);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------ */

static void put_text(app_buffer *out, const char *name, const char *text)
{
    say(out, "\"%s\": ", name);
    if (text)
        app_buffer_json(out, text, strlen(text));
    else
        app_buffer_text(out, "null");
}

/* 0 is null: there is no such figure. */
static void put(app_buffer *out, const char *name, double x)
{
    const char *comma = out->n && out->text[out->n - 1] == '{' ? "" : ", ";
    if (x > 0)
        say(out, "%s\"%s\": %.12g", comma, name, x);
    else
        say(out, "%s\"%s\": null", comma, name);
}

static void put_row(app_buffer *out, const bench_report *r, const bench_row *row)
{
    double rate = bench_rate(row);
    say(out, "{\"is_cold\": %s, \"context\": %zu, \"tokens\": %zu, \"runs\": %zu", row->is_cold ? "true" : "false", row->context, row->n,
        row->runs);
    put(out, "seconds", row->seconds);
    put(out, "tokens_per_s", rate);
    put(out, "macs_per_token", row->macs);
    put(out, "macs_per_s", rate * row->macs);
    put(out, "arithmetic_share", bench_arithmetic_share(r, row));
    if (row->is_decode) {
        put(out, "bytes_per_token", row->bytes);
        put(out, "bytes_per_s", rate * row->bytes);
        put(out, "memory_bytes_per_s", row->memory_rate);
        put(out, "memory_share", bench_memory_share(row));
        put(out, "prompt_tokens", row->prompt_tokens);
        put(out, "prompt_seconds", row->prompt_seconds);
    }
    say(out, ", \"disk_bytes\": %.0f", row->disk_bytes);
    put(out, "disk_bytes_per_s", row->disk_rate);
    put(out, "disk_share", disk_share(r, row));
    app_buffer_text(out, ", \"stats\": ");
    app_buffer_text(out, row->stats);
    app_buffer_text(out, "}");
}

static void put_rows(app_buffer *out, const bench_report *r, int is_decode)
{
    int n = 0;
    say(out, ",\n \"%s\": [", is_decode ? "decode" : "prefill");
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode == is_decode) {
            app_buffer_text(out, n++ ? ",\n  " : "\n  ");
            put_row(out, r, &r->rows[i]);
        }
    app_buffer_text(out, "]");
}

void bench_json(app_buffer *out, const bench_report *r)
{
    const k3_info *info = r->info;
    const k3_ceilings *c = &r->ceilings;
    app_buffer_text(out, "{");
    put_text(out, "model", r->model);
    app_buffer_text(out, ",\n ");
    put_text(out, "plan", info->plan);
    app_buffer_text(out, ",\n ");
    put_text(out, "products", r->products);
    say(out, ",\n \"bytes_per_token\": %llu, \"state_bytes_per_token\": %llu, \"macs_per_token\": %llu",
        (unsigned long long)info->token_bytes, (unsigned long long)info->state_bytes, (unsigned long long)info->token_macs);
    say(out, ", \"bytes_per_context_token\": %llu, \"macs_per_context_token\": %llu", (unsigned long long)info->context_bytes,
        (unsigned long long)info->context_macs);
    app_buffer_text(out, ",\n \"ceilings\": {");
    put(out, "memory_bytes_per_s", c->memory_bytes_per_s);
    put(out, "int8_macs_per_s", c->int8_macs_per_s);
    put(out, "bf16_macs_per_s", c->bf16_macs_per_s);
    put(out, "f32_macs_per_s", c->f32_macs_per_s);
    put(out, "disk_bytes_per_s", c->disk_bytes_per_s);
    app_buffer_text(out, "}");
    put_rows(out, r, 0);
    put_rows(out, r, 1);
    app_buffer_text(out, ",\n \"left_out\": [");
    for (size_t i = 0; i < r->n_left_out; i++) {
        say(out, "%s{\"what\": \"%s\", \"tokens\": %zu, ", i ? ", " : "", r->left_out[i].what, r->left_out[i].n);
        put_text(out, "why", r->left_out[i].why);
        app_buffer_text(out, "}");
    }
    app_buffer_text(out, "]}\n");
}
