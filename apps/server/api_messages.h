/* POST /v1/messages: writing an answer. */
#ifndef K3_APPS_SERVER_API_MESSAGES_H
#define K3_APPS_SERVER_API_MESSAGES_H

#include "api.h"

void srv_messages_start(srv_reply *reply, app_buffer *out);
void srv_messages_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event);
void srv_messages_end(srv_reply *reply, app_buffer *out);
void srv_messages_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem);
void srv_messages_whole(srv_reply *reply, app_buffer *out);

#endif
