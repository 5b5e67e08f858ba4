/* k3_pack in trouble: neither a kill, a full disk nor a disk that changes bytes leads to anything but a whole model or a refusal. */
#include "ckpt/ckpt.h"
#include "engine/pack_runs.h"
#include "model/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/mount.h>
#endif

enum { KILLS = 10 };

typedef struct trouble {
    long at, calls; /* what happens at this call of the progress function */
    int kills;
    const char *damages; /* the folder whose unfinished shard is changed when it is first compared */
    uint64_t written, total;
} trouble;

static void damage_part(const char *folder)
{
    char path[400];
    unsigned char x;
    snprintf(path, sizeof path, "%s/model-00001-of-00014.safetensors.part", folder);
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &x, 1, 9000), 1);
    x ^= 4;
    assert_int_equal(pwrite(fd, &x, 1, 9000), 1);
    close(fd);
}

static int on_progress(void *user, const char *phase, uint64_t done, uint64_t total)
{
    trouble *t = user;
    int packs = strcmp(phase, "packing") == 0;
    assert_true(packs || strcmp(phase, "verifying") == 0);
    assert_true(done <= total);
    if (!packs && t->damages) {
        damage_part(t->damages);
        t->damages = NULL;
    }
    t->written = packs ? done : t->written;
    t->total = total;
    if (t->at && ++t->calls == t->at) {
        if (t->kills)
            raise(SIGKILL);
        return 1;
    }
    return 0;
}

/* Inodes of the shards that have their names; 0 for the others. Returns how many have. */
static int finished(ino_t inodes[PACK_SHARDS], const char *folder)
{
    int n = 0;
    for (int i = 0; i < PACK_SHARDS; i++) {
        char path[400];
        struct stat info;
        snprintf(path, sizeof path, "%s/model-%05d-of-%05d.safetensors", folder, i + 1, PACK_SHARDS);
        inodes[i] = stat(path, &info) == 0 ? info.st_ino : 0;
        n += inodes[i] != 0;
    }
    return n;
}

static void check_whole(const char *folder, const char *trunk)
{
    pack_check_same_logits(pack_tiny, folder, trunk, trunk);
    assert_int_equal(finished((ino_t[PACK_SHARDS]){0}, folder), PACK_SHARDS);
    assert_false(pack_exists(folder, PACK_LAST ".part"));
}

/* Runs k3_pack in a child. Returns its signal, or 0. */
static int pack_in_child(const char *out, trouble *t)
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        k3_error err = {0};
        _exit(k3_pack(pack_tiny, out, "int8", on_progress, t, &err) != K3_OK);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void a_killed_run_goes_on_where_it_was(void **state)
{
    (void)state;
    char folder[300];
    snprintf(folder, sizeof folder, "%s", pack_in_base("killed"));
    trouble all = {0};
    k3_error err = {0};
    pack_must(k3_pack(pack_tiny, pack_in_base("unkilled"), "int8", on_progress, &all, &err), &err);
    uint64_t random = 88172645463325252u;
    int was = 0, n_killed = 0;
    ino_t before[PACK_SHARDS], after[PACK_SHARDS];
    for (int i = 0; i < KILLS; i++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        trouble t = {.at = 1 + (long)(random % 500), .kills = 1};
        finished(before, folder);
        n_killed += pack_in_child(folder, &t) == SIGKILL;
        int now = finished(after, folder);
        assert_true(now >= was);
        for (int k = 0; k < PACK_SHARDS; k++)
            if (before[k])
                assert_int_equal(after[k], before[k]);
        was = now;
        if (now < PACK_SHARDS) {
            k3_ckpt *ckpt;
            assert_int_not_equal(k3_ckpt_open(&ckpt, folder, &err), K3_OK);
        }
    }
    assert_true(n_killed >= 3);
    finished(before, folder);
    pack_model(pack_tiny, folder, "int8");
    finished(after, folder);
    for (int k = 0; k < PACK_SHARDS; k++)
        if (before[k])
            assert_int_equal(after[k], before[k]);
    check_whole(folder, "int8");
    trouble again = {0};
    pack_must(k3_pack(pack_tiny, folder, "int8", on_progress, &again, &err), &err);
    assert_int_equal(again.written, 0);
}

static void a_run_that_is_stopped_goes_on(void **state)
{
    (void)state;
    char folder[300];
    k3_error err = {0};
    trouble t = {.at = 700};
    snprintf(folder, sizeof folder, "%s", pack_in_base("stopped"));
    assert_int_equal(k3_pack(pack_tiny, folder, "int4", on_progress, &t, &err), K3_E_CANCELLED);
    int n = finished((ino_t[PACK_SHARDS]){0}, folder);
    assert_in_range(n, 1, PACK_SHARDS - 1);
    assert_false(pack_exists(folder, "config.json") || pack_exists(folder, "model.safetensors.index.json"));
    trouble rest = {0};
    pack_must(k3_pack(pack_tiny, folder, "int4", on_progress, &rest, &err), &err);
    assert_int_equal(rest.written, rest.total);
    assert_true(rest.total < t.total);
    check_whole(folder, "int4");
}

/* The limit on the size of files stands for the disk's end. */
static void a_full_disk_is_told_and_can_be_made_room_on(void **state)
{
    (void)state;
    struct rlimit before, small;
    char folder[300];
    snprintf(folder, sizeof folder, "%s", pack_in_base("full"));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    small = (struct rlimit){150000, before.rlim_max}; /* between the dense layer's shard and the others */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    k3_error err = {0};
    k3_status status = k3_pack(pack_tiny, folder, "int8", NULL, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, K3_E_IO);
    assert_non_null(strstr(err.text, "model-00002-of-00014.safetensors.part"));
    assert_non_null(strstr(err.text, strerror(EFBIG)));
    assert_non_null(strstr(err.text, "the same command goes on"));
    ino_t inodes[PACK_SHARDS], after[PACK_SHARDS];
    assert_int_equal(finished(inodes, folder), 1);
    assert_false(pack_exists(folder, "model-00002-of-00014.safetensors.part"));
    pack_model(pack_tiny, folder, "int8");
    finished(after, folder);
    assert_int_equal(inodes[0], after[0]);
    check_whole(folder, "int8");
}

/* A file that takes what room there is. */
static void fill(const char *folder)
{
    static const char block[4096];
    char path[400];
    snprintf(path, sizeof path, "%s/others", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    while (write(fd, block, sizeof block) > 0)
        ;
    close(fd);
}

static int fill_later(void *user, const char *phase, uint64_t done, uint64_t total)
{
    (void)phase;
    if (done > total / 2 && !pack_exists(user, "others"))
        fill(user);
    return 0;
}

/* A file system of `size`, or its size changed; 0 where that may not be done. */
static int put_disk(const char *at, const char *size, int is_there)
{
#ifdef __linux__
    return mount("tmpfs", at, "tmpfs", is_there ? MS_REMOUNT : 0, size) == 0;
#else
    (void)at, (void)size, (void)is_there;
    return 0;
#endif
}

static int take_disk(const char *at)
{
#ifdef __linux__
    return umount(at) == 0;
#else
    (void)at;
    return 0;
#endif
}

static void a_small_disk_is_seen_before_and_a_filling_one_meanwhile(void **state)
{
    (void)state;
    char disk[200], out[240], others[240];
    k3_error err = {0};
    snprintf(disk, sizeof disk, "%.190s", pack_in_base("disk"));
    snprintf(out, sizeof out, "%s/out", disk);
    snprintf(others, sizeof others, "%s/others", disk);
    assert_int_equal(mkdir(disk, 0777), 0);
    if (!put_disk(disk, "size=1m", 0)) {
        print_message("SKIP: a file system of its own cannot be mounted here\n");
        skip();
    }
    k3_status before = k3_pack(pack_tiny, out, "int8", NULL, NULL, &err);
    int n_before = finished((ino_t[PACK_SHARDS]){0}, out);
    int grown = put_disk(disk, "size=8m", 1);
    k3_error full = {0};
    k3_status meanwhile = k3_pack(pack_tiny, out, "int8", fill_later, disk, &full);
    int n_meanwhile = finished((ino_t[PACK_SHARDS]){0}, out);
    unlink(others);
    k3_error last = {0};
    k3_status at_last = k3_pack(pack_tiny, out, "int8", NULL, NULL, &last);
    int n_last = finished((ino_t[PACK_SHARDS]){0}, out);
    assert_true(take_disk(disk));
    assert_int_equal(before, K3_E_IO);
    assert_non_null(strstr(err.text, "GB are needed, 0.001 GB are free"));
    assert_int_equal(n_before, 0);
    assert_true(grown);
    assert_int_equal(meanwhile, K3_E_IO);
    assert_non_null(strstr(full.text, strerror(ENOSPC)));
    assert_non_null(strstr(full.text, "the same command goes on"));
    assert_in_range(n_meanwhile, 1, PACK_SHARDS - 1);
    pack_must(at_last, &last);
    assert_int_equal(n_last, PACK_SHARDS);
}

/* A packed file that was damaged: codes are any bytes, but a scale is a number. */
static void a_scale_that_is_not_finite_is_refused(void **state)
{
    (void)state;
    k3_ckpt *ckpt;
    k3_backend *be;
    k3_weights *weights;
    k3_engine *engine;
    k3_error err = {0};
    pack_model(pack_tiny, pack_in_base("nan"), "int4");
    pack_must(k3_ckpt_open(&ckpt, pack_in_base("nan"), &err), &err);
    const k3_tensor_info *s = k3_ckpt_scale(ckpt, K3_R_KDA_Q, 2);
    int fd = open(k3_ckpt_shard_path(ckpt, s->shard), O_WRONLY);
    assert_int_equal(pwrite(fd, "\0\0\xc0\x7f", 4, (off_t)(s->offset + s->bytes - 4)), 4);
    close(fd);
    assert_int_equal(k3_engine_open(&engine, pack_in_base("nan"), &(k3_config){.backend = "cpu"}, &err), K3_E_FORMAT);
    assert_non_null(strstr(err.text, "layers.2.self_attn.q_proj.weight_scale: a scale is not finite"));
    pack_must(k3_cpu_open(&be, NULL, &(k3_backend_config){.threads = 1}, &err), &err);
    k3_weights_config config = {.trunk = K3_TRUNK_INT4, .trunk_bytes = k3_trunk_least_bytes(ckpt, K3_TRUNK_INT4), .threads = 1};
    pack_must(k3_weights_load(&weights, ckpt, be, &config, &err), &err);
    k3_status status = k3_late_begin(weights->late, 0, &err);
    for (int l = 0; status == K3_OK && l < TINY_LAYERS; l++) {
        status = k3_late_layer(weights->late, l, &err);
        k3_late_layer_done(weights->late, l);
    }
    assert_int_equal(status, K3_E_FORMAT);
    assert_non_null(strstr(err.text, "q_proj.weight_scale: a scale is not finite"));
    k3_weights_free(weights);
    be->close(be);
    k3_ckpt_close(ckpt);
}

static void a_disk_that_changes_bytes_is_found_out(void **state)
{
    (void)state;
    char folder[300];
    k3_error err = {0};
    snprintf(folder, sizeof folder, "%s", pack_in_base("bad"));
    trouble t = {.damages = folder};
    assert_int_equal(k3_pack(pack_tiny, folder, "int8", on_progress, &t, &err), K3_E_IO);
    assert_non_null(strstr(err.text, "not what was written"));
    assert_int_equal(finished((ino_t[PACK_SHARDS]){0}, folder), 0);
}

/* A link in the way of an unfinished shard is not followed. */
static void the_source_is_only_read(void **state)
{
    (void)state;
    char target[400], link[400], shard[64];
    tiny_checkpoint *tiny = tiny_new(14);
    tiny_shard_name(shard, tiny, 0);
    tiny_free(tiny);
    size_t n, m;
    char *before = tiny_get_file(pack_tiny, shard, &n);
    assert_int_equal(mkdir(pack_in_base("linked"), 0777), 0);
    snprintf(target, sizeof target, "%s/%s", pack_tiny, shard);
    snprintf(link, sizeof link, "%s/model-00001-of-00014.safetensors.part", pack_in_base("linked"));
    assert_int_equal(symlink(target, link), 0);
    pack_model(pack_tiny, pack_in_base("linked"), "int8");
    char *after = tiny_get_file(pack_tiny, shard, &m);
    assert_int_equal(n, m);
    assert_memory_equal(before, after, n);
    free(before);
    free(after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on_where_it_was),
        cmocka_unit_test(a_run_that_is_stopped_goes_on),
        cmocka_unit_test(a_full_disk_is_told_and_can_be_made_room_on),
        cmocka_unit_test(a_small_disk_is_seen_before_and_a_filling_one_meanwhile),
        cmocka_unit_test(a_scale_that_is_not_finite_is_refused),
        cmocka_unit_test(a_disk_that_changes_bytes_is_found_out),
        cmocka_unit_test(the_source_is_only_read),
    };
    return cmocka_run_group_tests(tests, pack_set_up, pack_tear_down);
}
