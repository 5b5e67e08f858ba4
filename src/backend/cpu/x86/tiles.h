/* What the files with AMX's tiles share. A tile has up to 16 rows of up to 64 bytes. */
#ifndef K3_BACKEND_CPU_X86_TILES_H
#define K3_BACKEND_CPU_X86_TILES_H

#include "backend/cpu/x86/vec_avx512.h"

#include <string.h>

enum { TILE_ROWS = 16, TILE_ROW = 64, TILE_BYTES = TILE_ROWS * TILE_ROW, N_TILES = 8 };

/* Rows and bytes a row of each tile of the thread. */
typedef struct tile_config {
    uint8_t palette, start_row, unused[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static inline tile_config whole_tiles(void)
{
    tile_config c;
    memset(&c, 0, sizeof c);
    c.palette = 1;
    for (int i = 0; i < N_TILES; i++) {
        c.rows[i] = TILE_ROWS;
        c.row_bytes[i] = TILE_ROW;
    }
    return c;
}

/* Loads of tiles see what was written before: the compiler knows them as reads of an address only. */
static inline void tile_fence(void)
{
    __asm__ volatile("" ::: "memory");
}

/* Dword j of vector i goes to dword i of vector j. */
static inline void transpose_tile(__m512i v[TILE_ROWS])
{
    __m512i a[TILE_ROWS], b[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i += 2) {
        a[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    for (int i = 0; i < TILE_ROWS; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    /* b[i + j]: rows i .. i+3 of dwords j, 4 + j, 8 + j, 12 + j. */
    for (int j = 0; j < 4; j++) {
        __m512i low = _mm512_shuffle_i32x4(b[j], b[4 + j], 0x88), high = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0x88);
        __m512i low2 = _mm512_shuffle_i32x4(b[j], b[4 + j], 0xdd), high2 = _mm512_shuffle_i32x4(b[8 + j], b[12 + j], 0xdd);
        v[j] = _mm512_shuffle_i32x4(low, high, 0x88);
        v[8 + j] = _mm512_shuffle_i32x4(low, high, 0xdd);
        v[4 + j] = _mm512_shuffle_i32x4(low2, high2, 0x88);
        v[12 + j] = _mm512_shuffle_i32x4(low2, high2, 0xdd);
    }
}

#endif
