/* The figures of `k3 bench` as a plot: decode over the context, prefill over the rows of a prompt, and what bounds them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Pixels. The zero of a context axis has a place of its own, ZERO beside the axis, left of the powers of two. */
enum { WIDTH = 960, HEIGHT = 510, TOP = 146, BOTTOM = 420, PANEL = 392, ZERO = 72, INSET = 30, LABEL = 62 };

static const char style[] =
    "<style>\n"
    "text{font:12px system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif;fill:#1f2328}\n"
    ".t{font-size:19px;font-weight:600}.h{font-size:14px;font-weight:600}.p{font-size:11px}.v{font-weight:600}.v .s{font-weight:400}\n"
    ".v,.ml,.kl{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}path{fill:none}\n"
    ".b{fill:#fff}.s{fill:#59636e}.g{stroke:#e4e7eb}.a{stroke:#afb8c1}.l{stroke:#2563c9;stroke-width:2}.d{fill:#2563c9}\n"
    ".c{fill:#fff;stroke:#2563c9;stroke-width:2}.m{stroke:#b4500f;stroke-width:1.75;stroke-dasharray:7 4}.ml{fill:#b4500f}\n"
    ".k{stroke:#7247b8;stroke-width:1.75;stroke-dasharray:2 4}.kl{fill:#7247b8}\n"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.v,.ml,.kl{stroke:#0f1419}.b{fill:#0f1419}.s{fill:#9aa4af}.g{stroke:#262d36}"
    ".a{stroke:#4b5561}.l{stroke:#6ea8fe}.d{fill:#6ea8fe}.c{fill:#0f1419;stroke:#6ea8fe}.m{stroke:#f0a060}.ml{fill:#f0a060}"
    ".k{stroke:#b79cf2}.kl{fill:#b79cf2}}\n"
    "</style>\n";

typedef struct panel {
    const bench_report *report;
    int is_decode;
    double left;                    /* of its axis */
    int has_zero;                   /* 0 has a place on the axis */
    double low, high;               /* powers of two: tokens at the ends of the axis */
    double top;                     /* tokens per second at TOP */
    bench_row rows[BENCH_MAX_ROWS]; /* by rising x */
    size_t n;
} panel;

/* Text of XML, which has no controls, from any bytes. */
static void put_escaped(app_buffer *out, const char *text, size_t n)
{
    k3_utf8 state = {.n_held = 0};
    char *valid = app_alloc(6 * (n + 3), 1);
    size_t n_valid = k3_utf8_push(&state, valid, text, n);
    n_valid += k3_utf8_push(&state, valid + n_valid, "", 0);
    for (size_t i = 0; i < n_valid; i++) {
        char c = valid[i];
        if (c == '<' || c == '&')
            app_buffer_text(out, c == '<' ? "&lt;" : "&amp;");
        else
            app_buffer_add(out, (unsigned char)c < 0x20 || c == 0x7f ? " " : &c, 1);
    }
    free(valid);
}

/* ---- scales -------------------------------------------------------------------------------------------------------------- */

static double tokens_of(const bench_row *row)
{
    return row->is_decode ? (double)row->context : (double)row->n;
}

static double x_of(const panel *p, double tokens)
{
    double from = p->left + (p->has_zero ? ZERO + INSET : INSET), to = p->left + PANEL - INSET;
    if (tokens < p->low)
        return p->has_zero && tokens <= 0 ? p->left + INSET : from;
    return from + (to - from) * log2(tokens / p->low) / log2(p->high / p->low);
}

static double y_of(const panel *p, double rate)
{
    return BOTTOM - (BOTTOM - TOP) * rate / p->top;
}

/* Tokens per second that the memory, or the arithmetic, allows; 0: unknown. */
static double ceiling_at(const panel *p, double tokens)
{
    const bench_report *r = p->report;
    if (p->is_decode)
        return r->ceilings.memory_bytes_per_s / bench_decode_bytes(r->info, tokens);
    return r->macs_per_s / bench_prefill_macs(r->info, tokens);
}

/* The same of the disk, for what a warm row reads from it. */
static double disk_ceiling_of(const panel *p, const bench_row *row)
{
    return row->is_cold || row->disk_bytes <= 0 ? 0 : p->report->ceilings.disk_bytes_per_s * (double)row->n / row->disk_bytes;
}

/* The smallest of 1, 2, 2.5, 5 times a power of ten with at most five steps up to `top`. */
static double step_for(double top)
{
    static const double steps[] = {1, 2, 2.5, 5, 10};
    double power = pow(10, floor(log10(top / 5)));
    for (int i = 0; i < 5; i++)
        if (steps[i] * power * 5 >= top * 0.999)
            return steps[i] * power;
    return 10 * power;
}

static int by_tokens(const void *a, const void *b)
{
    double x = tokens_of(a), y = tokens_of(b);
    return (x > y) - (x < y);
}

static void fit(panel *p)
{
    const bench_report *r = p->report;
    double most = 0, smallest = 0, largest = 0;
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode == p->is_decode)
            p->rows[p->n++] = r->rows[i];
    qsort(p->rows, p->n, sizeof *p->rows, by_tokens);
    for (size_t i = 0; i < p->n; i++) {
        double tokens = tokens_of(&p->rows[i]);
        p->has_zero |= tokens <= 0;
        smallest = tokens > 0 && smallest <= 0 ? tokens : smallest;
        largest = tokens > largest ? tokens : largest;
        most = fmax(most, fmax(bench_rate(&p->rows[i]), ceiling_at(p, tokens)));
        double disk = disk_ceiling_of(p, &p->rows[i]);
        most = disk < 4 * most ? fmax(most, disk) : most; /* one far away is left outside */
    }
    p->low = smallest > 0 ? exp2(floor(log2(smallest))) : 512;
    p->high = fmax(largest > 0 ? exp2(ceil(log2(largest))) : 0, 4 * p->low);
    most = fmax(most, ceiling_at(p, p->has_zero ? 0 : p->low));
    p->top = 1.12 * (most > 0 ? most : 1);
}

/* ---- drawing --------------------------------------------------------------------------------------------------------------- */

/* 512, 4k, 1M: powers of two and their thousands of 1024. */
static void put_tokens(char out[16], double tokens)
{
    static const char prefixes[] = "kMG";
    int i = -1;
    for (; tokens >= 1024 && fmod(tokens, 1024) <= 0 && i < 2; i++)
        tokens /= 1024;
    snprintf(out, 16, "%.0f%.1s", tokens, i >= 0 ? prefixes + i : "");
}

static void draw_axes(app_buffer *out, const panel *p)
{
    double right = p->left + PANEL, step = step_for(p->top);
    char text[16];
    for (int i = 0; i * step <= p->top * 1.0001; i++) {
        double y = y_of(p, i * step);
        say(out, "<path class=\"%s\" d=\"M%.1f %.1fH%.1f\"/><text class=\"s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%.10g</text>\n",
            i ? "g" : "a", p->left, y, right, p->left - 8, y + 4, i * step);
    }
    int doublings = (int)lround(log2(p->high / p->low)), every = (doublings + 6) / 7;
    for (int i = 0; i <= doublings; i += every) {
        double tokens = p->low * exp2(i), x = x_of(p, tokens);
        put_tokens(text, tokens);
        say(out, "<path class=\"a\" d=\"M%.1f %dv5\"/><text class=\"s\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, BOTTOM,
            x, BOTTOM + 20, text);
    }
    if (p->has_zero) {
        double x = x_of(p, 0), gap = 0.5 * (x + x_of(p, p->low));
        say(out, "<path class=\"a\" d=\"M%.1f %dv5\"/><text class=\"s\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">0</text>\n", x, BOTTOM,
            x, BOTTOM + 20);
        say(out, "<path class=\"a\" d=\"M%.1f %dl5 -10m4 0l-5 10\"/>\n", gap - 4, BOTTOM + 5);
    }
    say(out, "<text class=\"s\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", p->left + PANEL / 2.0, BOTTOM + 40,
        p->is_decode ? "tokens of context" : "rows of a prompt");
}

static void draw_ceiling(app_buffer *out, const panel *p)
{
    enum { STEPS = 40, WIDE = 190 };
    const bench_report *r = p->report;
    double first = ceiling_at(p, p->has_zero ? 0 : p->low), above = y_of(p, first); /* of the line where its label lies */
    if (first <= 0)
        return;
    say(out, "<path class=\"m\" d=\"M%.1f %.1fH%.1f", p->left, y_of(p, first), x_of(p, p->has_zero ? 0 : p->low));
    for (int i = 0; i <= STEPS; i++) {
        double tokens = p->low * pow(p->high / p->low, (double)i / STEPS), x = x_of(p, tokens), y = y_of(p, ceiling_at(p, tokens));
        say(out, "L%.1f %.1f", x, y);
        above = x < p->left + WIDE ? fmin(above, y) : above;
    }
    say(out, "H%.1f\"/>\n", p->left + PANEL);
    say(out, "<text class=\"ml\" x=\"%.1f\" y=\"%.1f\">", p->left + 6, above - 8);
    if (p->is_decode)
        say(out, "memory, %s</text>\n", bench_scaled(r->ceilings.memory_bytes_per_s, "B/s").text);
    else
        say(out, "%s, %s multiply-adds/s</text>\n", r->products, bench_scaled(r->macs_per_s, "").text);
}

static void draw_disk(app_buffer *out, const panel *p)
{
    double last = 0;
    for (size_t i = 0; i < p->n; i++) {
        double rate = disk_ceiling_of(p, &p->rows[i]);
        if (rate <= 0 || rate > p->top)
            continue;
        if (last <= 0)
            say(out, "<path class=\"k\" d=\"M%.1f %.1f", p->left, y_of(p, rate));
        say(out, "L%.1f %.1f", x_of(p, tokens_of(&p->rows[i])), y_of(p, rate));
        last = rate;
    }
    if (last <= 0)
        return;
    say(out, "H%.1f\"/><text class=\"kl\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">disk, %s</text>\n", p->left + PANEL, p->left + PANEL,
        y_of(p, last) - 8, bench_scaled(p->report->ceilings.disk_bytes_per_s, "B/s").text);
}

/* Whether a point's label goes below it: another point, or the ceiling, is close above. */
static int is_below(const panel *p, size_t i)
{
    double x = x_of(p, tokens_of(&p->rows[i])), y = y_of(p, bench_rate(&p->rows[i]));
    double room = y - y_of(p, ceiling_at(p, tokens_of(&p->rows[i])));
    if (room > -4 && room < 24 && ceiling_at(p, tokens_of(&p->rows[i])) > 0)
        return 1;
    for (size_t j = 0; j < p->n; j++) {
        double up = y - y_of(p, bench_rate(&p->rows[j]));
        if (j != i && fabs(x_of(p, tokens_of(&p->rows[j])) - x) < LABEL && up < 36 && (up > 0 || (up >= 0 && j < i)))
            return 1;
    }
    return 0;
}

static void draw_label(app_buffer *out, const panel *p, size_t i)
{
    const bench_row *row = &p->rows[i];
    double x = x_of(p, tokens_of(row)), y = y_of(p, bench_rate(row)), rate = bench_rate(row);
    double share = p->is_decode ? bench_memory_share(row) : bench_arithmetic_share(p->report, row);
    int below = is_below(p, i), beside = below && y + 20 > BOTTOM - 4; /* there is no room below */
    x = beside ? x - 40 : fmin(fmax(x, p->left + LABEL / 2.0), p->left + PANEL - LABEL / 2.0);
    say(out, "<text class=\"v\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%.*f", x,
        beside  ? y + 4
        : below ? y + 20
                : y - 11,
        beside ? "end" : "middle",
        rate < 9.995   ? 2
        : rate < 99.95 ? 1
                       : 0,
        rate);
    if (share > 0)
        say(out, "<tspan class=\"s\" dx=\"4\">%.*f%%</tspan>", share < 0.0995 ? 1 : 0, 100 * share);
    app_buffer_text(out, "</text>\n");
}

static void draw_points(app_buffer *out, const panel *p)
{
    int n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (!p->rows[i].is_cold)
            say(out, "%s%.1f %.1f", n++ ? "L" : "<path class=\"l\" d=\"M", x_of(p, tokens_of(&p->rows[i])),
                y_of(p, bench_rate(&p->rows[i])));
    app_buffer_text(out, n ? "\"/>\n" : "");
    /* A first run is a ring, which shows around a dot. */
    for (int is_cold = 1; is_cold >= 0; is_cold--)
        for (size_t i = 0; i < p->n; i++)
            if (p->rows[i].is_cold == is_cold)
                say(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"/>\n", is_cold ? "c" : "d", x_of(p, tokens_of(&p->rows[i])),
                    y_of(p, bench_rate(&p->rows[i])), is_cold ? "6.5" : "4.5");
    /* One label a place; where points are dense, some have none. */
    double last[2] = {-1e9, -1e9};
    for (size_t i = 0; i < p->n; i++) {
        double x = x_of(p, tokens_of(&p->rows[i]));
        int below = is_below(p, i);
        if (x - last[below] < LABEL)
            continue;
        last[below] = x;
        draw_label(out, p, i);
    }
}

static void draw_panel(app_buffer *out, const bench_report *r, int is_decode, double left)
{
    panel p = {.report = r, .is_decode = is_decode, .left = left};
    fit(&p);
    say(out, "<text class=\"h\" x=\"%.1f\" y=\"%d\">%s</text><text class=\"s\" x=\"%.1f\" y=\"%d\">tokens/s%s%s</text>\n", left, TOP - 36,
        is_decode ? "Decode" : "Prefill", left, TOP - 18, is_decode || r->products ? ", and the share of " : "",
        is_decode     ? "the memory's ceiling"
        : r->products ? "the arithmetic ceiling"
                      : "");
    draw_axes(out, &p);
    draw_ceiling(out, &p);
    draw_disk(out, &p);
    draw_points(out, &p);
}

/* The plan in lines of at most `most` bytes, broken at blanks. */
static void put_plan(app_buffer *out, const char *plan)
{
    enum { MOST = 150, LINES = 2 };
    size_t left = strlen(plan);
    for (int line = 0; line < LINES && left; line++) {
        size_t n = left;
        if (left > MOST)
            for (n = MOST; n > MOST / 2 && plan[n] != ' ';)
                n--;
        say(out, "<text class=\"s p\" x=\"28\" y=\"%d\">", 60 + 16 * line);
        put_escaped(out, plan, n);
        app_buffer_text(out, line + 1 == LINES && n < left ? " ...</text>\n" : "</text>\n");
        left -= n;
        plan += n;
        for (; left && *plan == ' '; left--)
            plan++;
    }
}

static void draw_legend(app_buffer *out, const bench_report *r)
{
    int y = HEIGHT - 22;
    say(out, "<circle class=\"d\" cx=\"34\" cy=\"%d\" r=\"4.5\"/><text class=\"s\" x=\"46\" y=\"%d\">median</text>\n", y - 4, y);
    say(out, "<circle class=\"c\" cx=\"114\" cy=\"%d\" r=\"6\"/><text class=\"s\" x=\"126\" y=\"%d\">first run</text>\n", y - 4, y);
    say(out, "<path class=\"m\" d=\"M200 %dh28\"/><text class=\"s\" x=\"236\" y=\"%d\">ceiling, measured in the same run</text>\n", y - 4,
        y);
    say(out, "<text class=\"s\" x=\"%d\" y=\"%d\" text-anchor=\"end\">a token: %s of weights, %s multiply-adds</text>\n", WIDTH - 28, y,
        bench_scaled((double)r->info->token_bytes, "B").text, bench_scaled((double)r->info->token_macs, "").text);
}

void bench_svg(app_buffer *out, const bench_report *r)
{
    size_t n = strlen(r->model);
    while (n > 1 && r->model[n - 1] == '/')
        n--;
    size_t first = n;
    while (first > 0 && r->model[first - 1] != '/')
        first--;
    say(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">\n", WIDTH, HEIGHT,
        WIDTH, HEIGHT);
    app_buffer_text(out, "<title>Speed of ");
    put_escaped(out, r->model + first, n - first);
    app_buffer_text(out, "</title>\n");
    app_buffer_text(out, style);
    say(out, "<rect class=\"b\" width=\"%d\" height=\"%d\"/>\n<text class=\"t\" x=\"28\" y=\"38\">", WIDTH, HEIGHT);
    put_escaped(out, r->model + first, n - first);
    app_buffer_text(out, "</text>\n");
    put_plan(out, r->info->plan);
    draw_panel(out, r, 1, 72);
    draw_panel(out, r, 0, 540);
    draw_legend(out, r);
    app_buffer_text(out, "</svg>\n");
}
