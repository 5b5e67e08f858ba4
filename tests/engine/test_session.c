/* What k3.h promises of engines and sessions, on a tiny checkpoint written by the test. */
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "engine/sessions.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static float *score(k3_engine *engine, const size_t *pieces, size_t n_pieces)
{
    k3_session *session = open_session(engine);
    float *logits = malloc(sizeof(float) * N * V);
    k3_error err;
    size_t at = 0;
    for (size_t i = 0; i < n_pieces; at += pieces[i++])
        ok(k3_session_score(session, logits + at * V, ids + at, pieces[i], &err), &err);
    assert_int_equal(at, N);
    assert_memory_equal(k3_session_logits(session), logits + (N - 1) * V, sizeof(float) * V);
    k3_session_close(session);
    return logits;
}

static const char *const levels[] = {"cpu:scalar", "cpu:avx2", "cpu:avx512", "cpu:avx512bf16", "cpu:amx", "cpu:neon"};

/* Threads beyond the machine's cores, too: 1, 2, 3, 8 and 16 on two cores give the same logits, and so the same tokens. */
static void bits_do_not_depend_on_chunks_threads_or_calls(void **state)
{
    (void)state;
    static const struct {
        int threads, chunk;
    } ways[] = {{1, 1}, {1, 7}, {1, 64}, {2, 1}, {2, 7}, {2, 64}, {3, 1}, {3, 7}, {3, 64}, {8, 64}, {16, 64}};
    /* A sanitizer looks at kernels in test_ops; here it sees threads meet, which they do alike at every level, exact or not. */
    for (size_t l = is_sanitized() && has_level(levels[1]); l < sizeof levels / sizeof *levels; l++) {
        if (!has_level(levels[l]))
            continue;
        for (int exact = 0; exact <= !is_sanitized(); exact++) {
            size_t whole[] = {N}, split[] = {1, 7, 1, 20, 16};
            k3_config plain = {.backend = levels[l], .exact = exact, .threads = 1};
            k3_engine *engine = open_engine(&plain);
            float *want = score(engine, whole, 1);
            k3_engine_close(engine);
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                if (exact && ways[i].threads > 3)
                    continue;
                k3_config config = {.backend = levels[l], .exact = exact, .threads = ways[i].threads, .chunk_rows = ways[i].chunk};
                engine = open_engine(&config);
                /* Threads without a core of their own take turns: once for all tokens will do. */
                for (int is_split = 0; is_split <= (ways[i].threads <= 3); is_split++) {
                    float *got = score(engine, is_split ? split : whole, is_split ? 5 : 1);
                    assert_memory_equal(got, want, sizeof(float) * N * V);
                    free(got);
                }
                k3_engine_close(engine);
            }
            free(want);
        }
        if (is_sanitized())
            break;
    }
}

static void sequences_in_shared_passes_equal_solo_runs(void **state)
{
    (void)state;
    for (int chunk = 5; chunk <= 64; chunk += 59) {
        k3_config config = {.chunk_rows = chunk};
        k3_engine *engine = open_engine(&config);
        k3_session *solo = open_session(engine), *together[3];
        const int32_t *starts[3] = {ids, ids + 3, ids + 11};
        size_t lengths[3] = {20, 1, 13};
        k3_error err;
        for (int i = 0; i < 3; i++)
            together[i] = open_session(engine);
        for (int round = 0; round < 2; round++)
            ok(k3_sessions_append(together, starts, lengths, 3, &err), &err);
        for (int i = 0; i < 3; i++) {
            ok(k3_session_rewind(solo, 0, &err), &err);
            append(solo, starts[i], lengths[i]);
            append(solo, starts[i], lengths[i]);
            assert_memory_equal(k3_session_logits(solo), k3_session_logits(together[i]), sizeof(float) * V);
            assert_int_equal(k3_session_length(together[i]), 2 * lengths[i]);
        }
        k3_session *twice[2] = {solo, solo};
        refused(k3_sessions_append(twice, starts, lengths, 2, &err), K3_E_INVALID, &err, "the same");
        for (int i = 0; i < 3; i++)
            k3_session_close(together[i]);
        k3_session_close(solo);
        k3_engine_close(engine);
    }
}

static void rewind_restores_kda_state(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *fresh = open_session(engine);
    k3_error err;
    append(session, ids, 10);
    ok(k3_session_mark(session, &err), &err);
    float at_mark[V], after[V];
    memcpy(at_mark, k3_session_logits(session), sizeof at_mark);
    append(session, ids + 10, 12);
    ok(k3_session_mark(session, &err), &err);
    append(session, ids + 22, 5);
    memcpy(after, k3_session_logits(session), sizeof after);

    ok(k3_session_rewind(session, 25, &err), &err);
    assert_int_equal(k3_session_length(session), 22);
    append(session, ids + 22, 5);
    assert_memory_equal(k3_session_logits(session), after, sizeof after);

    ok(k3_session_rewind(session, 21, &err), &err);
    assert_int_equal(k3_session_length(session), 10);
    assert_memory_equal(k3_session_logits(session), at_mark, sizeof at_mark);
    append(session, ids + 30, 9);
    append(fresh, ids, 10);
    append(fresh, ids + 30, 9);
    assert_memory_equal(k3_session_logits(session), k3_session_logits(fresh), sizeof after);
    assert_memory_equal(k3_session_ids(session), k3_session_ids(fresh), 19 * sizeof *ids);

    ok(k3_session_rewind(session, 3, &err), &err);
    assert_int_equal(k3_session_length(session), 0);
    assert_null(k3_session_logits(session));
    refused(k3_session_rewind(session, 1, &err), K3_E_INVALID, &err, "rewind to 1");
    k3_session_close(session);
    k3_session_close(fresh);
    k3_engine_close(engine);
}

/* What is cancelled changes nothing, neither the session nor the file; what comes afterwards is not cancelled. */
static void a_cancelled_engine_ends_passes_and_writing(void **state)
{
    (void)state;
    char path[600];
    snprintf(path, sizeof path, "%s/cancel.k3s", folder);
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *clean = open_session(engine), *loaded = open_session(engine);
    k3_error err;
    append(session, ids, 9);
    ok(k3_session_mark(session, &err), &err);
    ok(k3_session_save(session, path, &err), &err);
    append(session, ids + 9, 2);
    k3_engine_cancel(engine, 1);
    refused(k3_session_save(session, path, &err), K3_E_CANCELLED, &err, "cancel.k3s");
    refused(k3_session_append(session, ids + 11, 5, &err), K3_E_CANCELLED, &err, "before layer 0");
    assert_int_equal(k3_session_length(session), 9);
    k3_engine_cancel(engine, 0);
    ok(k3_session_load(loaded, path, &err), &err);
    assert_int_equal(k3_session_length(loaded), 9);
    append(session, ids + 9, N - 9);
    append(clean, ids, N);
    assert_memory_equal(k3_session_logits(session), k3_session_logits(clean), sizeof(float) * V);
    snprintf(path, sizeof path, "%s/cancel.k3s.part", folder);
    assert_int_equal(access(path, F_OK), -1);
    k3_session_close(loaded);
    k3_session_close(clean);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void injected_rows_replace_the_embedding(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(2);
    const unsigned char *table = tiny_find(tiny, TINY_BODY "embed_tokens.weight")->data;
    k3_engine *engine = open_engine(NULL);
    k3_session *by_id = open_session(engine), *by_row = open_session(engine);
    static float rows[N * TINY_HIDDEN];
    int32_t mixed[N];
    k3_error err;
    for (int t = 0; t < N; t++) {
        mixed[t] = t % 3 ? -1 : ids[t];
        for (int c = 0; c < TINY_HIDDEN; c++) {
            const unsigned char *b = table + 2 * ((size_t)ids[t] * TINY_HIDDEN + (size_t)c);
            uint32_t bits = (uint32_t)b[0] << 16 | (uint32_t)b[1] << 24;
            memcpy(&rows[t * TINY_HIDDEN + c], &bits, 4);
        }
    }
    append(by_id, ids, N);
    ok(k3_session_append_rows(by_row, mixed, rows, N, &err), &err);
    assert_memory_equal(k3_session_logits(by_id), k3_session_logits(by_row), sizeof(float) * V);
    refused(k3_session_append(by_row, mixed + 1, 1, &err), K3_E_INVALID, &err, "id -1");
    k3_session_close(by_id);
    k3_session_close(by_row);
    k3_engine_close(engine);
    tiny_free(tiny);
}

static void a_refused_append_changes_nothing(void **state)
{
    (void)state;
    k3_engine *engine = open_engine(NULL);
    k3_session *session = open_session(engine), *clean = open_session(engine);
    int32_t bad[3] = {1, 2, V};
    k3_error err;
    append(session, ids, 9);
    refused(k3_session_append(session, bad, 3, &err), K3_E_INVALID, &err, "id 256");
    bad[2] = -7;
    refused(k3_session_append(session, bad, 3, &err), K3_E_INVALID, &err, "id -7");
    refused(k3_session_append(session, bad, 0, &err), K3_E_INVALID, &err, "no tokens");
    refused(k3_session_append(session, bad, (size_t)1 << 40, &err), K3_E_INVALID, &err, "context");
    assert_int_equal(k3_session_length(session), 9);
    append(session, ids + 9, 4);
    append(clean, ids, 13);
    assert_memory_equal(k3_session_logits(session), k3_session_logits(clean), sizeof(float) * V);
    k3_session_close(session);
    k3_session_close(clean);
    k3_engine_close(engine);
}

static k3_sampler *open_sampler(float temperature)
{
    k3_sampling sampling = {.temperature = temperature, .top_p = 0.95f, .top_k = 100, .min_p = 0.001f, .seed = 11};
    k3_sampler *sampler;
    k3_error err;
    ok(k3_sampler_open(&sampler, &sampling, &err), &err);
    return sampler;
}

/* One session picks in every way by turns, the other from its logits only: the stream of draws is the same. */
static void a_pick_with_the_append_is_the_pick_after_it(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "vulkan:0"};
    for (int b = 0; b < 2; b++) {
        if (!has_level(backends[b])) {
            print_message("skipped: %s\n", backends[b]);
            continue;
        }
        k3_config config = {.backend = backends[b], .chunk_rows = 8};
        k3_engine *engine = open_engine(&config);
        for (int temperature = 0; temperature <= 2; temperature += 2) {
            k3_session *one = open_session(engine), *other = open_session(engine);
            k3_sampler *of_one = open_sampler((float)temperature), *of_other = open_sampler((float)temperature);
            int32_t id, want;
            k3_error err;
            append(other, ids, N);
            ok(k3_session_append_pick(one, of_one, &id, ids, N, &err), &err);
            ok(k3_sampler_pick(of_other, &want, k3_session_logits(other), V, &err), &err);
            for (int i = 0; i < 9; i++) {
                assert_int_equal(id, want);
                append(other, &want, 1);
                ok(k3_sampler_pick(of_other, &want, k3_session_logits(other), V, &err), &err);
                if (i % 3) {
                    ok(k3_session_append_pick(one, of_one, &id, &id, 1, &err), &err);
                } else {
                    append(one, &id, 1);
                    ok(k3_sampler_pick(of_one, &id, k3_session_logits(one), V, &err), &err);
                }
                if (k3_session_logits(one))
                    assert_memory_equal(k3_session_logits(one), k3_session_logits(other), sizeof(float) * V);
                else
                    assert_true(b && i % 3);
            }
            assert_int_equal(k3_session_length(one), N + 9);
            assert_memory_equal(k3_session_ids(one), k3_session_ids(other), sizeof(int32_t) * (N + 9));
            k3_sampler_close(of_one);
            k3_sampler_close(of_other);
            k3_session_close(one);
            k3_session_close(other);
        }
        k3_engine_close(engine);
    }
}

/* The head's weights are the largest that bf16 has, so that logits overflow. */
static void a_pick_from_no_distribution_is_refused(void **state)
{
    (void)state;
    static const char *const backends[] = {"cpu", "vulkan:0"};
    tiny_checkpoint *tiny = tiny_new(1);
    unsigned char *head = tiny_find(tiny, "language_model.lm_head.weight")->data;
    for (int i = 0; i < V * TINY_HIDDEN; i++) {
        head[2 * i] = 0x7f;
        head[2 * i + 1] = (unsigned char)(0x7f | ((uint32_t)i * 2654435761u >> 24 & 128));
    }
    char *damaged = tiny_settle(tiny);
    for (int b = 0; b < 2; b++) {
        k3_config config = {.backend = backends[b], .trunk = "bf16"};
        k3_engine *engine;
        k3_error err;
        if (!has_level(backends[b]))
            continue;
        ok(k3_engine_open(&engine, damaged, &config, &err), &err);
        k3_session *session = open_session(engine);
        int32_t id = -7;
        for (int temperature = 0; temperature <= 1; temperature++) {
            k3_sampler *sampler = open_sampler((float)temperature);
            refused(k3_session_append_pick(session, sampler, &id, ids, 2, &err), K3_E_NUMERIC, &err, "finite numbers wanted");
            k3_sampler_close(sampler);
        }
        assert_int_equal(id, -7);
        assert_int_equal(k3_session_length(session), 4);
        k3_session_close(session);
        k3_engine_close(engine);
    }
    tiny_remove_folder(damaged);
}

static int stop_at_second_pass(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)total;
    return *(int *)user && strcmp(phase, "prefill") == 0 && done >= 16;
}

static void a_cancelled_append_keeps_whole_passes(void **state)
{
    (void)state;
    int armed = 1;
    k3_config config = {.chunk_rows = 8, .progress = stop_at_second_pass, .user = &armed};
    k3_engine *engine = open_engine(&config);
    k3_session *session = open_session(engine), *clean = open_session(engine);
    k3_error err;
    refused(k3_session_append(session, ids, N, &err), K3_E_CANCELLED, &err, "16 of 45");
    assert_int_equal(k3_session_length(session), 16);
    armed = 0;
    append(session, ids + 16, N - 16);
    append(clean, ids, N);
    assert_memory_equal(k3_session_logits(session), k3_session_logits(clean), sizeof(float) * V);
    k3_session_close(session);
    k3_session_close(clean);
    k3_engine_close(engine);
}

static void a_damaged_expert_is_named_and_the_session_goes_back_to_its_mark(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(1);
    for (int e = 0; e < TINY_EXPERTS; e++) {
        char name[200];
        snprintf(name, sizeof name, TINY_BODY "layers.7.block_sparse_moe.experts.%d.w3.weight_scale", e);
        tiny_find(tiny, name)->data[17] = 255;
    }
    char *damaged = tiny_settle(tiny);
    k3_engine *engine;
    k3_error err;
    ok(k3_engine_open(&engine, damaged, NULL, &err), &err);
    k3_session *session = open_session(engine);
    refused(k3_session_append(session, ids, 5, &err), K3_E_FORMAT, &err, "layer 7 expert");
    assert_non_null(strstr(err.text, "w3"));
    assert_int_equal(k3_session_length(session), 0);
    k3_session_close(session);
    k3_engine_close(engine);
    tiny_remove_folder(damaged);
}

static void not_a_number_in_the_trunk_is_named(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(1);
    unsigned char *data = tiny_find(tiny, TINY_BODY "layers.4.self_attn.q_proj.weight")->data;
    data[101] = 0x7f;
    data[100] = 0xc0;
    char *damaged = tiny_settle(tiny);
    k3_engine *engine;
    k3_error err;
    refused(k3_engine_open(&engine, damaged, NULL, &err), K3_E_FORMAT, &err, "layers.4.self_attn.q_proj.weight");
    assert_null(engine);
    tiny_remove_folder(damaged);
}

static int refuse_loading(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)user;
    assert_string_equal(phase, "loading");
    assert_true(done <= total);
    return done > total / 2;
}

static void opening_refuses_what_it_cannot_do(void **state)
{
    (void)state;
    k3_engine *engine;
    k3_error err;
    k3_config trunk = {.trunk = "int5"}, backend = {.backend = "tpu"}, level = {.backend = "cpu:mmx"}, both = {.trunk = "int8", .exact = 1};
    k3_config threads = {.threads = -3}, chunk = {.chunk_rows = -1}, cancel = {.progress = refuse_loading};
    refused(k3_engine_open(&engine, folder, &trunk, &err), K3_E_INVALID, &err, "int5");
    refused(k3_engine_open(&engine, folder, &backend, &err), K3_E_INVALID, &err, "tpu");
    refused(k3_engine_open(&engine, folder, &level, &err), K3_E_INVALID, &err, "mmx");
    refused(k3_engine_open(&engine, folder, &both, &err), K3_E_INVALID, &err, "exact");
    refused(k3_engine_open(&engine, folder, &threads, &err), K3_E_INVALID, &err, "-3");
    refused(k3_engine_open(&engine, folder, &chunk, &err), K3_E_INVALID, &err, "-1");
    refused(k3_engine_open(&engine, folder, &cancel, &err), K3_E_CANCELLED, &err, "cancelled");
    refused(k3_engine_open(&engine, "no/such/folder", NULL, &err), K3_E_NOT_FOUND, &err, "no/such/folder");
}

static void the_engine_tells_what_it_holds(void **state)
{
    (void)state;
    k3_config config = {.trunk = "int8", .threads = 2};
    k3_engine *engine = open_engine(&config);
    const k3_info *info = k3_engine_info(engine);
    assert_int_equal(info->vocab_size, V);
    assert_int_equal(info->n_layers, TINY_LAYERS);
    assert_int_equal(info->has_tokenizer, 0);
    /* 12 MoE layers of 8 experts, 3 x 64 x 64 weights at 17 bytes for 32. */
    assert_int_equal(info->expert_bytes, 12 * 8 * 3 * 64 * 64 / 32 * 17);
    assert_true(info->token_bytes > 12 * 2 * 3 * 64 * 64 / 32 * 17);
    assert_non_null(strstr(info->plan, "int8"));
    k3_tokens tokens = {0};
    k3_error err;
    refused(k3_tokenize(engine, &tokens, "x", 1, &err), K3_E_NOT_FOUND, &err, "tiktoken.model");
    k3_session *session = open_session(engine);
    append(session, ids, 3);
    char stats[8192];
    k3_engine_stats(engine, stats, sizeof stats, 1);
    assert_non_null(strstr(stats, "matmul"));
    k3_engine_stats(engine, stats, sizeof stats, 0);
    assert_null(strstr(stats, "matmul"));
    k3_engine_stats(engine, stats, 10, 0);
    k3_session_close(session);
    k3_engine_close(engine);
}

static void ceilings_are_rates(void **state)
{
    (void)state;
    /* Each reading is a gigabyte, many times over: one of them does for a sanitizer. */
    for (int threads = 0; threads <= 1 && !is_sanitized(); threads++)
        assert_in_range((uint64_t)k3_cpu_memory_rate(threads), 100000000, 10000000000000);
    assert_true(k3_cpu_memory_rate(-1) == 0);
    k3_config config = {.backend = "cpu", .threads = 1};
    k3_engine *engine = open_engine(&config);
    k3_ceilings c;
    assert_int_equal(k3_engine_ceilings(&c, engine, NULL), K3_OK);
    assert_true(c.memory_bytes_per_s > 1e8 && c.memory_bytes_per_s < 1e13);
    k3_cpu_level level = K3_CPU_N_LEVELS - 1;
    while (!k3_cpu_level_here(level))
        level--;
    if (level == K3_CPU_SCALAR)
        assert_true(c.int8_macs_per_s <= 0 && c.f32_macs_per_s <= 0 && c.bf16_macs_per_s <= 0);
    else
        assert_true(c.int8_macs_per_s > 1e7 && c.f32_macs_per_s > 1e7 && (c.bf16_macs_per_s <= 0 || c.bf16_macs_per_s > 1e7));
    assert_true(c.disk_bytes_per_s <= 0); /* nothing was read */
    k3_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_do_not_depend_on_chunks_threads_or_calls),
        cmocka_unit_test(sequences_in_shared_passes_equal_solo_runs),
        cmocka_unit_test(rewind_restores_kda_state),
        cmocka_unit_test(a_cancelled_engine_ends_passes_and_writing),
        cmocka_unit_test(injected_rows_replace_the_embedding),
        cmocka_unit_test(a_refused_append_changes_nothing),
        cmocka_unit_test(a_pick_with_the_append_is_the_pick_after_it),
        cmocka_unit_test(a_pick_from_no_distribution_is_refused),
        cmocka_unit_test(a_cancelled_append_keeps_whole_passes),
        cmocka_unit_test(a_damaged_expert_is_named_and_the_session_goes_back_to_its_mark),
        cmocka_unit_test(not_a_number_in_the_trunk_is_named),
        cmocka_unit_test(opening_refuses_what_it_cannot_do),
        cmocka_unit_test(the_engine_tells_what_it_holds),
        cmocka_unit_test(ceilings_are_rates),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
