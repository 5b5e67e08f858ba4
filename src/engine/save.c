/* A session on disk: header, ids, logits, KDA state, cache rows, marks, checksum. Written to a neighbour and renamed, so that a crash or a
 * full disk leaves the old file. Little-endian, as the machine is. */
#include "engine/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = "K3SESS2";

typedef struct k3_save_header {
    char magic[8];
    uint64_t fingerprint;
    int64_t length;
    uint64_t fixed_bytes, cache_row_bytes;
    int32_t has_logits, vocab;
    int64_t n_marks; /* those whose copy is there */
} k3_save_header;

typedef struct k3_save_mark {
    int64_t length, has_logits;
} k3_save_mark;

/* A file with a running checksum over 8-byte words of what passes through. */
typedef struct k3_stream {
    FILE *file;
    const char *path;
    uint64_t sum;
} k3_stream;

static void sum_bytes(k3_stream *s, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        s->sum = (s->sum ^ word) * 0x9fb21c651e98df25u;
        s->sum ^= s->sum >> 32;
    }
    for (; n; n--, p++)
        s->sum = (s->sum ^ *p) * 0x100000001b3u;
}

static k3_status put(k3_stream *s, const void *data, size_t n, k3_error *err)
{
    sum_bytes(s, data, n);
    if (n && fwrite(data, 1, n, s->file) != n)
        return k3_fail(err, K3_E_IO, "%s: cannot write: %s", s->path, strerror(errno));
    return K3_OK;
}

static k3_status get(k3_stream *s, void *data, size_t n, k3_error *err)
{
    if (n && fread(data, 1, n, s->file) != n)
        return k3_fail(err, K3_E_FORMAT, "%s: the saved session ends early; it is cut or damaged", s->path);
    sum_bytes(s, data, n);
    return K3_OK;
}

enum { K3_BLOCK = 1 << 20 };

static k3_status put_buffer(k3_stream *s, k3_engine *engine, k3_ref ref, uint64_t n, k3_error *err)
{
    k3_backend *be = engine->be;
    char *block = malloc(K3_BLOCK);
    k3_status status = block ? K3_OK : k3_fail(err, K3_E_NOMEM, "%s: out of memory", s->path);
    for (uint64_t at = 0; status == K3_OK && at < n; at += K3_BLOCK) {
        size_t m = n - at < K3_BLOCK ? (size_t)(n - at) : K3_BLOCK;
        be->memory->download(be, block, k3_at(ref, at), m);
        status =
            atomic_load(&engine->is_cancelled) ? k3_fail(err, K3_E_CANCELLED, "%s: writing was cancelled", s->path) : put(s, block, m, err);
    }
    free(block);
    return status;
}

static k3_status get_buffer(k3_stream *s, k3_backend *be, k3_ref ref, uint64_t n, k3_error *err)
{
    char *block = malloc(K3_BLOCK);
    k3_status status = block ? K3_OK : k3_fail(err, K3_E_NOMEM, "%s: out of memory", s->path);
    for (uint64_t at = 0; status == K3_OK && at < n; at += K3_BLOCK) {
        size_t m = n - at < K3_BLOCK ? (size_t)(n - at) : K3_BLOCK;
        status = get(s, block, m, err);
        if (status == K3_OK)
            be->memory->upload(be, k3_at(ref, at), block, m);
    }
    free(block);
    return status;
}

static k3_save_header header_of(const k3_session *session)
{
    k3_save_header h = {.fingerprint = session->engine->fingerprint,
                        .length = session->state->length,
                        .fixed_bytes = session->state->fixed->bytes,
                        .cache_row_bytes = k3_state_cache_row_bytes(session->state),
                        .has_logits = session->has_logits,
                        .vocab = session->engine->hp->vocab};
    for (int i = 0; i < session->n_marks; i++)
        h.n_marks += session->marks[i].fixed != NULL;
    memcpy(h.magic, MAGIC, sizeof h.magic);
    return h;
}

static k3_status write_marks(const k3_session *session, k3_stream *s, k3_error *err)
{
    for (int i = 0; i < session->n_marks; i++) {
        const k3_mark *mark = &session->marks[i];
        k3_save_mark head = {mark->length, mark->logits != NULL};
        if (!mark->fixed)
            continue;
        K3_TRY(put(s, &head, sizeof head, err));
        if (mark->logits)
            K3_TRY(put(s, mark->logits, (size_t)session->engine->hp->vocab * sizeof *mark->logits, err));
        K3_TRY(put_buffer(s, session->engine, (k3_ref){mark->fixed, 0}, mark->fixed->bytes, err));
    }
    return K3_OK;
}

static k3_status write_all(const k3_session *session, k3_stream *s, k3_error *err)
{
    const k3_state *state = session->state;
    k3_save_header h = header_of(session);
    K3_TRY(put(s, &h, sizeof h, err));
    K3_TRY(put(s, session->ids, (size_t)h.length * sizeof *session->ids, err));
    if (h.has_logits)
        K3_TRY(put(s, session->logits, (size_t)h.vocab * sizeof *session->logits, err));
    K3_TRY(put_buffer(s, session->engine, (k3_ref){state->fixed, 0}, h.fixed_bytes, err));
    for (int l = 0; l < state->hp->n_layers; l++)
        if (state->hp->is_mla[l] && h.length)
            K3_TRY(put_buffer(s, session->engine, k3_state_cache(state, l), (uint64_t)h.length * h.cache_row_bytes, err));
    K3_TRY(write_marks(session, s, err));
    uint64_t sum = s->sum;
    K3_TRY(put(s, &sum, sizeof sum, err));
    if (fflush(s->file) || fsync(fileno(s->file)))
        return k3_fail(err, K3_E_IO, "%s: cannot write: %s", s->path, strerror(errno));
    return state->be->sync(state->be, err);
}

/* The file a path leads to: a link is followed, and what is there and no regular file is not replaced. malloc'd. */
static k3_status resolve_target(char **out, const char *path, k3_error *err)
{
    struct stat st;
    int exists = stat(path, &st) == 0;
    *out = NULL;
    if (exists && !S_ISREG(st.st_mode))
        return k3_fail(err, K3_E_INVALID, "%s: is no regular file; a session is saved to a file", path);
    *out = exists ? realpath(path, NULL) : strdup(path);
    return *out ? K3_OK : k3_fail(err, K3_E_IO, "%s: %s", path, strerror(errno));
}

static k3_status save_to(const k3_session *session, const char *path, char *part, k3_error *err)
{
    k3_stream s = {fopen(part, "wbe"), path, 0};
    k3_status status = s.file ? write_all(session, &s, err) : k3_fail(err, K3_E_IO, "%s: cannot create: %s", part, strerror(errno));
    if (s.file && fclose(s.file) && status == K3_OK)
        status = k3_fail(err, K3_E_IO, "%s: cannot write: %s", path, strerror(errno));
    if (status == K3_OK && rename(part, path))
        status = k3_fail(err, K3_E_IO, "%s: cannot rename %s to it: %s", path, part, strerror(errno));
    if (status != K3_OK && s.file)
        unlink(part);
    return status;
}

static k3_status save(k3_session *session, const void *path, k3_error *err)
{
    char *target;
    K3_TRY(resolve_target(&target, path, err));
    size_t n = strlen(target);
    char *part = malloc(n + 6);
    k3_status status = part ? K3_OK : k3_fail(err, K3_E_NOMEM, "%s: out of memory", (const char *)path);
    if (part) {
        memcpy(part, target, n);
        memcpy(part + n, ".part", 6);
        status = save_to(session, target, part, err);
    }
    free(part);
    free(target);
    return status;
}

k3_status k3_session_save(k3_session *session, const char *path, k3_error *err)
{
    return k3_session_try(session, save, path, err);
}

static k3_status check_header(const k3_session *session, const k3_save_header *h, const char *path, k3_error *err)
{
    k3_save_header want = header_of(session);
    if (memcmp(h->magic, want.magic, sizeof h->magic) != 0)
        return k3_fail(err, K3_E_FORMAT, "%s: not a saved session", path);
    if (h->fingerprint != want.fingerprint || h->fixed_bytes != want.fixed_bytes || h->cache_row_bytes != want.cache_row_bytes ||
        h->vocab != want.vocab)
        return k3_fail(err, K3_E_INVALID, "%s: saved with another model or precision; open the engine as it was then", path);
    if (h->length < 0 || h->length > session->engine->hp->context)
        return k3_fail(err, K3_E_FORMAT, "%s: %lld tokens found, 0 to %d wanted; the file is damaged", path, (long long)h->length,
                       session->engine->hp->context);
    if (h->n_marks < 0 || h->n_marks > h->length + 1)
        return k3_fail(err, K3_E_FORMAT, "%s: %lld marks of %lld tokens; the file is damaged", path, (long long)h->n_marks,
                       (long long)h->length);
    return K3_OK;
}

static k3_status read_marks(k3_session *fresh, k3_stream *s, const k3_save_header *h, k3_error *err)
{
    for (int64_t i = 0, last = -1; i < h->n_marks; i++) {
        k3_save_mark head;
        K3_TRY(get(s, &head, sizeof head, err));
        if (head.length <= last || head.length > h->length || (head.has_logits != 0 && head.has_logits != 1))
            return k3_fail(err, K3_E_FORMAT, "%s: a mark at %lld of %lld tokens after one at %lld; the file is damaged", s->path,
                           (long long)head.length, (long long)h->length, (long long)last);
        K3_TRY(k3_session_new_mark(fresh, head.length, (int)head.has_logits, err));
        const k3_mark *mark = &fresh->marks[fresh->n_marks - 1];
        if (mark->logits)
            K3_TRY(get(s, mark->logits, (size_t)h->vocab * sizeof *mark->logits, err));
        K3_TRY(get_buffer(s, fresh->state->be, (k3_ref){mark->fixed, 0}, h->fixed_bytes, err));
        last = head.length;
    }
    return K3_OK;
}

/* Reads into a fresh session, which replaces the old contents only when the checksum holds. */
static k3_status read_all(k3_session *fresh, k3_stream *s, k3_error *err)
{
    k3_save_header h;
    while (fresh->n_marks) /* of a reading that failed with the device */
        k3_session_unmark(fresh, fresh->marks[fresh->n_marks - 1].length);
    K3_TRY(get(s, &h, sizeof h, err));
    K3_TRY(check_header(fresh, &h, s->path, err));
    k3_state *state = fresh->state;
    K3_TRY(k3_state_reserve(state, h.length, err));
    fresh->ids_capacity = h.length + 64;
    free(fresh->ids);
    fresh->ids = malloc((size_t)fresh->ids_capacity * sizeof *fresh->ids);
    if (!fresh->ids)
        return k3_fail(err, K3_E_NOMEM, "%s: out of memory", s->path);
    K3_TRY(get(s, fresh->ids, (size_t)h.length * sizeof *fresh->ids, err));
    if (h.has_logits)
        K3_TRY(get(s, fresh->logits, (size_t)h.vocab * sizeof *fresh->logits, err));
    K3_TRY(get_buffer(s, state->be, (k3_ref){state->fixed, 0}, h.fixed_bytes, err));
    for (int l = 0; l < state->hp->n_layers; l++)
        if (state->hp->is_mla[l] && h.length)
            K3_TRY(get_buffer(s, state->be, k3_state_cache(state, l), (uint64_t)h.length * h.cache_row_bytes, err));
    K3_TRY(read_marks(fresh, s, &h, err));
    uint64_t sum = s->sum, stored;
    K3_TRY(get(s, &stored, sizeof stored, err));
    if (stored != sum)
        return k3_fail(err, K3_E_FORMAT, "%s: checksum %016llx found, %016llx wanted; the file is damaged", s->path,
                       (unsigned long long)stored, (unsigned long long)sum);
    K3_TRY(state->be->sync(state->be, err));
    state->length = h.length;
    fresh->has_logits = h.has_logits != 0;
    return K3_OK;
}

static k3_status load(k3_session *fresh, const void *path, k3_error *err)
{
    k3_stream s = {fopen(path, "rbe"), path, 0};
    if (!s.file)
        return k3_fail(err, errno == ENOENT ? K3_E_NOT_FOUND : K3_E_IO, "%s: %s", s.path, strerror(errno));
    k3_status status = read_all(fresh, &s, err);
    fclose(s.file);
    return status;
}

k3_status k3_session_load(k3_session *session, const char *path, k3_error *err)
{
    k3_session *fresh;
    K3_TRY(k3_session_open(&fresh, session->engine, err));
    k3_status status = k3_session_try(fresh, load, path, err);
    if (status == K3_OK) {
        k3_session old = *session;
        *session = *fresh;
        *fresh = old;
    }
    k3_session_close(fresh);
    return status;
}
