#include "store/slots.h"

#include <stdlib.h>
#include <string.h>

/* Small enough for devices that refuse large allocations; halved where even that is refused. */
static const uint64_t slab_bytes = (uint64_t)240 << 20;

enum { ALIGN = 256 };

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* One tensor after the other, each aligned: codes and scales of w1 and w3 [I, L], then of w2 [L, I]. Returns the bytes of a slot. */
static uint64_t lay_out(k3_expert *e, const k3_hparams *hp, k3_buf *buf, uint64_t at)
{
    int L = hp->latent ? hp->latent : hp->hidden, I = hp->expert_inner;
    uint64_t start = at;
    k3_mat *mats[3] = {&e->w1, &e->w3, &e->w2};
    for (int i = 0; i < 3; i++) {
        int rows = i < 2 ? I : L, cols = i < 2 ? L : I;
        uint64_t codes = (uint64_t)rows * k3_type_row_bytes(K3_MXFP4, cols), scales = (uint64_t)rows * k3_type_scale_bytes(K3_MXFP4, cols);
        *mats[i] = (k3_mat){K3_MXFP4, rows, cols, {buf, at}, {buf, at + aligned(codes)}, 0};
        at += aligned(codes) + aligned(scales);
    }
    return at - start;
}

uint64_t k3_slots_one_bytes(const k3_hparams *hp)
{
    k3_expert e;
    return lay_out(&e, hp, NULL, 0);
}

static k3_status grow(k3_slots *s, int n, k3_error *err)
{
    if (s->n + n > s->max) {
        int max = s->n + n;
        k3_expert *experts = realloc(s->experts, (size_t)max * sizeof *experts);
        s->experts = experts ? experts : s->experts;
        int *tier = realloc(s->tier, (size_t)max * sizeof *tier);
        s->tier = tier ? tier : s->tier;
        if (!experts || !tier)
            return k3_fail(err, K3_E_NOMEM, "expert slots: out of memory for %d slots", max);
        s->max = max;
    }
    if (s->n_slabs == s->max_slabs) {
        int max = s->max_slabs ? 2 * s->max_slabs : 16;
        k3_slab *slabs = realloc(s->slabs, (size_t)max * sizeof *slabs);
        if (!slabs)
            return k3_fail(err, K3_E_NOMEM, "expert slots: out of memory for %d slabs", max);
        s->slabs = slabs;
        s->max_slabs = max;
    }
    return K3_OK;
}

k3_status k3_slots_add(k3_slots *s, k3_backend *be, int tier, int n, k3_error *err)
{
    uint64_t one = k3_slots_one_bytes(s->hp);
    int a_slab = one < slab_bytes ? (int)(slab_bytes / one) : 1;
    while (n > 0) {
        int m = n < a_slab ? n : a_slab;
        K3_TRY(grow(s, m, err));
        /* A device that must drop something drops experts before what every token needs. */
        be->memory->set_priority(be, 0.5f);
        k3_buf *buf = be->memory->alloc(be, (uint64_t)m * one, "experts");
        be->memory->set_priority(be, 1);
        if (!buf) {
            k3_error why = {K3_OK, ""};
            k3_status status = be->sync(be, &why);
            if (status != K3_OK && status != K3_E_NOMEM)
                return k3_fail(err, status, "%s", why.text);
            if (m == 1)
                return K3_OK;
            a_slab = m / 2;
            continue;
        }
        s->slabs[s->n_slabs++] = (k3_slab){be, buf, tier, s->n, m};
        for (int i = 0; i < m; i++, s->n++) {
            lay_out(&s->experts[s->n], s->hp, buf, (uint64_t)i * one);
            s->tier[s->n] = tier;
        }
        n -= m;
    }
    return K3_OK;
}

static uint64_t bytes_of(const k3_mat *mat, int scales)
{
    return (uint64_t)mat->rows * (scales ? k3_type_scale_bytes(K3_MXFP4, mat->cols) : k3_type_row_bytes(K3_MXFP4, mat->cols));
}

void *k3_slots_host(k3_backend *be, const k3_mat *mat, int scales, uint64_t *bytes)
{
    *bytes = bytes_of(mat, scales);
    return be->memory->host(be, scales ? mat->scale : mat->data, *bytes);
}

int k3_slots_release(k3_slots *s, int tier, int *first, int *n)
{
    for (int i = s->n_slabs - 1; i >= 0; i--) {
        k3_slab slab = s->slabs[i];
        if (slab.tier != tier)
            continue;
        slab.be->memory->release(slab.be, slab.buf);
        memmove(s->slabs + i, s->slabs + i + 1, (size_t)(s->n_slabs - 1 - i) * sizeof *s->slabs);
        s->n_slabs--;
        *first = slab.first;
        *n = slab.n;
        return 1;
    }
    return 0;
}

void k3_slots_close(k3_slots *s)
{
    for (int i = 0; i < s->n_slabs; i++)
        s->slabs[i].be->memory->release(s->slabs[i].be, s->slabs[i].buf);
    free(s->slabs);
    free(s->experts);
    free(s->tier);
    *s = (k3_slots){0};
}
