#include "open_helpers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

k3_ckpt *open_folder(const char *folder)
{
    k3_ckpt *ckpt = NULL;
    k3_error err = {0};
    if (k3_ckpt_open(&ckpt, folder, &err) != K3_OK)
        fail_msg("%s", err.text);
    return ckpt;
}

void assert_opens(const char *folder)
{
    k3_ckpt_close(open_folder(folder));
}

void check_refusal(const char *folder, k3_status status, const char *const *needles)
{
    k3_ckpt *ckpt = NULL;
    k3_error err = {0};
    k3_status found = k3_ckpt_open(&ckpt, folder, &err);
    assert_null(ckpt);
    if (found != status || err.status != status)
        fail_msg("status %d, wanted %d: %s", (int)found, (int)status, err.text);
    for (; *needles; needles++)
        if (!strstr(err.text, *needles))
            fail_msg("no <%s> in <%s>", *needles, err.text);
}

void assert_tiny_opens(tiny_checkpoint *tiny)
{
    char *folder = tiny_settle(tiny);
    assert_opens(folder);
    tiny_remove_folder(folder);
}

void check_tiny_refusal(tiny_checkpoint *tiny, k3_status status, const char *const *needles)
{
    char *folder = tiny_settle(tiny);
    check_refusal(folder, status, needles);
    tiny_remove_folder(folder);
}
