#include "prefix.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fail.h"

enum { LONGEST_FOLDER = 4000 };

/* ---- files ----------------------------------------------------------------------------------------------------- */

static void path_of(char path[LONGEST_FOLDER + 64], const srv_prefix *store, unsigned file)
{
    snprintf(path, LONGEST_FOLDER + 64, "%s/session-%08x.k3s", store->folder, file);
}

static void remove_file(srv_prefix *store, srv_kept *kept)
{
    char path[LONGEST_FOLDER + 64];
    if (!kept->file)
        return;
    path_of(path, store, kept->file);
    unlink(path);
    kept->file = 0;
}

/* ---- the list -------------------------------------------------------------------------------------------------- */

/* Puts a session on the list, in use. It is closed if that fails. */
static srv_kept *enlist(srv_prefix *store, k3_session *session)
{
    srv_kept *kept = calloc(1, sizeof *kept);
    if (kept && store->n == store->capacity) {
        size_t capacity = store->capacity ? 2 * store->capacity : 16;
        srv_kept **grown = realloc(store->kept, capacity * sizeof *grown);
        if (grown) {
            store->kept = grown;
            store->capacity = capacity;
        }
    }
    if (!kept || store->n == store->capacity) {
        free(kept);
        k3_session_close(session);
        return NULL;
    }
    *kept = (srv_kept){.session = session, .is_used = 1, .last_use = ++store->uses};
    return store->kept[store->n++] = kept;
}

static void delist(srv_prefix *store, srv_kept *kept)
{
    for (size_t i = 0; i < store->n; i++)
        if (store->kept[i] == kept) {
            store->kept[i] = store->kept[--store->n];
            break;
        }
    k3_session_close(kept->session);
    free(kept);
}

static void drop(srv_prefix *store, srv_kept *kept)
{
    remove_file(store, kept);
    delist(store, kept);
}

static srv_kept *oldest(const srv_prefix *store)
{
    srv_kept *found = NULL;
    for (size_t i = 0; i < store->n; i++)
        if (!store->kept[i]->is_used && (!found || store->kept[i]->last_use < found->last_use))
            found = store->kept[i];
    return found;
}

int srv_prefix_shed(srv_prefix *store)
{
    srv_kept *kept = oldest(store);
    if (kept)
        drop(store, kept);
    return kept != NULL;
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* The mark without which its neighbours lie closest, but neither of the last two, the end of a prompt and of its answer, nor that of a
 * fork. 0: there are no others. */
static int64_t least_mark(const srv_kept *kept)
{
    const k3_session *s = kept->session;
    int64_t last = k3_session_mark_before(s, k3_session_length(s)), after = last ? k3_session_mark_before(s, last - 1) : 0;
    int64_t least = INT64_MAX, least_at = 0;
    for (int64_t at = after ? k3_session_mark_before(s, after - 1) : 0, before; at; after = at, at = before) {
        before = k3_session_mark_before(s, at - 1);
        if (after - before < least && at != kept->fork) {
            least = after - before;
            least_at = at;
        }
    }
    return least_at;
}

static void thin(srv_kept *kept)
{
    k3_session_unmark(kept->session, least_mark(kept));
    kept->is_saved = 0;
}

static uint64_t unused_bytes(const srv_prefix *store)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < store->n; i++)
        bytes += store->kept[i]->is_used ? 0 : k3_session_bytes(store->kept[i]->session);
    return bytes;
}

/* Sessions lose marks before one of them goes, in the order of their last use. */
static void settle(srv_prefix *store)
{
    while (unused_bytes(store) > store->max_bytes) {
        srv_kept *thinned = NULL;
        for (size_t i = 0; i < store->n; i++) {
            srv_kept *kept = store->kept[i];
            if (!kept->is_used && (!thinned || kept->last_use < thinned->last_use) && least_mark(kept))
                thinned = kept;
        }
        if (!thinned)
            drop(store, oldest(store));
        else
            thin(thinned);
    }
}

void srv_prefix_mark(srv_prefix *store, srv_kept *kept)
{
    while (k3_session_mark(kept->session, NULL) == K3_E_NOMEM && srv_prefix_shed(store)) {
    }
    while (k3_session_bytes(kept->session) > store->max_bytes && least_mark(kept))
        thin(kept);
}

/* ---- take and give --------------------------------------------------------------------------------------------- */

int64_t srv_prefix_common(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b)
{
    int64_t same = 0;
    while (same < n_a && same < n_b && a[same] == b[same])
        same++;
    return same;
}

static int64_t shared_length(const k3_session *session, const int32_t *ids, int64_t n)
{
    return srv_prefix_common(k3_session_ids(session), k3_session_length(session), ids, n);
}

static int ends_at(const srv_kept *kept, int64_t length)
{
    return !kept->is_used && k3_session_length(kept->session) == length;
}

/* The kept session that gives the most: *length of the ids. NULL: none gives anything. */
static srv_kept *find(int64_t *length, int64_t *branch, const srv_prefix *store, const int32_t *ids, int64_t n)
{
    srv_kept *best = NULL;
    int64_t most = 0;
    *length = 0;
    for (size_t i = 0; i < store->n; i++) {
        srv_kept *kept = store->kept[i];
        int64_t same = shared_length(kept->session, ids, n), mark = k3_session_mark_before(kept->session, same);
        most = same > most ? same : most;
        if (mark > *length || (mark && mark == *length && ends_at(kept, mark))) {
            best = kept;
            *length = mark;
        }
    }
    *branch = most < n && most - *length >= SRV_WORTH_A_MARK ? most : 0;
    return best;
}

int64_t srv_prefix_reach(const srv_prefix *store, const int32_t *ids, int64_t n)
{
    int64_t length, branch;
    (void)find(&length, &branch, store, ids, n);
    return length;
}

/* A session beside the found one, or an empty one, in the memory that older ones leave. */
static k3_status make(srv_kept **out, srv_prefix *store, srv_kept *from, int64_t length, k3_error *err)
{
    k3_session *session;
    k3_status status;
    int was_used = from && from->is_used;
    if (from)
        from->is_used = 1; /* or it would be given up to make room for its own copy */
    do {
        status = from ? k3_session_fork(&session, from->session, length, err) : k3_session_open(&session, store->engine, err);
    } while (status == K3_E_NOMEM && srv_prefix_shed(store));
    if (from)
        from->is_used = was_used;
    if (status != K3_OK)
        return status;
    *out = enlist(store, session);
    if (*out && from)
        from->fork = (*out)->fork = length;
    if (*out)
        return K3_OK;
    return srv_fail(err, K3_E_NOMEM, "request: out of memory");
}

k3_status srv_prefix_take(srv_kept **out, int64_t *branch, srv_prefix *store, const int32_t *ids, int64_t n, k3_error *err)
{
    int64_t length;
    srv_kept *from = find(&length, branch, store, ids, n);
    k3_status status = K3_OK;
    if (from)
        from->last_use = ++store->uses;
    if (from && ends_at(from, length)) {
        from->is_used = 1;
        *out = from;
    } else {
        status = make(out, store, from, length, err);
        if (status == K3_E_NOMEM && from && !from->is_used) {
            from->is_used = 1;
            *out = from;
            status = k3_session_rewind(from->session, length, err);
        } else if (status == K3_E_NOMEM && from) {
            status = make(out, store, NULL, 0, err);
        }
    }
    if (status == K3_OK && k3_session_length((*out)->session) == n && !k3_session_logits((*out)->session))
        status = k3_session_rewind((*out)->session, n - 1, err);
    return status;
}

/* One has all that the other can give. */
static int covers(const srv_kept *a, const srv_kept *b)
{
    int64_t n = k3_session_length(b->session);
    return k3_session_mark_before(a->session, n) == n && shared_length(a->session, k3_session_ids(b->session), n) == n;
}

void srv_prefix_give(srv_prefix *store, srv_kept *kept, int is_good)
{
    if (!is_good || !k3_session_length(kept->session)) {
        drop(store, kept);
        return;
    }
    srv_prefix_mark(store, kept);
    kept->is_used = kept->is_saved = 0;
    kept->last_use = ++store->uses;
    for (size_t i = store->n; i-- > 0;) {
        srv_kept *other = store->kept[i];
        if (other == kept || other->is_used)
            continue;
        if (covers(other, kept)) {
            other->last_use = kept->last_use;
            drop(store, kept);
            break;
        }
        if (covers(kept, other))
            drop(store, other);
    }
    settle(store);
}

/* ---- the folder ------------------------------------------------------------------------------------------------ */

static void tell(srv_prefix *store, const k3_error *why, const char *what)
{
    snprintf(store->notice, sizeof store->notice, "%.240s; %s", why->text, what);
}

static srv_kept *unsaved(const srv_prefix *store)
{
    for (size_t i = 0; i < store->n && store->folder; i++)
        if (!store->kept[i]->is_used && !store->kept[i]->is_saved)
            return store->kept[i];
    return NULL;
}

int srv_prefix_has_unsaved(const srv_prefix *store)
{
    return unsaved(store) != NULL;
}

int srv_prefix_save(srv_prefix *store)
{
    srv_kept *kept = unsaved(store);
    char path[LONGEST_FOLDER + 64];
    k3_error why;
    if (!kept)
        return 0;
    if (!kept->file)
        kept->file = ++store->last_file;
    path_of(path, store, kept->file);
    k3_status status = k3_session_save(kept->session, path, &why);
    if (status == K3_E_CANCELLED)
        return 0;
    kept->is_saved = 1; /* a folder that cannot be written is not tried again with the same session */
    if (status != K3_OK)
        tell(store, &why, "the session is kept in memory only");
    return 1;
}

typedef struct found_file {
    unsigned number;
    struct timespec time;
} found_file;

static int latest_first(const void *a, const void *b)
{
    const found_file *x = a, *y = b;
    if (x->time.tv_sec != y->time.tv_sec)
        return x->time.tv_sec < y->time.tv_sec ? 1 : -1;
    if (x->time.tv_nsec != y->time.tv_nsec)
        return x->time.tv_nsec < y->time.tv_nsec ? 1 : -1;
    return x->number < y->number ? 1 : -1;
}

/* Files of sessions in the folder, malloc'd. What a kill has left half written goes. */
static found_file *list_files(size_t *n, srv_prefix *store, DIR *folder)
{
    found_file *files = NULL;
    size_t capacity = 0;
    *n = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[LONGEST_FOLDER + 64], name[64];
        unsigned number = 0;
        struct stat st;
        if (sscanf(entry->d_name, "session-%8x.k3s", &number) != 1)
            continue;
        path_of(path, store, number);
        snprintf(name, sizeof name, "session-%08x.k3s.part", number);
        if (strcmp(entry->d_name, name) == 0) {
            memcpy(path + strlen(path), ".part", 6);
            unlink(path);
        }
        name[strlen(name) - 5] = 0;
        if (strcmp(entry->d_name, name) != 0 || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        if (*n == capacity) {
            found_file *grown = realloc(files, (capacity = 2 * capacity + 16) * sizeof *grown);
            if (!grown)
                break;
            files = grown;
        }
#ifdef __APPLE__
        files[(*n)++] = (found_file){number, st.st_mtimespec};
#else
        files[(*n)++] = (found_file){number, st.st_mtim};
#endif
        store->last_file = number > store->last_file ? number : store->last_file;
    }
    if (*n)
        qsort(files, *n, sizeof *files, latest_first);
    return files;
}

/* Returns 0 if there is no memory for more. */
static int load(srv_prefix *store, unsigned number)
{
    char path[LONGEST_FOLDER + 64];
    k3_session *session;
    k3_error why;
    path_of(path, store, number);
    k3_status status = k3_session_open(&session, store->engine, &why);
    if (status != K3_OK)
        return 0;
    status = k3_session_load(session, path, &why);
    srv_kept *kept = status == K3_OK ? enlist(store, session) : NULL;
    if (kept) {
        *kept = (srv_kept){.session = session, .is_saved = 1, .file = number, .last_use = UINT64_MAX - store->n};
        settle(store);
        return 1;
    }
    if (status != K3_OK)
        k3_session_close(session);
    if (status == K3_E_FORMAT) {
        unlink(path);
        tell(store, &why, "deleted");
    } else if (status != K3_OK && status != K3_E_NOMEM) {
        tell(store, &why, "left alone");
    }
    return status != K3_OK && status != K3_E_NOMEM;
}

k3_status srv_prefix_open(srv_prefix *store, k3_engine *engine, const char *folder, uint64_t max_bytes, k3_error *err)
{
    *store = (srv_prefix){.engine = engine, .max_bytes = max_bytes};
    if (!folder)
        return K3_OK;
    if (strlen(folder) > LONGEST_FOLDER)
        return srv_fail(err, K3_E_INVALID, "folder of kept sessions: a name of %zu bytes, at most %d wanted", strlen(folder),
                        (int)LONGEST_FOLDER);
    DIR *dir = mkdir(folder, 0700) && errno != EEXIST ? NULL : opendir(folder);
    if (!dir)
        return srv_fail(err, K3_E_IO, "%.900s: cannot be used for kept sessions: %s", folder, strerror(errno));
    store->folder = strdup(folder);
    if (!store->folder) {
        closedir(dir);
        return srv_fail(err, K3_E_NOMEM, "folder of kept sessions: out of memory");
    }
    size_t n;
    found_file *files = list_files(&n, store, dir);
    closedir(dir);
    for (size_t i = 0; i < n && load(store, files[i].number); i++) {
    }
    free(files);
    /* Uses are counted anew: what was loaded first was used last. */
    for (size_t i = 0; i < store->n; i++)
        store->kept[i]->last_use = store->n - i;
    store->uses = store->n;
    return K3_OK;
}

void srv_prefix_close(srv_prefix *store)
{
    while (srv_prefix_save(store)) {
    }
    while (store->n)
        delist(store, store->kept[0]);
    free(store->kept);
    free(store->folder);
    store->kept = NULL;
    store->folder = NULL;
}
