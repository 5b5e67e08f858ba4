/* How fast a model's files can be read, by the reads that experts are read with. */
#ifndef K3_STORE_DISK_RATE_H
#define K3_STORE_DISK_RATE_H

#include "ckpt/ckpt.h"

/* Bytes per second, measured now with at most 256 MiB spread over all shards. `notice` gets what the reader has to say of them, such as
 * that they come through the page cache, which makes the rate too good; "" if nothing. */
k3_status k3_disk_rate(double *rate, char *notice, size_t notice_size, const k3_ckpt *ckpt, k3_error *err);

#endif
