#include "constrain/number.h"

#include <string.h>

int k3_bound_read(k3_bound *bound, const char *text, size_t n, int is_exclusive)
{
    enum { MOST = 64 };
    char digits[MOST];
    size_t n_digits = 0, i = 0;
    int64_t point = -1, exponent = 0;
    *bound = (k3_bound){.is_set = 1, .is_exclusive = is_exclusive, .is_negative = n > 0 && text[0] == '-'};
    for (i = (size_t)bound->is_negative; i < n && text[i] != 'e' && text[i] != 'E'; i++) {
        if (text[i] == '.')
            point = (int64_t)n_digits;
        else if (text[i] < '0' || text[i] > '9' || n_digits == MOST)
            return 0;
        else if (n_digits > 0 || text[i] != '0' || point >= 0)
            digits[n_digits++] = text[i];
    }
    point = point < 0 ? (int64_t)n_digits : point;
    int falls = ++i < n && text[i] == '-';
    for (i += i < n && (text[i] == '-' || text[i] == '+'); i < n; i++)
        exponent = exponent < 1000 ? exponent * 10 + (text[i] - '0') : exponent;
    point += falls ? -exponent : exponent;
    while (n_digits > 0 && digits[n_digits - 1] == '0')
        n_digits--;
    size_t first = 0;
    while (first < n_digits && digits[first] == '0')
        first++;
    if (first == n_digits) {
        strcpy(bound->whole, "0");
        bound->is_negative = 0;
        return 1;
    }
    int64_t from = (int64_t)first < point ? (int64_t)first : point, to = (int64_t)n_digits > point ? (int64_t)n_digits : point;
    if (point - from > K3_NUMBER_DIGITS || to - point > K3_NUMBER_DIGITS)
        return 0;
    for (int64_t at = from; at < point; at++)
        bound->whole[at - from] = at >= 0 && at < (int64_t)n_digits ? digits[at] : '0';
    for (int64_t at = point; at < to; at++)
        bound->fraction[at - point] = at >= 0 && at < (int64_t)n_digits ? digits[at] : '0';
    if (!bound->whole[0])
        strcpy(bound->whole, "0");
    return 1;
}

static int compare_sizes(const k3_bound *a, const k3_bound *b)
{
    size_t n = strlen(a->whole), m = strlen(b->whole);
    int order = n != m ? (n > m) - (n < m) : strcmp(a->whole, b->whole);
    order = order ? order : strcmp(a->fraction, b->fraction);
    return (order > 0) - (order < 0);
}

int k3_bound_compare(const k3_bound *a, const k3_bound *b)
{
    if (a->is_negative != b->is_negative)
        return a->is_negative ? -1 : 1;
    return a->is_negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

/* ---- digits between bounds ----------------------------------------------------------------------------- */

/* Numbers without a sign whose whole part has `length` digits. Digits so far may be those of the least or of the most number: then the
 * next digit is bound as well. made: nodes by position and by what binds, 0 where not made. */
typedef struct digits {
    k3_grammar *g;
    const k3_bound *least, *most; /* least is set */
    size_t length, n_fraction;
    uint32_t next, made[2 * K3_NUMBER_DIGITS + 24][4];
} digits;

static char digit_of(const k3_bound *bound, size_t length, size_t at)
{
    if (at < length)
        return bound->whole[at];
    size_t n = strlen(bound->fraction);
    return at - length < n ? bound->fraction[at - length] : '0';
}

static int may_end(const digits *d, size_t at, int low, int high)
{
    size_t n_read = at > d->length ? at - d->length : 0;
    if (at < d->length)
        return 0;
    if (low && (strlen(d->least->fraction) > n_read || d->least->is_exclusive))
        return 0;
    return !(high && strlen(d->most->fraction) <= n_read && d->most->is_exclusive);
}

/* at: digits read. */
static uint32_t digits_from(digits *d, size_t at, int low, int high)
{
    uint32_t *made = &d->made[at][low * 2 + high];
    if (*made)
        return *made;
    uint32_t ends = may_end(d, at, low, high) ? d->next : K3_GRAMMAR_DEAD, more = K3_GRAMMAR_DEAD;
    if (at < d->length + d->n_fraction) {
        char from = low ? digit_of(d->least, d->length, at) : at == 0 && d->length > 1 ? '1' : '0';
        char to = high ? digit_of(d->most, d->length, at) : '9';
        for (char c = from; c <= to;) {
            int is_low = low && c == from, is_high = high && c == to;
            char last = is_low || is_high ? c : high ? (char)(to - 1) : to;
            uint32_t rest = digits_from(d, at + 1, is_low, is_high);
            more = k3_grammar_either(d->g, k3_grammar_bytes(d->g, (uint8_t)c, (uint8_t)last, rest), more);
            c = (char)(last + 1);
        }
    }
    if (at == d->length && more != K3_GRAMMAR_DEAD)
        more = k3_grammar_bytes(d->g, '.', '.', more);
    return *made = k3_grammar_either(d->g, ends, more);
}

/* Numbers without a sign, least <= number <= most in size. */
static uint32_t sizes_between(k3_grammar *g, const k3_bound *least, const k3_bound *most, int is_integer, uint32_t next)
{
    uint32_t start = K3_GRAMMAR_DEAD;
    size_t n_least = strlen(least->whole), n_most = most->is_set ? strlen(most->whole) : K3_NUMBER_DIGITS;
    for (size_t length = n_least; length <= n_most; length++) {
        digits d = {.g = g, .least = least, .most = most, .length = length, .next = next};
        d.n_fraction = is_integer ? 0 : K3_NUMBER_DIGITS;
        start = k3_grammar_either(g, digits_from(&d, 0, length == n_least, most->is_set && length == n_most), start);
    }
    return start;
}

/* ---- numbers ------------------------------------------------------------------------------------------- */

static uint32_t any_number(k3_grammar *g, int is_integer, uint32_t next)
{
    uint32_t digit = k3_grammar_rule(g);
    k3_grammar_set(g, digit, k3_grammar_bytes(g, '0', '9', K3_GRAMMAR_RETURN));
    uint32_t end = next;
    if (!is_integer) {
        uint32_t power = k3_grammar_loop_of(g, digit, 1, 2, next);
        uint32_t sign = k3_grammar_either(g, k3_grammar_either(g, k3_grammar_word(g, "+", power), k3_grammar_word(g, "-", power)), power);
        end = k3_grammar_either(g, k3_grammar_either(g, k3_grammar_word(g, "e", sign), k3_grammar_word(g, "E", sign)), next);
        end = k3_grammar_either(g, k3_grammar_word(g, ".", k3_grammar_loop_of(g, digit, 1, K3_NUMBER_DIGITS, end)), end);
    }
    uint32_t whole = k3_grammar_bytes(g, '1', '9', k3_grammar_loop_of(g, digit, 0, K3_NUMBER_DIGITS - 1, end));
    uint32_t zero = k3_grammar_word(g, "0", end);
    uint32_t negative = is_integer ? whole : k3_grammar_either(g, whole, zero);
    return k3_grammar_either(g, k3_grammar_either(g, whole, zero), k3_grammar_word(g, "-", negative));
}

uint32_t k3_number_node(k3_grammar *g, const k3_bound *least, const k3_bound *most, int is_integer, uint32_t next)
{
    if (!least->is_set && !most->is_set)
        return any_number(g, is_integer, next);
    k3_bound zero = {.is_set = 1, .whole = "0"}, none = {0}, above_zero = zero;
    above_zero.is_exclusive = 1; /* no -0 */
    uint32_t start = K3_GRAMMAR_DEAD;
    if (!most->is_set || !most->is_negative) {
        const k3_bound *from = least->is_set && !least->is_negative ? least : &zero;
        if (!most->is_set || compare_sizes(from, most) <= 0)
            start = sizes_between(g, from, most, is_integer, next);
    }
    if (!least->is_set || least->is_negative) {
        const k3_bound *from = most->is_set && most->is_negative ? most : &above_zero, *to = least->is_set ? least : &none;
        if (!to->is_set || compare_sizes(from, to) <= 0)
            start = k3_grammar_either(g, k3_grammar_word(g, "-", sizes_between(g, from, to, is_integer, next)), start);
    }
    return start;
}
