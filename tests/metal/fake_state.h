/* Options, counts and violations, as the classes of the fake Metal see them. */
#ifndef K3_TESTS_METAL_FAKE_STATE_H
#define K3_TESTS_METAL_FAKE_STATE_H

#include "metal/fake.h"

extern k3_fake_metal_options fake_options;
extern bool fake_lost; /* the devices are gone until the reset */

/* Counts one call. True where it is the one that is to fail or to be dropped; *code (may be NULL) is set to the error's then. */
bool fake_call(k3_fake_metal_call call, int *code);
void fake_violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
