/* What a build with a sanitizer changes for tests of software devices. */
#ifndef K3_TESTS_LEAKS_H
#define K3_TESTS_LEAKS_H

/* 1 in a build with the address or the thread sanitizer, where everything takes several times as long. */
int is_sanitized(void);
/* Children are not checked for leaks: tests/support/leaks.c says why. */
void children_may_leak(void);

#endif
