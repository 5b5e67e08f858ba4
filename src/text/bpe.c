#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokens.h"

/* One token of the piece while it grows. The parts form a list by position; a part that was joined to its left neighbour has end 0. */
typedef struct k3_bpe_part {
    uint32_t end;      /* position after its last byte: where the next part begins */
    uint32_t previous; /* position where the part before it begins */
    int32_t rank;      /* of this part joined with the next; -1: no such token */
    int32_t id;        /* of this part itself */
} part;

/* Up to this many bytes a scan for the lowest rank beats a heap. */
enum { SMALL = 96 };

static k3_status reserve(k3_bpe *bpe, size_t n, k3_error *err)
{
    if (n + 1 <= bpe->capacity)
        return K3_OK;
    size_t capacity = n + n / 2 < 2 * SMALL ? 2 * SMALL : n + n / 2;
    part *parts = realloc(bpe->parts, capacity * sizeof *parts);
    if (parts)
        bpe->parts = parts;
    /* One entry a neighbouring pair at the start, and each join adds two. */
    uint64_t *heap = parts ? realloc(bpe->heap, 3 * capacity * sizeof *heap) : NULL;
    if (!heap)
        return k3_fail(err, K3_E_NOMEM, "no memory to encode a word of %zu bytes", n);
    bpe->heap = heap;
    bpe->capacity = capacity;
    return K3_OK;
}

/* Rank of bytes [begin, end); -1 if they are no token or reach past the piece. */
static int32_t rank_of(k3_bpe *bpe, const k3_vocab *vocab, const char *piece, size_t begin, size_t end)
{
    bpe->n_steps++;
    return end - begin > k3_vocab_longest(vocab) ? -1 : k3_vocab_rank(vocab, piece + begin, end - begin);
}

static int32_t pair_rank(k3_bpe *bpe, const k3_vocab *vocab, const char *piece, size_t n, size_t begin)
{
    size_t middle = bpe->parts[begin].end;
    return middle >= n ? -1 : rank_of(bpe, vocab, piece, begin, bpe->parts[middle].end);
}

/* Joins the part at `begin` with the next one and looks up the two pairs that this changes. */
static void join(k3_bpe *bpe, const k3_vocab *vocab, const char *piece, size_t n, size_t begin)
{
    part *p = bpe->parts;
    size_t middle = p[begin].end;
    p[begin].id = p[begin].rank;
    p[begin].end = p[middle].end;
    p[middle].end = 0;
    p[middle].rank = -1;
    if (p[begin].end < n)
        p[p[begin].end].previous = (uint32_t)begin;
    p[begin].rank = pair_rank(bpe, vocab, piece, n, begin);
    if (begin > 0)
        p[p[begin].previous].rank = pair_rank(bpe, vocab, piece, n, p[begin].previous);
}

static void encode_small(k3_bpe *bpe, const k3_vocab *vocab, const char *piece, size_t n)
{
    const part *p = bpe->parts;
    for (;;) {
        int32_t lowest = INT32_MAX;
        size_t at = 0;
        for (size_t i = 0; i < n; i = p[i].end) {
            if (p[i].rank >= 0 && p[i].rank < lowest) {
                lowest = p[i].rank;
                at = i;
            }
        }
        if (lowest == INT32_MAX)
            return;
        join(bpe, vocab, piece, n, at);
    }
}

/* A binary heap of rank << 32 | position: the smallest key is the lowest rank, leftmost. */
static void heap_push(k3_bpe *bpe, uint64_t key)
{
    size_t i = bpe->heap_size++;
    for (; i > 0 && bpe->heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        bpe->heap[i] = bpe->heap[(i - 1) / 2];
    bpe->heap[i] = key;
}

static uint64_t heap_pop(k3_bpe *bpe)
{
    uint64_t *heap = bpe->heap, top = heap[0], key = heap[--bpe->heap_size];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= bpe->heap_size)
            break;
        child += child + 1 < bpe->heap_size && heap[child + 1] < heap[child];
        if (heap[child] >= key)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = key;
    return top;
}

static void push_pair(k3_bpe *bpe, size_t begin)
{
    if (bpe->parts[begin].rank >= 0)
        heap_push(bpe, (uint64_t)bpe->parts[begin].rank << 32 | begin);
}

static void encode_large(k3_bpe *bpe, const k3_vocab *vocab, const char *piece, size_t n)
{
    part *p = bpe->parts;
    bpe->heap_size = 0;
    for (size_t i = 0; i < n; i++)
        push_pair(bpe, i);
    while (bpe->heap_size > 0) {
        uint64_t key = heap_pop(bpe);
        size_t at = (size_t)(key & UINT32_MAX);
        /* Entries are not removed when their pair changes. One that still names its part's rank is the pair as it is now: the same
         * beginning and the same token mean the same bytes. */
        if (p[at].rank != (int32_t)(key >> 32))
            continue;
        join(bpe, vocab, piece, n, at);
        push_pair(bpe, at);
        if (at > 0)
            push_pair(bpe, p[at].previous);
    }
}

k3_status k3_bpe_encode(k3_bpe *bpe, k3_tokens *out, const k3_vocab *vocab, const char *piece, size_t n, k3_error *err)
{
    if (n == 0)
        return K3_OK;
    if (n > INT32_MAX)
        return k3_fail(err, K3_E_INVALID, "a word of %zu bytes, at most 2^31 - 1 can be encoded", n);
    int32_t whole = rank_of(bpe, vocab, piece, 0, n);
    if (whole >= 0)
        return k3_tokens_add(out, whole, err);
    K3_TRY(reserve(bpe, n, err));
    part *p = bpe->parts;
    for (size_t i = 0; i < n; i++)
        p[i] = (part){.end = (uint32_t)i + 1, .previous = (uint32_t)i - (i > 0), .rank = -1, .id = k3_vocab_rank(vocab, piece + i, 1)};
    for (size_t i = 0; i + 1 < n; i++)
        p[i].rank = rank_of(bpe, vocab, piece, i, i + 2);
    if (n <= SMALL)
        encode_small(bpe, vocab, piece, n);
    else
        encode_large(bpe, vocab, piece, n);
    size_t n_parts = 0;
    for (size_t i = 0; i < n; i = p[i].end)
        n_parts++;
    K3_TRY(k3_tokens_reserve(out, n_parts, err));
    for (size_t i = 0; i < n; i = p[i].end)
        out->ids[out->n++] = p[i].id;
    return K3_OK;
}

void k3_bpe_close(k3_bpe *bpe)
{
    free(bpe->parts);
    free(bpe->heap);
    *bpe = (k3_bpe){0};
}
