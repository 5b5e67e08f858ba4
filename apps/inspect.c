#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

int app_inspect(const app_options *options)
{
    char *text = NULL;
    k3_error err = {0};
    k3_status status = k3_inspect(&text, options->model, &err);
    if (text)
        app_write(text, strlen(text));
    free(text);
    return status == K3_OK ? APP_OK : app_fail(&err);
}
