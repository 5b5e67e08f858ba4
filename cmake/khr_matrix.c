/* khr_matrix IN OUT: SPIR-V with the cooperative matrices of SPV_NV_cooperative_matrix to words of SPIR-V with those of
 * SPV_KHR_cooperative_matrix. Older compilers know the former only; drivers do the latter faster, because types tell them which factor of a
 * product a matrix is. src/backend/gpu/glsl/matrix.glsl tells this program by a number of columns that no matrix has. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OP_EXTENSION = 10,
    OP_CAPABILITY = 17,
    OP_TYPE_INT = 21,
    OP_TYPE_FLOAT = 22,
    OP_CONSTANT_TRUE = 41,
    OP_CONSTANT = 43,
    OP_SPEC_CONSTANT_OP = 52,
    NV_TYPE = 5358, /* the next four are load, store, multiply-add and length */
    NV_CAPABILITY = 5357,
    KHR_TYPE = 4456,
    KHR_CAPABILITY = 6022,
    MAX_WORDS = 1 << 20,
    N_NUMBERS = 17, /* constants 0 .. 16 are added, ids from first_number on */
    AS_B = 17,      /* columns that stand for 16 and a use */
    AS_HALF_SUM = 18
};
enum { USE_A, USE_B, USE_SUM };

static uint32_t in[MAX_WORDS], out[MAX_WORDS + 4 * N_NUMBERS], value[MAX_WORDS]; /* of constants, by id */
static uint8_t is_true[MAX_WORDS], is_half[MAX_WORDS];
static uint32_t n_out, first_number;

static void put(uint32_t op, const uint32_t *operands, uint32_t n)
{
    out[n_out] = (n + 1) << 16 | op;
    memcpy(out + n_out + 1, operands, n * sizeof *operands);
    n_out += n + 1;
}

static void put_numbers(uint32_t type)
{
    for (uint32_t i = 0; i < N_NUMBERS; i++)
        put(OP_CONSTANT, (uint32_t[]){type, first_number + i, i}, 3);
}

/* Type, id, component, scope, rows, columns. */
static void put_type(const uint32_t *x)
{
    uint32_t columns = value[x[4]], use = !is_half[x[1]] || columns == AS_HALF_SUM ? USE_SUM : columns == AS_B ? USE_B : USE_A;
    put(KHR_TYPE, (uint32_t[]){x[0], x[1], x[2], x[3], first_number + 16, first_number + use}, 6);
}

/* Pointers first; then NV has the stride and whether columns lie together, KHR the layout, 0 or 1, and the stride. */
static void put_access(uint32_t op, const uint32_t *x, uint32_t n, uint32_t stride)
{
    uint32_t y[16];
    memcpy(y, x, n * sizeof *x);
    y[stride] = first_number + is_true[x[stride + 1]];
    y[stride + 1] = x[stride];
    put(op, y, n);
}

static void translate(uint32_t op, uint32_t *x, uint32_t n)
{
    static uint32_t has_numbers;
    if (op == OP_EXTENSION && strcmp((const char *)x, "SPV_NV_cooperative_matrix") == 0) {
        uint32_t name[7] = {0};
        memcpy(name, "SPV_KHR_cooperative_matrix", 26);
        put(op, name, 7);
        return;
    }
    if (op == OP_CAPABILITY && x[0] == NV_CAPABILITY)
        x[0] = KHR_CAPABILITY;
    if ((op == OP_SPEC_CONSTANT_OP && x[2] == NV_TYPE + 4) || op == NV_TYPE + 4) {
        fputs("khr_matrix: the length of a matrix is no constant in SPV_KHR_cooperative_matrix\n", stderr);
        exit(EXIT_FAILURE);
    }
    if (op == OP_TYPE_FLOAT)
        is_half[x[0]] = x[1] == 16;
    if (op == OP_CONSTANT_TRUE)
        is_true[x[1]] = 1;
    if (op == OP_CONSTANT)
        value[x[1]] = x[2];
    if (op == NV_TYPE)
        put_type(x);
    else if (op == NV_TYPE + 1 || op == NV_TYPE + 2)
        put_access(op - NV_TYPE + KHR_TYPE, x, n, op == NV_TYPE + 1 ? 3 : 2);
    else
        put(op == NV_TYPE + 3 ? op - NV_TYPE + KHR_TYPE : op, x, n);
    if (op == OP_TYPE_INT && x[1] == 32 && x[2] == 0 && !has_numbers) {
        has_numbers = 1;
        put_numbers(x[0]);
    }
}

int main(int argc, char **argv)
{
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    size_t n = file ? fread(in, sizeof *in, MAX_WORDS, file) : 0;
    if (n < 5 || n == MAX_WORDS || in[3] >= MAX_WORDS)
        return EXIT_FAILURE;
    fclose(file);
    memcpy(out, in, 5 * sizeof *in);
    n_out = 5;
    first_number = in[3];
    out[3] += N_NUMBERS;
    for (size_t i = 5; i < n; i += in[i] >> 16) {
        if (in[i] >> 16 == 0 || i + (in[i] >> 16) > n)
            return EXIT_FAILURE;
        translate(in[i] & 0xffff, in + i + 1, (in[i] >> 16) - 1);
    }
    if (!(file = fopen(argv[2], "w")))
        return EXIT_FAILURE;
    for (uint32_t i = 0; i < n_out; i++)
        fprintf(file, "0x%08x,%s", out[i], i % 8 == 7 ? "\n" : "");
    return fclose(file) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
