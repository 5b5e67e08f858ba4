#include "msl.h"

#include <stdatomic.h>

static atomic_int races;

int msl_races(void)
{
    return atomic_exchange(&races, 0);
}

#ifdef MSL_THREAD_SANITIZER
/* The sanitizer calls this for each report. */
void __tsan_on_report(const void *report);
void __tsan_on_report(const void *report)
{
    (void)report;
    atomic_fetch_add(&races, 1);
}
#endif
