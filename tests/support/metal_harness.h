/* The Metal of tests/metal under the name "metal", for programs that were linked with it. */
#ifndef K3_TESTS_METAL_HARNESS_H
#define K3_TESTS_METAL_HARNESS_H

/* Registers it. 0 where it was not built, for want of clang or libobjc. */
int metal_harness(void);
/* Fails the test if the harness saw a use of Metal that Apple does not promise to work. */
void metal_was_used_well(void);

#endif
