/* What lies between the operations and a device: memory in slabs, batches of commands, pipelines. Everything here is the same for every
 * GPU; what differs is behind k3_gpu_driver, which src/backend/vulkan and src/backend/metal implement. Operations need gpu.h alone. */
#ifndef K3_BACKEND_GPU_DRIVER_H
#define K3_BACKEND_GPU_DRIVER_H

#include "backend/gpu/gpu.h"

enum {
    K3_GPU_ALIGN = 256,
    K3_GPU_BATCHES = 4,
    K3_GPU_STAMPS = 2048,
    K3_GPU_ACCESSES = 1024,
    K3_GPU_MAX_SPEC = 12,
    K3_GPU_MAX_ARGS = 128,
};

/* What memory is for: weights and state; tables that the host writes and kernels read; bytes that pass through on their way to the device,
 * or on their way back. All but the first are visible to the host. */
typedef enum k3_gpu_purpose { K3_GPU_FOR_DEVICE, K3_GPU_FOR_TABLES, K3_GPU_FOR_STAGING, K3_GPU_FOR_READING } k3_gpu_purpose;

typedef struct k3_gpu_range {
    uint64_t at, bytes;
} k3_gpu_range;

/* One allocation of the device's, handed out in ranges. The driver makes it as the first member of a structure of its own. */
typedef struct k3_gpu_slab {
    uint64_t bytes, address; /* as kernels see it */
    char *host;              /* where the host sees it, or NULL */
    int wrapped;             /* over pages of the host's */
    k3_gpu_range *gaps;      /* free ranges, by place */
    int n_gaps, max_gaps;
} k3_gpu_slab;

typedef struct k3_gpu_piece_of {
    k3_gpu_slab *slab;
    uint64_t at, bytes;
} k3_gpu_piece_of;

typedef struct k3_gpu_buf k3_gpu_buf;
struct k3_gpu_buf {
    k3_buf base;
    k3_gpu_piece_of *pieces;
    int n_pieces;
    uint64_t piece_bytes; /* of all but the last */
    uint64_t counted;     /* bytes that count against the budget */
    uint64_t last_use;    /* submission that uses it last; may still be recording */
    uint64_t last_upload; /* the driver's number of the last upload to it */
    k3_gpu_buf *next, *previous;
};

/* A range that a command reads or writes, by device address. */
typedef struct k3_gpu_access {
    uint64_t first, end;
    uint64_t bytes; /* of it that are really read or written */
    k3_gpu_buf *buf;
    int write;
} k3_gpu_access;

/* Commands of one submission, with what they read: tables written by the host. */
typedef struct k3_gpu_batch {
    k3_gpu_buf *tables;
    char *tables_host;
    uint64_t tables_used;
    uint64_t value;  /* submission number, 0: never submitted */
    uint64_t needed; /* the last submission that reads the tables: a later one than value if an operation was cut in two */
    int recording, held;
    int n_stamps;
    k3_gpu_op stamps[K3_GPU_STAMPS]; /* the operation whose end a time stamp marks */
    double work;                     /* estimated seconds */
} k3_gpu_batch;

/* A shader with values for its specialization constants. */
typedef struct k3_gpu_pipeline {
    k3_gpu_shader shader;
    uint32_t spec[K3_GPU_MAX_SPEC];
    int n_spec, full; /* full: subgroups full and of limits.subgroup lanes */
    void *native;
} k3_gpu_pipeline;

/* What a driver does. Those that return int keep a failure and return 0 when they fail. Batches are named by their number. */
typedef struct k3_gpu_driver {
    /* Memory of at least `bytes`, or over the host's pages at `pages` if that is not NULL. NULL: *status is K3_E_NOMEM or K3_E_DEVICE, or
     * K3_E_UNSUPPORTED for pages that the device does not take, and *why the reason in a word. */
    k3_gpu_slab *(*new_slab)(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, void *pages, k3_status *status, const char **why);
    void (*free_slab)(k3_gpu *gpu, k3_gpu_slab *slab);
    /* Bytes that weights and state can still have, and the size of what they come from. */
    uint64_t (*free_bytes)(k3_gpu *gpu, uint64_t *total);

    /* A batch that has run, or never did, becomes ready for commands; what earlier batches write is visible to it. */
    int (*begin)(k3_gpu *gpu, int batch);
    /* Starts it as submission batches[batch].value, after those before and after every upload so far. */
    int (*submit)(k3_gpu *gpu, int batch);
    /* Waits until submissions up to `value` have run. */
    int (*wait)(k3_gpu *gpu, uint64_t value);
    /* What is recorded from here on sees what was written before, and may write what was read. */
    void (*barrier)(k3_gpu *gpu, int batch);
    void (*dispatch)(k3_gpu *gpu, int batch, void *pipeline, const void *args, size_t args_bytes, const uint32_t groups[3]);
    void (*copy)(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t dst_at, k3_gpu_slab *src, uint64_t src_at, uint64_t bytes);
    /* Zeroes memory that the host does not see. NULL where it sees everything. */
    void (*zero)(k3_gpu *gpu, int batch, k3_gpu_slab *dst, uint64_t at, uint64_t bytes);
    /* Marks the end of stamp i of the batch. NULL where the device cannot: operations that are timed then get a batch each. */
    void (*stamp)(k3_gpu *gpu, int batch, int i);
    /* Of a batch that has run: the nanoseconds up to each stamp in ns[0..n_stamps-1], from its start, and of the whole; 0 if unknown. */
    int (*times)(k3_gpu *gpu, int batch, uint64_t *ns, uint64_t *whole);

    /* Compiles; NULL and a kept failure. */
    void *(*new_pipeline)(k3_gpu *gpu, const k3_gpu_pipeline *wanted);
    void (*free_pipeline)(k3_gpu *gpu, void *pipeline);

    /* Brings bytes to memory that the host does not see, after what uses buf now and before whatever is submitted from now on. At most
     * 16 MiB a call. Both NULL where the host sees everything. */
    void (*upload)(k3_gpu *gpu, k3_gpu_buf *buf, const k3_gpu_piece_of *piece, uint64_t at, const char *src, uint64_t bytes);
    void (*wait_upload)(k3_gpu *gpu, uint64_t number);
} k3_gpu_driver;

/* The first member of a driver's device. k3_gpu_init and the driver fill the first part, then the driver calls k3_gpu_open. */
struct k3_gpu {
    k3_backend base;
    const k3_gpu_driver *driver;
    k3_gpu_limits limits;
    uint64_t max_allocation;
    int is_software; /* its time stamps measure nothing */
    int timing;
    float priority; /* of allocations, for the driver */
    k3_progress progress;
    void *user;
    char name[300], line[900], notice[200];

    k3_error failure;
    int lost;

    /* memory.c */
    k3_gpu_slab **slabs;
    int n_slabs, max_slabs;
    k3_gpu_buf *buffers;
    uint64_t used, budget;
    int n_buffers;

    /* record.c */
    uint64_t submitted, completed;
    k3_gpu_batch batches[K3_GPU_BATCHES];
    k3_gpu_batch *batch;
    k3_gpu_access pending[K3_GPU_ACCESSES], active[K3_GPU_ACCESSES];
    int n_pending, n_active;
    k3_gpu_buf *scratch, *fault;
    uint32_t *fault_host;
    double flops, work_scale; /* measured over estimated time */
    k3_gpu_op op;
    k3_op_stat stats[K3_GPU_N_OPS];

    /* pipelines.c */
    k3_gpu_pipeline *pipelines;
    int n_pipelines, max_pipelines, compiled;

    /* transfer.c */
    k3_gpu_buf *landing; /* host-visible, for downloads; NULL where the host sees everything */
    char *landing_host;
};

static inline k3_gpu *k3_gpu_of(k3_backend *be)
{
    return (k3_gpu *)be;
}

/* Before anything else: the table of operations, what config says, how the backend is closed. */
void k3_gpu_init(k3_gpu *gpu, const k3_gpu_driver *driver, const k3_backend_config *config, void (*close)(k3_backend *be));
/* After the driver's own parts are up and limits, max_allocation and name are filled: tables, self-test where config asks, budget, the
 * line that describe() gives. `kind` is a word about the device. */
k3_status k3_gpu_open(k3_gpu *gpu, const k3_backend_config *config, const char *kind, k3_error *err);
/* Gives pipelines and memory back. The device is idle or gone; nothing is waited for. */
void k3_gpu_close(k3_gpu *gpu);

/* memory.c */
extern const k3_memory_ops k3_gpu_memory_ops;
/* Memory that the host sees at *host. NULL and a kept failure. */
k3_gpu_buf *k3_gpu_host_buf(k3_gpu *gpu, uint64_t bytes, k3_gpu_purpose purpose, char **host, const char *what);
void k3_gpu_release_buf(k3_gpu *gpu, k3_gpu_buf *buf);
void k3_gpu_close_memory(k3_gpu *gpu);
/* The piece that holds byte `at` of a buffer, and the place in it. */
const k3_gpu_piece_of *k3_gpu_piece_at(const k3_gpu_buf *buf, uint64_t at, uint64_t *within);
/* The device address at ref, and how many bytes from there lie in the same piece. */
uint64_t k3_gpu_piece(k3_ref ref, uint64_t *bytes_left);
/* Whether [at, at + bytes) lies in the buffer; a kept failure that names the call if not. */
int k3_gpu_within(k3_gpu *gpu, k3_ref ref, uint64_t bytes, const char *call);

/* record.c */
int k3_gpu_open_recorder(k3_gpu *gpu);
/* The batch that takes the next command, begun; NULL once there is a failure. */
k3_gpu_batch *k3_gpu_recording(k3_gpu *gpu);
int k3_gpu_number(const k3_gpu *gpu, const k3_gpu_batch *batch);
/* Declares [address, address + bytes) of a buffer for the next command. */
void k3_gpu_access_range(k3_gpu *gpu, k3_gpu_buf *buf, uint64_t address, uint64_t bytes, int write);
/* Places a barrier if the declared ranges meet earlier ones. */
void k3_gpu_order(k3_gpu *gpu, k3_gpu_batch *batch);
void k3_gpu_submit_batch(k3_gpu *gpu);
/* Waits for a submission (0: all of them). */
void k3_gpu_wait(k3_gpu *gpu, uint64_t value);
k3_status k3_gpu_sync(k3_backend *be, k3_error *err);
void k3_gpu_submit(k3_backend *be);

/* open.c: whether a device's name has this part, in any case. */
int k3_gpu_name_has(const char *name, const char *part);

/* pipelines.c */
void *k3_gpu_pipeline_for(k3_gpu *gpu, k3_gpu_shader shader, const uint32_t *spec, int n_spec, int full);
void k3_gpu_close_pipelines(k3_gpu *gpu);

/* transfer.c */
int k3_gpu_open_transfer(k3_gpu *gpu);
void k3_gpu_upload(k3_backend *be, k3_ref dst, const void *src, uint64_t bytes);
void k3_gpu_download(k3_backend *be, void *dst, k3_ref src, uint64_t bytes);
void k3_gpu_copy(k3_backend *be, k3_ref dst, k3_ref src, uint64_t bytes);
void *k3_gpu_host(k3_backend *be, k3_ref dst, uint64_t bytes);
void k3_gpu_zero(k3_gpu *gpu, k3_gpu_buf *buf);

/* selftest.c: compares the operations with the CPU; f16 matrix kernels that are wrong are switched off (gpu->notice), anything else that is
 * wrong is an error. */
k3_status k3_gpu_selftest(k3_gpu *gpu, k3_error *err);

#endif
