#include "support/golden.h"

#include "base/json.h"
#include "base/os.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct golden {
    char path[256];
    const k3_json *header, *metadata;
    golden_tensor *tensors;
    size_t n_tensors;
    char cases[256][96];
    int n_cases;
};

static void read_tensor(golden *g, golden_tensor *t, const k3_json *entry, const char *data, size_t n_data)
{
    int64_t begin = 0, end = 0;
    const k3_json *offsets = k3_json_get(entry, "data_offsets"), *shape = k3_json_get(entry, "shape"), *dtype = k3_json_get(entry, "dtype");
    if (!offsets || !shape || !dtype || !k3_json_int(offsets->first, &begin) || !k3_json_int(offsets->first->next, &end) || begin < 0 ||
        end < begin || (size_t)end > n_data || shape->n_children > 5)
        fail_msg("%s: tensor %s is broken", g->path, entry->key);
    snprintf(t->name, sizeof t->name, "%s", entry->key);
    snprintf(t->dtype, sizeof t->dtype, "%s", dtype->text);
    t->n = 1;
    for (const k3_json *s = shape->first; s; s = s->next) {
        assert_true(k3_json_int(s, &t->shape[t->rank]));
        t->n *= (size_t)t->shape[t->rank++];
    }
    t->n_bytes = (size_t)(end - begin);
    void *copy = aligned_alloc(64, (t->n_bytes + 64) / 64 * 64);
    memcpy(copy, data + begin, t->n_bytes);
    t->data = copy;
}

golden *golden_open(const char *path)
{
    golden *g = calloc(1, sizeof *g);
    char *text;
    size_t n;
    uint64_t header_bytes = 0;
    k3_error err;
    snprintf(g->path, sizeof g->path, "%s", path);
    if (k3_os_read_file(&text, &n, path, (uint64_t)1 << 30, &err) != K3_OK)
        fail_msg("%s", err.text);
    memcpy(&header_bytes, text, 8);
    if (k3_json_parse(&g->header, text + 8, (size_t)header_bytes, 0, &err) != K3_OK)
        fail_msg("%s: %s", path, err.text);
    g->metadata = k3_json_get(g->header, "__metadata__");
    g->tensors = calloc(g->header->n_children, sizeof *g->tensors);
    for (const k3_json *m = g->header->first; m; m = m->next)
        if (m != g->metadata)
            read_tensor(g, &g->tensors[g->n_tensors++], m, text + 8 + header_bytes, n - 8 - (size_t)header_bytes);
    free(text);
    const k3_json *cases = k3_json_get(g->metadata, "cases");
    if (!cases)
        fail_msg("%s: lists no cases", path);
    for (const char *at = cases->text; *at; at += strcspn(at, ","), at += *at == ',') {
        assert_true(g->n_cases < 256);
        snprintf(g->cases[g->n_cases++], sizeof g->cases[0], "%.*s", (int)strcspn(at, ","), at);
    }
    return g;
}

void golden_close(golden *g)
{
    for (size_t i = 0; i < g->n_tensors; i++)
        free((void *)(uintptr_t)g->tensors[i].data);
    free(g->tensors);
    k3_json_free(g->header);
    free(g);
}

int golden_n_cases(const golden *g)
{
    return g->n_cases;
}

const char *golden_case(const golden *g, int i)
{
    return g->cases[i];
}

const golden_tensor *golden_maybe(const golden *g, const char *case_name, const char *tensor)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", case_name, tensor);
    for (size_t i = 0; i < g->n_tensors; i++)
        if (strcmp(g->tensors[i].name, name) == 0)
            return &g->tensors[i];
    return NULL;
}

const golden_tensor *golden_get(const golden *g, const char *case_name, const char *tensor)
{
    const golden_tensor *t = golden_maybe(g, case_name, tensor);
    if (!t)
        fail_msg("%s: no tensor %s.%s", g->path, case_name, tensor);
    return t;
}

static const void *typed(const golden *g, const char *case_name, const char *tensor, const char *dtype)
{
    const golden_tensor *t = golden_get(g, case_name, tensor);
    if (strcmp(t->dtype, dtype) != 0)
        fail_msg("%s: %s is %s, wanted %s", g->path, t->name, t->dtype, dtype);
    return t->data;
}

const float *golden_floats(const golden *g, const char *case_name, const char *tensor)
{
    return typed(g, case_name, tensor, "F32");
}

const int32_t *golden_ints(const golden *g, const char *case_name, const char *tensor)
{
    return typed(g, case_name, tensor, "I32");
}

const char *golden_text(const golden *g, const char *case_name, const char *parameter)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", case_name, parameter);
    const k3_json *value = k3_json_get(g->metadata, name);
    return value ? value->text : NULL;
}

double golden_number(const golden *g, const char *case_name, const char *parameter)
{
    const char *text = golden_text(g, case_name, parameter);
    char *end = NULL;
    double x = text ? strtod(text, &end) : 0;
    if (!text || *end)
        fail_msg("%s: %s.%s is %s, wanted a number", g->path, case_name, parameter, text ? text : "absent");
    return x;
}

double golden_error(const float *got, const float *want, size_t n)
{
    double worst = 0, largest = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(got[i]))
            return INFINITY;
        worst = fmax(worst, fabs((double)got[i] - want[i]));
        largest = fmax(largest, fabs((double)want[i]));
    }
    return worst == 0 ? 0 : largest > 0 ? worst / largest : INFINITY;
}
