/* Vulkan layers around a test: the standard validation, and a device that fails on demand (tests/faults). Layers are chosen by the
 * environment, which the Vulkan loader reads whenever an instance is made; the product knows nothing of it. */
#ifndef K3_TESTS_VULKAN_LAYERS_H
#define K3_TESTS_VULKAN_LAYERS_H

#include <stdint.h>

enum { VULKAN_VALIDATION = 1, VULKAN_FAULTS = 2 };

/* Later instances of this process, and of its children, get these layers. Returns those that are installed. Validation checks
 * synchronization too and writes what it finds to a file. */
int vulkan_use_layers(int layers);
/* Fails if validation said anything since the last call; returns the number of messages if `expected` is set. Every instance must be gone.
 */
int vulkan_messages(int expected);

/* What the fault layer does from now on (tests/faults/faults.h), its counters at 0; "" is nothing. */
void vulkan_faults(const char *text);
uint64_t vulkan_count(const char *counter);

/* The preloaded library that hides the Vulkan loader from a child; NULL if it is not built. */
const char *vulkan_hider(void);

#endif
