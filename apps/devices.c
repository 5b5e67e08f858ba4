#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

int app_devices(const app_options *options)
{
    (void)options;
    char *text = NULL;
    k3_error err = {0};
    if (k3_devices(&text, &err) != K3_OK)
        return app_fail(&err);
    app_write(text, strlen(text));
    free(text);
    return APP_OK;
}
