/* Makes a shared object of MSL with clang. */
#ifndef K3_TESTS_METAL_MSL_BUILD_H
#define K3_TESTS_METAL_MSL_BUILD_H

#include "msl.h"

typedef struct msl_text {
    const char *source, *entry;
    const char *thunk; /* to be compiled with it */
    const msl_constant *constants;
    int n_constants;
} msl_text;

/* Fills in `path` of the shared object of this text in folder `cache`, which is made unless it is there. 0, or -1 and a message. */
int msl_build(const msl_text *text, const char *cache, char *path, size_t path_size, char *message, size_t message_size);

#endif
