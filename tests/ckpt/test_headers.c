#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "open_helpers.h"

#define FIRST "model-00001-of-000003.safetensors"
#define SECOND "model-00002-of-000003.safetensors"
#define LAST "model-00003-of-000003.safetensors"
#define L0 TINY_BODY "layers.0."

/* A written tiny checkpoint of three shards, to be damaged. */
static char *written(void)
{
    char *folder = tiny_settle(tiny_new(3));
    return folder;
}

/* Lengthens the header's closing spaces to n_header bytes in all. */
static void pad_header(const char *folder, const char *shard, size_t n_header)
{
    size_t n = 0, old = 0;
    char *bytes = tiny_get_file(folder, shard, &n);
    memcpy(&old, bytes, 8);
    assert_true(old <= n_header);
    char *out = malloc(n + n_header);
    assert_non_null(out);
    memcpy(out, &n_header, 8);
    memcpy(out + 8, bytes + 8, old);
    memset(out + 8 + old, ' ', n_header - old);
    memcpy(out + 8 + n_header, bytes + 8 + old, n - 8 - old);
    tiny_put_file(folder, shard, out, n - old + n_header);
    free(out);
    free(bytes);
}

static void put_length(const char *folder, const char *shard, uint64_t length)
{
    size_t n = 0;
    char *bytes = tiny_get_file(folder, shard, &n);
    memcpy(bytes, &length, 8);
    tiny_put_file(folder, shard, bytes, n);
    free(bytes);
}

static void truncate_shard(const char *folder, const char *shard, size_t n_bytes)
{
    size_t n = 0;
    char *bytes = tiny_get_file(folder, shard, &n);
    assert_true(n_bytes <= n);
    tiny_put_file(folder, shard, bytes, n_bytes);
    free(bytes);
}

/* Status and message of one header in memory. */
static k3_status parse_header(const char *header, uint64_t data_bytes, k3_error *err)
{
    k3_st_file file;
    memset(err, 0, sizeof *err);
    k3_status status = k3_st_parse(&file, header, strlen(header), 8 + strlen(header) + data_bytes, 0, "s", err);
    k3_st_free(&file);
    return status;
}

static void assert_header_refused(const char *header, uint64_t data_bytes, const char *message)
{
    k3_error err;
    assert_int_equal(parse_header(header, data_bytes, &err), K3_E_FORMAT);
    assert_string_equal(err.text, message);
}

static void a07_a_header_of_20_mb_loads_and_one_of_2_to_63_is_refused(void **state)
{
    (void)state;
    char *folder = written();
    pad_header(folder, SECOND, 20 << 20);
    assert_opens(folder);
    put_length(folder, SECOND, (uint64_t)1 << 63);
    assert_refused(folder, K3_E_FORMAT, SECOND, "declares a header of 9223372036854775808 bytes, k3 reads at most 268435456");
    put_length(folder, SECOND, UINT64_MAX);
    assert_refused(folder, K3_E_FORMAT, "declares a header of 18446744073709551615 bytes, k3 reads at most 268435456");
    put_length(folder, SECOND, 200 << 20);
    assert_refused(folder, K3_E_FORMAT, SECOND, "declares a header of 209715200 bytes (the limit is 268435456), the file holds");
    put_length(folder, SECOND, 0);
    assert_refused(folder, K3_E_FORMAT, SECOND, "header: line 1, column 1: the text ends here, wanted a JSON value");
    tiny_remove_folder(folder);
}

/* The last tensor's bytes are read back, so that an offset wrong by a few bytes shows. */
static void a08_no_header_length_is_cut_by_a_buffer(void **state)
{
    (void)state;
    static const size_t edges[] = {4096, 8192, 65536, 99996, 100004, 131072, 1 << 20};
    static const char text[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[0,6]}}";
    char *folder = tiny_folder(), path[600];
    snprintf(path, sizeof path, "%s/s", folder);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        for (uint64_t n = edges[i] - 9; n <= edges[i] + 9; n++) {
            char *bytes = malloc(n + 14), data[7] = "";
            k3_st_file file;
            k3_error err = {0};
            assert_non_null(bytes);
            memcpy(bytes, &n, 8);
            memset(bytes + 8, ' ', n);
            memcpy(bytes + 8, text, sizeof text - 1);
            memcpy(bytes + 8 + n, "abcdef", 6);
            tiny_put_file(folder, "s", bytes, n + 14);
            free(bytes);
            int fd = open(path, O_RDONLY);
            assert_true(fd >= 0);
            if (k3_st_read(&file, fd, 0, path, &err) != K3_OK)
                fail_msg("%s", err.text);
            assert_int_equal(file.header_bytes, n);
            assert_int_equal(k3_st_pread(fd, data, 6, file.tensors[0].info.offset, path, &err), K3_OK);
            assert_string_equal(data, "abcdef");
            close(fd);
            k3_st_free(&file);
        }
    }
    tiny_remove_folder(folder);
}

static void a10_data_must_reach_as_far_as_the_header_says(void **state)
{
    (void)state;
    assert_header_refused("{\"t\":{\"dtype\":\"F32\",\"shape\":[1048576],\"data_offsets\":[0,4194304]}}", 4,
                          "s: tensor t: ends at data byte 4194304, but the file holds 4; it is cut short, fetch it again");
    char *folder = written();
    struct stat info;
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, LAST);
    assert_int_equal(stat(path, &info), 0);
    truncate_shard(folder, LAST, (size_t)info.st_size - 1);
    assert_refused(folder, K3_E_FORMAT, LAST, "it is cut short, fetch it again");
    truncate_shard(folder, LAST, 300);
    assert_refused(folder, K3_E_FORMAT, LAST, "declares a header of", "the file holds 292 after its length; fetch it again");
    truncate_shard(folder, LAST, 7);
    assert_refused(folder, K3_E_FORMAT, LAST, "holds 7 bytes, wanted at least the 8 of a safetensors header length");
    truncate_shard(folder, LAST, 0);
    truncate_shard(folder, FIRST, 100);
    assert_refused(folder, K3_E_FORMAT, FIRST, "the file holds 92 after its length", "(and 1 more bad file)");
    tiny_remove_folder(folder);
}

static void a13_tensors_that_share_bytes_are_refused(void **state)
{
    (void)state;
    char from[120], to[120];
    char *folder = written();
    size_t n = 0, at[2];
    char *bytes = tiny_get_file(folder, FIRST, &n);
    const char *k = strstr(bytes + 8, L0 "self_attn.k_proj.weight"), *v = strstr(bytes + 8, L0 "self_attn.v_proj.weight");
    assert_non_null(k);
    assert_non_null(v);
    assert_int_equal(sscanf(strstr(v, "data_offsets"), "data_offsets\":[%zu,%zu]", &at[0], &at[1]), 2);
    snprintf(from, sizeof from, "[%zu,%zu]", at[0], at[1]);
    assert_int_equal(sscanf(strstr(k, "data_offsets"), "data_offsets\":[%zu,%zu]", &at[0], &at[1]), 2);
    snprintf(to, sizeof to, "[%zu,%zu]", at[0], at[1]);
    free(bytes);
    tiny_edit_header(folder, FIRST, from, to);
    assert_refused(folder, K3_E_FORMAT, FIRST, L0 "self_attn.k_proj.weight", L0 "self_attn.v_proj.weight", "overlap in 16384 bytes");
    tiny_remove_folder(folder);
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}", 7,
        "s: tensors a and b overlap in 1 bytes of the data");
}

static void a14_a_name_twice_in_one_header_is_refused(void **state)
{
    (void)state;
    char *folder = written();
    tiny_edit_header(folder, FIRST, L0 "self_attn.k_proj.weight", L0 "self_attn.q_proj.weight");
    assert_refused(folder, K3_E_FORMAT, FIRST, "key \"" L0 "self_attn.q_proj.weight\" appears a second time in the same object");
    tiny_remove_folder(folder);
}

static void a15_bytes_that_no_tensor_owns_are_refused_with_their_number(void **state)
{
    (void)state;
    char *folder = written();
    size_t n = 0;
    char *bytes = tiny_get_file(folder, FIRST, &n), *longer = calloc(1, n + 7);
    assert_non_null(longer);
    memcpy(longer, bytes, n);
    tiny_put_file(folder, FIRST, longer, n + 7);
    assert_refused(folder, K3_E_FORMAT, FIRST, "7 bytes follow the last tensor, wanted none");
    free(longer);
    free(bytes);
    tiny_remove_folder(folder);
    assert_header_refused(
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[9,13]}}",
        13, "s: 5 bytes before tensor b belong to no tensor");
    assert_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}", 6,
                          "s: 2 bytes before tensor a belong to no tensor");
    assert_header_refused("{}", 3, "s: 3 bytes follow the last tensor, wanted none");
}

static void a25_metadata_of_any_kind_but_a_list_loads(void **state)
{
    (void)state;
    static const char *const good[] = {NULL, "{}", "null", "{\"a\":\"b\"}", "{\"a\":1}", "{\"shape\":\"x\"}"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        tiny_checkpoint *tiny = tiny_new(3);
        tiny->metadata = good[i];
        assert_tiny_opens(tiny);
    }
    static const char *const bad[] = {"[]", "[\"a\"]", "\"x\"", "1", "true"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        tiny_checkpoint *tiny = tiny_new(3);
        tiny->metadata = bad[i];
        assert_tiny_refused(tiny, K3_E_FORMAT, FIRST, "header line 1, column 17: __metadata__ must be an object or null");
    }
}

static void a26_an_empty_shard_is_fine_and_a_tensor_of_the_reserved_name_is_not(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    char *folder = tiny_folder();
    static const char empty[] = "\x20\0\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"pt\"}}";
    tiny->has_index = 0;
    tiny->n_shards = 4; /* the names say four files; the fourth is empty */
    tiny_write(tiny, folder);
    tiny_put_file(folder, "model-00004-of-000004.safetensors", empty, sizeof empty - 1);
    tiny_free(tiny);
    assert_opens(folder);
    tiny_put_file(folder, "model-00004-of-000004.safetensors", "\x02\0\0\0\0\0\0\0{}", 10);
    assert_opens(folder);
    tiny_remove_folder(folder);
    tiny = tiny_new(3);
    tiny->metadata = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    assert_tiny_refused(tiny, K3_E_FORMAT, FIRST, "a tensor carries the reserved name __metadata__");
}

static void a28_packed_codes_in_both_spellings_are_one(void **state)
{
    (void)state;
    tiny_checkpoint *tiny = tiny_new(3);
    char *folder = tiny_folder(), *folder2 = tiny_folder();
    tiny_write(tiny, folder);
    for (size_t i = 0; i < tiny->n_tensors; i++) {
        tiny_tensor *t = &tiny->tensors[i];
        if (strstr(t->name, ".weight_packed")) {
            strcpy(t->dtype, "F4");
            t->shape[1] *= 2;
        } else if (strstr(t->name, ".weight_scale")) {
            strcpy(t->dtype, "F8_E8M0");
        }
    }
    tiny_write(tiny, folder2);
    tiny_free(tiny);
    k3_ckpt *a = open_folder(folder), *b = open_folder(folder2);
    for (int l = 1; l < TINY_LAYERS; l++)
        for (int e = 0; e < TINY_EXPERTS; e++)
            for (int r = K3_R_W1; r < K3_N_ROLES; r++) {
                const k3_tensor_info *x = k3_ckpt_role(a, (k3_role)r, l, e), *y = k3_ckpt_role(b, (k3_role)r, l, e);
                char data_x[2048], data_y[2048];
                assert_int_equal(y->dtype, K3_DT_U8);
                assert_int_equal(y->rank, 2);
                assert_memory_equal(x->shape, y->shape, 2 * sizeof x->shape[0]);
                assert_int_equal(x->bytes, y->bytes);
                assert_true(x->bytes <= sizeof data_x);
                assert_int_equal(k3_ckpt_read(a, data_x, x, 0, x->bytes, NULL), K3_OK);
                assert_int_equal(k3_ckpt_read(b, data_y, y, 0, y->bytes, NULL), K3_OK);
                assert_memory_equal(data_x, data_y, x->bytes);
            }
    k3_ckpt_close(a);
    k3_ckpt_close(b);
    tiny_remove_folder(folder);
    tiny_remove_folder(folder2);
    assert_header_refused("{\"t\":{\"dtype\":\"F4\",\"shape\":[2,7],\"data_offsets\":[0,7]}}", 7,
                          "s: tensor t: F4 with an odd number of columns; two codes share a byte, wanted an even number");
}

static void broken_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t data_bytes;
        const char *message;
    } cases[] = {
        {"[]", 0, "s: the header is not a JSON object"},
        {"{\"t\":5}", 0, "s: tensor t: wanted an object with dtype, shape and data_offsets"},
        {"{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "s: tensor t: has no dtype, wanted a word such as \"BF16\""},
        {"{\"t\":{\"dtype\":\"Q4\\n\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
         "s: tensor t: dtype \"Q4?\" is none of the safetensors types"},
        {"{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "s: tensor t: has no shape, wanted a list of sizes"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}", 1, "s: tensor t: a size in its shape is not an integer >= 0"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[1.5],\"data_offsets\":[0,1]}}", 1, "s: tensor t: a size in its shape is not an integer >= 0"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}", 0,
         "s: tensor t: the product of its shape exceeds 64 bits"},
        {"{\"t\":{\"dtype\":\"F32\",\"shape\":[4294967296,1073741824],\"data_offsets\":[0,0]}}", 0,
         "s: tensor t: its size exceeds 64 bits"},
        {"{\"t\":{\"dtype\":\"F6_E2M3\",\"shape\":[2],\"data_offsets\":[0,1]}}", 1, "s: tensor t: its size is not a whole number of bytes"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2]}}", 2, "s: tensor t: wanted data_offsets [begin, end] with 0 <= begin <= end"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0]}}", 2,
         "s: tensor t: wanted data_offsets [begin, end] with 0 <= begin <= end"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,0]}}", 2,
         "s: tensor t: wanted data_offsets [begin, end] with 0 <= begin <= end"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[-2,0]}}", 2,
         "s: tensor t: wanted data_offsets [begin, end] with 0 <= begin <= end"},
        {"{\"t\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "s: tensor t: data_offsets span 2 bytes, wanted 4 for its shape and dtype BF16"},
        {"{\"t\\u0000u\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "s: tensor t: a tensor's name may not be empty or hold a NUL character"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}", 2,
         "s: tensor : a tensor's name may not be empty or hold a NUL character"},
        {"{\"t\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}} x", 2,
         "s: header: line 1, column 55: found 'x', wanted nothing after the value"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_header_refused(cases[i].header, cases[i].data_bytes, cases[i].message);
}

static void empty_and_scalar_tensors_are_legal(void **state)
{
    (void)state;
    k3_error err;
    assert_int_equal(parse_header("{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"F32\",\"shape\":[0,5],"
                                  "\"data_offsets\":[4,4]},"
                                  "\"c\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},\"d\":{\"dtype\":\"U8\",\"shape\":[1,1,1,"
                                  "1,1,1],\"data_offsets\":[8,9]},"
                                  "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                                  9, &err),
                     K3_OK);
}

static void what_is_no_safetensors_file_is_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
         "is a Git LFS pointer of 64 bytes, not the weights; run `git lfs pull`"},
        {"<!DOCTYPE html><html>not found</html>", "is a web page of 37 bytes, not the weights; fetch it again"},
        {"<html>", "is a web page of 6 bytes"},
    };
    char *folder = written();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tiny_put_file(folder, SECOND, cases[i][0], strlen(cases[i][0]));
        assert_refused(folder, K3_E_FORMAT, SECOND, cases[i][1]);
    }
    tiny_put_file(folder, SECOND, "GGUF\x03\0\0\0\0\0\0\0\0\0\0\0", 16);
    assert_refused(folder, K3_E_UNSUPPORTED, SECOND, "is a GGUF file, wanted safetensors");
    tiny_remove_folder(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a07_a_header_of_20_mb_loads_and_one_of_2_to_63_is_refused),
        cmocka_unit_test(a08_no_header_length_is_cut_by_a_buffer),
        cmocka_unit_test(a10_data_must_reach_as_far_as_the_header_says),
        cmocka_unit_test(a13_tensors_that_share_bytes_are_refused),
        cmocka_unit_test(a14_a_name_twice_in_one_header_is_refused),
        cmocka_unit_test(a15_bytes_that_no_tensor_owns_are_refused_with_their_number),
        cmocka_unit_test(a25_metadata_of_any_kind_but_a_list_loads),
        cmocka_unit_test(a26_an_empty_shard_is_fine_and_a_tensor_of_the_reserved_name_is_not),
        cmocka_unit_test(a28_packed_codes_in_both_spellings_are_one),
        cmocka_unit_test(broken_headers_are_refused),
        cmocka_unit_test(empty_and_scalar_tensors_are_legal),
        cmocka_unit_test(what_is_no_safetensors_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
