/* What loops out of registers share. */
#ifndef K3_BACKEND_CPU_PEAK_H
#define K3_BACKEND_CPU_PEAK_H

#include "backend/cpu/kernels.h"

/* Hides from the compiler what a vector holds: of factors that are the same each time the products would be made once, and sums would be
 * copied from register to register. */
#ifdef __aarch64__
#define PEAK_OPAQUE(x) __asm__ volatile("" : "+w"(x))
#else
#define PEAK_OPAQUE(x) __asm__ volatile("" : "+v"(x))
#endif

#endif
