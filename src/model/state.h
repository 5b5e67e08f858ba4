/* What one sequence carries from token to token (specification 4): KDA states and convolution windows of fixed size, and the MLA latent
 * cache that grows. */
#ifndef K3_MODEL_STATE_H
#define K3_MODEL_STATE_H

#include "backend/backend.h"
#include "ckpt/hparams.h"

typedef struct k3_state {
    const k3_hparams *hp;
    k3_backend *be;     /* NULL: there is no memory */
    k3_type cache_type; /* K3_F32 or K3_BF16 */
    int64_t length;     /* tokens held */
    int64_t capacity;   /* cache rows allocated, each MLA layer */
    k3_buf *fixed;      /* all KDA layers: state [H, D, D], then q, k, v windows [width-1, C] each; f32 */
    k3_buf **cache;     /* by layer; [capacity, kv_lora + rope]; NULL for KDA layers */
} k3_state;

/* Holds nothing yet: k3_state_restart gives it memory. */
k3_status k3_state_open(k3_state **out, const k3_hparams *hp, k3_type cache_type, k3_error *err);
void k3_state_close(k3_state *state);
/* Releases the memory and keeps the length, before the backend goes. */
void k3_state_lose(k3_state *state);
/* Back to the empty sequence; takes memory of this backend if there is none. */
k3_status k3_state_restart(k3_state *state, k3_backend *be, k3_error *err);
/* Room for `length` tokens; the cache at least doubles while there is memory for that. More than the host has free is K3_E_NOMEM with
 * numbers, and nothing changes. Allocates, so it runs before a pass, never inside. */
k3_status k3_state_reserve(k3_state *state, int64_t length, k3_error *err);

uint64_t k3_state_fixed_bytes(const k3_hparams *hp);
uint64_t k3_state_bytes(const k3_state *state);           /* that it holds */
uint64_t k3_state_cache_row_bytes(const k3_state *state); /* one token, one MLA layer */

typedef enum k3_window { K3_WINDOW_Q, K3_WINDOW_K, K3_WINDOW_V } k3_window;
k3_ref k3_state_kda(const k3_state *state, int layer);
k3_ref k3_state_window(const k3_state *state, int layer, k3_window which);
k3_ref k3_state_cache(const k3_state *state, int layer);

#endif
