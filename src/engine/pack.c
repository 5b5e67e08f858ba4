/* k3_pack: a model written again so that nothing has to be converted at load and every expert is one aligned read. A shard is written as
 * NAME.part, compared with the source, and gets its name when it is on the disk: what has a name is whole. The index comes last. Nothing
 * that was there before is written over. */
#include "engine/pack.h"

#include "base/os.h"
#include "engine/engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "ckpt/folder.h"

enum { BLOCK = 16 << 20, ZEROS = 4096 };
#define MOST_FILE_BYTES ((uint64_t)256 << 20) /* of a file beside the weights that is copied too */

typedef struct packer {
    pack_source source;
    k3_converter converter;
    const char *out; /* as given */
    int dir;
    k3_progress progress;
    void *user;
    uint64_t total, written, verified; /* bytes of shards, in this run */
    k3_buffer index;
    unsigned char *is_there;            /* [n_shards] */
    int only_looks;                     /* files beside the weights are not copied yet */
    char *raw, *codes, *scales, *again; /* again: what was written, read back */
    uint64_t raw_bytes, codes_bytes, scales_bytes;

    /* The shard at hand. */
    const pack_shard *shard;
    int fd, verifies;
    char part[80]; /* its name until it is whole */
} packer;

/* ---- bytes out, and back ------------------------------------------------------------------------------------------------ */

static k3_status fail_io(const packer *p, const char *name, const char *what, k3_error *err)
{
    const char *resume = errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? "; what is whole stays, and the same command goes on" : "";
    return k3_fail(err, K3_E_IO, "%s/%s: %s: %s%s", p->out, name, what, strerror(errno), resume);
}

static k3_status write_all(const packer *p, int fd, const char *name, const void *bytes, uint64_t n, uint64_t at, k3_error *err)
{
    const char *from = bytes;
    while (n) {
        ssize_t done = pwrite(fd, from, n < BLOCK ? (size_t)n : BLOCK, (off_t)at);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            errno = done ? errno : ENOSPC;
            return fail_io(p, name, "writing", err);
        }
        from += done;
        at += (uint64_t)done;
        n -= (uint64_t)done;
    }
    return K3_OK;
}

static k3_status compare(packer *p, const void *bytes, uint64_t n, uint64_t at, k3_error *err)
{
    for (uint64_t done = 0; done < n; done += BLOCK) {
        uint64_t m = n - done < BLOCK ? n - done : BLOCK;
        K3_TRY(k3_st_pread(p->fd, p->again, m, at + done, p->part, err));
        if (memcmp(p->again, (const char *)bytes + done, (size_t)m) != 0)
            return k3_fail(err, K3_E_IO, "%s/%s: bytes %llu to %llu are not what was written there; memory or disk cannot be trusted",
                           p->out, p->part, (unsigned long long)(at + done), (unsigned long long)(at + done + m));
    }
    return K3_OK;
}

/* Writes bytes of the shard, or compares those that are there with what they should be. */
static k3_status put(packer *p, const void *bytes, uint64_t n, uint64_t at, k3_error *err)
{
    K3_TRY(p->verifies ? compare(p, bytes, n, at, err) : write_all(p, p->fd, p->part, bytes, n, at, err));
    uint64_t *done = p->verifies ? &p->verified : &p->written;
    *done += n;
    if (p->progress && p->progress(p->user, p->verifies ? "verifying" : "packing", *done, p->total))
        return k3_fail(err, K3_E_CANCELLED, "packing was stopped; the same command goes on from here");
    return K3_OK;
}

/* ---- a shard ------------------------------------------------------------------------------------------------------------- */

static k3_status reserve(char **room, uint64_t *have, uint64_t want, k3_error *err)
{
    if (*have >= want)
        return K3_OK;
    free(*room);
    *room = malloc((size_t)want);
    *have = *room ? want : 0;
    return *room ? K3_OK : k3_fail(err, K3_E_NOMEM, "pack: no memory for %llu bytes", (unsigned long long)want);
}

static k3_status put_copy(packer *p, const pack_item *item, uint64_t at, k3_error *err)
{
    K3_TRY(reserve(&p->raw, &p->raw_bytes, BLOCK, err));
    for (uint64_t done = 0; done < item->bytes; done += BLOCK) {
        uint64_t n = item->bytes - done < BLOCK ? item->bytes - done : BLOCK;
        K3_TRY(k3_ckpt_read(p->source.ckpt, p->raw, item->from, done, n, err));
        K3_TRY(put(p, p->raw, n, at + done, err));
    }
    return K3_OK;
}

static k3_status put_padding(packer *p, const pack_item *item, uint64_t at, k3_error *err)
{
    static const char zeros[ZEROS];
    return put(p, zeros, item->bytes, at, err);
}

/* Codes of a matrix, and its scales. */
static k3_status put_matrix(packer *p, const pack_item *codes, const pack_item *scales, uint64_t data, k3_error *err)
{
    const k3_tensor_info *t = codes->from;
    int64_t rows = t->shape[0];
    uint64_t stored = k3_stored_row(t), code_row = codes->bytes / (uint64_t)rows, scale_row = scales->bytes / (uint64_t)rows;
    int64_t step = (int64_t)(BLOCK / stored) + 1;
    step = step > rows ? rows : step;
    K3_TRY(reserve(&p->raw, &p->raw_bytes, (uint64_t)step * stored, err));
    K3_TRY(reserve(&p->codes, &p->codes_bytes, (uint64_t)step * code_row, err));
    K3_TRY(reserve(&p->scales, &p->scales_bytes, (uint64_t)step * scale_row, err));
    for (int64_t r = 0; r < rows; r += step) {
        uint64_t first = (uint64_t)r, n = (uint64_t)(rows - r < step ? rows - r : step);
        K3_TRY(k3_ckpt_read(p->source.ckpt, p->raw, t, first * stored, n * stored, err));
        K3_TRY(k3_convert(&p->converter, p->codes, p->scales, codes->type, p->raw, t, r, (int64_t)n, err));
        K3_TRY(put(p, p->codes, n * code_row, data + codes->at + first * code_row, err));
        K3_TRY(put(p, p->scales, n * scale_row, data + scales->at + first * scale_row, err));
    }
    return K3_OK;
}

/* All of the shard, written or compared. */
static k3_status put_shard(packer *p, k3_error *err)
{
    const pack_shard *shard = p->shard;
    uint64_t data = shard->header.n;
    K3_TRY(put(p, shard->header.bytes, data, 0, err));
    for (size_t i = 0; i < shard->n; i++) {
        const pack_item *item = &shard->items[i], *scales = item + 1;
        switch (item->kind) {
        case PACK_COPY:
            K3_TRY(put_copy(p, item, data + item->at, err));
            break;
        case PACK_PADDING:
            K3_TRY(put_padding(p, item, data + item->at, err));
            break;
        case PACK_CODES:
            while (scales->kind != PACK_SCALES)
                scales++;
            K3_TRY(put_matrix(p, item, scales, data, err));
            break;
        case PACK_SCALES: /* came with its codes */
            break;
        }
    }
    return K3_OK;
}

static k3_status open_part(packer *p, const char *name, k3_error *err)
{
    snprintf(p->part, sizeof p->part, "%s.part", name);
    /* A link of that name is replaced, not followed: it might lead to the source. */
    if (unlinkat(p->dir, p->part, 0) != 0 && errno != ENOENT)
        return fail_io(p, p->part, "removing", err);
    p->fd = openat(p->dir, p->part, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return p->fd < 0 ? fail_io(p, p->part, "creating", err) : K3_OK;
}

/* The part gets its name once its bytes are on the disk; a part that failed makes room. */
static k3_status close_part(packer *p, const char *name, k3_status status, k3_error *err)
{
    if (close(p->fd) != 0 && status == K3_OK)
        status = fail_io(p, p->part, "closing", err);
    if (status == K3_OK && (renameat(p->dir, p->part, p->dir, name) != 0 || fsync(p->dir) != 0))
        status = fail_io(p, name, "naming", err);
    if (status != K3_OK)
        unlinkat(p->dir, p->part, 0);
    return status;
}

static k3_status write_shard(packer *p, const pack_shard *shard, k3_error *err)
{
    p->shard = shard;
    K3_TRY(open_part(p, shard->name, err));
    k3_status status = ftruncate(p->fd, (off_t)shard->bytes) == 0 ? K3_OK : fail_io(p, p->part, "growing", err);
    p->verifies = 0;
    if (status == K3_OK)
        status = put_shard(p, err);
    if (status == K3_OK && fsync(p->fd) != 0)
        status = fail_io(p, p->part, "writing", err);
#ifdef POSIX_FADV_DONTNEED
    (void)posix_fadvise(p->fd, 0, 0, POSIX_FADV_DONTNEED); /* so that the disk is read, not the cache */
#endif
    p->verifies = 1;
    if (status == K3_OK)
        status = put_shard(p, err);
    return close_part(p, shard->name, status, err);
}

/* ---- what is there --------------------------------------------------------------------------------------------------------- */

/* 1: a file of this name begins with these bytes and has this size; 0: there is none; any other file is an error. */
static k3_status find(packer *p, int *found, const char *name, const char *bytes, size_t n, uint64_t file_bytes, k3_error *err)
{
    struct stat info;
    char *have = NULL;
    *found = 0;
    int fd = openat(p->dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? K3_OK : fail_io(p, name, "opening", err);
    k3_status status = fstat(fd, &info) == 0 ? K3_OK : fail_io(p, name, "opening", err);
    int alike = status == K3_OK && S_ISREG(info.st_mode) && (uint64_t)info.st_size == file_bytes;
    if (alike && !(have = malloc(n + 1)))
        status = k3_fail(err, K3_E_NOMEM, "pack: no memory for %zu bytes", n);
    if (alike && status == K3_OK)
        status = k3_st_pread(fd, have, n, 0, name, err);
    if (status == K3_OK && !(alike && memcmp(have, bytes, n) == 0))
        status = k3_fail(err, K3_E_INVALID,
                         "%s/%s: is there and is not what packing this model with a trunk of %s writes; name another folder, or empty it",
                         p->out, name, k3_trunk_name(p->source.trunk));
    *found = status == K3_OK;
    free(have);
    close(fd);
    return status;
}

/* Which shards are whole, how much is missing, and the index. */
static k3_status survey(packer *p, k3_error *err)
{
    uint64_t total_size = 0;
    int n = p->source.n_shards, found;
    char head[96], part[80];
    k3_buffer map = {0};
    for (int i = 0; i < n; i++) {
        pack_shard shard;
        k3_status status = pack_plan(&shard, &p->source, i, err);
        if (status == K3_OK)
            status = find(p, &found, shard.name, shard.header.bytes, shard.header.n, shard.bytes, err);
        if (status == K3_OK) {
            p->is_there[i] = (unsigned char)found;
            p->total += found ? 0 : shard.bytes;
            total_size += shard.bytes - shard.header.n;
            pack_add_to_index(&map, &shard);
            snprintf(part, sizeof part, "%s.part", shard.name);
            unlinkat(p->dir, part, 0); /* what an earlier run did not finish */
        }
        pack_shard_free(&shard);
        if (status != K3_OK) {
            k3_buffer_free(&map);
            return status;
        }
    }
    snprintf(head, sizeof head, "{\n  \"metadata\": {\"total_size\": %llu},\n  \"weight_map\": {", (unsigned long long)total_size);
    k3_buffer_add_text(&p->index, head);
    k3_buffer_add(&p->index, map.bytes, map.n);
    k3_buffer_add_text(&p->index, "\n  }\n}\n");
    int failed = map.failed || p->index.failed;
    k3_buffer_free(&map);
    if (failed)
        return k3_fail(err, K3_E_NOMEM, "pack: no memory for the index");
    return find(p, &found, K3_INDEX_NAME, p->index.bytes, p->index.n, p->index.n, err);
}

static k3_status check_space(const packer *p, k3_error *err)
{
    struct statvfs info;
    uint64_t need = p->total ? p->total + p->index.n + ((uint64_t)1 << 20) : 0;
    if (fstatvfs(p->dir, &info) != 0)
        return fail_io(p, "", "free space", err);
    uint64_t room = (uint64_t)info.f_bavail * info.f_frsize;
    if (need <= room)
        return K3_OK;
    return k3_fail(err, K3_E_IO, "%s: %.3f GB are needed, %.3f GB are free; make room, or name a folder on another disk", p->out,
                   (double)need * 1e-9, (double)room * 1e-9);
}

/* ---- files beside the weights ----------------------------------------------------------------------------------------------- */

static k3_status put_file(packer *p, const char *name, const char *bytes, size_t n, k3_error *err)
{
    int found = 0;
    K3_TRY(find(p, &found, name, bytes, n, n, err));
    if (found || p->only_looks)
        return K3_OK;
    K3_TRY(open_part(p, name, err));
    k3_status status = write_all(p, p->fd, p->part, bytes, n, 0, err);
    if (status == K3_OK && fsync(p->fd) != 0)
        status = fail_io(p, p->part, "writing", err);
    return close_part(p, name, status, err);
}

static int ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Tokenizer, configuration, licence: plain files of a modest size that hold no weights. Names that leave room for ".part". */
static int is_copied(const char *folder, const char *name)
{
    struct stat info;
    char *path = name[0] == '.' || strlen(name) > 70 ? NULL : k3_folder_join(folder, name);
    int is = path && stat(path, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size <= MOST_FILE_BYTES &&
             !ends_in(name, ".safetensors") && !ends_in(name, ".part") && strcmp(name, K3_INDEX_NAME) != 0;
    free(path);
    return is;
}

static k3_status copy_file(packer *p, const char *folder, const char *name, k3_error *err)
{
    char *bytes = NULL, *path = k3_folder_join(folder, name);
    size_t n = 0;
    k3_status status = path ? k3_os_read_file(&bytes, &n, path, MOST_FILE_BYTES, err) : k3_fail(err, K3_E_NOMEM, "pack: out of memory");
    if (status == K3_OK)
        status = put_file(p, name, bytes, n, err);
    free(bytes);
    free(path);
    return status;
}

static k3_status copy_files(packer *p, k3_error *err)
{
    const char *folder = k3_ckpt_folder(p->source.ckpt);
    DIR *dir = opendir(folder);
    if (!dir)
        return k3_fail(err, K3_E_IO, "%s: %s", folder, strerror(errno));
    k3_status status = K3_OK;
    for (struct dirent *entry; status == K3_OK && (entry = readdir(dir)) != NULL;)
        if (strcmp(entry->d_name, "config.json") != 0 && is_copied(folder, entry->d_name))
            status = copy_file(p, folder, entry->d_name, err);
    closedir(dir);
    return status == K3_OK ? copy_file(p, folder, "config.json", err) : status;
}

/* ---- the folder ------------------------------------------------------------------------------------------------------------- */

/* The whole path of a folder that need not exist, in a folder that does. */
static k3_status resolve(char path[PATH_MAX], const char *out, k3_error *err)
{
    char parent[PATH_MAX], base[NAME_MAX + 1];
    if (realpath(out, path))
        return K3_OK;
    int why = errno;
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/')
        n--;
    size_t at = n;
    while (at && out[at - 1] != '/')
        at--;
    if (why != ENOENT || n - at > NAME_MAX || at >= sizeof parent)
        return k3_fail(err, K3_E_IO, "%s: %s", out, strerror(why));
    snprintf(base, sizeof base, "%.*s", (int)(n - at), out + at);
    snprintf(parent, sizeof parent, "%.*s", at ? (int)at : 1, at ? out : ".");
    if (!realpath(parent, path))
        return k3_fail(err, K3_E_NOT_FOUND, "%s: %s; the folder to write is made, its parent is not", parent, strerror(errno));
    size_t n_path = strlen(path);
    snprintf(path + n_path, PATH_MAX - n_path, "/%s", base);
    return K3_OK;
}

static int is_inside(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && (path[n] == '/' || path[n] == 0);
}

static k3_status open_folder(packer *p, const char *model, k3_error *err)
{
    char path[PATH_MAX], given[PATH_MAX];
    if (!p->out || !*p->out)
        return k3_fail(err, K3_E_INVALID, "pack: no folder to write was named");
    K3_TRY(resolve(path, p->out, err));
    if (is_inside(path, k3_ckpt_folder(p->source.ckpt)) || (realpath(model, given) && is_inside(path, given)))
        return k3_fail(err, K3_E_INVALID, "%s: lies in the model's own folder %s, which is only read; name another", p->out, model);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return k3_fail(err, K3_E_IO, "%s: %s", p->out, strerror(errno));
    p->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->dir < 0)
        return k3_fail(err, K3_E_IO, "%s: %s", p->out, strerror(errno));
    if (flock(p->dir, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return k3_fail(err, K3_E_INVALID, "%s: another process is writing it", p->out);
    return K3_OK;
}

/* ---- all of it -------------------------------------------------------------------------------------------------------------- */

static k3_status pack(packer *p, k3_error *err)
{
    p->is_there = calloc((size_t)p->source.n_shards, 1);
    p->again = malloc(BLOCK);
    if (!p->is_there || !p->again)
        return k3_fail(err, K3_E_NOMEM, "pack: out of memory");
    K3_TRY(k3_converter_open(&p->converter, 0, p->source.most_cols, err));
    K3_TRY(survey(p, err));
    p->only_looks = 1;
    K3_TRY(copy_files(p, err));
    p->only_looks = 0;
    K3_TRY(check_space(p, err));
    for (int i = 0; i < p->source.n_shards; i++) {
        pack_shard shard;
        if (p->is_there[i])
            continue;
        K3_TRY(pack_plan(&shard, &p->source, i, err));
        k3_status status = write_shard(p, &shard, err);
        pack_shard_free(&shard);
        K3_TRY(status);
    }
    K3_TRY(copy_files(p, err));
    return put_file(p, K3_INDEX_NAME, p->index.bytes, p->index.n, err);
}

static k3_status open_and_pack(packer *p, const k3_ckpt *ckpt, const char *model, k3_trunk trunk, k3_error *err)
{
    if (k3_ckpt_packed(ckpt))
        return k3_fail(err, K3_E_INVALID, "%s: is packed already, with a trunk of %s; pack the model that it was made from", model,
                       k3_ckpt_packed(ckpt));
    p->source.ckpt = ckpt;
    K3_TRY(open_folder(p, model, err));
    K3_TRY(pack_source_open(&p->source, ckpt, trunk, err));
    return pack(p, err);
}

k3_status k3_pack(const char *model, const char *out, const char *trunk, k3_progress progress, void *user, k3_error *err)
{
    packer p = {.out = out, .dir = -1, .progress = progress, .user = user};
    k3_ckpt *ckpt = NULL;
    int type = K3_TRUNK_BF16;
    while (trunk && type <= K3_TRUNK_INT4 && strcmp(trunk, k3_trunk_name((k3_trunk)type)) != 0)
        type++;
    if (type > K3_TRUNK_INT4)
        return k3_fail(err, K3_E_INVALID, "trunk \"%s\": bf16, int8 or int4 wanted", trunk);
    k3_status status = k3_ckpt_open(&ckpt, model, err);
    if (status == K3_OK)
        status = open_and_pack(&p, ckpt, model, trunk ? (k3_trunk)type : K3_TRUNK_INT8, err);
    k3_converter_close(&p.converter);
    pack_source_close(&p.source);
    k3_buffer_free(&p.index);
    free(p.is_there);
    free(p.raw);
    free(p.codes);
    free(p.scales);
    free(p.again);
    if (p.dir >= 0)
        close(p.dir);
    k3_ckpt_close(ckpt);
    return status;
}
