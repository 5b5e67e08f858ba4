/* What tests find under the name "metal": the Metal of tests/metal in programs that were linked with it, a Mac's own there. */
#ifndef K3_TESTS_METAL_HARNESS_H
#define K3_TESTS_METAL_HARNESS_H

/* Registers it. 0 where there is none, for want of a Mac, clang or libobjc. */
int metal_harness(void);
/* Fails the test if the harness saw a use of Metal that Apple does not promise to work. */
void metal_was_used_well(void);

#endif
