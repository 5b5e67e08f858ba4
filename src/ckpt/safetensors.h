/* One safetensors file: 8 bytes of header length, a JSON header, data. The reader trusts nothing: every tensor's range must have
 * the size its shape and type demand, and the ranges must tile the data exactly, so no byte is shared, skipped or left over. */
#ifndef K3_CKPT_SAFETENSORS_H
#define K3_CKPT_SAFETENSORS_H

#include "ckpt/ckpt.h"
#include "ckpt/packed.h"

/* A real shard's header is about 1 MB. */
#define K3_ST_MAX_HEADER ((uint64_t)256 << 20)

typedef struct k3_st_tensor {
    k3_tensor_info info;  /* info.offset counts from the start of the file; of a rank above 4 the first four sizes are kept */
    char dtype_name[16];  /* as the file spells it */
    unsigned char listed; /* the index names it; set by the folder's check */
} k3_st_tensor;

typedef struct k3_st_file {
    k3_st_tensor *tensors; /* in file order of the header */
    size_t n_tensors;
    char *names; /* holds every info.name */
    uint64_t header_bytes, file_bytes;
    k3_pack_tag pack;
} k3_st_file;

/* Reads the header through fd. Messages start with `path`. On failure `out` is empty. */
k3_status k3_st_read(k3_st_file *out, int fd, int shard, const char *path, k3_error *err);
/* The same for a header in memory, whose file has file_bytes bytes in all. */
k3_status k3_st_parse(k3_st_file *out, const char *header, uint64_t header_bytes, uint64_t file_bytes, int shard, const char *path,
                      k3_error *err);
void k3_st_free(k3_st_file *file);

/* Reads exactly n bytes at `offset`; short reads and EINTR are retried. */
k3_status k3_st_pread(int fd, void *dst, uint64_t n, uint64_t offset, const char *path, k3_error *err);

#endif
