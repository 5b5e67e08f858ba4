#include "store/usage.h"

#include "base/hash.h"
#include "base/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char MAGIC[8] = "K3USAGE";

/* Then visits u32 [n_layers], uses u32 [n_layers * n_experts], and the checksum u64 of all before it. Little-endian, as the machine is. */
typedef struct k3_usage_header {
    char magic[8];
    uint64_t model;
    uint32_t n_layers, n_experts;
} k3_usage_header;

/* What is remembered weighs as much as so many visits at most: habits may change. */
enum { WEIGHT = 1 << 14 };

static size_t file_bytes(const k3_usage *of)
{
    return sizeof(k3_usage_header) + sizeof(uint64_t) + 4 * (size_t)of->n_layers * ((size_t)of->n_experts + 1);
}

static k3_usage_header header_of(const k3_usage *of)
{
    k3_usage_header h = {.model = of->model, .n_layers = (uint32_t)of->n_layers, .n_experts = (uint32_t)of->n_experts};
    memcpy(h.magic, MAGIC, sizeof MAGIC);
    return h;
}

/* The whole file, malloc'd. */
static char *image_of(const k3_policy *p, const k3_usage *of)
{
    size_t n = file_bytes(of), at = sizeof(k3_usage_header);
    k3_usage_header h = header_of(of);
    char *image = malloc(n);
    if (!image)
        return NULL;
    memcpy(image, &h, sizeof h);
    uint32_t *visits = (uint32_t *)(void *)(image + at), *uses = visits + of->n_layers;
    for (int i = 0; i < of->n_layers * of->n_experts; i++)
        k3_policy_counts(p, i, &uses[i], &visits[i / of->n_experts]);
    uint64_t sum = k3_hash_on(K3_HASH_NOTHING, image, n - sizeof sum);
    memcpy(image + n - sizeof sum, &sum, sizeof sum);
    return image;
}

/* Every step is checked: a disk that is full says so at the write, at the flush or at the close. */
static int write_file(int fd, const char *data, size_t n)
{
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!f) {
        int why = errno;
        if (fd >= 0)
            close(fd);
        errno = why;
        return 0;
    }
    int good = fwrite(data, 1, n, f) == n && !fflush(f) && !fsync(fileno(f));
    int kept = good ? 0 : errno;
    if (fclose(f) && good)
        return 0;
    errno = kept;
    return good;
}

/* A file of a name that nobody else has takes the place of `path`, or of what that links to. */
k3_status k3_usage_save(const k3_policy *p, const k3_usage *of, const char *path, k3_error *err)
{
    if (!*path)
        return k3_fail(err, K3_E_INVALID, "use counts: the name of a file is wanted, an empty one found");
    char *target = realpath(path, NULL); /* NULL: there is no such file yet */
    const char *to = target ? target : path;
    struct stat st;
    mode_t mode = target && !stat(target, &st) ? st.st_mode & 0777 : 0644;
    size_t n_part = strlen(to) + sizeof ".XXXXXX";
    char *image = image_of(p, of), *part = malloc(n_part);
    k3_status status = image && part ? K3_OK : k3_fail(err, K3_E_NOMEM, "%s: out of memory", path);
    if (status == K3_OK) {
        snprintf(part, n_part, "%s.XXXXXX", to);
        int fd = mkstemp(part);
        if (!write_file(fd, image, file_bytes(of)) || chmod(part, mode) || rename(part, to)) {
            status = k3_fail(err, K3_E_IO, "%s: the use counts cannot be written: %s", path, strerror(errno));
            if (fd >= 0)
                remove(part);
        }
    }
    free(image);
    free(part);
    free(target);
    return status;
}

static k3_status check(const char *image, size_t n, const k3_usage *of, const char *path, k3_error *err)
{
    k3_usage_header h, wanted = header_of(of);
    uint64_t sum;
    if (n < sizeof h || memcmp(image, MAGIC, sizeof MAGIC))
        return k3_fail(err, K3_E_FORMAT, "%s: not a file of use counts", path);
    memcpy(&h, image, sizeof h);
    if (memcmp(&h, &wanted, sizeof h))
        return k3_fail(err, K3_E_FORMAT, "%s: use counts of another model, %u layers of %u experts; this one has %d of %d", path,
                       h.n_layers, h.n_experts, of->n_layers, of->n_experts);
    if (n != file_bytes(of))
        return k3_fail(err, K3_E_FORMAT, "%s: %zu bytes found, %zu wanted; the file is cut or damaged", path, n, file_bytes(of));
    memcpy(&sum, image + n - sizeof sum, sizeof sum);
    if (sum != k3_hash_on(K3_HASH_NOTHING, image, n - sizeof sum))
        return k3_fail(err, K3_E_FORMAT, "%s: the checksum does not fit; the file is damaged", path);
    return K3_OK;
}

k3_status k3_usage_load(k3_policy *p, const k3_usage *of, const char *path, k3_error *err)
{
    char *image;
    size_t n;
    K3_TRY(k3_os_read_file(&image, &n, path, 1 << 28, err));
    k3_status status = check(image, n, of, path, err);
    if (status == K3_OK) {
        uint32_t *visits = (uint32_t *)(void *)(image + sizeof(k3_usage_header)), *uses = visits + of->n_layers;
        for (int l = 0; l < of->n_layers; l++)
            for (; visits[l] > WEIGHT; visits[l] /= 2)
                for (int i = l * of->n_experts; i < (l + 1) * of->n_experts; i++)
                    uses[i] /= 2;
        k3_policy_remember(p, uses, visits);
    }
    free(image);
    return status;
}

typedef struct share {
    double of_visits;
    int item;
} share;

static int larger_first(const void *a, const void *b)
{
    const share *x = a, *y = b;
    if (x->of_visits > y->of_visits || x->of_visits < y->of_visits)
        return x->of_visits > y->of_visits ? -1 : 1;
    return x->item - y->item;
}

k3_status k3_usage_most(const k3_policy *p, const k3_usage *of, int *items, int *n, k3_error *err)
{
    int n_items = of->n_layers * of->n_experts, n_used = 0;
    share *shares = malloc(((size_t)n_items + 1) * sizeof *shares);
    if (!shares)
        return k3_fail(err, K3_E_NOMEM, "use counts: out of memory for %d experts", n_items);
    for (int i = 0; i < n_items; i++) {
        uint32_t uses, visits;
        k3_policy_counts(p, i, &uses, &visits);
        if (uses && visits)
            shares[n_used++] = (share){(double)uses / visits, i};
    }
    qsort(shares, (size_t)n_used, sizeof *shares, larger_first);
    *n = n_used < *n ? n_used : *n;
    for (int i = 0; i < *n; i++)
        items[i] = shares[i].item;
    free(shares);
    return K3_OK;
}
