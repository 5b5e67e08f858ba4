/* Number formats on every level, through embed, which is decoding and nothing else. */
#include "fixture.h"

#include <math.h>
#include <string.h>

static void embed_rows(k3_backend *be, float *out, k3_type type, const void *codes, const void *scale, int rows, int cols)
{
    k3_mat table = {type, rows, cols, put_bytes(be, codes, (size_t)rows * k3_type_row_bytes(type, cols)), {NULL, 0}, 0};
    if (scale)
        table.scale = put_bytes(be, scale, (size_t)rows * k3_type_scale_bytes(type, cols));
    int32_t ids[256];
    assert_true(rows <= 256);
    for (int i = 0; i < rows; i++)
        ids[i] = i;
    k3_ref y = new_floats(be, (size_t)rows * (size_t)cols);
    be->ops->embed(be, y, &table, put_bytes(be, ids, (size_t)rows * sizeof *ids), rows);
    be->memory->download(be, out, y, (uint64_t)rows * (uint64_t)cols * sizeof *out);
    must_sync(be);
}

/* Calls check on each level that this machine has. */
static void on_levels(void (*check)(k3_backend *be))
{
    for (int l = 0; l < N_LEVELS; l++) {
        k3_backend *be = open_level(level_names[l], 1);
        if (!be)
            continue;
        check(be);
        be->close(be);
    }
}

/* Byte 255 is not a number; an engine refuses it when it meets one in a file, so a device may as well make an infinity of it. */
static void check_all_scales(k3_backend *be)
{
    static const double magnitude[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    unsigned char codes[256][16], scale[256];
    float out[256 * 32];
    for (int b = 0; b < 256; b++) {
        scale[b] = (unsigned char)b;
        for (int i = 0; i < 16; i++)
            codes[b][i] = (unsigned char)((i * 2 % 16) | (i * 2 + 1) % 16 << 4);
    }
    embed_rows(be, out, K3_MXFP4, codes, scale, 256, 32);
    for (int b = 0; b < 256; b++)
        for (int c = 0; c < 32; c++) {
            float got = out[b * 32 + c], want = (float)ldexp(c % 16 < 8 ? magnitude[c % 8] : -magnitude[c % 8], b - 127);
            if (b == 255 ? (be->is_device ? isfinite(got) : !isnan(got)) : got != want || !signbit(got) != (c % 16 < 8))
                fail_msg("%s: code %d, scale byte %d is %a, wanted %a", be->name, c % 16, b, (double)got, b == 255 ? NAN : (double)want);
        }
}

/* Integer products take scales out of other places: a row of weights 1 with one scale byte in its four blocks, and rows of x that are 127
 * in one block's first column. In one call, and one call a row. */
static void check_scales_of_products(k3_backend *be)
{
    if (be->is_device)
        return;
    static unsigned char codes[256][64], scale[256][4];
    float x[4][128] = {{0}}, y[4][256];
    memset(codes, 0x22, sizeof codes);
    for (int b = 0; b < 256; b++)
        memset(scale[b], b, 4);
    for (int t = 0; t < 4; t++)
        x[t][32 * t] = 127;
    k3_mat w = {K3_MXFP4, 256, 128, put_bytes(be, codes, sizeof codes), put_bytes(be, scale, sizeof scale), 0};
    k3_ref at = put_bytes(be, x, sizeof x), to = new_bytes(be, sizeof y);
    for (int together = 0; together < 2; together++) {
        memset(y, 0, sizeof y);
        be->memory->upload(be, to, y, sizeof y);
        for (int t = 0; t < (together ? 1 : 4); t++)
            be->ops->matmul(be, &(k3_proj){&w, k3_at(to, (uint64_t)t * sizeof *y)}, 1, k3_at(at, (uint64_t)t * sizeof *x),
                            together ? 4 : 1);
        be->memory->download(be, y, to, sizeof y);
        must_sync(be);
        for (int t = 0; t < 4; t++)
            for (int b = 0; b < 256; b++)
                if (b == 255 ? !isnan(y[t][b]) : y[t][b] != (float)ldexp(127, b - 127))
                    fail_msg("%s: 127 times scale byte %d of block %d is %a", be->name, b, t, (double)y[t][b]);
    }
}

static void a29_all_256_mxfp4_scales_and_16_codes(void **state)
{
    (void)state;
    on_levels(check_all_scales);
    on_levels(check_scales_of_products);
}

/* Bytes of the released checkpoint: specification 2.3. */
static void check_example(k3_backend *be)
{
    unsigned char codes[16] = {22, 185, 206, 35}, scale = 121;
    static const float want[8] = {0.0625f, 0.0078125f, -0.0078125f, -0.0234375f, -0.0625f, -0.03125f, 0.0234375f, 0.015625f};
    float out[32];
    embed_rows(be, out, K3_MXFP4, codes, &scale, 1, 32);
    assert_memory_equal(out, want, sizeof want);
}

static void mxfp4_example_of_the_specification(void **state)
{
    (void)state;
    on_levels(check_example);
}

/* Codes that count up: value i of a row is code i mod 2^bits. Every column is at its place and every code has its value. */
static void check_integers(k3_backend *be)
{
    static const struct {
        k3_type type;
        int bits, zero;
    } formats[] = {{K3_INT4, 4, 8}, {K3_INT4_G64, 4, 8}, {K3_INT3_G64, 3, 4}, {K3_INT2, 2, 2}};
    for (int f = 0; f < 4; f++) {
        unsigned char codes[64] = {0};
        float scale[2] = {0.5f, k3_type_scale_bytes(formats[f].type, 128) > 4 ? -3.0f : 0.5f}, out[128];
        if (formats[f].type == K3_INT4 || formats[f].type == K3_INT2)
            scale[1] = scale[0];
        for (int c = 0; c < 128; c++)
            for (int b = 0; b < formats[f].bits; b++)
                if (c >> b & 1) /* bit b of code c; a group of 64 columns is a whole number of bytes, so the string runs on */
                    codes[(c * formats[f].bits + b) / 8] |= (unsigned char)(1 << (c * formats[f].bits + b) % 8);
        embed_rows(be, out, formats[f].type, codes, scale, 1, 128);
        for (int c = 0; c < 128; c++) {
            float want = (float)(c % (1 << formats[f].bits) - formats[f].zero) * scale[c / 64];
            if (out[c] != want)
                fail_msg("%s: %s column %d is %g, wanted %g", be->name, k3_type_name(formats[f].type), c, (double)out[c], (double)want);
        }
    }
    signed char bytes[256];
    float out[256], quarter = 0.25f;
    for (int c = 0; c < 256; c++)
        bytes[c] = (signed char)(c - 128);
    embed_rows(be, out, K3_INT8, bytes, &quarter, 1, 256);
    for (int c = 0; c < 256; c++)
        assert_true(out[c] == (float)(c - 128) * 0.25f);
}

static void every_integer_code_at_every_place(void **state)
{
    (void)state;
    on_levels(check_integers);
}

static void check_bf16(k3_backend *be)
{
    static uint16_t codes[65536];
    static float out[65536];
    for (int i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    embed_rows(be, out, K3_BF16, codes, NULL, 1, 65536);
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t bits;
        memcpy(&bits, &out[i], 4);
        /* A signalling NaN may come out quiet. */
        if (bits != i << 16 && !(isnan(out[i]) && (i & 0x7fff) > 0x7f80))
            fail_msg("%s: bf16 %04x decodes to %08x", be->name, i, bits);
    }
}

static void every_bf16_value(void **state)
{
    (void)state;
    on_levels(check_bf16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a29_all_256_mxfp4_scales_and_16_codes),
                                       cmocka_unit_test(mxfp4_example_of_the_specification),
                                       cmocka_unit_test(every_integer_code_at_every_place), cmocka_unit_test(every_bf16_value)};
    return cmocka_run_group_tests_name("number formats", tests, NULL, NULL);
}
