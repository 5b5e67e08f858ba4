/* Files whose bytes say where they are, and reads of them. Everything here fails the test on trouble. */
#ifndef K3_TESTS_IO_FILES_H
#define K3_TESTS_IO_FILES_H

#include "io/io.h"

/* The bytes of a file at an offset; files differ by their seed. */
void io_fill(void *to, uint64_t offset, uint64_t bytes, unsigned seed);
/* A file in a fresh folder below the system's folder of temporary files. */
void io_make_file(char path[256], uint64_t bytes, unsigned seed);
/* Deletes the file and its folder. */
void io_remove_file(const char *path);

k3_io *io_open(k3_io_kind kind, int depth, int buffered);
int io_add(k3_io *io, const char *path);
/* Aligned memory for reads of that many bytes. */
void *io_memory(uint64_t bytes);
/* The read's bytes are those of the file. */
void io_check(const k3_io_read *read, unsigned seed);
/* One read, submitted and collected. */
k3_io_done io_read_one(k3_io *io, k3_io_read *read);

/* Open descriptors and threads of this process. */
int io_n_descriptors(void);
int io_n_threads(void);
/* Whether this system has io_uring; tests of it are skipped where it has not. */
int io_has_uring(void);

#endif
