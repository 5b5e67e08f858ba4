#include "base/utf8.h"

#include <string.h>

#include "k3.h"

int k3_utf8_length(const char *bytes, size_t n, int *cut)
{
    const unsigned char *s = (const unsigned char *)bytes;
    *cut = 0;
    if (s[0] < 0x80)
        return 1;
    int length = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (!length)
        return -1;
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n) {
            *cut = 1;
            return -i;
        }
        /* The second byte alone excludes overlong forms, surrogates and code points above U+10FFFF. */
        unsigned low = i > 1 ? 0x80 : s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
        unsigned high = i > 1 ? 0xbf : s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
        if (s[i] < low || s[i] > high)
            return -i;
    }
    return length;
}

uint32_t k3_utf8_code_point(const char *bytes, int length)
{
    const unsigned char *s = (const unsigned char *)bytes;
    if (length == 1)
        return s[0];
    uint32_t c = s[0] & (0x7fu >> length);
    for (int i = 1; i < length; i++)
        c = c << 6 | (s[i] & 0x3fu);
    return c;
}

int k3_utf8_write(char *out, uint32_t code_point)
{
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    int length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code_point & 0x3f));
        code_point >>= 6;
    }
    out[0] = (char)((0xf00 >> length & 0xff) | code_point);
    return length;
}

int k3_utf8_is_valid(const char *bytes, size_t n)
{
    int cut;
    for (size_t i = 0; i < n;) {
        uint64_t eight;
        if (n - i >= sizeof eight) {
            memcpy(&eight, bytes + i, sizeof eight);
            if (!(eight & 0x8080808080808080u)) {
                i += sizeof eight;
                continue;
            }
        }
        int length = k3_utf8_length(bytes + i, n - i, &cut);
        if (length < 0)
            return 0;
        i += (size_t)length;
    }
    return 1;
}

int k3_utf8_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == 0x20 || (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

int k3_utf8_is_blank(const char *bytes, size_t n)
{
    int cut;
    for (size_t i = 0; i < n;) {
        int length = k3_utf8_length(bytes + i, n - i, &cut);
        if (length < 0 || !k3_utf8_is_space(k3_utf8_code_point(bytes + i, length)))
            return 0;
        i += (size_t)length;
    }
    return 1;
}

static size_t put_replacement(char *out)
{
    return (size_t)k3_utf8_write(out, 0xfffd);
}

/* Feeds one byte to the held character. Returns bytes written to out: at most a U+FFFD and a whole character. */
static size_t push_byte(k3_utf8 *state, char *out, char byte)
{
    size_t n_out = 0;
    for (;;) {
        int cut;
        char joined[sizeof state->held + 1];
        memcpy(joined, state->held, (size_t)state->n_held);
        joined[state->n_held] = byte;
        int n = state->n_held + 1, length = k3_utf8_length(joined, (size_t)n, &cut);
        if (length > 0 || cut) {
            memcpy(state->held, joined, (size_t)n);
            state->n_held = n;
            if (length > 0) {
                memcpy(out + n_out, joined, (size_t)length);
                n_out += (size_t)length;
                state->n_held = 0;
            }
            return n_out;
        }
        n_out += put_replacement(out + n_out);
        if (state->n_held == 0)
            return n_out;
        /* What was held is broken by this byte, which begins a character of its own. */
        state->n_held = 0;
    }
}

size_t k3_utf8_push(k3_utf8 *state, char *out, const char *bytes, size_t n)
{
    size_t n_out = 0;
    if (n == 0 && state->n_held > 0) {
        state->n_held = 0;
        return put_replacement(out);
    }
    for (size_t i = 0; i < n; i++)
        n_out += push_byte(state, out + n_out, bytes[i]);
    return n_out;
}
