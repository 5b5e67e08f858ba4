/* Many requests on one engine: a tiny checkpoint on the CPU, whose bits do not depend on what rows stand beside each other. */
#include "server/clients.h"
#include "support/tiny_checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { V = TINY_VOCAB, LONG = 300 };

static const srv_limits plain = {.max_running = 8, .max_waiting = 64, .mark_interval = 64, .cache_bytes = 64 << 20};
static char *folder;
static int32_t text[4 * LONG]; /* ids, no end of a message among them */

static k3_engine *open_engine(void)
{
    k3_engine *engine;
    k3_error err;
    must(k3_engine_open(&engine, folder, &(k3_config){.backend = "cpu", .threads = 2, .chunk_rows = 64}, &err), &err);
    return engine;
}

/* ---- shared passes ----------------------------------------------------------------------------------------------------- */

enum { CLIENTS = 8 };

/* Prompts of 1 to 200 tokens, some that begin alike; greedy and seeded, with penalties and without. */
static client make_client(int i)
{
    static const size_t lengths[CLIENTS] = {1, 200, 17, 64, 65, 130, 3, 200};
    client c = client_new(text + (i % 4) * 7, lengths[i], 12 + i);
    if (i % 2)
        c.settings.sampling = (k3_sampling){.temperature = 1, .top_p = 0.95f, .top_k = 40, .seed = 100 + (uint64_t)i};
    if (i % 3 == 0)
        c.settings.adjust = (k3_adjustment){.repetition = 1.3f, .presence = 0.2f, .window = -1};
    c.settings.n_top = i == 5 ? 3 : -1;
    return c;
}

static void eight_requests_at_once_equal_their_solo_runs(void **state)
{
    (void)state;
    static client solo[CLIENTS], got[CLIENTS];
    static const int orders[3][CLIENTS] = {{0, 1, 2, 3, 4, 5, 6, 7}, {7, 6, 5, 4, 3, 2, 1, 0}, {3, 0, 7, 1, 6, 2, 5, 4}};
    k3_engine *engine = open_engine();
    for (int i = 0; i < CLIENTS; i++) {
        solo[i] = make_client(i);
        client_solo(&solo[i], engine);
    }
    for (int o = 0; o < 3; o++) {
        srv_limits limits = plain;
        limits.cache_bytes = o == 2 ? 0 : limits.cache_bytes;
        srv_scheduler *scheduler = scheduler_open(engine, &limits);
        uint64_t rows = 0;
        clients_hold();
        for (int k = 0; k < CLIENTS; k++) {
            client *c = &got[orders[o][k]];
            *c = make_client(orders[o][k]);
            c->holds = k == 0;
            client_submit(c, scheduler);
        }
        clients_go();
        for (int i = 0; i < CLIENTS; i++) {
            client_wait(&got[i]);
            client_equal(&got[i], &solo[i]);
            assert_int_equal(got[i].how, solo[i].ids[solo[i].n - 1] == 255 ? SRV_END_STOP : SRV_END_LENGTH);
            assert_int_equal(got[i].n_done, got[i].settings.n);
            rows += got[i].settings.n - (uint64_t)got[i].n_cached + (uint64_t)got[i].n - 1;
        }
        srv_counts counts;
        srv_count(scheduler, &counts);
        assert_int_equal(counts.rows, rows);
        assert_true(counts.passes * 6 < rows);
        assert_true(counts.requests == CLIENTS && !counts.failed && !counts.cancelled && !counts.running && !counts.waiting);
        srv_scheduler_close(scheduler);
    }
    k3_engine_close(engine);
}

static int setup(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * LONG; i++)
        text[i] = (i * i % 241 + 73 * i + 5) % 250;
    tiny_checkpoint *tiny = tiny_new(2);
    folder = tiny_folder();
    tiny_write(tiny, folder);
    tiny_free(tiny);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    tiny_remove_folder(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_requests_at_once_equal_their_solo_runs),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
