/* Parts of OpenAI's older APIs that more than one file uses. */
#ifndef K3_APPS_SERVER_API_CHAT_H
#define K3_APPS_SERVER_API_CHAT_H

#include "api.h"

/* stream and stream_options. */
int srv_ask_stream(srv_ask *ask, const srv_fields *fields);
/* response_format in the form of chat completions. */
int srv_ask_format(srv_ask *ask, app_json format, srv_problem *problem);

void srv_chat_start(srv_reply *reply, app_buffer *out);
void srv_chat_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event);
void srv_chat_end(srv_reply *reply, app_buffer *out);
void srv_chat_whole(srv_reply *reply, app_buffer *out);
void srv_chat_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem);
const char *srv_finish_name(srv_finish finish);

#endif
