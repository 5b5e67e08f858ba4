#include "text/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings and numbers ------------------------------------------------------------------------------- */

void k3_json_write_string(k3_buffer *out, const char *text, size_t n)
{
    static const char controls[] = "\b\t\n\f\r", letters[] = "btnfr";
    if (n == 0) {
        k3_buffer_add_text(out, "\"\"");
        return;
    }
    k3_buffer_add_char(out, '"');
    size_t start = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        k3_buffer_add(out, text + start, i - start);
        start = i + 1;
        const char *control = c ? strchr(controls, c) : NULL;
        char escape[8];
        if (c >= 0x20)
            snprintf(escape, sizeof escape, "\\%c", c);
        else if (control)
            snprintf(escape, sizeof escape, "\\%c", letters[control - controls]);
        else
            snprintf(escape, sizeof escape, "\\u%04x", c);
        k3_buffer_add_text(out, escape);
    }
    k3_buffer_add(out, text + start, n - start);
    k3_buffer_add_char(out, '"');
}

enum { MAX_DIGITS = 17 };

/* Reads digits as d.ddd * 10^exponent. Written without a decimal point, whose character depends on the program's locale. */
static double from_digits(const char *digits, int n, int exponent)
{
    char text[MAX_DIGITS + 16];
    snprintf(text, sizeof text, "%.*se%d", n, digits, exponent - (n - 1));
    return strtod(text, NULL);
}

/* The next larger number of as many digits. 99 -> 10 with a larger exponent. */
static void increment(char *digits, int n, int *exponent)
{
    for (int i = n - 1; i >= 0; i--) {
        if (digits[i] != '9') {
            digits[i]++;
            return;
        }
        digits[i] = '0';
    }
    digits[0] = '1';
    ++*exponent;
}

/* The fewest digits of a positive finite x, d.ddd * 10^exponent; returns their number. */
static int shortest_digits(char *digits, int *exponent, double x)
{
    for (int n = 1; n <= MAX_DIGITS; n++) {
        char text[MAX_DIGITS + 16];
        snprintf(text, sizeof text, "%.*e", n - 1, x);
        int n_digits = 0;
        const char *s = text;
        for (; *s != 'e'; s++)
            if (*s >= '0' && *s <= '9')
                digits[n_digits++] = *s;
        *exponent = atoi(s + 1);
        if (n == MAX_DIGITS || from_digits(digits, n, *exponent) == x)
            return n;
        /* The doubles below a power of two lie twice as dense as those above: there the nearest n digits can miss x while the next
         * larger ones, farther away, still mean it (2^-44 is 5.684341886080802e-14). */
        increment(digits, n, exponent);
        if (from_digits(digits, n, *exponent) == x)
            return n;
    }
    return 0;
}

static void write_float(k3_buffer *out, double x)
{
    char digits[MAX_DIGITS + 1], text[64];
    int exponent = 0, n = 1;
    digits[0] = '0';
    if (x != 0)
        n = shortest_digits(digits, &exponent, x);
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (exponent < -4 || exponent >= 16) {
        k3_buffer_add(out, digits, 1);
        if (n > 1) {
            k3_buffer_add_char(out, '.');
            k3_buffer_add(out, digits + 1, (size_t)n - 1);
        }
        snprintf(text, sizeof text, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        k3_buffer_add_text(out, text);
        return;
    }
    if (exponent < 0) {
        snprintf(text, sizeof text, "0.%.*s%.*s", -exponent - 1, "000", n, digits);
        k3_buffer_add_text(out, text);
        return;
    }
    for (int i = 0; i <= exponent; i++)
        k3_buffer_add_char(out, i < n ? digits[i] : '0');
    k3_buffer_add_char(out, '.');
    if (n > exponent + 1)
        k3_buffer_add(out, digits + exponent + 1, (size_t)(n - exponent - 1));
    else
        k3_buffer_add_char(out, '0');
}

static void write_number(k3_buffer *out, const k3_json *number)
{
    const char *s = number->text;
    int is_integer = strspn(s, "-0123456789") == number->text_bytes;
    if (is_integer) {
        k3_buffer_add_text(out, strcmp(s, "-0") == 0 ? "0" : s);
        return;
    }
    double x;
    if (strcmp(s, "NaN") == 0) {
        k3_buffer_add_text(out, s);
        return;
    }
    if (*s == '-')
        k3_buffer_add_char(out, '-');
    if (k3_json_double(number, &x))
        write_float(out, *s == '-' ? -x : x);
    else
        k3_buffer_add_text(out, "Infinity");
}

/* ---- objects and arrays -------------------------------------------------------------------------------- */

typedef struct member {
    const k3_json *value;
    size_t place;
} member;

static int compare_keys(const void *a, const void *b)
{
    const member *x = a, *y = b;
    size_t n = x->value->key_bytes < y->value->key_bytes ? x->value->key_bytes : y->value->key_bytes;
    int order = n > 0 ? memcmp(x->value->key, y->value->key, n) : 0;
    if (order == 0)
        order = (x->value->key_bytes > y->value->key_bytes) - (x->value->key_bytes < y->value->key_bytes);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static int compare_places(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

static int same_key(const k3_json *a, const k3_json *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0;
}

const k3_json **k3_json_members(const k3_json *object, k3_json_style style, size_t *n, int *failed)
{
    *n = 0;
    size_t n_all = object->n_children, n_kept = 0;
    if (n_all == 0)
        return NULL;
    member *members = malloc(n_all * sizeof *members);
    const k3_json **out = malloc(n_all * sizeof *out);
    if (!members || !out) {
        free(members);
        free(out);
        *failed = 1;
        return NULL;
    }
    size_t place = 0;
    for (const k3_json *m = object->first; m; m = m->next, place++)
        members[place] = (member){m, place};
    qsort(members, n_all, sizeof *members, compare_keys);
    for (size_t i = 0; i < n_all; i++) {
        if (n_kept > 0 && same_key(members[n_kept - 1].value, members[i].value))
            members[n_kept - 1].value = members[i].value;
        else
            members[n_kept++] = members[i];
    }
    if (style == K3_JSON_SPACED)
        qsort(members, n_kept, sizeof *members, compare_places);
    for (size_t i = 0; i < n_kept; i++)
        out[i] = members[i].value;
    free(members);
    *n = n_kept;
    return out;
}

static void write_object(k3_buffer *out, const k3_json *object, k3_json_style style)
{
    size_t n;
    int failed = 0;
    const k3_json **members = k3_json_members(object, style, &n, &failed);
    if (failed) {
        k3_buffer_free(out);
        out->failed = 1;
    }
    k3_buffer_add_char(out, '{');
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            k3_buffer_add_text(out, style == K3_JSON_SPACED ? ", " : ",");
        k3_json_write_string(out, members[i]->key, members[i]->key_bytes);
        k3_buffer_add_text(out, style == K3_JSON_SPACED ? ": " : ":");
        k3_json_write(out, members[i], style);
    }
    k3_buffer_add_char(out, '}');
    free(members);
}

/* Recursion is bounded by the reader's limit of 256 levels. */
void k3_json_write(k3_buffer *out, const k3_json *value, k3_json_style style)
{
    switch (value->type) {
    case K3_JSON_NULL:
        k3_buffer_add_text(out, "null");
        break;
    case K3_JSON_FALSE:
        k3_buffer_add_text(out, "false");
        break;
    case K3_JSON_TRUE:
        k3_buffer_add_text(out, "true");
        break;
    case K3_JSON_NUMBER:
        write_number(out, value);
        break;
    case K3_JSON_STRING:
        k3_json_write_string(out, value->text, value->text_bytes);
        break;
    case K3_JSON_ARRAY:
        k3_buffer_add_char(out, '[');
        for (const k3_json *item = value->first; item; item = item->next) {
            if (item != value->first)
                k3_buffer_add_text(out, style == K3_JSON_SPACED ? ", " : ",");
            k3_json_write(out, item, style);
        }
        k3_buffer_add_char(out, ']');
        break;
    case K3_JSON_OBJECT:
        write_object(out, value, style);
        break;
    }
}
