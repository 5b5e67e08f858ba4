/* The token path allocates nothing: this program's own malloc counts the calls. Under a sanitizer, which brings its own malloc, it is a
 * counted skip. */
#include "k3.h"
#include "support/count_allocations.h"
#include "support/tiny_checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static k3_engine *engine;
static k3_session *sessions[3];

static void the_counter_counts(void **state)
{
    (void)state;
#ifdef HAS_OWN_MALLOC
    print_message("SKIP: a sanitizer or another C library owns malloc\n");
    skip();
#else
    long before = n_allocations;
    void *volatile p = malloc(10);
    p = realloc(p, 20);
    free(p);
    assert_int_equal(n_allocations - before, 2);
#endif
}

static void decoding_and_sampling_allocate_nothing(void **state)
{
    (void)state;
    k3_error err;
    k3_sampler *sampler;
    k3_sampling sampling = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40, .seed = 7};
    int32_t id = 3;
    assert_int_equal(k3_sampler_open(&sampler, &sampling, &err), K3_OK);
    for (int i = 0; i < 40; i++) {
        long before = n_allocations;
        k3_status status =
            i % 2 ? k3_session_append_pick(sessions[0], sampler, &id, &id, 1, &err) : k3_session_append(sessions[0], &id, 1, &err);
        if (status == K3_OK && i % 2 == 0)
            status = k3_sampler_pick(sampler, &id, k3_session_logits(sessions[0]), TINY_VOCAB, &err);
        if (status != K3_OK)
            fail_msg("%s", err.text);
        if (i > 1)
            assert_int_equal(n_allocations - before, 0);
    }
    k3_sampler_close(sampler);
}

static void decoding_several_sessions_allocates_nothing(void **state)
{
    (void)state;
    k3_error err;
    int32_t next[3] = {5, 6, 7};
    const int32_t *ids[3] = {next, next + 1, next + 2};
    size_t n[3] = {1, 1, 1};
    for (int i = 0; i < 20; i++) {
        long before = n_allocations;
        assert_int_equal(k3_sessions_append(sessions, ids, n, 3, &err), K3_OK);
        if (i > 1)
            assert_int_equal(n_allocations - before, 0);
    }
}

static int setup(void **state)
{
    (void)state;
    char *folder = tiny_settle(tiny_new(1));
    k3_error err;
    if (k3_engine_open(&engine, folder, NULL, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++)
        assert_int_equal(k3_session_open(&sessions[i], engine, &err), K3_OK);
    tiny_remove_folder(folder); /* the mappings and descriptors stay valid */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        k3_session_close(sessions[i]);
    k3_engine_close(engine);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_counter_counts),
        cmocka_unit_test(decoding_and_sampling_allocate_nothing),
        cmocka_unit_test(decoding_several_sessions_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
