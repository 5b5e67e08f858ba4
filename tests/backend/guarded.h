/* Memory for kernels that must keep to their arguments: each room ends at a page that is not mapped, or begins behind one, and bytes that
 * belong to nobody lie around it. */
#ifndef K3_TESTS_BACKEND_GUARDED_H
#define K3_TESTS_BACKEND_GUARDED_H

#include <stddef.h>
#include <stdint.h>

/* Where rooms lie from now on: against the unmapped page behind, or `shift` bytes after the unmapped page in front. */
void guarded_at_end(void);
void guarded_at_start(size_t shift);
/* Room for n bytes, filled with a pattern whose floats are NaN; rounds to no alignment. Rooms live until guarded_check. */
void *guarded_room(size_t n);
/* Fails the test, naming `what`, if a byte beside a room was written; then all rooms are free again. */
void guarded_check(const char *what);
void guarded_close(void);

#endif
