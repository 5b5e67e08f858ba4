/* What the verbs share: an engine opened by the command line's options, and how an error is told. */
#ifndef K3_APPS_APP_H
#define K3_APPS_APP_H

#include "k3.h"
#include "options.h"

/* Prints the error and returns the exit status that goes with it. */
int app_fail(const k3_error *err);

/* What the command line says of the engine. */
k3_config app_config(const app_options *options);
k3_sampling app_sampling(const app_options *options);
/* Opens the engine with progress on stderr, then its plan line there. Returns APP_OK or an exit status after a message. */
int app_open_engine(k3_engine **out, const app_options *options);

/* Tells on stderr, once, what the engine did after a device failed. */
void app_show_notice(const k3_engine *engine, const app_options *options);
/* Shows what there is to tell, and closes. */
void app_close_engine(k3_engine *engine, const app_options *options);

/* Appends the ids of a text "1,2,3". Returns APP_OK or APP_USAGE after a message. */
int app_parse_ids(k3_tokens *out, const char *verb, const char *text);
void app_add_id(k3_tokens *tokens, int32_t id);

int app_run(const app_options *options);
int app_converse(const app_options *options);
int app_eval(const app_options *options);
int app_bench(const app_options *options);
int app_devices(const app_options *options);
int app_inspect(const app_options *options);
int app_plan(const app_options *options);
int app_pack(const app_options *options);
int app_pull(const app_options *options);
int app_serve(const app_options *options);

extern const app_verb app_verbs[];
extern const size_t app_n_verbs;

#endif
