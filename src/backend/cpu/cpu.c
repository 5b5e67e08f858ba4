#include "backend/cpu/cpu.h"

#include "base/os.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* From this size on a buffer has pages of its own: the system zeroes them when they are first touched, and may give huge ones, which lie at
 * multiples of their size. */
enum { K3_OWN_PAGES = 1 << 20, K3_HUGE_PAGES = 4 << 20, K3_HUGE_PAGE = 2 << 20, K3_LARGEST_SLAB = 256 << 20 };

typedef enum k3_cpu_kind { K3_FROM_HEAP, K3_FROM_PAGES, K3_FROM_SLAB, K3_WRAPPED } k3_cpu_kind;

/* Weights lie one after another in slabs, so that huge pages hold all of them: a matrix with pages of its own has small ones at both ends,
 * and a small one no others. A slab goes with the last of its buffers, and its bytes are given out once. */
struct k3_cpu_slab {
    unsigned char *at;
    uint64_t bytes, used;
    int n_buffers;
};

struct k3_cpu_buf {
    k3_buf base;
    k3_cpu_kind kind;
    k3_cpu_slab *slab;
    k3_cpu_buf *next, *previous;
};

static const char *const op_names[K3_N_OPS] = {
    "embed",        "attnres_mix", "rmsnorm",    "matmul",   "shortconv", "l2norm",      "kda_gate",    "kda_recur", "kda_chunk",
    "gate_rmsnorm", "mla_append",  "mla_attend", "gate_mul", "situ_glu",  "router_topk", "moe_experts", "moe_sum",   "add",
};

void k3_cpu_fail(k3_cpu *cpu, k3_status status, const char *format, ...)
{
    if (cpu->failure.status != K3_OK)
        return;
    va_list args;
    va_start(args, format);
    cpu->failure.status = status;
    vsnprintf(cpu->failure.text, sizeof cpu->failure.text, format, args);
    va_end(args);
}

static void drop_scratch(k3_cpu *cpu)
{
    if (cpu->scratch_bytes >= K3_HUGE_PAGES)
        munmap(cpu->scratch, cpu->scratch_bytes);
    else
        free(cpu->scratch);
    cpu->scratch = NULL;
    cpu->scratch_bytes = 0;
}

void *k3_cpu_scratch(k3_cpu *cpu, size_t bytes)
{
    if (bytes <= cpu->scratch_bytes)
        return cpu->scratch;
    size_t wanted = k3_round64(bytes + bytes / 8);
    void *at = wanted >= K3_HUGE_PAGES ? k3_cpu_pages(wanted) : aligned_alloc(64, wanted);
    if (!at) {
        k3_cpu_fail(cpu, K3_E_NOMEM, "%s: no memory for %zu bytes of scratch; compute fewer rows at once", cpu->name, wanted);
        return NULL;
    }
    drop_scratch(cpu);
    cpu->scratch = at;
    cpu->scratch_bytes = wanted;
    return at;
}

uint64_t k3_cpu_begin(void)
{
    return k3_os_nanoseconds();
}

void k3_cpu_end(k3_cpu *cpu, k3_cpu_op op, uint64_t t0, uint64_t bytes)
{
    k3_op_stat *stat = &cpu->stats[op];
    stat->calls++;
    stat->dispatches++;
    stat->bytes += bytes;
    stat->nanoseconds += k3_os_nanoseconds() - t0;
}

int64_t k3_cpu_grain(int64_t elements)
{
    enum { WORTH_A_THREAD = 16384 };
    return elements >= WORTH_A_THREAD ? 1 : WORTH_A_THREAD / (elements > 0 ? elements : 1);
}

int k3_cpu_mat_of(k3_cpu *cpu, k3_cpu_mat *out, const k3_mat *w, const char *op)
{
    if ((unsigned)w->type >= K3_N_TYPES) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "%s: weight type %d (%s) has no kernel in %s", op, (int)w->type, k3_type_name(w->type),
                    cpu->name);
        return 0;
    }
    if (w->cols < 1 || w->cols % k3_type_granule(w->type)) {
        k3_cpu_fail(cpu, K3_E_UNSUPPORTED, "%s: a %s matrix has %d columns, a multiple of %d wanted", op, k3_type_name(w->type), w->cols,
                    k3_type_granule(w->type));
        return 0;
    }
    *out = (k3_cpu_mat){.type = w->type,
                        .cols = w->cols,
                        .row_bytes = k3_type_row_bytes(w->type, w->cols),
                        .scale_bytes = k3_type_scale_bytes(w->type, w->cols),
                        .codes = k3_host(w->data),
                        .scale = k3_host(w->scale.buf ? w->scale : w->data)};
    if (out->scale_bytes && !w->scale.buf) {
        k3_cpu_fail(cpu, K3_E_INVALID, "%s: a %s matrix came without scales", op, k3_type_name(w->type));
        return 0;
    }
    return 1;
}

uint64_t k3_cpu_mat_bytes(const k3_mat *w)
{
    return (uint64_t)w->rows * (k3_type_row_bytes(w->type, w->cols) + k3_type_scale_bytes(w->type, w->cols));
}

float *k3_cpu_floats(k3_ref ref)
{
    return ref.buf ? k3_host(ref) : NULL;
}

/* ---- memory ------------------------------------------------------------------------------------------ */

static k3_buf *keep(k3_cpu *cpu, k3_cpu_buf *buf, void *host, uint64_t bytes, k3_cpu_kind kind)
{
    *buf = (k3_cpu_buf){{bytes, host, (uint64_t)(uintptr_t)host}, kind, NULL, cpu->buffers, NULL};
    if (cpu->buffers)
        cpu->buffers->previous = buf;
    cpu->buffers = buf;
    cpu->info.n_buffers++;
    if (kind != K3_WRAPPED)
        cpu->info.used += bytes;
    return &buf->base;
}

static void *map(uint64_t bytes)
{
    void *at = bytes > SIZE_MAX ? MAP_FAILED : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* The part of `bytes` bytes of a stretch with a huge page more that begins at a multiple of its size. */
static void *cut_to_huge_pages(unsigned char *at, uint64_t bytes)
{
    size_t before = -(uintptr_t)at % K3_HUGE_PAGE;
    if (before)
        munmap(at, before);
    munmap(at + before + bytes, K3_HUGE_PAGE - before); /* never nothing: before is less than a page */
    return at + before;
}

void *k3_cpu_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    if (bytes < K3_HUGE_PAGES)
        return map(bytes);
    void *at = map(whole + K3_HUGE_PAGE);
    if (!at)
        return map(bytes);
    at = cut_to_huge_pages(at, whole);
#ifdef MADV_HUGEPAGE
    (void)madvise(at, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return at;
}

static void *zeroed(uint64_t bytes, k3_cpu_kind kind)
{
    if (bytes > SIZE_MAX - 64)
        return NULL;
    if (kind == K3_FROM_HEAP) {
        size_t rounded = k3_round64(bytes ? (size_t)bytes : 1);
        void *at = aligned_alloc(64, rounded);
        return at ? memset(at, 0, rounded) : NULL;
    }
    return k3_cpu_pages(bytes);
}

/* Slabs grow with what there is, so that a small model asks for few addresses. */
static k3_cpu_slab *new_slab(k3_cpu *cpu, uint64_t bytes)
{
    uint64_t wanted = cpu->slab_bytes < K3_LARGEST_SLAB ? cpu->slab_bytes : K3_LARGEST_SLAB;
    wanted = wanted > K3_HUGE_PAGES ? wanted : K3_HUGE_PAGES;
    wanted = ((bytes > wanted ? bytes : wanted) + K3_HUGE_PAGE - 1) / K3_HUGE_PAGE * K3_HUGE_PAGE;
    k3_cpu_slab *slab = malloc(sizeof *slab);
    void *at = slab ? k3_cpu_pages(wanted) : NULL;
    if (!at) {
        free(slab);
        return NULL;
    }
    k3_pool_spread(cpu->pool, at, (size_t)wanted);
    *slab = (k3_cpu_slab){at, wanted, 0, 0};
    cpu->slab_bytes += wanted;
    cpu->info.n_slabs++;
    return slab;
}

static void drop_slab(k3_cpu *cpu, k3_cpu_slab *slab)
{
    if (--slab->n_buffers)
        return;
    if (cpu->slab == slab)
        cpu->slab = NULL;
    cpu->slab_bytes -= slab->bytes;
    cpu->info.n_slabs--;
    munmap(slab->at, (size_t)slab->bytes);
    free(slab);
}

/* Zeroed bytes of the newest slab, or of another one. */
static void *from_slab(k3_cpu *cpu, uint64_t bytes)
{
    if (bytes > SIZE_MAX - K3_HUGE_PAGE - K3_HUGE_PAGES)
        return NULL;
    uint64_t rounded = k3_round64(bytes ? (size_t)bytes : 1);
    k3_cpu_slab *slab = cpu->slab;
    if (!slab || slab->bytes - slab->used < rounded) {
        if (!(slab = new_slab(cpu, rounded)))
            return NULL;
        cpu->slab = slab;
    }
    slab->n_buffers++;
    slab->used += rounded;
    return slab->at + slab->used - rounded;
}

static k3_buf *alloc(k3_cpu *cpu, uint64_t bytes, k3_cpu_kind kind, const char *what)
{
    uint64_t budget = cpu->info.budget, used = cpu->info.used;
    if (budget && (used > budget || bytes > budget - used)) {
        k3_cpu_fail(cpu, K3_E_NOMEM, "%s: %llu bytes wanted, %llu of the budget of %llu are in use; raise the budget or ask for less", what,
                    (unsigned long long)bytes, (unsigned long long)used, (unsigned long long)budget);
        return NULL;
    }
    k3_cpu_buf *buf = malloc(sizeof *buf);
    void *host = !buf ? NULL : kind == K3_FROM_SLAB ? from_slab(cpu, bytes) : zeroed(bytes, kind);
    if (!host) {
        free(buf);
        k3_cpu_fail(cpu, K3_E_NOMEM, "%s: the system has no %llu bytes left; free memory or use smaller types", what,
                    (unsigned long long)bytes);
        return NULL;
    }
    if (kind == K3_FROM_PAGES)
        k3_pool_spread(cpu->pool, host, (size_t)bytes);
    k3_buf *base = keep(cpu, buf, host, bytes, kind);
    buf->slab = kind == K3_FROM_SLAB ? cpu->slab : NULL;
    return base;
}

static k3_buf *memory_alloc(k3_backend *be, uint64_t bytes, const char *what)
{
    return alloc(k3_cpu_of(be), bytes, bytes >= K3_OWN_PAGES ? K3_FROM_PAGES : K3_FROM_HEAP, what);
}

static k3_buf *memory_alloc_rows(k3_backend *be, uint64_t rows, uint64_t row_bytes, const char *what)
{
    return alloc(k3_cpu_of(be), rows * row_bytes, K3_FROM_SLAB, what);
}

static k3_buf *memory_view(k3_backend *be, void *host, uint64_t bytes)
{
    k3_cpu_buf *buf = malloc(sizeof *buf);
    return buf ? keep(k3_cpu_of(be), buf, host, bytes, K3_WRAPPED) : NULL;
}

static k3_buf *memory_wrap(k3_backend *be, void *host, uint64_t bytes, const char *what)
{
    k3_buf *buf = memory_view(be, host, bytes);
    k3_pool_spread(k3_cpu_of(be)->pool, host, (size_t)bytes);
    if (!buf)
        k3_cpu_fail(k3_cpu_of(be), K3_E_NOMEM, "%s: the system has no memory left", what);
    return buf;
}

static void memory_release(k3_backend *be, k3_buf *base)
{
    if (!base)
        return;
    k3_cpu *cpu = k3_cpu_of(be);
    k3_cpu_buf *buf = (k3_cpu_buf *)base;
    if (buf->previous)
        buf->previous->next = buf->next;
    else
        cpu->buffers = buf->next;
    if (buf->next)
        buf->next->previous = buf->previous;
    cpu->info.n_buffers--;
    if (buf->kind != K3_WRAPPED)
        cpu->info.used -= base->bytes;
    if (buf->kind == K3_FROM_HEAP)
        free(base->host);
    else if (buf->kind == K3_FROM_PAGES)
        munmap(base->host, (size_t)base->bytes);
    else if (buf->kind == K3_FROM_SLAB)
        drop_slab(cpu, buf->slab);
    free(buf);
}

/* Whether [at, at + bytes) lies in the buffer; a failure that names the call if not. */
static int within(k3_backend *be, k3_ref ref, uint64_t bytes, const char *call)
{
    if (ref.buf && ref.at <= ref.buf->bytes && bytes <= ref.buf->bytes - ref.at)
        return 1;
    k3_cpu_fail(k3_cpu_of(be), K3_E_INVALID, "%s: bytes %llu to %llu asked for, the buffer has %llu", call, (unsigned long long)ref.at,
                (unsigned long long)(ref.at + bytes), (unsigned long long)(ref.buf ? ref.buf->bytes : 0));
    return 0;
}

static void memory_upload(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes)
{
    if (bytes && within(be, dst, bytes, "upload"))
        memcpy(k3_host(dst), src, (size_t)bytes);
}

static void memory_download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes)
{
    if (bytes && within(be, src, bytes, "download"))
        memcpy(dst, k3_host(src), (size_t)bytes);
}

static void memory_copy(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes)
{
    if (bytes && within(be, dst, bytes, "copy to") && within(be, src, bytes, "copy from"))
        memmove(k3_host(dst), k3_host(src), (size_t)bytes);
}

static void memory_info(k3_backend *be, k3_memory_info *info)
{
    *info = k3_cpu_of(be)->info;
    info->free = k3_os_memory_available(NULL);
}

static void memory_set_budget(k3_backend *be, uint64_t bytes)
{
    k3_cpu_of(be)->info.budget = bytes;
}

static int lock_pages(const void *at, size_t bytes)
{
#ifdef MLOCK_ONFAULT
    /* Slots are taken as they are used: the rest of them is not brought in for this. */
    if (!mlock2(at, bytes, MLOCK_ONFAULT))
        return 0;
    if (errno != ENOSYS)
        return errno;
#endif
    return mlock(at, bytes) ? errno : 0;
}

static int memory_lock(k3_backend *be, uint64_t *locked, uint64_t *bytes)
{
    int refused = 0;
    *locked = *bytes = 0;
    for (const k3_cpu_buf *buf = k3_cpu_of(be)->buffers; buf; buf = buf->next) {
        *bytes += buf->base.bytes;
        refused = refused ? refused : lock_pages(buf->base.host, (size_t)buf->base.bytes);
        *locked += refused ? 0 : buf->base.bytes;
    }
    return refused;
}

/* Which allocation the system drops first is its own business. */
static void memory_set_priority(k3_backend *be, float priority)
{
    (void)be;
    (void)priority;
}

static void *memory_host(k3_backend *be, k3_ref dst, uint64_t bytes)
{
    (void)be;
    return dst.at <= dst.buf->bytes && bytes <= dst.buf->bytes - dst.at ? k3_host(dst) : NULL;
}

static const k3_memory_ops memory_ops = {
    .alloc = memory_alloc,
    .alloc_rows = memory_alloc_rows,
    .wrap = memory_wrap,
    .view = memory_view,
    .release = memory_release,
    .upload = memory_upload,
    .download = memory_download,
    .copy = memory_copy,
    .host = memory_host,
    .info = memory_info,
    .set_budget = memory_set_budget,
    .set_priority = memory_set_priority,
    .lock = memory_lock,
};

/* ---- the backend -------------------------------------------------------------------------------------- */

static const k3_ops cpu_ops = {
    .embed = k3_cpu_embed,
    .attnres_mix = k3_cpu_attnres_mix,
    .rmsnorm = k3_cpu_rmsnorm,
    .matmul = k3_cpu_matmul,
    .shortconv = k3_cpu_shortconv,
    .l2norm = k3_cpu_l2norm,
    .kda_gate = k3_cpu_kda_gate,
    .kda_recur = k3_cpu_kda_recur,
    .kda_chunk = k3_cpu_kda_chunk,
    .gate_rmsnorm = k3_cpu_gate_rmsnorm,
    .mla_append = k3_cpu_mla_append,
    .mla_attend = k3_cpu_mla_attend,
    .gate_mul = k3_cpu_gate_mul,
    .situ_glu = k3_cpu_situ_glu,
    .router_topk = k3_cpu_router_topk,
    .moe_experts = k3_cpu_moe_experts,
    .moe_sum = k3_cpu_moe_sum,
    .add = k3_cpu_add,
};

static k3_status cpu_sync(k3_backend *be, k3_error *err)
{
    k3_cpu *cpu = k3_cpu_of(be);
    k3_error failure = cpu->failure;
    cpu->failure.status = K3_OK;
    return failure.status == K3_OK ? K3_OK : k3_fail(err, failure.status, "%s", failure.text);
}

/* Everything ran when it was called. */
static void cpu_submit(k3_backend *be)
{
    (void)be;
}

static int cpu_stats(k3_backend *be, k3_op_stat *out, int max, int reset)
{
    k3_cpu *cpu = k3_cpu_of(be);
    for (int i = 0; i < K3_N_OPS; i++) {
        cpu->stats[i].name = op_names[i];
        if (i < max)
            out[i] = cpu->stats[i];
        if (reset)
            cpu->stats[i] = (k3_op_stat){op_names[i], 0, 0, 0, 0};
    }
    return K3_N_OPS;
}

static const char *cpu_describe(k3_backend *be)
{
    return k3_cpu_of(be)->line;
}

static void cpu_close(k3_backend *be)
{
    if (!be)
        return;
    k3_cpu *cpu = k3_cpu_of(be);
    while (cpu->buffers)
        memory_release(be, &cpu->buffers->base);
    k3_pool_close(cpu->pool);
    drop_scratch(cpu);
    free(cpu);
}

static void list_levels(char *text, size_t size)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < K3_CPU_N_LEVELS; i++)
        if (k3_cpu_level_here((k3_cpu_level)i) && at < size)
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", k3_cpu_level_name((k3_cpu_level)i));
}

static k3_status choose_level(k3_cpu_level *out, const char *level, k3_error *err)
{
    char here[64];
    list_levels(here, sizeof here);
    for (int i = K3_CPU_N_LEVELS - 1; i >= 0; i--) {
        *out = (k3_cpu_level)i;
        if (!level || !*level) {
            if (k3_cpu_level_here(*out) && k3_cpu_level_pays(*out))
                return K3_OK;
            continue;
        }
        if (strcmp(level, k3_cpu_level_name(*out)))
            continue;
        return k3_cpu_level_here(*out)
                   ? K3_OK
                   : k3_fail(err, K3_E_UNSUPPORTED, "backend cpu:%s: this processor or build lacks %s; here are %s", level, level, here);
    }
    return k3_fail(err, K3_E_INVALID,
                   "backend cpu: level \"%s\" found; scalar, avx2, avx512, avx512bf16, amx, neon exist, of which this machine has %s",
                   level, here);
}

k3_status k3_cpu_open(k3_backend **out, const char *level, const k3_backend_config *config, k3_error *err)
{
    *out = NULL;
    k3_cpu_level chosen;
    K3_TRY(choose_level(&chosen, level, err));
    k3_cpu *cpu = calloc(1, sizeof *cpu);
    if (!cpu)
        return k3_fail(err, K3_E_NOMEM, "backend cpu: out of memory");
    k3_status status = k3_pool_open(&cpu->pool, config->threads, err);
    if (status != K3_OK) {
        free(cpu);
        return status;
    }
    cpu->n_threads = k3_pool_threads(cpu->pool);
    k3_cpu_kernels_get(&cpu->k, chosen, config->exact);
    snprintf(cpu->name, sizeof cpu->name, "cpu:%s", k3_cpu_level_name(chosen));
    snprintf(cpu->line, sizeof cpu->line, "%s, %d thread%s%s", cpu->name, cpu->n_threads, cpu->n_threads == 1 ? "" : "s",
             config->exact ? ", sums in double" : "");
    cpu->base = (k3_backend){.name = cpu->name,
                             .ops = &cpu_ops,
                             .memory = &memory_ops,
                             .submit = cpu_submit,
                             .sync = cpu_sync,
                             .stats = cpu_stats,
                             .describe = cpu_describe,
                             .close = cpu_close,
                             .same_bits_for_any_split = 1};
    *out = &cpu->base;
    return K3_OK;
}
