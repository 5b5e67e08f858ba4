#include "backend/cpu/cpu.h"
#include "backend/cpu/decode.h"

/* out[c] = decoded weight c of the row, [cols] f32; one rounding where a scale multiplies. */
void k3_decode_scalar(float *out, const void *codes, const void *scale, k3_type type, int cols)
{
    for (int c = 0; c < cols; c++)
        out[c] = k3_decode_code(type, codes, scale, c);
    if (!k3_type_scales_rows(type))
        return;
    float row_scale = k3_load_f32(scale, 0);
    for (int c = 0; c < cols; c++)
        out[c] *= row_scale;
}

typedef struct embed_args {
    const k3_cpu *cpu;
    const k3_cpu_mat *table;
    float *y;
    const int32_t *ids;
    int rows;
} embed_args;

static void embed_task(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    const embed_args *a = arg;
    const k3_cpu_mat *table = a->table;
    for (int64_t t = first; t < last; t++) {
        float *y = a->y + t * table->cols;
        int32_t id = a->ids[t];
        if (id < 0 || id >= a->rows)
            memset(y, 0, (size_t)table->cols * sizeof *y);
        else
            a->cpu->k.decode(y, table->codes + (size_t)id * table->row_bytes, table->scale + (size_t)id * table->scale_bytes, table->type,
                             table->cols);
    }
}

void k3_cpu_embed(k3_backend *be, k3_ref y, const k3_mat *table, k3_ref ids, int T)
{
    k3_cpu *cpu = k3_cpu_of(be);
    uint64_t t0 = k3_cpu_begin();
    k3_cpu_mat m;
    if (!k3_cpu_mat_of(cpu, &m, table, "embed")) {
        memset(k3_host(y), 0, (size_t)T * (size_t)table->cols * sizeof(float));
        return;
    }
    embed_args a = {cpu, &m, k3_host(y), k3_host(ids), table->rows};
    for (int t = 0; t < T; t++)
        if (a.ids[t] < 0 || a.ids[t] >= table->rows)
            k3_cpu_fail(cpu, K3_E_INVALID, "embed: row %d asks for id %d, the table has ids 0 to %d", t, (int)a.ids[t], table->rows - 1);
    k3_pool_run(cpu->pool, embed_task, &a, T, k3_cpu_grain(m.cols));
    k3_cpu_end(cpu, K3_OP_EMBED, t0, (uint64_t)T * (m.row_bytes + m.scale_bytes));
}
