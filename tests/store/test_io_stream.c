/* Experts read into slots of the host's memory: what is handed out, how often the drive is asked, and what a drive that fails leaves. */
#include "faults/io/io_faults.h"
#include "store/stream.h"
#include "support/tiny_checkpoint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { LAYER = 5 };

static k3_ckpt *ckpt;
static k3_backend *cpu;

static k3_stream *open_stream(int n_slots)
{
    k3_stream *stream;
    k3_error err;
    k3_stream_config config = {.ckpt = ckpt, .cpu = cpu, .n_slots = n_slots, .slot_bytes = k3_stream_slot_bytes(ckpt)};
    if (k3_stream_open(&stream, &config, &err) != K3_OK)
        fail_msg("%s", err.text);
    return stream;
}

static void check_tensor(k3_ref ref, k3_role role, int layer, int id)
{
    static unsigned char want[TINY_EXPERT_INNER * TINY_LATENT];
    const k3_tensor_info *t = k3_ckpt_role(ckpt, role, layer, id);
    assert_int_equal(k3_ckpt_read(ckpt, want, t, 0, t->bytes, NULL), K3_OK);
    assert_memory_equal(k3_host(ref), want, t->bytes);
}

static void check_expert(const k3_expert *e, int layer, int id)
{
    check_tensor(e->w1.data, K3_R_W1, layer, id);
    check_tensor(e->w1.scale, K3_R_W1_SCALE, layer, id);
    check_tensor(e->w2.data, K3_R_W2, layer, id);
    check_tensor(e->w2.scale, K3_R_W2_SCALE, layer, id);
    check_tensor(e->w3.data, K3_R_W3, layer, id);
    check_tensor(e->w3.scale, K3_R_W3_SCALE, layer, id);
}

/* Each wanted expert is handed out once, with its bytes; at most n_slots at a time. */
static void layer_goes_on(k3_stream *stream, int at, const int32_t *ids, int n, int n_slots)
{
    const k3_expert *view[TINY_EXPERTS] = {NULL};
    int seen[TINY_EXPERTS] = {0}, here;
    k3_error err;
    do {
        if (k3_stream_next(stream, view, &here, &err) != K3_OK)
            fail_msg("%s", err.text);
        int found = 0;
        for (int id = 0; id < TINY_EXPERTS; id++)
            if (view[id]) {
                check_expert(view[id], at, id);
                seen[id]++;
                found++;
            }
        assert_int_equal(found, here);
        assert_true(here <= n_slots);
    } while (here);
    for (int i = 0; i < n; i++)
        assert_int_equal(seen[ids[i]], 1);
}

/* The layer after it is expected to want guess[n_guess]. */
static void guessed_layer(k3_stream *stream, int at, const int32_t *ids, int n, int n_slots, const int32_t *guess, int n_guess)
{
    k3_error err;
    if (k3_stream_begin(stream, at, ids, n, &err) != K3_OK)
        fail_msg("%s", err.text);
    if (n_guess)
        k3_stream_guess(stream, at + 1, guess, n_guess);
    layer_goes_on(stream, at, ids, n, n_slots);
}

static void layer(k3_stream *stream, int at, const int32_t *ids, int n, int n_slots)
{
    guessed_layer(stream, at, ids, n, n_slots, NULL, 0);
}

static void any_number_of_slots_will_do(void **state)
{
    (void)state;
    static const int32_t all[TINY_EXPERTS] = {3, 7, 0, 5, 1, 6, 2, 4};
    for (int n_slots = 1; n_slots <= 2 * TINY_EXPERTS; n_slots++) {
        k3_stream *stream = open_stream(n_slots);
        k3_stream_stat stat;
        for (int round = 0; round < 3; round++)
            for (int l = 1; l <= 12; l++)
                layer(stream, l, all, 1 + (3 * l + round) % TINY_EXPERTS, n_slots);
        k3_stream_stats(stream, &stat, 0);
        assert_int_equal(stat.io.reads, stat.wanted - stat.hits); /* one read an expert, and none for one that is there */
        k3_stream_close(stream);
    }
}

static void what_fits_is_read_once(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 5, 7};
    k3_stream *stream = open_stream(12 * 3);
    k3_stream_stat stat;
    for (int round = 0; round < 4; round++)
        for (int l = 1; l <= 12; l++)
            layer(stream, l, ids, 3, 3);
    k3_stream_stats(stream, &stat, 1);
    assert_int_equal(stat.wanted, 4 * 12 * 3);
    assert_int_equal(stat.io.reads, 12 * 3);
    uint64_t one = 3 * TINY_EXPERT_INNER * TINY_LATENT / 2 + 3 * TINY_EXPERT_INNER * TINY_LATENT / 32;
    assert_true(stat.io.bytes >= 36 * one && stat.io.bytes <= 36 * (one + 2 * K3_IO_ALIGN));
    k3_stream_stats(stream, &stat, 0);
    assert_int_equal(stat.wanted, 0);
    k3_stream_close(stream);
}

/* The request fails by name, nothing is in flight, and the next one finds the slots in order. */
static void fails(k3_stream *stream, const int32_t *ids, int n, k3_status status, const char *what)
{
    const k3_expert *view[TINY_EXPERTS] = {NULL};
    k3_error err = {K3_OK, ""};
    int here = 1;
    k3_status got = k3_stream_begin(stream, LAYER, ids, n, &err);
    while (got == K3_OK && here)
        got = k3_stream_next(stream, view, &here, &err);
    assert_int_equal(got, status);
    if (!strstr(err.text, what))
        fail_msg("\"%s\": %s wanted", err.text, what);
    for (int id = 0; id < TINY_EXPERTS; id++)
        assert_null(view[id]);
}

static void a_damaged_expert_is_named(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 4, 6}, others[] = {6, 1};
    const k3_tensor_info *scale = k3_ckpt_role(ckpt, K3_R_W3_SCALE, LAYER, 4);
    unsigned char kept, bad = 255;
    for (int n_slots = 1; n_slots <= 3; n_slots++) {
        int fd = open(k3_ckpt_shard_path(ckpt, scale->shard), O_RDWR);
        assert_int_equal(pread(fd, &kept, 1, (off_t)scale->offset + 2), 1);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)scale->offset + 2), 1);
        k3_stream *stream = open_stream(n_slots);
        fails(stream, ids, 3, K3_E_FORMAT, "layer 5 expert 4 w3: scale byte 255");
        layer(stream, LAYER, others, 2, n_slots);
        layer(stream, LAYER + 1, ids, 3, n_slots);
        k3_stream_close(stream);
        assert_int_equal(pwrite(fd, &kept, 1, (off_t)scale->offset + 2), 1);
        close(fd);
    }
}

static void g07_a_file_that_is_cut_while_running_is_named(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 4, 6};
    const k3_tensor_info *t = k3_ckpt_role(ckpt, K3_R_W1, LAYER, 4);
    const char *path = k3_ckpt_shard_path(ckpt, t->shard), *name = strrchr(path, '/') + 1;
    size_t n_bytes;
    char *whole = tiny_get_file(tiny_model, name, &n_bytes);
    k3_stream *stream = open_stream(2);
    assert_int_equal(truncate(path, (off_t)t->offset + 10), 0);
    fails(stream, ids, 3, K3_E_IO, name);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, whole, n_bytes, 0), n_bytes);
    close(fd);
    fails(stream, ids, 3, K3_E_IO, name); /* whoever wrote it may have changed it: to be opened anew */
    k3_stream_close(stream);
    stream = open_stream(2);
    layer(stream, LAYER, ids, 3, 2);
    k3_stream_close(stream);
    free(whole);
}

/* ---- what is read ahead ------------------------------------------------------------------------------------------------- */

/* Until the drive has nothing to do. */
static void idle(k3_stream *stream)
{
    k3_stream_stat before, now;
    k3_stream_stats(stream, &now, 0);
    do {
        before = now;
        usleep(2000);
        k3_stream_stats(stream, &now, 0);
    } while (now.io.guesses != before.io.guesses || now.io.drive_ns != before.io.drive_ns);
}

/* Until that many guesses have come. */
static void await_guesses(k3_stream *stream, uint64_t n)
{
    k3_stream_stat stat;
    for (k3_stream_stats(stream, &stat, 0); stat.io.guesses < n; k3_stream_stats(stream, &stat, 0))
        usleep(500);
}

static void a_right_guess_is_there_when_it_is_wanted(void **state)
{
    (void)state;
    static const int32_t ids[] = {2, 5, 7}, next[] = {6, 1, 3};
    k3_stream *stream = open_stream(8);
    k3_stream_stat stat;
    guessed_layer(stream, LAYER, ids, 3, 8, next, 3);
    await_guesses(stream, 3);
    layer(stream, LAYER + 1, next, 3, 8);
    k3_stream_stats(stream, &stat, 0);
    assert_int_equal(stat.wanted, 6);
    assert_int_equal(stat.hits, 3);
    assert_int_equal(stat.io.reads, 3);
    assert_int_equal(stat.io.guesses, 3);
    assert_true(stat.guess_wanted == 3 && stat.guess_right == 3 && stat.guess_named == 3);
    assert_true(stat.ahead == 3 && stat.ahead_used == 3);
    guessed_layer(stream, LAYER, ids, 3, 8, next, 3); /* all of it is there: nothing to read */
    layer(stream, LAYER + 1, next, 3, 8);
    k3_stream_stats(stream, &stat, 0);
    assert_int_equal(stat.io.reads + stat.io.guesses, 6);
    k3_stream_close(stream);
}

/* Whatever is guessed, in whatever room: what is wanted comes, whole, and nothing that is there is read again. */
static void any_guess_will_do(void **state)
{
    (void)state;
    uint32_t seed = 7;
    for (int n_slots = 1; n_slots <= 24; n_slots++) {
        k3_stream *stream = open_stream(n_slots);
        k3_stream_stat stat;
        for (int round = 0; round < 12; round++)
            for (int l = 1; l <= 12; l++) {
                int32_t ids[TINY_EXPERTS], guess[TINY_EXPERTS];
                for (int i = 0; i < TINY_EXPERTS; i++) {
                    seed = seed * 1664525 + 1013904223;
                    int at = (int)(seed >> 16) % (i + 1);
                    ids[i] = ids[at];
                    ids[at] = i;
                }
                for (int i = 0; i < TINY_EXPERTS; i++)
                    guess[i] = ids[(i * 3 + round) % TINY_EXPERTS];
                int n = 1 + (int)(seed >> 18) % TINY_EXPERTS, n_guess = l < 12 ? (int)(seed >> 12) % TINY_EXPERTS : 0;
                guessed_layer(stream, l, ids, n, n_slots, guess, n_guess);
                if (round % 3 == 0 && l % 4 == 0)
                    idle(stream);
            }
        k3_stream_stats(stream, &stat, 0);
        /* What was wanted and not there was read, then or ahead of time; some guesses more were right. */
        assert_true(stat.io.reads + stat.io.guesses >= stat.wanted - stat.hits);
        assert_true(stat.ahead_used <= stat.ahead);
        assert_true(n_slots > 1 || !stat.ahead);
        k3_stream_close(stream);
    }
}

/* Slots that guesses are on their way to are never all: what is wanted finds room. */
static void guesses_leave_half_of_the_slots(void **state)
{
    (void)state;
    static const int32_t ids[] = {2}, next[] = {6, 1, 3, 0, 4}, other[] = {5, 7};
    for (int n_slots = 1; n_slots <= 4; n_slots++) {
        k3_stream *stream = open_stream(n_slots);
        k3_stream_stat stat;
        guessed_layer(stream, LAYER, ids, 1, n_slots, next, 5);
        await_guesses(stream, (uint64_t)n_slots / 2);
        k3_stream_stats(stream, &stat, 0);
        assert_in_range(stat.io.guesses, n_slots / 2, n_slots > 1 ? n_slots : 0); /* one that has come makes way for the next */
        layer(stream, LAYER + 1, other, 2, n_slots);
        k3_stream_close(stream);
    }
}

/* A layer may be guessed again without another one in between: then its own experts make no room, and no slot is read into twice. */
static void a_layer_is_guessed_after_itself(void **state)
{
    (void)state;
    static const int32_t all[] = {0, 1, 2, 3, 4, 5}, next[] = {0, 7, 1};
    for (int n_slots = 2; n_slots <= 6; n_slots++)
        for (int waits = 0; waits < 2; waits++) {
            k3_stream *stream = open_stream(n_slots);
            layer(stream, LAYER, all, 6, n_slots);
            k3_stream_guess(stream, LAYER, next, 3);
            if (waits)
                idle(stream);
            layer(stream, LAYER, next, 3, n_slots);
            k3_stream_guess(stream, LAYER, all, 6);
            layer(stream, LAYER + 1, all, 6, n_slots);
            k3_stream_close(stream);
        }
}

/* A damaged expert that is only guessed is nobody's failure; one that is then wanted is, by name. */
static void a_guess_that_fails_is_told_to_who_wants_it(void **state)
{
    (void)state;
    static const int32_t ids[] = {2}, next[] = {4, 1}, good[] = {1, 3}, bad[] = {4, 1};
    const k3_tensor_info *scale = k3_ckpt_role(ckpt, K3_R_W3_SCALE, LAYER, 4);
    unsigned char kept, damage = 255;
    int fd = open(k3_ckpt_shard_path(ckpt, scale->shard), O_RDWR);
    assert_int_equal(pread(fd, &kept, 1, (off_t)scale->offset + 2), 1);
    assert_int_equal(pwrite(fd, &damage, 1, (off_t)scale->offset + 2), 1);
    for (int waits = 0; waits < 2; waits++) {
        k3_stream *stream = open_stream(8);
        guessed_layer(stream, LAYER - 1, ids, 1, 8, next, 2);
        if (waits)
            idle(stream);
        layer(stream, LAYER, good, 2, 8);
        guessed_layer(stream, LAYER - 1, ids, 1, 8, next, 2);
        if (waits)
            idle(stream);
        fails(stream, bad, 2, K3_E_FORMAT, "layer 5 expert 4 w3: scale byte 255");
        layer(stream, LAYER, good, 2, 8);
        k3_stream_close(stream);
    }
    assert_int_equal(pwrite(fd, &kept, 1, (off_t)scale->offset + 2), 1);
    close(fd);
}

/* The six tensors of each expert in six files. */
static void tear(tiny_checkpoint *tiny)
{
    static const char *const ends[] = {".w1.weight_packed", ".w1.weight_scale",  ".w2.weight_packed",
                                       ".w2.weight_scale",  ".w3.weight_packed", ".w3.weight_scale"};
    for (size_t i = 0; i < tiny->n_tensors; i++)
        for (int k = 0; k < 6; k++) {
            const char *name = tiny->tensors[i].name, *end = strstr(name, ends[k]);
            if (strstr(name, ".experts.") && end && !end[strlen(ends[k])])
                tiny->tensors[i].shard = k;
        }
}

/* A layer that has all it wants, while the drive holds everything up. */
static void pass_by(k3_stream *stream, int at, const int32_t *ids, int n, const int32_t *guess, int n_guess)
{
    const k3_expert *view[TINY_EXPERTS] = {NULL};
    int here;
    assert_int_equal(k3_stream_begin(stream, at, ids, n, NULL), K3_OK);
    if (n_guess)
        k3_stream_guess(stream, at + 1, guess, n_guess);
    assert_int_equal(k3_stream_next(stream, view, &here, NULL), K3_OK);
    assert_int_equal(here, n);
    assert_int_equal(k3_stream_next(stream, view, &here, NULL), K3_OK);
    assert_int_equal(here, 0);
}

/* An expert that was read ahead in part, and taken back, is read again as a whole by a layer that wants it before the parts in flight have
 * come. */
static void what_was_taken_back_in_part_is_read_again(void **state)
{
    (void)state;
    static const int32_t ids[] = {2}, next[] = {6}, other[] = {5};
    k3_ckpt *kept = ckpt;
    k3_error err;
    tiny_checkpoint *tiny = tiny_new(6);
    tear(tiny);
    char *torn = tiny_settle(tiny);
    if (k3_ckpt_open(&ckpt, torn, &err) != K3_OK)
        fail_msg("%s", err.text);
    for (int n_slots = 3; n_slots <= 5; n_slots++) {
        k3_stream *stream = open_stream(n_slots);
        k3_stream_stat stat;
        layer(stream, LAYER, ids, 1, n_slots);
        layer(stream, LAYER + 1, other, 1, n_slots);
        k3_io_faults("hold=1", 0);
        pass_by(stream, LAYER, ids, 1, next, 1);
        while (k3_io_faults_count("reads") < 4) /* pieces of guesses that start at once; two parts wait */
            usleep(100);
        pass_by(stream, LAYER + 1, other, 1, NULL, 0);
        assert_int_equal(k3_stream_begin(stream, LAYER + 1, next, 1, &err), K3_OK);
        k3_io_faults("", 1);
        layer_goes_on(stream, LAYER + 1, next, 1, n_slots);
        k3_stream_stats(stream, &stat, 0);
        assert_int_equal(stat.ahead, 0);
        assert_int_equal(stat.wanted - stat.hits, 3);
        k3_stream_close(stream);
    }
    k3_ckpt_close(ckpt);
    ckpt = kept;
    tiny_remove_folder(torn);
}

static int setup(void **state)
{
    k3_error err;
    tiny_setup(state);
    if (k3_ckpt_open(&ckpt, tiny_model, &err) != K3_OK || k3_cpu_open(&cpu, NULL, &(k3_backend_config){.threads = 1}, &err) != K3_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int teardown(void **state)
{
    cpu->close(cpu);
    k3_ckpt_close(ckpt);
    return tiny_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_slots_will_do),
        cmocka_unit_test(what_fits_is_read_once),
        cmocka_unit_test(a_damaged_expert_is_named),
        cmocka_unit_test(g07_a_file_that_is_cut_while_running_is_named),
        cmocka_unit_test(a_right_guess_is_there_when_it_is_wanted),
        cmocka_unit_test(any_guess_will_do),
        cmocka_unit_test(guesses_leave_half_of_the_slots),
        cmocka_unit_test(a_layer_is_guessed_after_itself),
        cmocka_unit_test(a_guess_that_fails_is_told_to_who_wants_it),
        cmocka_unit_test(what_was_taken_back_in_part_is_read_again),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
