#include "ckpt/folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "ckpt/names.h"

/* The released index has 40 MB. */
#define MAX_INDEX_BYTES ((uint64_t)1 << 30)

char *k3_folder_join(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);
    if (path)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static k3_status no_memory(k3_error *err)
{
    return k3_fail(err, K3_E_NOMEM, "no memory for the names of a model folder");
}

enum presence { ABSENT, PRESENT, DANGLING };

/* For a link whose target is gone, `target` (size bytes) receives where it points. */
static enum presence look(const char *path, char *target, size_t size)
{
    struct stat info;
    if (stat(path, &info) == 0)
        return PRESENT;
    if (lstat(path, &info) != 0 || !S_ISLNK(info.st_mode))
        return ABSENT;
    ssize_t n = readlink(path, target, size - 1);
    target[n > 0 ? n : 0] = 0;
    return DANGLING;
}

static k3_status fail_dangling(const char *path, const char *target, k3_error *err)
{
    return k3_fail(err, K3_E_NOT_FOUND,
                   "%s: is a link to %s, which does not exist; move the link's target along with it, or fetch the file again", path,
                   target);
}

static int is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Calls visit for each entry but . and ..; stops at the first failure. */
typedef k3_status (*entry_visitor)(void *arg, const char *name, k3_error *err);

static k3_status for_each_entry(const char *path, entry_visitor visit, void *arg, k3_error *err)
{
    DIR *dir = opendir(path);
    if (!dir)
        return k3_fail(err, K3_E_IO, "%s: %s", path, strerror(errno));
    k3_status status = K3_OK;
    for (struct dirent *entry; status == K3_OK && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            status = visit(arg, entry->d_name, err);
    closedir(dir);
    return status;
}

/* ---- the folder itself: plain, or a download cache (refs/main names one of snapshots/) -------------------- */

typedef struct snapshot_search {
    char name[NAME_MAX + 1];
    size_t n;
} snapshot_search;

static k3_status note_snapshot(void *arg, const char *name, k3_error *err)
{
    (void)err;
    snapshot_search *found = arg;
    snprintf(found->name, sizeof found->name, "%s", name);
    found->n++;
    return K3_OK;
}

/* The revision in refs/main, or the only snapshot where there is no such file. */
static k3_status find_revision(snapshot_search *revision, const char *root, const char *snapshots, k3_error *err)
{
    char target[PATH_MAX], *text = NULL;
    size_t n = 0;
    char *ref = k3_folder_join(root, "refs/main");
    if (!ref)
        return no_memory(err);
    if (look(ref, target, sizeof target) == PRESENT) {
        k3_status status = k3_os_read_file(&text, &n, ref, NAME_MAX, err);
        free(ref);
        if (status != K3_OK)
            return status;
        snprintf(revision->name, sizeof revision->name, "%.*s", (int)strcspn(text, " \t\r\n"), text);
        free(text);
        if (!revision->name[0] || strchr(revision->name, '/') || revision->name[0] == '.')
            return k3_fail(err, K3_E_FORMAT, "%s/refs/main: names no revision, wanted the name of a folder in snapshots", root);
        return K3_OK;
    }
    free(ref);
    K3_TRY(for_each_entry(snapshots, note_snapshot, revision, err));
    if (revision->n != 1)
        return k3_fail(err, K3_E_NOT_FOUND, "%s: is a download cache without refs/main and with %zu snapshots; name one of them: %s/NAME",
                       root, revision->n, snapshots);
    return K3_OK;
}

/* If *path is a cache root, replaces it by its snapshot. */
static k3_status enter_snapshot(char **path, const char *snapshots, k3_error *err)
{
    snapshot_search revision = {.n = 0};
    K3_TRY(find_revision(&revision, *path, snapshots, err));
    char *inside = k3_folder_join(snapshots, revision.name);
    if (!inside)
        return no_memory(err);
    k3_status status = K3_OK;
    if (!is_directory(inside))
        status = k3_fail(err, K3_E_NOT_FOUND, "%s: refs/main names revision %s, but snapshots/%s does not exist; fetch the model again",
                         *path, revision.name, revision.name);
    char *resolved = status == K3_OK ? realpath(inside, NULL) : NULL;
    if (status == K3_OK && !resolved)
        status = k3_fail(err, K3_E_IO, "%s: %s", inside, strerror(errno));
    free(inside);
    if (status == K3_OK) {
        free(*path);
        *path = resolved;
    }
    return status;
}

static k3_status check_config(const char *path, k3_error *err)
{
    char target[PATH_MAX];
    char *config = k3_folder_join(path, "config.json");
    if (!config)
        return no_memory(err);
    enum presence found = look(config, target, sizeof target);
    k3_status status = K3_OK;
    if (found == DANGLING)
        status = fail_dangling(config, target, err);
    else if (found == ABSENT)
        status = k3_fail(
            err, K3_E_NOT_FOUND,
            "%s: config.json is missing; a model folder needs it beside the safetensors files, fetch it from the model's repository", path);
    free(config);
    return status;
}

static k3_status resolve(char **out, const char *given, k3_error *err)
{
    char target[PATH_MAX];
    if (!given || !*given)
        return k3_fail(err, K3_E_INVALID, "no model folder was named");
    enum presence found = look(given, target, sizeof target);
    if (found == DANGLING)
        return fail_dangling(given, target, err);
    if (found == ABSENT)
        return k3_fail(err, K3_E_NOT_FOUND, "%s: %s; wanted a model folder", given, strerror(ENOENT));
    if (!is_directory(given))
        return k3_fail(err, K3_E_INVALID, "%s: is a file, wanted the folder that holds config.json and the safetensors files", given);
    char *path = realpath(given, NULL);
    if (!path)
        return k3_fail(err, K3_E_IO, "%s: %s", given, strerror(errno));
    char *config = k3_folder_join(path, "config.json"), *snapshots = k3_folder_join(path, "snapshots");
    k3_status status = config && snapshots ? K3_OK : no_memory(err);
    if (status == K3_OK && look(config, target, sizeof target) == ABSENT && is_directory(snapshots))
        status = enter_snapshot(&path, snapshots, err);
    free(config);
    free(snapshots);
    if (status == K3_OK)
        status = check_config(path, err);
    if (status == K3_OK)
        *out = path;
    else
        free(path);
    return status;
}

/* ---- shards ------------------------------------------------------------------------------------------------ */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static k3_status add_shard(k3_folder *folder, const char *name, k3_error *err)
{
    if ((folder->n_shards & (folder->n_shards - 1)) == 0) {
        char **more = realloc(folder->shards, (folder->n_shards ? folder->n_shards * 2 : 1) * sizeof *more);
        if (!more)
            return no_memory(err);
        folder->shards = more;
    }
    char *copy = strdup(name);
    if (!copy)
        return no_memory(err);
    folder->shards[folder->n_shards++] = copy;
    return K3_OK;
}

static int shard_of(const k3_folder *folder, const char *name)
{
    char *const *found = bsearch(&name, folder->shards, folder->n_shards, sizeof *folder->shards, compare_names);
    return found ? (int)(found - folder->shards) : -1;
}

static void sort_unique(k3_folder *folder)
{
    size_t n = 0;
    if (folder->n_shards)
        qsort(folder->shards, folder->n_shards, sizeof *folder->shards, compare_names);
    for (size_t i = 0; i < folder->n_shards; i++) {
        if (n && strcmp(folder->shards[n - 1], folder->shards[i]) == 0)
            free(folder->shards[i]);
        else
            folder->shards[n++] = folder->shards[i];
    }
    folder->n_shards = n;
}

static int is_safetensors(const char *name)
{
    size_t n = strlen(name);
    return n > 12 && strcmp(name + n - 12, ".safetensors") == 0;
}

/* "model-00003-of-000096.safetensors": 3 and 96; `digits` the width of both numbers. The padding of the two differs in the release. */
static int parse_shard_name(const char *name, int *number, int *total, int digits[2])
{
    int used = 0;
    if (strlen(name) > 64 || sscanf(name, "model-%9d-of-%9d.safetensors%n", number, total, &used) != 2 || !used || name[used])
        return 0;
    digits[0] = (int)strspn(name + 6, "0123456789");
    digits[1] = (int)strspn(name + 6 + digits[0] + 4, "0123456789");
    return *number > 0 && *total > 0 && digits[0] > 0 && digits[1] > 0;
}

static k3_status note_unindexed(void *arg, const char *name, k3_error *err)
{
    int number, total, digits[2];
    if (strcmp(name, "model.safetensors") == 0 || parse_shard_name(name, &number, &total, digits))
        return add_shard(arg, name, err);
    return K3_OK;
}

static k3_status fail_missing(const char *path, k3_names *missing, size_t n_wanted, const char *why, k3_error *err)
{
    size_t n = missing->n;
    return k3_fail(err, K3_E_NOT_FOUND,
                   "%s: %zu of %zu weight files missing%s: %s. Resume the download, for example `hf download REPOSITORY FILE --local-dir "
                   "FOLDER`; finished files are kept",
                   path, n, n_wanted, why, k3_names_end(missing));
}

/* Without an index the file names tell how many there must be. */
static k3_status check_numbering(k3_folder *folder, k3_error *err)
{
    int number = 0, total = 0, digits[2] = {0, 0}, n_seen = 0;
    k3_names missing = {.limit = 12};
    if (folder->n_shards == 0)
        return k3_fail(err, K3_E_NOT_FOUND,
                       "%s: holds no weights; wanted " K3_INDEX_NAME ", model-NNNNN-of-NNNNN.safetensors files or model.safetensors",
                       folder->path);
    if (folder->n_shards == 1 && strcmp(folder->shards[0], "model.safetensors") == 0)
        return K3_OK;
    if (shard_of(folder, "model.safetensors") >= 0)
        return k3_fail(err, K3_E_FORMAT, "%s: holds model.safetensors and %s, and no index that says which counts; remove one set",
                       folder->path, folder->shards[0]);
    parse_shard_name(folder->shards[0], &number, &total, digits);
    for (size_t i = 1; i < folder->n_shards; i++) {
        int other = 0, other_digits[2];
        parse_shard_name(folder->shards[i], &number, &other, other_digits);
        if (other != total)
            return k3_fail(err, K3_E_FORMAT, "%s: holds %s and %s, parts of two different sets; remove one set", folder->path,
                           folder->shards[0], folder->shards[i]);
    }
    /* Sorted names of equal width are in number order. */
    for (int i = 1; i <= total && missing.n < 100000; i++) {
        char name[80];
        snprintf(name, sizeof name, "model-%0*d-of-%0*d.safetensors", digits[0], i, digits[1], total);
        if (shard_of(folder, name) < 0)
            k3_names_add(&missing, "%s", name);
        else
            n_seen++;
    }
    if ((size_t)n_seen != folder->n_shards)
        return k3_fail(err, K3_E_FORMAT, "%s: the numbering of %s and its neighbours does not fit together", folder->path,
                       folder->shards[0]);
    return missing.n ? fail_missing(folder->path, &missing, (size_t)total, "", err) : K3_OK;
}

/* ---- the index --------------------------------------------------------------------------------------------- */

static k3_status parse_index(k3_folder *folder, const char *path, k3_error *err)
{
    char *text = NULL;
    size_t n = 0;
    K3_TRY(k3_os_read_file(&text, &n, path, MAX_INDEX_BYTES, err));
    k3_status status = k3_json_parse(&folder->index, text, n, K3_JSON_UNIQUE_KEYS | K3_JSON_NONFINITE, err);
    free(text);
    if (status != K3_OK)
        return k3_fail_within(err, status, "%s: ", path);
    folder->map = k3_json_get(folder->index, "weight_map");
    if (!folder->map || folder->map->type != K3_JSON_OBJECT)
        return k3_fail(err, K3_E_FORMAT, "%s: has no object \"weight_map\"; fetch it again", path);
    const k3_json *previous = NULL;
    for (const k3_json *m = folder->map->first; m; m = m->next) {
        if (m->type != K3_JSON_STRING || !is_safetensors(m->text) || strlen(m->text) != m->text_bytes || strchr(m->text, '/') ||
            m->text[0] == '.' || m->text_bytes > NAME_MAX)
            return k3_fail(err, K3_E_FORMAT,
                           "%s: line %u, column %u: a tensor is mapped to something that is not a .safetensors file of this folder", path,
                           m->line, m->column);
        /* Neighbours mostly share a file: half a million names become a few hundred. */
        if (!previous || strcmp(previous->text, m->text) != 0)
            K3_TRY(add_shard(folder, m->text, err));
        previous = m;
    }
    if (!folder->n_shards)
        return k3_fail(err, K3_E_FORMAT, "%s: its weight_map is empty; fetch it again", path);
    sort_unique(folder);
    return K3_OK;
}

static k3_status note_unlisted(void *arg, const char *name, k3_error *err)
{
    (void)err;
    k3_folder *folder = arg;
    if (!is_safetensors(name) || shard_of(folder, name) >= 0)
        return K3_OK;
    if (folder->n_unlisted++ == 0)
        snprintf(folder->first_unlisted, sizeof folder->first_unlisted, "%.*s", (int)sizeof folder->first_unlisted - 1, name);
    return K3_OK;
}

/* Every file that the index names must exist before anything is read. */
static k3_status check_files(k3_folder *folder, k3_error *err)
{
    k3_names missing = {.limit = 12};
    K3_TRY(for_each_entry(folder->path, note_unlisted, folder, err));
    for (size_t i = 0; i < folder->n_shards; i++) {
        char target[PATH_MAX];
        char *path = k3_folder_join(folder->path, folder->shards[i]);
        if (!path)
            return no_memory(err);
        enum presence found = look(path, target, sizeof target);
        if (found == DANGLING)
            fail_dangling(path, target, err);
        free(path);
        if (found == DANGLING)
            return K3_E_NOT_FOUND;
        if (found == ABSENT)
            k3_names_add(&missing, "%s", folder->shards[i]);
    }
    if (missing.n && folder->n_unlisted) {
        size_t n = missing.n;
        return k3_fail(err, K3_E_NOT_FOUND,
                       "%s: " K3_INDEX_NAME
                       " is stale: it maps tensors to %zu absent file%s (%s), while %zu file%s here that it does not know (%s). "
                       "Fetch index and weights of one revision, or delete the index if the files are complete",
                       folder->path, n, n == 1 ? "" : "s", k3_names_end(&missing), folder->n_unlisted,
                       folder->n_unlisted == 1 ? " is" : "s are", folder->first_unlisted);
    }
    return missing.n ? fail_missing(folder->path, &missing, folder->n_shards, " (the index maps tensors to them)", err) : K3_OK;
}

k3_status k3_folder_open(k3_folder *out, const char *given, k3_error *err)
{
    char target[PATH_MAX];
    *out = (k3_folder){0};
    K3_TRY(resolve(&out->path, given, err));
    char *index = k3_folder_join(out->path, K3_INDEX_NAME);
    k3_status status = index ? K3_OK : no_memory(err);
    enum presence found = index ? look(index, target, sizeof target) : ABSENT;
    if (found == DANGLING) {
        status = fail_dangling(index, target, err);
    } else if (found == PRESENT) {
        out->has_index = 1;
        status = parse_index(out, index, err);
        if (status == K3_OK)
            status = check_files(out, err);
    } else if (status == K3_OK) {
        status = for_each_entry(out->path, note_unindexed, out, err);
        sort_unique(out);
        if (status == K3_OK)
            status = check_numbering(out, err);
    }
    free(index);
    if (status != K3_OK)
        k3_folder_close(out);
    return status;
}

void k3_folder_close(k3_folder *folder)
{
    for (size_t i = 0; i < folder->n_shards; i++)
        free(folder->shards[i]);
    free(folder->shards);
    free(folder->path);
    k3_json_free(folder->index);
    *folder = (k3_folder){0};
}

void k3_folder_drop_index(k3_folder *folder)
{
    k3_json_free(folder->index);
    folder->index = folder->map = NULL;
}

/* ---- index against headers --------------------------------------------------------------------------------- */

static size_t count_unlisted(const k3_folder *folder, const k3_st_file *files)
{
    size_t n = 0;
    for (size_t f = 0; f < folder->n_shards; f++)
        for (size_t i = 0; i < files[f].n_tensors; i++)
            n += !files[f].tensors[i].listed;
    return n;
}

k3_status k3_folder_check_index(const k3_folder *folder, k3_st_file *files, const k3_table *table, k3_error *err)
{
    k3_names moved = {.limit = 4}, lacking = {.limit = 4};
    for (const k3_json *m = folder->map ? folder->map->first : NULL; m; m = m->next) {
        k3_st_tensor *t = k3_table_find(table, m->key, m->key_bytes);
        if (!t) {
            k3_names_add(&lacking, "%s (in %s)", m->key, m->text);
            continue;
        }
        t->listed = 1;
        if (strcmp(folder->shards[t->info.shard], m->text) != 0)
            k3_names_add(&moved, "%s (in %s, not in %s)", m->key, folder->shards[t->info.shard], m->text);
    }
    if (moved.n) {
        size_t n = moved.n;
        return k3_fail(err, K3_E_FORMAT,
                       "%s: " K3_INDEX_NAME " is stale: %zu tensor%s elsewhere than it says: %s. Fetch the index again, or delete it",
                       folder->path, n, n == 1 ? " is" : "s are", k3_names_end(&moved));
    }
    if (!lacking.n)
        return K3_OK;
    size_t n = lacking.n, n_unlisted = count_unlisted(folder, files);
    if (n_unlisted)
        return k3_fail(err, K3_E_FORMAT,
                       "%s: " K3_INDEX_NAME " is stale: names that are in no file (%zu): %s; tensors that it does not know: %zu. "
                       "Fetch index and weights of one revision, or delete the index",
                       folder->path, n, k3_names_end(&lacking), n_unlisted);
    return k3_fail(err, K3_E_FORMAT,
                   "%s: all files are present, but a header lacks %zu tensor%s the index maps to it: %s. Fetch that file again",
                   folder->path, n, n == 1 ? "" : "s", k3_names_end(&lacking));
}
