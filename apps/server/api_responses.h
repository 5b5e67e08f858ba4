/* POST /v1/responses: parts that reading and writing share. */
#ifndef K3_APPS_SERVER_API_RESPONSES_H
#define K3_APPS_SERVER_API_RESPONSES_H

#include "api.h"

/* Before reasoning in encrypted_content, by which it is known when it comes back: some clients send nothing else of it. */
#define SRV_REASONING_PREFIX "k3:"

void srv_responses_start(srv_reply *reply, app_buffer *out);
void srv_responses_event(srv_reply *reply, app_buffer *out, const srv_batch *batch, const srv_event *event);
void srv_responses_end(srv_reply *reply, app_buffer *out);
void srv_responses_fail(srv_reply *reply, app_buffer *out, const srv_problem *problem);
void srv_responses_whole(srv_reply *reply, app_buffer *out);

#endif
