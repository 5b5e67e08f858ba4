#include <stdlib.h>
#include <string.h>

#include "app.h"
#include "terminal.h"

int app_plan(const app_options *options)
{
    char *text = NULL;
    k3_error err = {0};
    k3_config config = app_config(options);
    k3_status status = k3_plan(&text, options->model, &config, options->json, &err);
    app_progress_end();
    if (text && status == K3_OK)
        app_write(text, strlen(text));
    free(text);
    return status == K3_OK ? APP_OK : app_fail(&err);
}
