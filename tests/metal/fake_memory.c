#include "metal/fake_memory.h"

#include "metal/fake.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POISON = 0xff, ALIGNMENT = 16, BURIED = 256, ARGUMENTS = 31 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_memory *all;
static int n_made;
static uint64_t allocated;

/* Addresses of freed buffers stay unusable for a while, so that late uses are seen. */
static struct {
    char *start;
    size_t size;
    int serial;
} buried[BURIED];
static unsigned n_buried;

/* A page for each index of setBytes, with guards: where they are written, and where kernels read them. */
static char *written, *arguments;

/* Room for `bytes` between two guard pages; the pages inside are the caller's to map. */
static char *reserve(size_t bytes)
{
    char *start = mmap(NULL, bytes + 2 * FAKE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return start == MAP_FAILED ? NULL : start + FAKE_PAGE;
}

static void unreserve(char *pages, size_t bytes)
{
    if (pages)
        munmap(pages - FAKE_PAGE, bytes + 2 * FAKE_PAGE);
}

void fake_memory_enlist(fake_memory *m)
{
    pthread_mutex_lock(&lock);
    m->serial = ++n_made;
    m->next = all;
    all = m;
    allocated += m->length;
    pthread_mutex_unlock(&lock);
}

bool fake_memory_make(fake_memory *m, size_t length)
{
    size_t bytes = (length + FAKE_PAGE - 1) / FAKE_PAGE * FAKE_PAGE;
    size_t start = bytes - (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *m = (fake_memory){.length = length, .page_bytes = bytes, .host_pages = reserve(bytes), .device_pages = reserve(bytes)};
    int file = memfd_create("metal", MFD_CLOEXEC);
    bool made = m->host_pages && m->device_pages && file >= 0 && ftruncate(file, (off_t)bytes) == 0 &&
                mmap(m->host_pages, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED &&
                mmap(m->device_pages, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    if (file >= 0)
        close(file);
    if (!made) {
        unreserve(m->host_pages, bytes);
        unreserve(m->device_pages, bytes);
        return false;
    }
    memset(m->host_pages, POISON, bytes);
    m->host = m->host_pages + start;
    m->device = m->device_pages + start;
    return true;
}

/* Puts a shared mapping of the same content in the place of private pages. */
static bool make_shared(char *start, size_t bytes, int protection)
{
    int file = memfd_create("metal", MFD_CLOEXEC);
    bool made = file >= 0 && ftruncate(file, (off_t)bytes) == 0;
    for (size_t done = 0; made && done < bytes;) {
        ssize_t n = pwrite(file, start + done, bytes - done, (off_t)done);
        made = n > 0;
        done += made ? (size_t)n : 0;
    }
    made = made && mmap(start, bytes, protection, MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED;
    if (file >= 0)
        close(file);
    return made;
}

/* Maps what lies at the host's pages a second time, mapping by mapping. */
static bool share_pages(fake_memory *m)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512], *at = m->host, *end = m->host + m->page_bytes;
    while (maps && at < end && fgets(line, sizeof line, maps)) {
        uintptr_t from, to;
        char rights[5];
        if (sscanf(line, "%lx-%lx %4s", &from, &to, rights) != 3 || to <= (uintptr_t)at)
            continue;
        int protection = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0);
        if (from > (uintptr_t)at || !(protection & PROT_READ))
            break;
        size_t bytes = (to < (uintptr_t)end ? to : (uintptr_t)end) - (uintptr_t)at;
        m->only_read = m->only_read || !(protection & PROT_WRITE);
        if (rights[3] != 's' && !make_shared(at, bytes, protection))
            break;
        char *copy = m->device_pages + (at - m->host);
        if (mremap(at, 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, copy) == MAP_FAILED)
            break;
        at += bytes;
    }
    if (maps)
        fclose(maps);
    return at == end && mprotect(m->device_pages, m->page_bytes, PROT_NONE) == 0;
}

bool fake_memory_share(fake_memory *m, void *host, size_t length)
{
    *m = (fake_memory){.length = length, .page_bytes = length, .host = host, .device_pages = reserve(length)};
    m->device = m->device_pages;
    if (!m->device_pages)
        return false;
    if (!share_pages(m)) {
        unreserve(m->device_pages, length);
        return false;
    }
    return true;
}

void fake_memory_free(fake_memory *m)
{
    pthread_mutex_lock(&lock);
    fake_memory **link = &all;
    while (*link != m)
        link = &(*link)->next;
    *link = m->next;
    allocated -= m->length;
    unsigned slot = n_buried++ % BURIED;
    unreserve(buried[slot].start, buried[slot].size);
    if (mmap(m->device_pages, m->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        abort();
    buried[slot].start = m->device_pages;
    buried[slot].size = m->page_bytes;
    buried[slot].serial = m->serial;
    pthread_mutex_unlock(&lock);
    unreserve(m->host_pages, m->page_bytes);
}

void fake_memory_protect(fake_memory *m, int protection)
{
    if (m->only_read)
        protection &= PROT_READ;
    if (protection != m->protection)
        mprotect(m->device_pages, m->page_bytes, protection);
    m->protection = protection;
}

bool fake_memory_intact(const fake_memory *m)
{
    if (!m->host_pages)
        return msync(m->host, m->page_bytes, MS_ASYNC) == 0 || errno != ENOMEM;
    const unsigned char *pages = (const unsigned char *)m->host_pages;
    size_t before = (size_t)(m->host - m->host_pages);
    for (size_t i = 0; i < before; i++)
        if (pages[i] != POISON)
            return false;
    for (size_t i = before + m->length; i < m->page_bytes; i++)
        if (pages[i] != POISON)
            return false;
    return true;
}

/* True where the pages for setBytes are there. */
static bool make_arguments(void)
{
    if (arguments)
        return true;
    enum { ALL = ARGUMENTS * FAKE_PAGE };
    int file = memfd_create("arguments", MFD_CLOEXEC);
    written = file >= 0 && ftruncate(file, ALL) == 0 ? mmap(NULL, ALL, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
    arguments = reserve(2 * ALL);
    bool made = written != MAP_FAILED && arguments;
    for (int i = 0; made && i < ARGUMENTS; i++)
        made = mmap(arguments + 2 * i * FAKE_PAGE, FAKE_PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, file, i * FAKE_PAGE) != MAP_FAILED;
    if (file >= 0)
        close(file);
    return made;
}

void *fake_memory_argument(int index, const void *bytes, size_t length)
{
    if (!make_arguments())
        abort();
    size_t start = FAKE_PAGE - (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    char *page = written + index * FAKE_PAGE;
    memset(page, POISON, FAKE_PAGE);
    memcpy(page + start, bytes, length);
    return arguments + 2 * index * FAKE_PAGE + start;
}

static bool within(uint64_t address, const char *start, size_t size)
{
    return address - (uintptr_t)start < size;
}

void fake_memory_hide(bool hidden)
{
    pthread_mutex_lock(&lock);
    for (const fake_memory *m = all; m; m = m->next)
        if (!m->only_read)
            mprotect(m->host_pages ? m->host_pages : m->host, m->page_bytes, hidden ? PROT_NONE : PROT_READ | PROT_WRITE);
    pthread_mutex_unlock(&lock);
}

bool fake_memory_is_host(uint64_t address)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (const fake_memory *m = all; m && !found; m = m->next)
        found = within(address, m->host, m->length);
    pthread_mutex_unlock(&lock);
    return found;
}

void fake_memory_blame(uint64_t address, char *text, size_t text_size)
{
    snprintf(text, text_size, "address 0x%llx, which is no buffer's", (unsigned long long)address);
    pthread_mutex_lock(&lock);
    for (const fake_memory *m = all; m; m = m->next) {
        long long offset = (long long)(address - (uintptr_t)m->device);
        if (within(address, m->device_pages, m->page_bytes))
            snprintf(text, text_size, "byte %lld of buffer %d of %zu bytes, which is %s", offset, m->serial, m->length,
                     !m->protection ? "not declared"
                     : m->only_read ? "what the host cannot write"
                                    : "declared for reading only");
        else if (within(address, m->host, m->length))
            snprintf(text, text_size, "the host's pointer into buffer %d, not its GPU address", m->serial);
        else if (within(address, m->device_pages - FAKE_PAGE, m->page_bytes + 2 * FAKE_PAGE))
            snprintf(text, text_size, "byte %lld of buffer %d of %zu bytes, outside of it", offset, m->serial, m->length);
    }
    if (arguments && within(address, arguments - FAKE_PAGE, (2 * ARGUMENTS + 1) * FAKE_PAGE))
        snprintf(text, text_size, "what lies outside of the bytes bound at an index, or writes them");
    for (int i = 0; i < BURIED; i++)
        if (buried[i].start && within(address, buried[i].start - FAKE_PAGE, buried[i].size + 2 * FAKE_PAGE))
            snprintf(text, text_size, "buffer %d, which is freed", buried[i].serial);
    pthread_mutex_unlock(&lock);
}

uint64_t k3_fake_metal_allocated(void)
{
    pthread_mutex_lock(&lock);
    uint64_t bytes = allocated;
    pthread_mutex_unlock(&lock);
    return bytes;
}
