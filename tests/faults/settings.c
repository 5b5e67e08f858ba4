/* What a test asks for, and what is counted. */
#include "layer.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const setting_names[N_SETTINGS] = {
    "api",           "max_allocation", "max_buffer",    "storage_range",  "push_constants", "shared_memory",      "invocations",
    "groups",        "discrete",       "no_timestamps", "transfer_queue", "fail_allocate",  "fail_allocate_from", "fail_buffer",
    "fail_pipeline", "fail_device",    "lost_submit",   "lost_wait",      "drop_barrier",   "overcommit",         "time",
    "falsify"};

static const char *const counter_names[N_COUNTERS] = {
    "instances", "devices", "allocate",   "priorities", "free",   "live_bytes",  "buffers",    "modules",        "falsified", "pipelines",
    "submits",   "waits",   "dispatches", "barriers",   "copies", "cache_reads", "longest_us", "longest_cpu_us", "total_us"};

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
uint64_t wanted[N_SETTINGS], counts[N_COUNTERS];
char hidden[TEXT_BYTES], heaps_text[TEXT_BYTES], budget_text[TEXT_BYTES], report[TEXT_BYTES];
int no_devices;

static void take_setting(const char *name, size_t n, const char *value, size_t n_value)
{
    static const struct {
        const char *name;
        char *text;
    } texts[] = {{"hide", hidden}, {"heaps", heaps_text}, {"budget", budget_text}, {"report", report}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i].name) == n && memcmp(texts[i].name, name, n) == 0) {
            snprintf(texts[i].text, TEXT_BYTES, "%.*s", (int)n_value, value);
            return;
        }
    for (int i = 0; i < N_SETTINGS; i++)
        if (strlen(setting_names[i]) == n && memcmp(setting_names[i], name, n) == 0) {
            wanted[i] = strtoull(value, NULL, 10);
            return;
        }
    if (n == 7 && memcmp(name, "devices", n) == 0) {
        no_devices = *value == '0';
        return;
    }
    fprintf(stderr, "fault layer: unknown setting %.*s\n", (int)n, name);
    abort();
}

EXPORT void k3_faults_configure(const char *text)
{
    pthread_mutex_lock(&lock);
    memset(wanted, 0, sizeof wanted);
    memset(counts, 0, sizeof counts);
    *hidden = *heaps_text = *budget_text = *report = 0;
    no_devices = 0;
    while (*text) {
        size_t n = strcspn(text, "="), n_value = text[n] ? strcspn(text + n + 1, ",") : 0;
        take_setting(text, n, text[n] ? text + n + 1 : "", n_value);
        text += n + (text[n] == '=') + n_value;
        text += *text == ',';
    }
    pthread_mutex_unlock(&lock);
}

EXPORT uint64_t k3_faults_count(const char *name)
{
    uint64_t n = UINT64_MAX;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < N_COUNTERS; i++)
        if (strcmp(counter_names[i], name) == 0)
            n = counts[i];
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t count(counter c)
{
    pthread_mutex_lock(&lock);
    uint64_t n = ++counts[c];
    pthread_mutex_unlock(&lock);
    return n;
}

int is_hidden(const char *name)
{
    size_t n = strlen(name);
    for (const char *at = hidden; *at; at += strcspn(at, ":"), at += *at == ':')
        if (strcspn(at, ":") == n && memcmp(at, name, n) == 0)
            return 1;
    return 0;
}

void write_report(void)
{
    FILE *f = *report ? fopen(report, "w") : NULL;
    if (!f)
        return;
    for (int i = 0; i < N_COUNTERS; i++)
        fprintf(f, "%s %llu\n", counter_names[i], (unsigned long long)counts[i]);
    fclose(f);
}
