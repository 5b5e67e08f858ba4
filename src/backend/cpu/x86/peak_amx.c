/* Multiply-adds of whole tiles: four sums of two by two factors, as many as do not wait for one another. */
#include "backend/cpu/kernels.h"

#include <immintrin.h>
#include <string.h>

enum { ROWS = 16, ROW = 64, TILE = ROWS * ROW, N_SUMS = 4 };

/* All tiles are whole. Tiles 0 to 3 are zero, 4 and 5 hold bytes of `a`, 6 and 7 of `b`, four after four. */
static void fill_tiles(const void *a, const void *b)
{
    unsigned char config[64] = {1}, factor[2][TILE];
    uint16_t row_bytes = ROW;
    for (int i = 0; i < 8; i++) {
        memcpy(config + 16 + 2 * i, &row_bytes, sizeof row_bytes);
        config[48 + i] = ROWS;
    }
    for (int i = 0; i < TILE; i += 4) {
        memcpy(factor[0] + i, a, 4);
        memcpy(factor[1] + i, b, 4);
    }
    __asm__ volatile("" ::: "memory"); /* loads of tiles are reads of an address only to the compiler */
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, factor[0], ROW);
    _tile_loadd(5, factor[0], ROW);
    _tile_loadd(6, factor[1], ROW);
    _tile_loadd(7, factor[1], ROW);
}

static void take_tiles(void *out)
{
    unsigned char *at = out;
    _tile_stored(0, at, ROW);
    _tile_stored(1, at + TILE, ROW);
    _tile_stored(2, at + 2 * TILE, ROW);
    _tile_stored(3, at + 3 * TILE, ROW);
    _tile_release();
    __asm__ volatile("" ::: "memory");
}

uint64_t k3_peak_int8_amx(float *out, int64_t rounds)
{
    static const signed char a[4] = {5, 5, 5, 5}, b[4] = {1, -2, 3, 4};
    int32_t sums[N_SUMS * TILE / 4];
    float total = 0;
    fill_tiles(a, b);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    take_tiles(sums);
    for (int i = 0; i < N_SUMS * TILE / 4; i++)
        total += (float)sums[i];
    *out = total;
    return (uint64_t)rounds * N_SUMS * ROWS * (TILE / 4 / ROWS) * ROW;
}

uint64_t k3_peak_bf16_amx(float *out, int64_t rounds)
{
    static const uint16_t a[2] = {0x3f00, 0x3f00}, b[2] = {0x3e80, 0x3e80}; /* 0.5, 0.25 */
    float sums[N_SUMS * TILE / 4], total = 0;
    fill_tiles(a, b);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    take_tiles(sums);
    for (int i = 0; i < N_SUMS * TILE / 4; i++)
        total += sums[i];
    *out = total;
    return (uint64_t)rounds * N_SUMS * ROWS * (TILE / 4 / ROWS) * (ROW / 2);
}
