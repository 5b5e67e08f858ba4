/* AMX's tile instructions as functions, by which kernels of tiles run where the processor has none. A source that is compiled with this in
 * front of it, after immintrin.h, calls them in place of the instructions, and its own functions get other names, beside the real ones.
 *
 * What a processor answers with a fault (tiles that are not configured, shapes that do not fit, more than there is) fails the test and says
 * what was found. Loads and stores touch the bytes of the configured shape and no others. */
#ifndef K3_TESTS_BACKEND_TILES_EMULATED_H
#define K3_TESTS_BACKEND_TILES_EMULATED_H

#include <stddef.h>

void emulated_loadconfig(const void *config);
void emulated_release(void);
void emulated_zero(int tile);
void emulated_loadd(int tile, const void *from, ptrdiff_t stride);
void emulated_stored(int tile, void *to, ptrdiff_t stride);
void emulated_dpbssd(int sums, int a, int b);
void emulated_dpbf16ps(int sums, int a, int b);

/* Whether tiles are configured now, and how many products there were since the last question. */
int emulated_is_configured(void);
int emulated_products(void);

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release emulated_release
#define _tile_zero emulated_zero
#define _tile_loadd emulated_loadd
#define _tile_stored emulated_stored
#define _tile_dpbssd emulated_dpbssd
#define _tile_dpbf16ps emulated_dpbf16ps

#define k3_matmul_q8_amx k3_matmul_q8_emulated
#define k3_round_bf16_amx k3_round_bf16_emulated
#define k3_matmul_bf16_amx k3_matmul_bf16_emulated
#define k3_peak_int8_amx k3_peak_int8_emulated
#define k3_peak_bf16_amx k3_peak_bf16_emulated

#endif
