#include "json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 200 };

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

static int is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* The skip_ functions go past one value; when it is wrong they leave the place in *at and return 0. */
static int skip_string(const char **at, const char *end)
{
    for (const char *p = *at + 1; p < end; p++) {
        *at = p;
        if ((unsigned char)*p < 0x20)
            return 0;
        if (*p == '"') {
            *at = p + 1;
            return 1;
        }
        if (*p != '\\')
            continue;
        if (++p == end || !strchr("\"\\/bfnrtu", *p) || !*p)
            return 0;
        for (int i = 0; *p == 'u' && i < 4; i++)
            if (p + i + 1 >= end || !strchr("0123456789abcdefABCDEF", p[i + 1]) || !p[i + 1])
                return 0;
    }
    *at = end;
    return 0;
}

static int skip_number(const char **at, const char *end)
{
    const char *p = *at + (**at == '-');
    int ok = is_digit(p, end);
    if (ok && *p == '0')
        p++;
    else
        while (is_digit(p, end))
            p++;
    if (ok && p < end && *p == '.') {
        ok = is_digit(++p, end);
        while (is_digit(p, end))
            p++;
    }
    if (ok && p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        ok = is_digit(p, end);
        while (is_digit(p, end))
            p++;
    }
    *at = p;
    return ok;
}

static int skip_value(const char **at, const char *end, int depth);

static int skip_container(const char **at, const char *end, int depth)
{
    char close = **at == '{' ? '}' : ']';
    *at = skip_space(*at + 1, end);
    if (*at < end && **at == close) {
        ++*at;
        return 1;
    }
    while (depth < MAX_DEPTH) {
        if (close == '}') {
            if (*at == end || **at != '"' || !skip_string(at, end))
                return 0;
            *at = skip_space(*at, end);
            if (*at == end || **at != ':')
                return 0;
            *at = skip_space(*at + 1, end);
        }
        if (!skip_value(at, end, depth + 1))
            return 0;
        *at = skip_space(*at, end);
        if (*at == end || (**at != ',' && **at != close))
            return 0;
        if (*(*at)++ == close)
            return 1;
        *at = skip_space(*at, end);
    }
    return 0;
}

static int skip_value(const char **at, const char *end, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    if (*at == end)
        return 0;
    if (**at == '{' || **at == '[')
        return skip_container(at, end, depth);
    if (**at == '"')
        return skip_string(at, end);
    if (**at == '-' || is_digit(*at, end))
        return skip_number(at, end);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(end - *at) >= n && memcmp(*at, words[i], n) == 0) {
            *at += n;
            return 1;
        }
    }
    return 0;
}

app_json app_json_whole(const char *text, size_t n, size_t *wrong)
{
    const char *end = text + n, *first = skip_space(text, end), *at = first;
    int ok = skip_value(&at, end, 0);
    const char *last = at;
    if (ok)
        at = skip_space(at, end);
    *wrong = (size_t)(at - text);
    return ok && at == end ? (app_json){first, (size_t)(last - first)} : (app_json){NULL, 0};
}

char app_json_kind(app_json value)
{
    if (!value.text)
        return 0;
    return *value.text == '-' || is_digit(value.text, value.text + value.n) ? '0' : *value.text;
}

int app_json_next(app_json *key, app_json *value, size_t *at, app_json container)
{
    char kind = app_json_kind(container);
    if (kind != '{' && kind != '[')
        return 0;
    const char *end = container.text + container.n, *p = skip_space(container.text + (*at ? *at : 1), end);
    if (*p == ',')
        p = skip_space(p + 1, end);
    if (*p == '}' || *p == ']')
        return 0;
    app_json name = {NULL, 0};
    if (kind == '{') {
        name.text = p;
        skip_string(&p, end);
        name.n = (size_t)(p - name.text);
        p = skip_space(skip_space(p, end) + 1, end);
    }
    value->text = p;
    skip_value(&p, end, 0);
    value->n = (size_t)(p - value->text);
    if (key)
        *key = name;
    *at = (size_t)(p - container.text);
    return 1;
}

app_json app_json_get(app_json object, const char *name)
{
    app_json key, value, found = {NULL, 0};
    for (size_t at = 0; app_json_kind(object) == '{' && app_json_next(&key, &value, &at, object);)
        if (app_json_is(key, name))
            found = value;
    return found;
}

static unsigned hex4(const char *at)
{
    char digits[5] = {at[0], at[1], at[2], at[3], 0};
    return (unsigned)strtoul(digits, NULL, 16);
}

static void add_code_point(app_buffer *out, unsigned c)
{
    char b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        b[i] = (char)(0x80 | (c & 0x3f));
    b[0] = (char)(lead[n] | c);
    app_buffer_add(out, b, n);
}

void app_json_decode(app_buffer *out, app_json string)
{
    app_buffer_add(out, "", 0);
    if (app_json_kind(string) != '"')
        return;
    const char *end = string.text + string.n - 1;
    for (const char *p = string.text + 1; p < end; p++) {
        static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
        if (*p != '\\') {
            const char *escape = memchr(p, '\\', (size_t)(end - p)), *stop = escape ? escape : end;
            app_buffer_add(out, p, (size_t)(stop - p));
            p = stop - 1;
        } else if (*++p == 'u') {
            unsigned c = hex4(p + 1);
            p += 4;
            if (c >= 0xd800 && c < 0xdc00 && end - p > 6 && p[1] == '\\' && p[2] == 'u' && hex4(p + 3) >= 0xdc00 && hex4(p + 3) < 0xe000) {
                c = 0x10000 + ((c - 0xd800) << 10) + (hex4(p + 3) - 0xdc00);
                p += 6;
            }
            add_code_point(out, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
        } else {
            const char *name = strchr(names, *p);
            app_buffer_add(out, name ? &values[name - names] : p, 1);
        }
    }
}

int app_json_is(app_json string, const char *text)
{
    if (app_json_kind(string) != '"')
        return 0;
    if (!memchr(string.text, '\\', string.n))
        return string.n - 2 == strlen(text) && memcmp(string.text + 1, text, string.n - 2) == 0;
    app_buffer b = {0};
    app_json_decode(&b, string);
    int same = b.n == strlen(text) && memcmp(b.text, text, b.n) == 0;
    app_buffer_free(&b);
    return same;
}

/* strtod wants a terminated text; a number in a file is followed by something that ends it, a whole text by its NUL. */
static double to_double(app_json number)
{
    return strtod(number.text, NULL);
}

int app_json_double(app_json number, double *out)
{
    double x = app_json_kind(number) == '0' ? to_double(number) : INFINITY;
    if (!isfinite(x))
        return 0;
    *out = x;
    return 1;
}

int app_json_int(app_json number, int64_t *out)
{
    char *end;
    if (app_json_kind(number) != '0')
        return 0;
    errno = 0;
    long long whole = strtoll(number.text, &end, 10);
    if (end == number.text + number.n) {
        *out = whole;
        return errno != ERANGE;
    }
    double x = to_double(number);
    if (!(x >= -9007199254740992.0 && x <= 9007199254740992.0) || x != (double)(int64_t)x)
        return 0;
    *out = (int64_t)x;
    return 1;
}

static size_t count(app_json container)
{
    app_json value;
    size_t n = 0;
    for (size_t at = 0; app_json_next(NULL, &value, &at, container);)
        n++;
    return n;
}

static int equal_containers(app_json a, app_json b)
{
    app_json key, x, y;
    size_t at = 0, at_b = 0;
    if (count(a) != count(b))
        return 0;
    while (app_json_next(&key, &x, &at, a)) {
        if (key.text) {
            app_buffer name = {0};
            app_json_decode(&name, key);
            y = app_json_get(b, name.text);
            app_buffer_free(&name);
        } else {
            app_json_next(NULL, &y, &at_b, b);
        }
        if (!app_json_equal(x, y))
            return 0;
    }
    return 1;
}

int app_json_equal(app_json a, app_json b)
{
    char kind = app_json_kind(a);
    if (!kind || kind != app_json_kind(b))
        return 0;
    if (kind == '{' || kind == '[')
        return equal_containers(a, b);
    if (kind == '0')
        return (a.n == b.n && memcmp(a.text, b.text, a.n) == 0) || to_double(a) == to_double(b);
    if (kind != '"')
        return 1;
    app_buffer text = {0};
    app_json_decode(&text, b);
    int same = app_json_is(a, text.text);
    app_buffer_free(&text);
    return same;
}
