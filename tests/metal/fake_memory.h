/* Memory of a fake buffer, mapped twice: as the host sees it, and at the addresses that kernels use, where it can be touched only while it
 * is declared. Pages that nobody may touch lie on both sides of each mapping, the end against one of them as near as 16 bytes allow. */
#ifndef K3_TESTS_METAL_FAKE_MEMORY_H
#define K3_TESTS_METAL_FAKE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fake_memory {
    struct fake_memory *next;
    char *host, *device; /* the first byte */
    size_t length;
    char *host_pages, *device_pages; /* without the guards; the host's are NULL where the owner is somebody else */
    size_t page_bytes;
    int serial;     /* counted from 1 in the order in which buffers are made */
    int protection; /* of the device's mapping, as mprotect has it */
    bool only_read; /* the host's pages cannot be written */
} fake_memory;

enum { FAKE_PAGE = 4096 };

/* New memory of 0xff. False where the system has none. */
bool fake_memory_make(fake_memory *memory, size_t length);
/* Memory that is the host's `length` bytes at `host`, both of whole pages. False where they are not all mapped. Private pages become shared
 * ones of the same content, and stay so. */
bool fake_memory_share(fake_memory *memory, void *host, size_t length);
/* From here on the memory is counted and found, and stays where it is. */
void fake_memory_enlist(fake_memory *memory);
void fake_memory_free(fake_memory *memory);

void fake_memory_protect(fake_memory *memory, int protection);
/* Nothing was written into what is left of the first and last page, and the host's pages are still there. */
bool fake_memory_intact(const fake_memory *memory);

/* A copy, which kernels can read and not write, of the bytes bound at `index`; until the next of that index. */
void *fake_memory_argument(int index, const void *bytes, size_t length);

/* Takes the host's mappings away, or gives them back. */
void fake_memory_hide(bool hidden);

/* Live memory whose host mapping has this address. */
bool fake_memory_is_host(uint64_t address);
/* Says in words what a kernel that touches `address` ran into. */
void fake_memory_blame(uint64_t address, char *text, size_t text_size);

#endif
