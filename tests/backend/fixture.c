#include "fixture.h"
#include "support/leaks.h"
#include "support/metal_harness.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const level_names[N_LEVELS] = {"scalar",       "avx2",       "avx512", "avx512bf16",   "amx",   "neon",       "avx2+exact",
                                           "avx512+exact", "neon+exact", "vulkan", "vulkan+exact", "metal", "metal+exact"};

k3_backend *open_level(const char *level, int threads)
{
    k3_backend *be;
    k3_error err;
    char name[32];
    int vulkan = strncmp(level, "vulkan", 6) == 0, metal = strncmp(level, "metal", 5) == 0;
    if (metal && (is_sanitized() || !metal_harness())) /* kernels that are executed so take minutes under a sanitizer */
        return NULL;
    snprintf(name, sizeof name, "%s%.*s", vulkan || metal ? "" : "cpu:", (int)strcspn(level, "+"), level);
    k3_backend_config config = {.name = name, .threads = threads, .exact = strchr(level, '+') != NULL};
    k3_status status = k3_backend_open(&be, &config, NULL, 0, &err);
    if (vulkan && status != K3_OK) {
        config.name = "vulkan:0";
        status = k3_backend_open(&be, &config, NULL, 0, &err);
    }
    if (status == K3_E_UNSUPPORTED || ((vulkan || metal) && status == K3_E_NOT_FOUND))
        return NULL;
    if (status != K3_OK)
        fail_msg("%s", err.text);
    return be;
}

void must_sync(k3_backend *be)
{
    k3_error err;
    if (be->sync(be, &err) != K3_OK)
        fail_msg("%s: %s", be->name, err.text);
}

void must_fail(k3_backend *be, k3_status status, const char *a, const char *b)
{
    k3_error err = {0};
    k3_status got = be->sync(be, &err);
    if (got != status || !strstr(err.text, a) || !strstr(err.text, b))
        fail_msg("status %d, \"%s\"; wanted %d, \"%s\" and \"%s\"", (int)got, err.text, (int)status, a, b);
    assert_int_equal(be->sync(be, &err), K3_OK);
}

/* Since keep_track; -1: they are not remembered. */
static k3_buf *made[4096];
static int n_made = -1;

void keep_track(void)
{
    n_made = 0;
}

void release_tracked(k3_backend *be)
{
    for (int i = 0; i < n_made; i++)
        be->memory->release(be, made[i]);
    n_made = -1;
}

static int may_fail;

void allow_failures(int yes)
{
    may_fail = yes;
}

static uint64_t in_front;

void place_at_ends(uint64_t unused)
{
    in_front = unused;
}

k3_ref new_bytes(k3_backend *be, size_t bytes)
{
    uint64_t all = in_front ? in_front + (bytes + 255) / 256 * 256 : bytes;
    k3_buf *buf = be->memory->alloc(be, all, "test");
    if (!buf && may_fail)
        return (k3_ref){NULL, 0};
    if (!buf)
        must_sync(be);
    assert_non_null(buf);
    assert_true(n_made < 4096);
    if (n_made >= 0)
        made[n_made++] = buf;
    return (k3_ref){buf, in_front ? all - (bytes + 15) / 16 * 16 : 0};
}

k3_ref put_bytes(k3_backend *be, const void *data, size_t bytes)
{
    k3_ref ref = new_bytes(be, bytes);
    be->memory->upload(be, ref, data, bytes);
    return ref;
}

k3_ref put_floats(k3_backend *be, const float *data, size_t n)
{
    return put_bytes(be, data, n * sizeof *data);
}

k3_ref new_floats(k3_backend *be, size_t n)
{
    return new_bytes(be, n * sizeof(float));
}

void *get_bytes(k3_backend *be, k3_ref ref, size_t bytes)
{
    void *out = malloc(bytes + 1);
    assert_non_null(out);
    be->memory->download(be, out, ref, bytes);
    must_sync(be);
    return out;
}

float *get_floats(k3_backend *be, k3_ref ref, size_t n)
{
    return get_bytes(be, ref, n * sizeof(float));
}

uint32_t random_bits(random_stream *r)
{
    r->state += 0x9e3779b97f4a7c15u;
    uint64_t z = r->state;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 32);
}

int random_below(random_stream *r, int n)
{
    return (int)(random_bits(r) % (uint32_t)n);
}

/* Sum of four uniform numbers in -1..1, whose variance is 4/3. */
float random_float(random_stream *r)
{
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)random_bits(r) / 2147483648.0 - 1.0;
    return (float)(sum / sqrt(4.0 / 3.0));
}

void random_floats(random_stream *r, float *out, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++)
        out[i] = scale * random_float(r);
}

static k3_ref put_at(k3_backend *be, unsigned char *data, size_t n, size_t at)
{
    k3_ref ref = k3_at(new_bytes(be, n + at), at);
    be->memory->upload(be, ref, data, n);
    free(data);
    return ref;
}

k3_mat random_mat(k3_backend *be, random_stream *r, k3_type type, int rows, int cols, int odd)
{
    size_t n = (size_t)rows * k3_type_row_bytes(type, cols), n_scale = (size_t)rows * k3_type_scale_bytes(type, cols);
    size_t at = odd ? be->is_device ? 4 : 1 : 0;
    unsigned char *codes = malloc(n + 1), *scale = malloc(n_scale + 1);
    assert_true(codes && scale);
    for (size_t i = 0; i < n; i++)
        codes[i] = (unsigned char)random_bits(r);
    for (size_t i = 0; type == K3_F32 && i < n; i += 4)
        memcpy(codes + i, &(float){random_float(r)}, 4);
    for (size_t i = 0; type == K3_BF16 && i < n; i += 2) {
        float x = random_float(r);
        memcpy(codes + i, (char *)&x + 2, 2);
    }
    for (size_t i = 0; i < n_scale; i++)
        scale[i] = (unsigned char)(118 + random_below(r, 8));
    for (size_t i = 0; type != K3_MXFP4 && i < n_scale; i += 4)
        memcpy(scale + i, &(float){0.01f + 0.02f * fabsf(random_float(r))}, 4);
    k3_mat mat = {type, rows, cols, put_at(be, codes, n, at), {NULL, 0}, 0};
    if (n_scale)
        mat.scale = put_at(be, scale, n_scale, at);
    else
        free(scale);
    return mat;
}
