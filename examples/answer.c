/* Asks a model one question and prints the answer as it comes:
 *   cc answer.c $(pkg-config --cflags --libs k3) -o answer && ./answer MODEL "What is the capital of France?" */
#include <k3.h>
#include <stdio.h>
#include <string.h>

static void show(void *user, k3_chat_event_kind kind, int index, const char *text, size_t n)
{
    (void)user, (void)index;
    if (kind == K3_CHAT_CONTENT)
        fwrite(text, 1, n, stdout), fflush(stdout);
}

int main(int argc, char **argv)
{
    k3_error err = {K3_E_INVALID, "usage: answer MODEL QUESTION, without quotes and backslashes"};
    k3_engine *engine = NULL;
    k3_session *session = NULL;
    k3_sampler *sampler = NULL;
    k3_chat_parser *parser = NULL;
    k3_tokens prompt = {0};
    char request[2048];
    int thinking, done = 0, is_ok = argc == 3 && strlen(argv[2]) < 1500 && !strpbrk(argv[2], "\"\\\n\r\t");
    if (is_ok)
        snprintf(request, sizeof request, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}", argv[2]);
    is_ok = is_ok && k3_engine_open(&engine, argv[1], &(k3_config){0}, &err) == K3_OK && k3_session_open(&session, engine, &err) == K3_OK &&
            k3_sampler_open(&sampler, &(k3_sampling){.temperature = 1, .top_p = 0.95f, .seed = 1}, &err) == K3_OK &&
            k3_chat_render(engine, &prompt, &thinking, request, &err) == K3_OK &&
            k3_chat_parser_open(&parser, engine, thinking, show, NULL, &err) == K3_OK;
    int32_t id = 0, *next = prompt.ids;
    for (size_t n = prompt.n; is_ok && !done; next = &id, n = 1)
        is_ok = !k3_session_append_pick(session, sampler, &id, next, n, &err) && !k3_chat_parser_push(parser, id, &done, &err);
    fprintf(stderr, "%s\n", is_ok ? "" : err.text);
    k3_tokens_free(&prompt);
    k3_chat_parser_close(parser);
    k3_sampler_close(sampler);
    k3_session_close(session);
    k3_engine_close(engine);
    return !is_ok;
}
