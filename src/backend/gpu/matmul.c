#include "backend/args/matmul.h"
#include "backend/gpu/driver.h"

#include <math.h>

enum {
    MAX_PROJ = 16,
    FEW = 8,
    FEW_F16 = 2,
    MOST_BLOCK_F16 = 4,
    SHORT_F16 = 224,
    MOST_F16 = 384,
    MOST_TWO_F16 = 448,
    TILE_ROWS = 64,
    TILE_T = 16,
    MATRIX_ROWS = 64,
    MATRIX_T = 32,
    MATRIX_DEPTH = 64,
    MAX_SPLITS = 8
};

typedef enum kind { BY_ROWS, BY_ROWS_F16, BY_TILES, BY_MATRIX } kind;

/* Projections of one type that one kernel makes in one dispatch. */
typedef struct group {
    k3_type type;
    kind kind;
    int rows; /* of all its matrices */
    /* BY_MATRIX: */
    uint32_t mx, mw;        /* rows of x and of weights in a tile, in units of MATRIX_T and MATRIX_ROWS */
    uint32_t whole, splits; /* the blocks of weights after the first `whole` are made in that many shares of the columns */
    uint32_t split_row;     /* where they begin */
    uint64_t sums_at;       /* their place in scratch */
} group;

typedef struct call {
    k3_gpu *gpu;
    const k3_gpu_limits *limits;
    const k3_proj *proj;
    int n, T, cols;
    k3_ref x, scratch;
    kind kinds[MAX_PROJ];
    group groups[MAX_PROJ];
    int n_groups;
    uint64_t x_scale_at, scratch_bytes; /* scratch: x as f16, its scales, shares */
} call;

/* Columns that a lane of the kernel for few rows reads at once (matmul_rows.comp). */
static int columns_of_a_unit(k3_type type)
{
    static const int columns[K3_N_TYPES] = {[K3_F32] = 8,       [K3_BF16] = 8,      [K3_INT8] = 16, [K3_INT4] = 32,
                                            [K3_INT4_G64] = 32, [K3_INT3_G64] = 64, [K3_INT2] = 64, [K3_MXFP4] = 32};
    return columns[type];
}

static int on(k3_ref ref, int bytes)
{
    uint64_t left;
    return !ref.buf || k3_gpu_piece(ref, &left) % (uint64_t)bytes == 0;
}

/* Whether the kernel for few rows in f16 can make it: rows from one piece of memory, the scales of 4 blocks in a word, a subgroup's lanes
 * always busy. FEW_F16 and the like are the kernel's. */
static int fits_f16(const call *c, const k3_mat *w)
{
    uint64_t data_left, scale_left, blocks = (uint64_t)(c->cols / 32) * (uint64_t)w->rows;
    int units = c->cols / 32;
    if (!c->limits->f16 || c->limits->invocations < 512 || w->type != K3_MXFP4 || c->T * units > (c->T == 1 ? MOST_F16 : MOST_TWO_F16) ||
        c->T > FEW_F16 || c->cols % 128 || units % (int)c->limits->subgroup || w->rows < MOST_BLOCK_F16)
        return 0;
    k3_gpu_piece(w->data, &data_left);
    return k3_gpu_piece(w->scale, &scale_left) % 4 == 0 && data_left >= 16 * blocks && scale_left >= blocks;
}

/* The kernels for few rows and on matrix units read aligned vectors, and columns that are whole ones; scales are words, or bytes anywhere.
 * A matrix stored in f32 asks for f32 products. */
static kind kind_of(const call *c, const k3_mat *w)
{
    int aligned = on(c->x, 16) && on(w->data, 16) && (w->type == K3_MXFP4 || on(w->scale, 4));
    if (aligned && fits_f16(c, w))
        return BY_ROWS_F16;
    if (aligned && c->T <= FEW && c->cols % columns_of_a_unit(w->type) == 0)
        return BY_ROWS;
    if (aligned && c->T > FEW && k3_gpu_has_matrix(c->limits, K3_GPU_MATMUL) && c->cols % MATRIX_DEPTH == 0 && w->type != K3_F32)
        return BY_MATRIX;
    return BY_TILES;
}

static int in_group(const call *c, const group *g, int i)
{
    return c->proj[i].w->type == g->type && c->kinds[i] == g->kind;
}

/* Blocks of rows of weights; those before block `end` are of *rows rows. */
static uint32_t matrix_blocks(const call *c, const group *g, uint32_t mw, uint32_t end, uint32_t *rows)
{
    uint32_t blocks = 0;
    *rows = 0;
    for (int i = 0; i < c->n; i++) {
        if (!in_group(c, g, i))
            continue;
        uint32_t mat_rows = (uint32_t)c->proj[i].w->rows, n = (uint32_t)k3_gpu_groups(mat_rows, mw * MATRIX_ROWS);
        uint32_t before = end > blocks ? end - blocks : 0;
        *rows += before < n ? before * mw * MATRIX_ROWS : mat_rows;
        blocks += n;
    }
    return blocks;
}

/* Rows of a tile, and shares of the columns for all blocks or for those that are left after full rounds of workgroups through the device:
 * what takes the least time, in products of a tile of columns. A workgroup costs 2 more; shares cost a launch, which is 4, and 8 for every
 * round of them that is written and added. With MAX_SPLITS tiles of columns in a share, rounded up or down, none is empty. */
static void choose_tile(const call *c, group *g)
{
    uint32_t depth = (uint32_t)c->cols / MATRIX_DEPTH, slots = c->limits->cores * (g->mx == 4 ? 1 : 2), unused;
    uint64_t across = k3_gpu_groups((uint64_t)c->T, g->mx * MATRIX_T);
    double least = INFINITY;
    for (uint32_t mw = c->limits->small_tiles ? 1 : 3, least_mw = mw > 1 ? 2 : 1; mw >= least_mw; mw--) {
        uint32_t blocks = matrix_blocks(c, g, mw, 0, &unused), full = (uint32_t)(blocks * across / slots * slots / across);
        for (uint32_t i = 0; i < 2 * MAX_SPLITS; i++) {
            uint32_t s = i / 2 + 1, whole = s == 1 ? blocks : i % 2 ? full : 0;
            if (s > 1 && (depth / s < MAX_SPLITS || whole == blocks))
                continue;
            double shares = (double)((blocks - whole) * across * s);
            double cost = (double)k3_gpu_groups(whole * across, slots) * (depth + 2);
            if (s > 1)
                cost += ceil(shares / slots) * ((double)depth / s + 2) + 4 + 8 * shares / slots;
            if (cost * mw < least) {
                least = cost * mw;
                g->mw = mw;
                g->whole = whole;
                g->splits = s;
            }
        }
    }
}

static uint64_t sums_bytes(const call *c, const group *g)
{
    return 4 * (uint64_t)g->splits * (uint64_t)c->T * ((uint64_t)g->rows - g->split_row);
}

static void plan_matrix(call *c, group *g)
{
    g->mx = c->T <= MATRIX_T ? 1 : c->T <= 2 * MATRIX_T || c->limits->small_tiles ? 2 : 4;
    choose_tile(c, g);
    if (!c->x_scale_at) {
        c->x_scale_at = 2 * (uint64_t)c->T * (uint64_t)c->cols;
        c->scratch_bytes = (c->x_scale_at + 4 * (uint64_t)c->T + 15) / 16 * 16;
    }
    g->sums_at = c->scratch_bytes;
    matrix_blocks(c, g, g->mw, g->whole, &g->split_row);
    c->scratch_bytes += sums_bytes(c, g);
}

static void plan(call *c)
{
    for (int i = 0; i < c->n; i++)
        c->kinds[i] = kind_of(c, c->proj[i].w);
    for (int i = 0; i < c->n; i++) {
        group *g = c->groups;
        while (g < c->groups + c->n_groups && !in_group(c, g, i))
            g++;
        if (g == c->groups + c->n_groups)
            c->groups[c->n_groups++] = (group){.type = c->proj[i].w->type, .kind = c->kinds[i]};
        g->rows += c->proj[i].w->rows;
    }
    for (int i = 0; i < c->n_groups; i++)
        if (c->groups[i].kind == BY_MATRIX)
            plan_matrix(c, &c->groups[i]);
}

/* The table of a group's parts, declared; blocks are of that many rows. With shares, y is not written yet. */
static struct k3_matmul_args table(call *c, const group *g, uint32_t rows_a_block)
{
    struct k3_matmul_part parts[K3_GPU_MAX_PARTS];
    struct k3_mat_args w[K3_GPU_MAX_PARTS];
    struct k3_matmul_args args = {.T = (uint32_t)c->T, .cols = (uint32_t)c->cols};
    for (int i = 0; i < c->n; i++) {
        if (!in_group(c, g, i))
            continue;
        const k3_mat *mat = c->proj[i].w;
        int n = k3_gpu_mat(c->gpu, w, K3_GPU_MAX_PARTS - (int)args.n_parts, mat, 0, mat->rows, "matmul");
        uint64_t y = k3_gpu_write(c->gpu, c->proj[i].y, 4 * (uint64_t)c->T * (uint64_t)mat->rows);
        for (int j = 0; j < n; j++) {
            parts[args.n_parts++] = (struct k3_matmul_part){
                .w = w[j], .y = y, .stride = (uint32_t)mat->rows, .first_block = args.blocks, .first_row = args.rows};
            uint32_t blocks = (uint32_t)k3_gpu_groups(w[j].rows, rows_a_block);
            if (g->whole >= args.blocks && g->whole - args.blocks < blocks)
                args.split_row = args.rows + (g->whole - args.blocks) * rows_a_block;
            args.blocks += blocks;
            args.rows += w[j].rows;
            y += 4 * (uint64_t)w[j].rows;
        }
    }
    if (args.n_parts == 1)
        args.only = parts[0];
    else if (args.n_parts > 1)
        args.parts = k3_gpu_put(c->gpu, parts, args.n_parts * sizeof parts[0]);
    k3_gpu_work(c->gpu, 2.0 * c->T * args.rows * c->cols);
    return args;
}

static uint64_t read_x(call *c)
{
    return k3_gpu_read(c->gpu, c->x, 4 * (uint64_t)c->T * (uint64_t)c->cols);
}

/* Rows of a subgroup's blocks, 1 to `most`: such that the fullest of n subgroups has the fewest rows, and of equals the largest block,
 * which shares the reads of x among more weights. */
static uint32_t rows_of_a_block(uint64_t rows, uint64_t n, uint32_t most)
{
    uint32_t best = 1;
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 1; r <= most; r++) {
        uint64_t share = (rows + r * n - 1) / (r * n) * r;
        if (share <= least) {
            least = share;
            best = r;
        }
    }
    return best;
}

/* One workgroup a core, which holds x in shared memory and therefore is large, unless there are too few rows for it. */
static void by_rows(call *c, const group *g)
{
    uint32_t lanes = c->limits->subgroup, threads = c->T <= 2 ? 768 : 512, per_core = c->T <= 2 ? 1 : 2;
    while (threads > 256 && (threads > c->limits->invocations || (uint64_t)g->rows * lanes < (uint64_t)threads * c->limits->cores))
        threads -= 256;
    uint32_t at_once = per_core * c->limits->cores;
    uint32_t a_block = rows_of_a_block((uint64_t)g->rows, (uint64_t)at_once * threads / lanes, c->T <= 2 ? 4 : 2);
    struct k3_matmul_args args = table(c, g, a_block);
    args.x = read_x(c);
    uint32_t spec[] = {(uint32_t)g->type, (uint32_t)c->T, a_block, (uint32_t)columns_of_a_unit(g->type), threads};
    uint64_t groups = k3_gpu_groups((uint64_t)args.blocks * lanes, threads);
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_matmul_rows, spec, 5, &args, sizeof args, groups < at_once ? groups : at_once, 1, 1);
}

/* Where x is short, a workgroup of 512 a core, which leaves place for one of the next launch, or two where rows are many. Else a larger
 * one, for which less is gained. */
static void by_rows_f16(call *c, const group *g)
{
    uint32_t lanes = c->limits->subgroup, units = (uint32_t)c->cols / 32, is_short = c->T == 1 && units <= SHORT_F16;
    uint32_t threads = is_short || c->limits->invocations < 1024 ? 512 : 1024, subgroups = c->limits->cores * threads / lanes;
    uint32_t per_core = is_short && (uint32_t)g->rows > subgroups * MOST_BLOCK_F16 ? 2 : 1;
    uint32_t a_block = rows_of_a_block((uint64_t)g->rows, per_core * subgroups, c->T == 1 ? MOST_BLOCK_F16 : 3);
    struct k3_matmul_args args = table(c, g, a_block);
    args.x = read_x(c);
    uint32_t spec[] = {(uint32_t)c->T, a_block, units, threads};
    uint64_t groups = k3_gpu_groups((uint64_t)args.blocks * lanes, threads), at_once = per_core * c->limits->cores;
    k3_gpu_shader shader = is_short ? K3_GPU_SHADER_matmul_rows_f16 : K3_GPU_SHADER_matmul_rows_f16_wide;
    k3_gpu_dispatch(c->gpu, c->T == 2 ? K3_GPU_SHADER_matmul_rows_f16_two : shader, spec, 4, &args, sizeof args,
                    groups < at_once ? groups : at_once, 1, 1);
}

static void by_tiles(call *c, const group *g)
{
    struct k3_matmul_args args = table(c, g, TILE_ROWS);
    uint32_t quarters = c->T < 4 * TILE_T ? (uint32_t)k3_gpu_groups((uint64_t)c->T, TILE_T) : 4;
    args.x = read_x(c);
    uint32_t spec[] = {(uint32_t)g->type, quarters};
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_matmul_tile, spec, 2, &args, sizeof args, args.blocks * k3_gpu_groups(args.T, TILE_T * quarters),
                    1, 1);
}

static void half_of_x(call *c)
{
    struct k3_matmul_half_args args = {
        k3_gpu_write(c->gpu, c->scratch, 2 * (uint64_t)c->T * (uint64_t)c->cols),
        k3_gpu_write(c->gpu, k3_at(c->scratch, c->x_scale_at), 4 * (uint64_t)c->T),
        read_x(c),
        (uint32_t)c->cols,
        0,
    };
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_matmul_half, NULL, 0, &args, sizeof args, (uint64_t)c->T, 1, 1);
}

static void by_matrix(call *c, const group *g)
{
    struct k3_matmul_args args = table(c, g, g->mw * MATRIX_ROWS);
    args.x = k3_gpu_read(c->gpu, c->scratch, 2 * (uint64_t)c->T * (uint64_t)c->cols);
    args.x_scale = k3_gpu_read(c->gpu, k3_at(c->scratch, c->x_scale_at), 4 * (uint64_t)c->T);
    /* The plan takes every matrix for one piece; where it is wrong about the first row to split, none is. */
    args.whole = g->whole < args.blocks && args.split_row == g->split_row ? g->whole : args.blocks;
    args.splits = g->splits;
    if (args.whole < args.blocks)
        args.sums = k3_gpu_write(c->gpu, k3_at(c->scratch, g->sums_at), sums_bytes(c, g));
    uint32_t spec[] = {(uint32_t)g->type, g->mx, g->mw};
    uint64_t t_tiles = k3_gpu_groups(args.T, g->mx * MATRIX_T), blocks = args.whole + (uint64_t)(args.blocks - args.whole) * g->splits;
    k3_gpu_dispatch_full(c->gpu, K3_GPU_SHADER_matmul_matrix, spec, 3, &args, sizeof args, blocks * t_tiles, 1, 1);
    if (args.whole == args.blocks)
        return;
    k3_gpu_read(c->gpu, k3_at(c->scratch, g->sums_at), sums_bytes(c, g));
    for (int i = 0; i < c->n; i++)
        if (in_group(c, g, i))
            k3_gpu_write(c->gpu, c->proj[i].y, 4 * (uint64_t)c->T * (uint64_t)c->proj[i].w->rows);
    k3_gpu_dispatch(c->gpu, K3_GPU_SHADER_matmul_sum, NULL, 0, &args, sizeof args, c->T * k3_gpu_groups(args.rows - args.split_row, 256), 1,
                    1);
}

/* The names in failures are those of the CPU's matmul. */
static int acceptable(k3_gpu *gpu, const k3_proj *proj, int n_proj)
{
    if (n_proj < 1 || n_proj > MAX_PROJ) {
        k3_gpu_fail(gpu, K3_E_UNSUPPORTED, "matmul: %d projections of one input, 1 to %d wanted", n_proj, MAX_PROJ);
        return 0;
    }
    for (int i = 0; i < n_proj; i++) {
        struct k3_mat_args first;
        if (proj[i].w->rows > 0 && !k3_gpu_mat(gpu, &first, 1, proj[i].w, 0, 1, "matmul"))
            return 0;
        if (proj[i].w->cols != proj[0].w->cols) {
            k3_gpu_fail(gpu, K3_E_INVALID, "matmul: projection %d takes %d inputs, projection 0 takes %d", i, proj[i].w->cols,
                        proj[0].w->cols);
            return 0;
        }
    }
    return 1;
}

void k3_gpu_matmul(k3_backend *be, const k3_proj *proj, int n_proj, k3_ref x, int T)
{
    if (T < 1)
        return;
    k3_gpu *gpu = k3_gpu_begin(be, K3_GPU_MATMUL);
    call c = {.gpu = gpu, .limits = k3_gpu_limits_of(gpu), .proj = proj, .n = n_proj, .T = T, .x = x};
    uint64_t bytes = 0;
    if (acceptable(gpu, proj, n_proj)) {
        c.cols = proj[0].w->cols;
        plan(&c);
        if (c.scratch_bytes)
            c.scratch = k3_gpu_scratch(gpu, c.scratch_bytes);
        for (int i = 0; i < n_proj; i++)
            bytes += k3_gpu_mat_bytes(proj[i].w);
    }
    if (c.scratch_bytes)
        half_of_x(&c);
    for (int i = 0; i < c.n_groups && !k3_gpu_failed(gpu); i++) {
        const group *g = &c.groups[i];
        if (g->kind == BY_MATRIX)
            by_matrix(&c, g);
        if (g->kind == BY_ROWS)
            by_rows(&c, g);
        if (g->kind == BY_ROWS_F16)
            by_rows_f16(&c, g);
        if (g->kind == BY_TILES)
            by_tiles(&c, g);
    }
    k3_gpu_end(gpu, bytes);
}
