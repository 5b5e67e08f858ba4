#include "support/metal_harness.h"

#if K3_METAL_HARNESS
#include "backend/backend.h"
#include "metal/fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

int metal_harness(void)
{
    k3_backend_register(&(k3_backend_entry){"metal", "Metal", k3_metal_open, k3_metal_list});
    return 1;
}

void metal_was_used_well(void)
{
    int n = k3_fake_metal_violations();
    for (int i = 0; i < n && i < 8; i++)
        print_error("Metal: %s\n", k3_fake_metal_violation(i));
    if (n)
        fail_msg("Metal was used wrongly %d times", n);
}
#else
int metal_harness(void)
{
#ifdef __APPLE__
    return 1; /* the system's own Metal, which every build there has */
#else
    return 0;
#endif
}

void metal_was_used_well(void)
{
}
#endif
