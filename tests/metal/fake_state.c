#include "metal/fake_state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { KEPT = 64, TEXT = 320 };

#define AT_START                                                                                                                           \
    {                                                                                                                                      \
        .devices = 1, .max_buffer_length = 1ull << 30, .working_set = 2ull << 30, .memory = 4ull << 30, .width = 32, .max_threads = 1024,  \
        .pipeline_threads = 1024, .max_threadgroup_memory = 32768, .families = 8, .metal3 = true, .unified = true, .dispatch_order = 1,    \
        .polls = 1, .event_timeout = 10000, .cache = K3_FAKE_METAL_CACHE,                                                                  \
    }

k3_fake_metal_options fake_options = AT_START;
bool fake_lost;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t counts[K3_FAKE_CALLS], struck_at[K3_FAKE_CALLS];
static int codes[K3_FAKE_CALLS];
static int n_violations;
static char texts[KEPT][TEXT];

void k3_fake_metal_reset(void)
{
    pthread_mutex_lock(&lock);
    fake_options = (k3_fake_metal_options)AT_START;
    memset(counts, 0, sizeof counts);
    memset(struck_at, 0, sizeof struck_at);
    n_violations = 0;
    fake_lost = false;
    pthread_mutex_unlock(&lock);
}

k3_fake_metal_options *k3_fake_metal_set(void)
{
    return &fake_options;
}

uint64_t k3_fake_metal_count(k3_fake_metal_call call)
{
    pthread_mutex_lock(&lock);
    uint64_t count = counts[call];
    pthread_mutex_unlock(&lock);
    return count;
}

static void strike(k3_fake_metal_call call, uint64_t n, int code)
{
    pthread_mutex_lock(&lock);
    struck_at[call] = n ? counts[call] + n : 0;
    codes[call] = code;
    pthread_mutex_unlock(&lock);
}

void k3_fake_metal_fail(k3_fake_metal_call call, uint64_t n, int code)
{
    strike(call, n, code);
}

void k3_fake_metal_drop(k3_fake_metal_call call, uint64_t n)
{
    strike(call, n, 0);
}

bool fake_call(k3_fake_metal_call call, int *code)
{
    pthread_mutex_lock(&lock);
    bool struck = ++counts[call] == struck_at[call];
    if (struck && code)
        *code = codes[call];
    pthread_mutex_unlock(&lock);
    return struck;
}

void fake_violation(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    if (n_violations < KEPT)
        vsnprintf(texts[n_violations], TEXT, format, arguments);
    n_violations++;
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

int k3_fake_metal_violations(void)
{
    pthread_mutex_lock(&lock);
    int n = n_violations;
    pthread_mutex_unlock(&lock);
    return n;
}

const char *k3_fake_metal_violation(int index)
{
    return index >= 0 && index < KEPT && index < k3_fake_metal_violations() ? texts[index] : "";
}

void k3_fake_metal_forgive(void)
{
    pthread_mutex_lock(&lock);
    n_violations = 0;
    pthread_mutex_unlock(&lock);
}
