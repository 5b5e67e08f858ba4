#include "ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "ckpt/names.h"
#include "ckpt/parts.h"

#define MAX_CONFIG_BYTES ((uint64_t)16 << 20)
enum { MAX_READERS = 16 };

/* ---- shard headers, in parallel ---------------------------------------------------------------------------- */

typedef struct header_job {
    k3_ckpt *ckpt;
    k3_error *errors; /* [n_shards] */
    atomic_size_t next;
} header_job;

static void read_one_header(k3_ckpt *ckpt, size_t i, k3_error *err)
{
    err->status = K3_OK;
    ckpt->fds[i] = open(ckpt->paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a named pipe is refused, not waited for */
    if (ckpt->fds[i] < 0)
        k3_fail(err, K3_E_IO, "%s: %s%s", ckpt->paths[i], strerror(errno), errno == EMFILE ? "; raise ulimit -n" : "");
    else
        k3_st_read(&ckpt->files[i], ckpt->fds[i], (int)i, ckpt->paths[i], err);
}

static void *read_headers_thread(void *arg)
{
    header_job *job = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&job->next, 1);
        if (i >= job->ckpt->folder.n_shards)
            return NULL;
        read_one_header(job->ckpt, i, &job->errors[i]);
    }
}

/* Reports the first bad file in name order, whatever thread met it first, and how many more there are. */
static k3_status report_headers(const header_job *job, k3_error *err)
{
    size_t n_bad = 0, first = 0;
    for (size_t i = 0; i < job->ckpt->folder.n_shards; i++)
        if (job->errors[i].status != K3_OK && n_bad++ == 0)
            first = i;
    if (!n_bad)
        return K3_OK;
    if (n_bad > 1)
        return k3_fail(err, job->errors[first].status, "%.900s (and %zu more bad file%s)", job->errors[first].text, n_bad - 1,
                       n_bad == 2 ? "" : "s");
    return k3_fail(err, job->errors[first].status, "%s", job->errors[first].text);
}

static k3_status read_headers(k3_ckpt *ckpt, k3_error *err)
{
    pthread_t threads[MAX_READERS];
    size_t n_shards = ckpt->folder.n_shards, n_threads = 0, cores = (size_t)k3_os_cores();
    header_job job = {.ckpt = ckpt, .errors = calloc(n_shards, sizeof *job.errors)};
    if (!job.errors)
        return k3_fail(err, K3_E_NOMEM, "no memory for the headers of %zu files", n_shards);
    atomic_init(&job.next, 0);
    /* This thread works too; a thread that cannot start is only one fewer. */
    while (n_threads < MAX_READERS && n_threads + 1 < cores && n_threads + 1 < n_shards &&
           pthread_create(&threads[n_threads], NULL, read_headers_thread, &job) == 0)
        n_threads++;
    read_headers_thread(&job);
    for (size_t i = 0; i < n_threads; i++)
        pthread_join(threads[i], NULL);
    k3_status status = report_headers(&job, err);
    free(job.errors);
    return status;
}

/* ---- opening ----------------------------------------------------------------------------------------------- */

static k3_status alloc_files(k3_ckpt *ckpt, k3_error *err)
{
    size_t n = ckpt->folder.n_shards;
    ckpt->files = calloc(n, sizeof *ckpt->files);
    ckpt->fds = malloc(n * sizeof *ckpt->fds);
    ckpt->paths = calloc(n, sizeof *ckpt->paths);
    ckpt->drives = calloc(n, sizeof *ckpt->drives);
    for (size_t i = 0; ckpt->fds && i < n; i++)
        ckpt->fds[i] = -1;
    int complete = ckpt->files && ckpt->fds && ckpt->paths && ckpt->drives;
    for (size_t i = 0; complete && i < n; i++)
        complete = (ckpt->paths[i] = k3_folder_join(ckpt->folder.path, ckpt->folder.shards[i])) != NULL;
    return complete ? K3_OK : k3_fail(err, K3_E_NOMEM, "no memory for %zu weight files", n);
}

static k3_status read_config(k3_ckpt *ckpt, k3_error *err)
{
    char *text = NULL, *path = k3_folder_join(ckpt->folder.path, "config.json");
    size_t n = 0;
    if (!path)
        return k3_fail(err, K3_E_NOMEM, "no memory to read config.json");
    k3_status status = k3_os_read_file(&text, &n, path, MAX_CONFIG_BYTES, err);
    if (status == K3_OK)
        status = k3_hparams_parse(&ckpt->hp, ckpt->warning, sizeof ckpt->warning, text, n, path, err);
    free(text);
    free(path);
    return status;
}

static k3_status find_drives(k3_ckpt *ckpt, k3_error *err)
{
    for (size_t i = 0; i < ckpt->folder.n_shards; i++) {
        struct stat st;
        int d = 0;
        if (fstat(ckpt->fds[i], &st))
            return k3_fail(err, K3_E_IO, "%s: %s", ckpt->paths[i], strerror(errno));
        while (d < ckpt->n_drives && ckpt->devices[d] != (uint64_t)st.st_dev)
            d++;
        if (d == ckpt->n_drives && d < K3_MAX_DRIVES)
            ckpt->devices[ckpt->n_drives++] = (uint64_t)st.st_dev;
        ckpt->drives[i] = d < ckpt->n_drives ? d : ckpt->n_drives - 1;
    }
    return K3_OK;
}

/* Shards of two packed models may have equal names. */
static k3_status check_packs(const k3_ckpt *ckpt, k3_error *err)
{
    const k3_pack_tag *a = &ckpt->files[0].pack;
    for (size_t i = 1; i < ckpt->folder.n_shards; i++) {
        const k3_pack_tag *b = &ckpt->files[i].pack;
        if (a->is_packed != b->is_packed || strcmp(a->trunk, b->trunk) != 0 || strcmp(a->source, b->source) != 0)
            return k3_fail(err, K3_E_FORMAT, "%s: packed %s of %s, but %s: packed %s of %s; pack the model again into an empty folder",
                           ckpt->paths[0], a->is_packed ? a->trunk : "never", a->is_packed ? a->source : "itself", ckpt->paths[i],
                           b->is_packed ? b->trunk : "never", b->is_packed ? b->source : "itself");
    }
    return K3_OK;
}

static k3_status read_files(k3_ckpt *ckpt, k3_error *err)
{
    k3_table table = {0};
    K3_TRY(alloc_files(ckpt, err));
    K3_TRY(read_headers(ckpt, err));
    K3_TRY(find_drives(ckpt, err));
    K3_TRY(check_packs(ckpt, err));
    k3_status status = k3_table_build(&table, ckpt->files, ckpt->paths, ckpt->folder.n_shards, err);
    if (status == K3_OK)
        status = k3_folder_check_index(&ckpt->folder, ckpt->files, &table, err);
    k3_table_free(&table);
    k3_folder_drop_index(&ckpt->folder);
    return status;
}

/* A_log has an entry a head; the release pads it to head_dim entries with zeros. Anything else there would mean that the entries are
 * not per head, which runs and prints nonsense. */
static k3_status check_a_log(const k3_ckpt *ckpt, const k3_tensor_info *t, k3_error *err)
{
    unsigned char raw[1024];
    uint64_t size = t->dtype == K3_DT_F32 ? 4 : 2, at = (uint64_t)ckpt->hp.kda_heads * size;
    while (at < t->bytes) {
        uint64_t n = t->bytes - at < sizeof raw ? t->bytes - at : sizeof raw;
        K3_TRY(k3_ckpt_read(ckpt, raw, t, at, n, err));
        for (uint64_t i = 0; i < n; i++) {
            unsigned char bits = i % size == size - 1 ? raw[i] & 0x7f : raw[i]; /* -0 is zero too */
            if (bits)
                return k3_fail(err, K3_E_FORMAT, "%s: tensor %s: entry %llu is not zero, wanted one value for each of %d heads, then zeros",
                               ckpt->paths[t->shard], t->name, (unsigned long long)((at + i) / size), ckpt->hp.kda_heads);
        }
        at += n;
    }
    return K3_OK;
}

static void add_warning(k3_ckpt *ckpt, const char *text)
{
    size_t n = strlen(ckpt->warning);
    snprintf(ckpt->warning + n, sizeof ckpt->warning - n, "%s%s", n ? "; " : "", text);
}

static void collect_warnings(k3_ckpt *ckpt)
{
    char text[320];
    if (ckpt->layout.n_unknown) {
        k3_names first = {0};
        k3_names_add(&first, "%s", ckpt->layout.first_unknown);
        snprintf(text, sizeof text, "%zu unknown tensor%s ignored, the first is %.120s", ckpt->layout.n_unknown,
                 ckpt->layout.n_unknown == 1 ? "" : "s", k3_names_end(&first));
        add_warning(ckpt, text);
    }
    if (ckpt->folder.has_index && ckpt->folder.n_unlisted) {
        k3_names first = {0};
        k3_names_add(&first, "%s", ckpt->folder.first_unlisted);
        snprintf(text, sizeof text, "%zu safetensors file%s the index does not name ignored, the first is %.120s", ckpt->folder.n_unlisted,
                 ckpt->folder.n_unlisted == 1 ? "" : "s", k3_names_end(&first));
        add_warning(ckpt, text);
    }
}

static k3_status open_parts(k3_ckpt *ckpt, const char *folder, k3_error *err)
{
    K3_TRY(k3_folder_open(&ckpt->folder, folder, err));
    K3_TRY(read_config(ckpt, err));
    K3_TRY(read_files(ckpt, err));
    K3_TRY(k3_layout_build(&ckpt->layout, &ckpt->hp, ckpt->files, ckpt->folder.n_shards, ckpt->folder.has_index, ckpt->folder.path, err));
    for (int l = 0; l < ckpt->hp.n_layers; l++)
        if (!ckpt->hp.is_mla[l])
            K3_TRY(check_a_log(ckpt, k3_ckpt_role(ckpt, K3_R_KDA_A_LOG, l, 0), err));
    collect_warnings(ckpt);
    return K3_OK;
}

k3_status k3_ckpt_open(k3_ckpt **out, const char *folder, k3_error *err)
{
    *out = NULL;
    k3_ckpt *ckpt = calloc(1, sizeof *ckpt);
    if (!ckpt)
        return k3_fail(err, K3_E_NOMEM, "no memory to open %s", folder ? folder : "a model");
    k3_status status = open_parts(ckpt, folder, err);
    if (status != K3_OK) {
        k3_ckpt_close(ckpt);
        return status;
    }
    *out = ckpt;
    return K3_OK;
}

void k3_ckpt_close(k3_ckpt *ckpt)
{
    if (!ckpt)
        return;
    for (size_t i = 0; i < ckpt->folder.n_shards; i++) {
        if (ckpt->fds && ckpt->fds[i] >= 0)
            close(ckpt->fds[i]);
        if (ckpt->files)
            k3_st_free(&ckpt->files[i]);
        if (ckpt->paths)
            free(ckpt->paths[i]);
    }
    free(ckpt->fds);
    free(ckpt->drives);
    free(ckpt->files);
    free(ckpt->paths);
    k3_layout_free(&ckpt->layout);
    k3_folder_close(&ckpt->folder);
    free(ckpt);
}

/* ---- questions --------------------------------------------------------------------------------------------- */

const k3_hparams *k3_ckpt_hparams(const k3_ckpt *ckpt)
{
    return &ckpt->hp;
}

const char *k3_ckpt_folder(const k3_ckpt *ckpt)
{
    return ckpt->folder.path;
}

const char *k3_ckpt_warning(const k3_ckpt *ckpt)
{
    return ckpt->warning;
}

uint64_t k3_ckpt_total_bytes(const k3_ckpt *ckpt, uint64_t *expert_bytes)
{
    if (expert_bytes)
        *expert_bytes = ckpt->layout.expert_bytes;
    return ckpt->layout.trunk_bytes + ckpt->layout.expert_bytes;
}

uint64_t k3_ckpt_n_params(const k3_ckpt *ckpt)
{
    return ckpt->layout.n_params;
}

const k3_tensor_info *k3_ckpt_role(const k3_ckpt *ckpt, k3_role role, int layer, int expert)
{
    return k3_layout_find(&ckpt->layout, &ckpt->hp, role, layer, expert);
}

const k3_tensor_info *k3_ckpt_scale(const k3_ckpt *ckpt, k3_role role, int layer)
{
    if (role >= K3_R_W1 || layer < 0 || layer >= ckpt->hp.n_layers)
        return NULL;
    return ckpt->layout.scales[role][role < K3_R_INPUT_NORM ? 0 : layer];
}

const char *k3_ckpt_packed(const k3_ckpt *ckpt)
{
    return ckpt->files[0].pack.is_packed ? ckpt->files[0].pack.trunk : NULL;
}

int k3_ckpt_n_shards(const k3_ckpt *ckpt)
{
    return (int)ckpt->folder.n_shards;
}

const char *k3_ckpt_shard_path(const k3_ckpt *ckpt, int shard)
{
    return ckpt->paths[shard];
}

int k3_ckpt_shard_fd(const k3_ckpt *ckpt, int shard)
{
    return ckpt->fds[shard];
}

k3_status k3_ckpt_check_shard(const k3_ckpt *ckpt, int shard, k3_error *err)
{
    struct stat now, then;
    if (stat(ckpt->paths[shard], &now) || fstat(ckpt->fds[shard], &then))
        return k3_fail(err, K3_E_IO, "%s: %s", ckpt->paths[shard], strerror(errno));
    if (now.st_dev != then.st_dev || now.st_ino != then.st_ino)
        return k3_fail(err, K3_E_IO, "%s: another file has taken its place since the model was opened", ckpt->paths[shard]);
    return K3_OK;
}

uint64_t k3_ckpt_shard_bytes(const k3_ckpt *ckpt, int shard)
{
    return ckpt->files[shard].file_bytes;
}

int k3_ckpt_n_drives(const k3_ckpt *ckpt)
{
    return ckpt->n_drives;
}

int k3_ckpt_shard_drive(const k3_ckpt *ckpt, int shard)
{
    return ckpt->drives[shard];
}

uint64_t k3_ckpt_drive_device(const k3_ckpt *ckpt, int drive)
{
    return ckpt->devices[drive];
}

k3_status k3_ckpt_read(const k3_ckpt *ckpt, void *dst, const k3_tensor_info *tensor, uint64_t at, uint64_t n, k3_error *err)
{
    const char *path = ckpt->paths[tensor->shard];
    if (at > tensor->bytes || n > tensor->bytes - at)
        return k3_fail(err, K3_E_INVALID, "%s: tensor %s: bytes %llu to %llu were asked for, it has %llu", path, tensor->name,
                       (unsigned long long)at, (unsigned long long)(at + n), (unsigned long long)tensor->bytes);
    return k3_st_pread(ckpt->fds[tensor->shard], dst, n, tensor->offset + at, path, err);
}
