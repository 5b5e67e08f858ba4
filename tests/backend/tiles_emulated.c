#include "tiles_emulated.h"

#include "base/bf16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What palette 1 has. */
enum { N_TILES = 8, ROWS = 16, ROW_BYTES = 64, DWORDS = ROW_BYTES / 4, CONFIG_BYTES = 64 };

/* Bytes beyond the shape are zero. */
typedef struct tile {
    int rows, row_bytes;
    unsigned char bytes[ROWS][ROW_BYTES];
} tile;

static tile tiles[N_TILES];
static int is_configured, n_products;

/* Does not come back. */
static __attribute__((format(printf, 1, 2))) void refuse(const char *format, ...)
{
    static char text[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    mock_assert(0, text, __FILE__, __LINE__);
}

/* ---- configuration --------------------------------------------------------------------------------------------------------------- */

static void must_be_zero(const unsigned char *config, int first, int last)
{
    for (int i = first; i < last; i++)
        if (config[i])
            refuse("loadconfig: byte %d is %d, 0 wanted", i, config[i]);
}

void emulated_loadconfig(const void *config)
{
    unsigned char bytes[CONFIG_BYTES];
    memcpy(bytes, config, sizeof bytes);
    if (bytes[0] != 1)
        refuse("loadconfig: palette %d, 1 wanted", bytes[0]);
    must_be_zero(bytes, 1, 16);
    must_be_zero(bytes, 32, 48);
    must_be_zero(bytes, 56, 64);
    is_configured = 0;
    memset(tiles, 0, sizeof tiles);
    for (int i = 0; i < N_TILES; i++) {
        tile *t = &tiles[i];
        t->row_bytes = bytes[16 + 2 * i] | bytes[17 + 2 * i] << 8;
        t->rows = bytes[48 + i];
        if (t->rows > ROWS || t->row_bytes > ROW_BYTES || !t->rows != !t->row_bytes)
            refuse("loadconfig: tile %d has %d rows of %d bytes, at most %d of %d wanted", i, t->rows, t->row_bytes, ROWS, ROW_BYTES);
    }
    is_configured = 1;
}

void emulated_release(void)
{
    memset(tiles, 0, sizeof tiles);
    is_configured = 0;
}

int emulated_is_configured(void)
{
    return is_configured;
}

int emulated_products(void)
{
    int n = n_products;
    n_products = 0;
    return n;
}

static tile *tile_of(const char *instruction, int i)
{
    if (!is_configured)
        refuse("%s: no tiles are configured", instruction);
    if (i < 0 || i >= N_TILES || !tiles[i].rows)
        refuse("%s: tile %d has no rows", instruction, i);
    return &tiles[i];
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------- */

void emulated_zero(int i)
{
    tile *t = tile_of("zero", i);
    memset(t->bytes, 0, sizeof t->bytes);
}

void emulated_loadd(int i, const void *from, ptrdiff_t stride)
{
    tile *t = tile_of("loadd", i);
    memset(t->bytes, 0, sizeof t->bytes);
    for (int row = 0; row < t->rows; row++)
        memcpy(t->bytes[row], (const unsigned char *)from + row * stride, (size_t)t->row_bytes);
}

void emulated_stored(int i, void *to, ptrdiff_t stride)
{
    const tile *t = tile_of("stored", i);
    for (int row = 0; row < t->rows; row++)
        memcpy((unsigned char *)to + row * stride, t->bytes[row], (size_t)t->row_bytes);
}

/* ---- products -------------------------------------------------------------------------------------------------------------------- */

/* sums [m][n] += a [m][k] b [k][n], dwords all of them. */
typedef struct product {
    tile *sums;
    const tile *a, *b;
    int m, n, k;
} product;

static product product_of(const char *instruction, int sums, int a, int b)
{
    product p = {tile_of(instruction, sums), tile_of(instruction, a), tile_of(instruction, b), 0, 0, 0};
    p.m = p.sums->rows;
    p.n = p.b->row_bytes / 4;
    p.k = p.b->rows;
    if (sums == a || sums == b || a == b)
        refuse("%s: tiles %d, %d and %d, three wanted", instruction, sums, a, b);
    if (p.sums->row_bytes % 4 || p.a->row_bytes % 4 || p.b->row_bytes % 4)
        refuse("%s: rows of %d, %d and %d bytes, multiples of 4 wanted", instruction, p.sums->row_bytes, p.a->row_bytes, p.b->row_bytes);
    if (p.a->rows != p.m || p.a->row_bytes != 4 * p.k || p.sums->row_bytes != p.b->row_bytes)
        refuse("%s: %d x %d bytes += %d x %d times %d x %d do not fit", instruction, p.m, p.sums->row_bytes, p.a->rows, p.a->row_bytes, p.k,
               p.b->row_bytes);
    n_products++;
    return p;
}

void emulated_dpbssd(int sums, int a, int b)
{
    product p = product_of("dpbssd", sums, a, b);
    for (int m = 0; m < p.m; m++) {
        uint32_t sum[DWORDS];
        memcpy(sum, p.sums->bytes[m], sizeof sum);
        for (int k = 0; k < p.k; k++) {
            const unsigned char *four = p.a->bytes[m] + 4 * k;
            for (int n = 0; n < p.n; n++)
                for (int i = 0; i < 4; i++)
                    sum[n] += (uint32_t)((signed char)four[i] * (signed char)p.b->bytes[k][4 * n + i]);
        }
        memcpy(p.sums->bytes[m], sum, sizeof sum);
    }
}

static float without_subnormal(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

/* The even and the odd ones of pairs of bf16. */
static void split(float even[DWORDS], float odd[DWORDS], const unsigned char *row)
{
    uint16_t pairs[2 * DWORDS];
    memcpy(pairs, row, sizeof pairs);
    for (int i = 0; i < DWORDS; i++) {
        even[i] = without_subnormal(k3_bf16_value(pairs[2 * i]));
        odd[i] = without_subnormal(k3_bf16_value(pairs[2 * i + 1]));
    }
}

/* a b + c, rounded once: a and b have 8 bits and c has 24, so that no sum in double lies where another rounding would go elsewhere. */
static float multiply_add(float a, float b, float c)
{
    return without_subnormal((float)((double)a * b + c));
}

/* As the manual has it: products of even columns and those of odd ones are summed apart, ascending, and both sums go to that of the tile
 * together. */
void emulated_dpbf16ps(int sums, int a, int b)
{
    product p = product_of("dpbf16ps", sums, a, b);
    float b_even[ROWS][DWORDS], b_odd[ROWS][DWORDS];
    for (int k = 0; k < p.k; k++)
        split(b_even[k], b_odd[k], p.b->bytes[k]);
    for (int m = 0; m < p.m; m++) {
        float a_even[DWORDS], a_odd[DWORDS], even[DWORDS] = {0}, odd[DWORDS] = {0}, sum[DWORDS];
        split(a_even, a_odd, p.a->bytes[m]);
        memcpy(sum, p.sums->bytes[m], sizeof sum);
        for (int k = 0; k < p.k; k++)
            for (int n = 0; n < p.n; n++) {
                even[n] = multiply_add(a_even[k], b_even[k][n], even[n]);
                odd[n] = multiply_add(a_odd[k], b_odd[k][n], odd[n]);
            }
        for (int n = 0; n < p.n; n++)
            sum[n] = without_subnormal(without_subnormal(sum[n]) + without_subnormal(even[n] + odd[n]));
        memcpy(p.sums->bytes[m], sum, sizeof sum);
    }
}
