/* Hashes of bytes: one for tables in memory, one for what is written to files. */
#ifndef K3_BASE_HASH_H
#define K3_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* For a table, eight bytes at a time. The seed is an address, so that a hostile file cannot aim its names at one slot. */
static inline uint64_t k3_hash_name(const char *name, size_t n, const void *seed)
{
    uint64_t h = (uint64_t)(uintptr_t)seed ^ n * 0x9e3779b97f4a7c15u;
    while (n > 0) {
        uint64_t word = 0;
        size_t k = n < 8 ? n : 8;
        memcpy(&word, name, k);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
        name += k;
        n -= k;
    }
    return h * 0xd6e8feb86659fd93u >> 20;
}

/* FNV-1a, the same on every machine. Goes on from the hash of what lies before these bytes, at first K3_HASH_NOTHING. */
#define K3_HASH_NOTHING 0xcbf29ce484222325u
static inline uint64_t k3_hash_on(uint64_t hash, const void *bytes, uint64_t n)
{
    const unsigned char *at = bytes;
    for (uint64_t i = 0; i < n; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

#endif
