#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os.h"
#include "open_helpers.h"

#define INDEX "model.safetensors.index.json"
#define FIRST "model-00001-of-000003.safetensors"
#define SECOND "model-00002-of-000003.safetensors"
#define LAST "model-00003-of-000003.safetensors"
#define L1 TINY_BODY "layers.1."

static char *written(int n_shards, int has_index)
{
    tiny_checkpoint *tiny = tiny_new(n_shards);
    char *folder = tiny_folder();
    tiny->has_index = has_index;
    tiny_write(tiny, folder);
    tiny_free(tiny);
    return folder;
}

static const char *in(const char *folder, const char *name)
{
    static char paths[4][700];
    static int i_next;
    char *path = paths[i_next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void remove_file(const char *folder, const char *name)
{
    assert_int_equal(unlink(in(folder, name)), 0);
}

static void move_file(const char *folder, const char *from, const char *to)
{
    assert_int_equal(rename(in(folder, from), in(folder, to)), 0);
}

static void edit_file(const char *folder, const char *name, const char *from, const char *to)
{
    size_t n = 0;
    char *text = tiny_get_file(folder, name, &n);
    tiny_replace(&text, from, to);
    tiny_put_file(folder, name, text, strlen(text));
    free(text);
}

static void a01_a_missing_shard_is_named_with_the_way_to_resume(void **state)
{
    (void)state;
    for (int has_index = 0; has_index < 2; has_index++) {
        char *folder = written(14, has_index);
        assert_opens(folder);
        remove_file(folder, "model-00001-of-000014.safetensors");
        uint64_t start = k3_os_nanoseconds();
        assert_refused(folder, K3_E_NOT_FOUND, "1 of 14 weight files missing", ": model-00001-of-000014.safetensors. Resume the download",
                       "`hf download REPOSITORY FILE --local-dir FOLDER`");
        assert_true(k3_os_nanoseconds() - start < 2000000000u);
        remove_file(folder, "model-00007-of-000014.safetensors");
        assert_refused(folder, K3_E_NOT_FOUND, "2 of 14 weight files missing",
                       "model-00001-of-000014.safetensors, model-00007-of-000014.safetensors");
        tiny_remove_folder(folder);
    }
}

static void a02_three_kinds_of_disagreement_have_three_messages(void **state)
{
    (void)state;
    /* The index never lists it. */
    tiny_checkpoint *tiny = tiny_new(3);
    tiny_find(tiny, L1 "input_layernorm.weight")->in_index = 0;
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, INDEX " never lists needed tensors (1): " L1 "input_layernorm.weight");
    tiny = tiny_new(3);
    tiny_remove(tiny, L1 "input_layernorm.weight");
    assert_tiny_refused(tiny, K3_E_NOT_FOUND, INDEX " never lists needed tensors (1): " L1 "input_layernorm.weight");
    /* The index maps to an absent file. */
    char *folder = written(3, 1);
    remove_file(folder, SECOND);
    assert_refused(folder, K3_E_NOT_FOUND, "1 of 3 weight files missing (the index maps tensors to them): " SECOND);
    tiny_remove_folder(folder);
    /* The file is present, its header lacks it. */
    tiny = tiny_new(3);
    tiny_find(tiny, L1 "input_layernorm.weight")->in_header = 0;
    assert_tiny_refused(tiny, K3_E_FORMAT,
                        "all files are present, but a header lacks 1 tensor the index maps to it: " L1 "input_layernorm.weight (in " FIRST
                        "). Fetch that file again");
}

static void a04_every_file_of_the_index_must_exist(void **state)
{
    (void)state;
    static const char *const files[] = {FIRST, SECOND, LAST};
    for (int i = 0; i < 3; i++) {
        char *folder = written(3, 1);
        remove_file(folder, files[i]);
        assert_refused(folder, K3_E_NOT_FOUND, files[i]);
        tiny_remove_folder(folder);
    }
    /* Also a file that only holds tensors this engine does not use. */
    char *folder = written(3, 1);
    edit_file(folder, INDEX, "\"weight_map\": {", "\"weight_map\": {\"vision_tower.x\": \"model-00004-of-000004.safetensors\",");
    assert_refused(folder, K3_E_NOT_FOUND,
                   "1 of 4 weight files missing (the index maps tensors to them): model-00004-of-000004.safetensors");
    tiny_remove_folder(folder);
}

static void a05_a_stale_index_is_refused(void **state)
{
    (void)state;
    char *folder = written(3, 1);
    move_file(folder, SECOND, "renamed.safetensors");
    assert_refused(folder, K3_E_NOT_FOUND, INDEX " is stale: it maps tensors to 1 absent file (" SECOND ")",
                   "1 file is here that it does not know (renamed.safetensors)");
    tiny_remove_folder(folder);
    /* A re-pack that moved a tensor. */
    folder = written(3, 1);
    edit_file(folder, INDEX, "\"" L1 "input_layernorm.weight\": \"" FIRST, "\"" L1 "input_layernorm.weight\": \"" LAST);
    assert_refused(folder, K3_E_FORMAT,
                   INDEX " is stale: 1 tensor is elsewhere than it says: " L1 "input_layernorm.weight (in " FIRST ", not in " LAST ")");
    tiny_remove_folder(folder);
    /* A re-pack that renamed one. */
    folder = written(3, 1);
    edit_file(folder, INDEX, L1 "input_layernorm.weight", L1 "norm1.weight");
    assert_refused(folder, K3_E_FORMAT, INDEX " is stale: names that are in no file (1): " L1 "norm1.weight (in " FIRST ")",
                   "tensors that it does not know: 1.");
    tiny_remove_folder(folder);
}

static void a14_a_tensor_in_two_shards_is_refused_and_both_are_named(void **state)
{
    (void)state;
    for (int has_index = 0; has_index < 2; has_index++) {
        tiny_checkpoint *tiny = tiny_new(3);
        tiny->has_index = has_index;
        tiny_add(tiny, 1, TINY_BODY "norm.weight", "BF16", 1, (int64_t[]){TINY_HIDDEN})->in_index = 0;
        assert_tiny_refused(tiny, K3_E_FORMAT, "tensor " TINY_BODY "norm.weight stands in two files", "/" SECOND, "/" LAST);
    }
}

static void a22_a_missing_config_has_its_own_message(void **state)
{
    (void)state;
    char *folder = written(3, 1);
    remove_file(folder, "config.json");
    assert_refused(folder, K3_E_NOT_FOUND, "config.json is missing; a model folder needs it beside the safetensors files");
    tiny_remove_folder(folder);
}

static void a32_byte_order_mark_and_crlf_in_config_and_index_are_accepted(void **state)
{
    (void)state;
    static const char *const names[] = {"config.json", INDEX};
    char *folder = written(3, 1);
    for (int i = 0; i < 2; i++) {
        size_t n = 0;
        char *text = tiny_get_file(folder, names[i], &n), *marked = malloc(n + 4);
        assert_non_null(marked);
        snprintf(marked, n + 4, "\xef\xbb\xbf%s", text);
        tiny_replace(&marked, "\n", "\r\n");
        tiny_put_file(folder, names[i], marked, strlen(marked));
        free(marked);
        free(text);
    }
    assert_opens(folder);
    tiny_remove_folder(folder);
}

/* root/blobs/bN holds the files, root/snapshots/abc/NAME links to them, root/refs/main says abc. */
static char *cache(void)
{
    static const char *const names[] = {"config.json", INDEX, FIRST, SECOND, LAST};
    char *root = written(3, 1);
    assert_int_equal(mkdir(in(root, "blobs"), 0755) | mkdir(in(root, "snapshots"), 0755) | mkdir(in(root, "snapshots/abc"), 0755) |
                         mkdir(in(root, "refs"), 0755),
                     0);
    for (int i = 0; i < 5; i++) {
        char blob[64], link[200], target[80];
        snprintf(blob, sizeof blob, "blobs/b%d", i);
        snprintf(target, sizeof target, "../../%s", blob);
        snprintf(link, sizeof link, "snapshots/abc/%s", names[i]);
        move_file(root, names[i], blob);
        assert_int_equal(symlink(target, in(root, link)), 0);
    }
    tiny_put_file(root, "refs/main", "abc\n", 4);
    return root;
}

static void a33_cache_root_snapshot_and_linked_folder_open_alike(void **state)
{
    (void)state;
    char *root = cache(), *other = tiny_folder(), *real = realpath(root, NULL);
    assert_non_null(real);
    assert_int_equal(symlink(root, in(other, "link")), 0);
    const char *const ways[] = {in(root, "."), in(root, "snapshots/abc"), in(other, "link")};
    for (int i = 0; i < 3; i++) {
        k3_ckpt *ckpt = open_folder(ways[i]);
        assert_string_equal(k3_ckpt_folder(ckpt), in(real, "snapshots/abc"));
        k3_ckpt_close(ckpt);
    }
    remove_file(root, "refs/main");
    assert_opens(root); /* the only snapshot */
    assert_int_equal(mkdir(in(root, "snapshots/def"), 0755), 0);
    assert_refused(root, K3_E_NOT_FOUND, "is a download cache without refs/main and with 2 snapshots");
    tiny_put_file(root, "refs/main", "ghi", 3);
    assert_refused(root, K3_E_NOT_FOUND, "refs/main names revision ghi, but snapshots/ghi does not exist");
    tiny_put_file(root, "refs/main", "../..", 5);
    assert_refused(root, K3_E_FORMAT, "refs/main: names no revision");
    tiny_put_file(root, "refs/main", "def", 3);
    assert_refused(root, K3_E_NOT_FOUND, "snapshots/def: config.json is missing");
    free(real);
    tiny_remove_folder(root);
    tiny_remove_folder(other);
}

static void a33_a_dangling_link_is_named_with_its_target(void **state)
{
    (void)state;
    static const struct {
        const char *blob, *link;
    } cases[] = {{"blobs/b0", "snapshots/abc/config.json"}, {"blobs/b1", "snapshots/abc/" INDEX}, {"blobs/b3", "snapshots/abc/" SECOND}};
    for (int i = 0; i < 3; i++) {
        char *root = cache(), target[200];
        snprintf(target, sizeof target, "is a link to ../../%s, which does not exist", cases[i].blob);
        remove_file(root, cases[i].blob);
        assert_refused(root, K3_E_NOT_FOUND, cases[i].link, target);
        tiny_remove_folder(root);
    }
    char *folder = tiny_folder();
    assert_int_equal(symlink("gone", in(folder, "link")), 0);
    assert_refused(in(folder, "link"), K3_E_NOT_FOUND, "/link: is a link to gone, which does not exist");
    tiny_remove_folder(folder);
}

static void a_folder_without_an_index_opens_if_its_numbering_is_complete(void **state)
{
    (void)state;
    static const int n_shards[] = {1, 2, 3, 14};
    for (size_t i = 0; i < 4; i++) {
        char *folder = written(n_shards[i], 0);
        k3_ckpt *ckpt = open_folder(folder);
        assert_int_equal(k3_ckpt_n_shards(ckpt), n_shards[i]);
        k3_ckpt_close(ckpt);
        tiny_remove_folder(folder);
    }
    char *folder = written(3, 0);
    tiny_put_file(folder, "model-00001-of-000004.safetensors", "x", 1);
    assert_refused(folder, K3_E_FORMAT, "parts of two different sets; remove one set");
    remove_file(folder, "model-00001-of-000004.safetensors");
    tiny_put_file(folder, "model.safetensors", "x", 1);
    assert_refused(folder, K3_E_FORMAT, "holds model.safetensors and " FIRST);
    remove_file(folder, "model.safetensors");
    move_file(folder, SECOND, "model-2-of-3.safetensors");
    assert_refused(folder, K3_E_FORMAT, "does not fit together");
    remove_file(folder, "model-2-of-3.safetensors");
    remove_file(folder, FIRST);
    remove_file(folder, LAST);
    assert_refused(folder, K3_E_NOT_FOUND, "holds no weights; wanted " INDEX);
    tiny_remove_folder(folder);
}

static void a_file_that_the_index_does_not_name_only_warns(void **state)
{
    (void)state;
    char *folder = written(3, 1);
    tiny_put_file(folder, "consolidated.safetensors", "x", 1);
    k3_ckpt *ckpt = open_folder(folder);
    assert_string_equal(k3_ckpt_warning(ckpt), "1 safetensors file the index does not name ignored, the first is consolidated.safetensors");
    k3_ckpt_close(ckpt);
    tiny_remove_folder(folder);
}

static void a_path_that_is_no_folder_is_refused(void **state)
{
    (void)state;
    char *folder = written(1, 0);
    assert_refused(in(folder, "model.safetensors"), K3_E_INVALID, "model.safetensors: is a file, wanted the folder that holds config.json");
    assert_refused(in(folder, "nothing"), K3_E_NOT_FOUND, "/nothing: No such file or directory; wanted a model folder");
    assert_refused("", K3_E_INVALID, "no model folder was named");
    assert_refused(NULL, K3_E_INVALID, "no model folder was named");
    tiny_remove_folder(folder);
}

static void a_broken_index_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"weight_map\": {\"a\": \"x.safetensors\",}}", INDEX ": line 1, column 38: found '}', wanted a member's name in quotes"},
        {"{\"weight_map\": {\"a\": \"x.safetensors\", \"a\": \"x.safetensors\"}}", "key \"a\" appears a second time"},
        {"{}", "has no object \"weight_map\""},
        {"[]", "has no object \"weight_map\""},
        {"{\"weight_map\": [1]}", "has no object \"weight_map\""},
        {"{\"weight_map\": {}}", "its weight_map is empty"},
        {"{\"weight_map\": {\"a\": 5}}",
         "line 1, column 22: a tensor is mapped to something that is not a .safetensors file of this folder"},
        {"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "column 22: a tensor is mapped to something"},
        {"{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", "column 22: a tensor is mapped to something"},
        {"{\"weight_map\": {\"a\": \"x.bin\"}}", "column 22: a tensor is mapped to something"},
        {"{\"weight_map\": {\"a\": \"x\\u0000.safetensors\"}}", "column 22: a tensor is mapped to something"},
        {"", INDEX ": line 1, column 1: the text ends here"},
    };
    char *folder = written(3, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tiny_put_file(folder, INDEX, cases[i][0], strlen(cases[i][0]));
        assert_refused(folder, K3_E_FORMAT, cases[i][1]);
    }
    tiny_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a01_a_missing_shard_is_named_with_the_way_to_resume),
        cmocka_unit_test(a02_three_kinds_of_disagreement_have_three_messages),
        cmocka_unit_test(a04_every_file_of_the_index_must_exist),
        cmocka_unit_test(a05_a_stale_index_is_refused),
        cmocka_unit_test(a14_a_tensor_in_two_shards_is_refused_and_both_are_named),
        cmocka_unit_test(a22_a_missing_config_has_its_own_message),
        cmocka_unit_test(a32_byte_order_mark_and_crlf_in_config_and_index_are_accepted),
        cmocka_unit_test(a33_cache_root_snapshot_and_linked_folder_open_alike),
        cmocka_unit_test(a33_a_dangling_link_is_named_with_its_target),
        cmocka_unit_test(a_folder_without_an_index_opens_if_its_numbering_is_complete),
        cmocka_unit_test(a_file_that_the_index_does_not_name_only_warns),
        cmocka_unit_test(a_path_that_is_no_folder_is_refused),
        cmocka_unit_test(a_broken_index_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
