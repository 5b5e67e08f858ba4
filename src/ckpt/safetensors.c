#include "ckpt/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

enum { LENGTH_BYTES = 8, NAME_SHOWN = 160 };

typedef struct header_reader {
    k3_st_file *file;
    const char *path;
    uint64_t data_start, data_bytes;
    int shard;
    k3_error *err;
} header_reader;

/* Every type the format knows; sizes in bits. One-byte types that hold codes or exponents are U8 to the engine. */
static const struct {
    const char *name;
    unsigned bits;
    k3_dtype dtype;
} dtypes[] = {
    {"F32", 32, K3_DT_F32},
    {"BF16", 16, K3_DT_BF16},
    {"U8", 8, K3_DT_U8},
    {"F8_E8M0", 8, K3_DT_U8},
    {"F4", 4, K3_DT_U8},
    {"F16", 16, K3_DT_OTHER},
    {"F64", 64, K3_DT_OTHER},
    {"I8", 8, K3_DT_INT8},
    {"I16", 16, K3_DT_OTHER},
    {"U16", 16, K3_DT_OTHER},
    {"I32", 32, K3_DT_OTHER},
    {"U32", 32, K3_DT_OTHER},
    {"I64", 64, K3_DT_OTHER},
    {"U64", 64, K3_DT_OTHER},
    {"C64", 64, K3_DT_OTHER},
    {"BOOL", 8, K3_DT_OTHER},
    {"F8_E5M2", 8, K3_DT_OTHER},
    {"F8_E4M3", 8, K3_DT_OTHER},
    {"F8_E4M3FNUZ", 8, K3_DT_OTHER},
    {"F8_E5M2FNUZ", 8, K3_DT_OTHER},
    {"F6_E2M3", 6, K3_DT_OTHER},
    {"F6_E3M2", 6, K3_DT_OTHER},
};

k3_status k3_st_pread(int fd, void *dst, uint64_t n, uint64_t offset, const char *path, k3_error *err)
{
    char *to = dst;
    while (n > 0) {
        /* Linux moves at most 2 GiB a call, and larger requests fail on some systems. */
        size_t ask = n < (1u << 30) ? (size_t)n : 1u << 30;
        ssize_t got = pread(fd, to, ask, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return k3_fail(err, K3_E_IO, "%s: reading %llu bytes at %llu: %s", path, (unsigned long long)n, (unsigned long long)offset,
                           strerror(errno));
        if (got == 0)
            return k3_fail(err, K3_E_IO, "%s: the file ends at byte %llu, wanted %llu more; it was cut while in use", path,
                           (unsigned long long)offset, (unsigned long long)n);
        to += got;
        n -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return K3_OK;
}

/* The reader's view of a name: no control characters, not endless. */
static const char *shown(char *room, const char *name)
{
    snprintf(room, NAME_SHOWN, "%s", name);
    for (char *c = room; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return room;
}

static k3_status fail_tensor(const header_reader *r, const char *name, k3_status status, const char *message)
{
    char room[NAME_SHOWN];
    return k3_fail(r->err, status, "%s: tensor %s: %s", r->path, shown(room, name), message);
}

static k3_status read_dtype(const header_reader *r, k3_st_tensor *t, unsigned *bits, const k3_json *dtype)
{
    if (!dtype || dtype->type != K3_JSON_STRING)
        return fail_tensor(r, t->info.name, K3_E_FORMAT, "has no dtype, wanted a word such as \"BF16\"");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (k3_json_text_is(dtype, dtypes[i].name)) {
            snprintf(t->dtype_name, sizeof t->dtype_name, "%s", dtypes[i].name);
            t->info.dtype = dtypes[i].dtype;
            *bits = dtypes[i].bits;
            return K3_OK;
        }
    }
    char found[24], room[NAME_SHOWN], message[240];
    snprintf(found, sizeof found, "%s", dtype->text);
    snprintf(message, sizeof message, "dtype \"%s\" is none of the safetensors types", shown(room, found));
    return fail_tensor(r, t->info.name, K3_E_FORMAT, message);
}

/* Rank, sizes and the number of bytes. F4 has two elements a byte: the last size is halved, so that both spellings of packed codes
 * look alike to the engine. */
static k3_status read_shape(const header_reader *r, k3_st_tensor *t, unsigned bits, const k3_json *shape)
{
    if (!shape || shape->type != K3_JSON_ARRAY)
        return fail_tensor(r, t->info.name, K3_E_FORMAT, "has no shape, wanted a list of sizes");
    uint64_t n = 1;
    for (const k3_json *v = shape->first; v; v = v->next) {
        int64_t size = 0;
        if (!k3_json_int(v, &size) || size < 0)
            return fail_tensor(r, t->info.name, K3_E_FORMAT, "a size in its shape is not an integer >= 0");
        if (__builtin_mul_overflow(n, (uint64_t)size, &n))
            return fail_tensor(r, t->info.name, K3_E_FORMAT, "the product of its shape exceeds 64 bits");
        if (!v->next && bits == 4) {
            if (size % 2)
                return fail_tensor(r, t->info.name, K3_E_FORMAT,
                                   "F4 with an odd number of columns; two codes share a byte, wanted an even number");
            size /= 2;
        }
        if (t->info.rank < 4)
            t->info.shape[t->info.rank] = size;
        t->info.rank++;
    }
    uint64_t n_bits = 0;
    if (__builtin_mul_overflow(n, bits, &n_bits))
        return fail_tensor(r, t->info.name, K3_E_FORMAT, "its size exceeds 64 bits");
    if (n_bits % 8)
        return fail_tensor(r, t->info.name, K3_E_FORMAT, "its size is not a whole number of bytes");
    t->info.bytes = n_bits / 8;
    return K3_OK;
}

static k3_status read_offsets(const header_reader *r, k3_st_tensor *t, const k3_json *offsets)
{
    int64_t begin = 0, end = 0;
    if (!offsets || offsets->type != K3_JSON_ARRAY || offsets->n_children != 2 || !k3_json_int(offsets->first, &begin) ||
        !k3_json_int(offsets->first->next, &end) || begin < 0 || end < begin)
        return fail_tensor(r, t->info.name, K3_E_FORMAT, "wanted data_offsets [begin, end] with 0 <= begin <= end");
    char message[200];
    if ((uint64_t)(end - begin) != t->info.bytes) {
        snprintf(message, sizeof message, "data_offsets span %lld bytes, wanted %llu for its shape and dtype %s", (long long)(end - begin),
                 (unsigned long long)t->info.bytes, t->dtype_name);
        return fail_tensor(r, t->info.name, K3_E_FORMAT, message);
    }
    if ((uint64_t)end > r->data_bytes) {
        snprintf(message, sizeof message, "ends at data byte %lld, but the file holds %llu; it is cut short, fetch it again",
                 (long long)end, (unsigned long long)r->data_bytes);
        return fail_tensor(r, t->info.name, K3_E_FORMAT, message);
    }
    t->info.offset = r->data_start + (uint64_t)begin;
    return K3_OK;
}

static k3_status read_tensor(const header_reader *r, k3_st_tensor *t, char *name, const k3_json *value)
{
    unsigned bits = 0;
    memcpy(name, value->key, value->key_bytes + 1);
    *t = (k3_st_tensor){.info = {.name = name, .shard = r->shard}};
    if (!value->key_bytes || strlen(name) != value->key_bytes)
        return fail_tensor(r, name, K3_E_FORMAT, "a tensor's name may not be empty or hold a NUL character");
    if (value->type != K3_JSON_OBJECT)
        return fail_tensor(r, name, K3_E_FORMAT, "wanted an object with dtype, shape and data_offsets");
    K3_TRY(read_dtype(r, t, &bits, k3_json_get(value, "dtype")));
    K3_TRY(read_shape(r, t, bits, k3_json_get(value, "shape")));
    return read_offsets(r, t, k3_json_get(value, "data_offsets"));
}

/* Writers leave {}, null and non-string members under this name; only a tensor in disguise or another type is an error. */
static k3_status check_metadata(const header_reader *r, const k3_json *value)
{
    if (value->type != K3_JSON_OBJECT && value->type != K3_JSON_NULL)
        return k3_fail(r->err, K3_E_FORMAT, "%s: header line %u, column %u: __metadata__ must be an object or null", r->path, value->line,
                       value->column);
    const k3_json *shape = k3_json_get(value, "shape"), *offsets = k3_json_get(value, "data_offsets");
    if ((shape && shape->type == K3_JSON_ARRAY) || (offsets && offsets->type == K3_JSON_ARRAY))
        return k3_fail(r->err, K3_E_FORMAT, "%s: a tensor carries the reserved name __metadata__; write the file again under another name",
                       r->path);
    return K3_OK;
}

static int by_offset(const void *a, const void *b)
{
    const k3_tensor_info *x = &(*(k3_st_tensor *const *)a)->info, *y = &(*(k3_st_tensor *const *)b)->info;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    /* An empty tensor shares its neighbour's begin and must come first. */
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The ranges in order must follow each other without a hole from the first data byte to the last. */
static k3_status check_tiling(const header_reader *r, k3_st_tensor **order)
{
    char a[NAME_SHOWN], b[NAME_SHOWN];
    uint64_t at = r->data_start;
    for (size_t i = 0; i < r->file->n_tensors; i++) {
        const k3_tensor_info *t = &order[i]->info;
        if (t->offset < at)
            return k3_fail(r->err, K3_E_FORMAT, "%s: tensors %s and %s overlap in %llu bytes of the data", r->path,
                           shown(a, order[i - 1]->info.name), shown(b, t->name), (unsigned long long)(at - t->offset));
        if (t->offset > at)
            return k3_fail(r->err, K3_E_FORMAT, "%s: %llu bytes before tensor %s belong to no tensor", r->path,
                           (unsigned long long)(t->offset - at), shown(a, t->name));
        at += t->bytes;
    }
    uint64_t left = r->data_start + r->data_bytes - at;
    if (left)
        return k3_fail(r->err, K3_E_FORMAT, "%s: %llu bytes follow the last tensor, wanted none", r->path, (unsigned long long)left);
    return K3_OK;
}

static k3_status read_header(const header_reader *r, const k3_json *root)
{
    size_t name_bytes = 1;
    k3_st_file *file = r->file;
    if (root->type != K3_JSON_OBJECT)
        return k3_fail(r->err, K3_E_FORMAT, "%s: the header is not a JSON object", r->path);
    for (const k3_json *m = root->first; m; m = m->next)
        name_bytes += m->key_bytes + 1;
    file->tensors = calloc(root->n_children + 1, sizeof *file->tensors);
    file->names = malloc(name_bytes);
    k3_st_tensor **order = calloc(root->n_children + 1, sizeof *order);
    k3_status status = K3_OK;
    if (!file->tensors || !file->names || !order)
        status = k3_fail(r->err, K3_E_NOMEM, "%s: no memory for %zu tensors", r->path, root->n_children);
    char *name = file->names;
    for (const k3_json *m = root->first; m && status == K3_OK; m = m->next) {
        if (m->key_bytes == sizeof "__metadata__" - 1 && strcmp(m->key, "__metadata__") == 0) {
            status = check_metadata(r, m);
            if (status == K3_OK)
                status = k3_pack_read_tag(&file->pack, m, r->path, r->err);
            continue;
        }
        k3_st_tensor *t = &file->tensors[file->n_tensors];
        order[file->n_tensors++] = t;
        status = read_tensor(r, t, name, m);
        name += m->key_bytes + 1;
    }
    if (status == K3_OK) {
        qsort(order, file->n_tensors, sizeof *order, by_offset);
        status = check_tiling(r, order);
    }
    free(order);
    return status;
}

k3_status k3_st_parse(k3_st_file *out, const char *header, uint64_t header_bytes, uint64_t file_bytes, int shard, const char *path,
                      k3_error *err)
{
    const k3_json *root = NULL;
    *out = (k3_st_file){.header_bytes = header_bytes, .file_bytes = file_bytes};
    k3_status status = k3_json_parse(&root, header, (size_t)header_bytes, K3_JSON_UNIQUE_KEYS, err);
    if (status != K3_OK)
        return k3_fail_within(err, status, "%s: header: ", path);
    header_reader r = {.file = out, .path = path, .shard = shard, .err = err};
    r.data_start = LENGTH_BYTES + header_bytes;
    r.data_bytes = file_bytes - r.data_start;
    status = read_header(&r, root);
    k3_json_free(root);
    if (status != K3_OK)
        k3_st_free(out);
    return status;
}

/* The common ways in which a download is not the file it should be. */
static k3_status check_start(const unsigned char *start, size_t n, uint64_t file_bytes, const char *path, k3_error *err)
{
    static const char pointer[] = "version https://git-lfs", page[] = "<!DOCTYPE", page2[] = "<html", gguf[] = "GGUF";
    if (n >= sizeof pointer - 1 && memcmp(start, pointer, sizeof pointer - 1) == 0)
        return k3_fail(err, K3_E_FORMAT, "%s: is a Git LFS pointer of %llu bytes, not the weights; run `git lfs pull` in its folder", path,
                       (unsigned long long)file_bytes);
    if ((n >= 9 && memcmp(start, page, 9) == 0) || (n >= 5 && memcmp(start, page2, 5) == 0))
        return k3_fail(err, K3_E_FORMAT, "%s: is a web page of %llu bytes, not the weights; fetch it again", path,
                       (unsigned long long)file_bytes);
    if (n >= 4 && memcmp(start, gguf, 4) == 0)
        return k3_fail(err, K3_E_UNSUPPORTED, "%s: is a GGUF file, wanted safetensors", path);
    if (n < LENGTH_BYTES)
        return k3_fail(err, K3_E_FORMAT, "%s: holds %llu bytes, wanted at least the 8 of a safetensors header length; fetch it again", path,
                       (unsigned long long)file_bytes);
    return K3_OK;
}

k3_status k3_st_read(k3_st_file *out, int fd, int shard, const char *path, k3_error *err)
{
    struct stat info;
    unsigned char start[32];
    *out = (k3_st_file){0};
    if (fstat(fd, &info) != 0)
        return k3_fail(err, K3_E_IO, "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return k3_fail(err, K3_E_FORMAT, "%s: is not a regular file", path);
    uint64_t file_bytes = (uint64_t)info.st_size, header_bytes = 0;
    size_t n_start = file_bytes < sizeof start ? (size_t)file_bytes : sizeof start;
    K3_TRY(k3_st_pread(fd, start, n_start, 0, path, err));
    K3_TRY(check_start(start, n_start, file_bytes, path, err));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        header_bytes = header_bytes << 8 | start[i];
    if (header_bytes > K3_ST_MAX_HEADER)
        return k3_fail(err, K3_E_FORMAT,
                       "%s: declares a header of %llu bytes, k3 reads at most %llu; not a safetensors file, or a broken one", path,
                       (unsigned long long)header_bytes, (unsigned long long)K3_ST_MAX_HEADER);
    if (header_bytes > file_bytes - LENGTH_BYTES)
        return k3_fail(err, K3_E_FORMAT,
                       "%s: declares a header of %llu bytes (the limit is %llu), the file holds %llu after its length; fetch it again",
                       path, (unsigned long long)header_bytes, (unsigned long long)K3_ST_MAX_HEADER,
                       (unsigned long long)(file_bytes - LENGTH_BYTES));
    char *header = malloc((size_t)header_bytes + 1);
    if (!header)
        return k3_fail(err, K3_E_NOMEM, "%s: no memory for a header of %llu bytes", path, (unsigned long long)header_bytes);
    k3_status status = k3_st_pread(fd, header, header_bytes, LENGTH_BYTES, path, err);
    if (status == K3_OK)
        status = k3_st_parse(out, header, header_bytes, file_bytes, shard, path, err);
    free(header);
    return status;
}

void k3_st_free(k3_st_file *file)
{
    free(file->tensors);
    free(file->names);
    *file = (k3_st_file){0};
}
