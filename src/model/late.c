#include "model/late.h"

#include "base/os.h"

#include <stdatomic.h>
#include <stdlib.h>

void k3_late_close(k3_late *late)
{
    if (!late)
        return;
    k3_trunk_close(late->stream);
    if (late->table.data.buf)
        late->be->memory->release(late->be, late->table.data.buf);
    k3_converter_close(&late->converter);
    free(late->blocks);
    free(late);
}

k3_status k3_late_take(void *user, const k3_trunk_part *part, const void *raw, k3_error *err)
{
    k3_late *late = user;
    const k3_mat *mat = part->mat;
    if (part->is_scale)
        return k3_scales_check(raw, part->tensor, part->bytes, err);
    if (k3_dtype_is_packed(part->tensor->dtype))
        return K3_OK;
    int64_t first = (int64_t)(part->at / k3_stored_row(part->tensor));
    if (part->is_converted)
        return k3_convert(&late->converter, k3_host(mat->data), k3_host(mat->scale), mat->type, raw, part->tensor, first, mat->rows, err);
    return k3_convert_check(&late->converter, raw, part->tensor, first, mat->rows, err);
}

k3_status k3_late_begin(k3_late *late, int wants_head, k3_error *err)
{
    return late && late->stream ? k3_trunk_begin(late->stream, wants_head && late->n_blocks, err) : K3_OK;
}

k3_status k3_late_layer(k3_late *late, int layer, k3_error *err)
{
    return late && late->stream && layer >= late->first_layer ? k3_trunk_wait(late->stream, K3_TRUNK_LAYERS, err) : K3_OK;
}

void k3_late_layer_done(k3_late *late, int layer)
{
    if (late && late->stream && layer >= late->first_layer)
        k3_trunk_done(late->stream, K3_TRUNK_LAYERS);
}

/* ---- rows of the embedding ------------------------------------------------------------------------------------------- */

typedef struct k3_row_job {
    const k3_late *late;
    uint64_t row_bytes;
    int32_t ids[K3_LATE_ROWS];
    k3_error err;
    atomic_int has_failed;
} k3_row_job;

static void read_rows(void *arg, int64_t first, int64_t last, int thread)
{
    (void)thread;
    k3_row_job *job = arg;
    for (int64_t i = first; i < last; i++) {
        k3_error err;
        void *to = k3_host(k3_at(job->late->table.data, (uint64_t)i * job->row_bytes));
        if (k3_ckpt_read(job->late->ckpt, to, job->late->embed, (uint64_t)job->ids[i] * job->row_bytes, job->row_bytes, &err) != K3_OK &&
            !atomic_exchange(&job->has_failed, 1))
            job->err = err;
    }
}

k3_status k3_late_rows(k3_late *late, int32_t *places, const int32_t *ids, int n, k3_error *err)
{
    k3_row_job job = {.late = late, .row_bytes = (uint64_t)late->table.cols * k3_stored_size(late->embed)};
    int n_rows = 0;
    for (int i = 0; i < n; i++) {
        for (places[i] = 0; places[i] < n_rows && job.ids[places[i]] != ids[i]; places[i]++)
            ;
        if (places[i] == n_rows)
            job.ids[n_rows++] = ids[i];
    }
    uint64_t start = k3_os_nanoseconds();
    k3_pool_run(late->converter.pool, read_rows, &job, n_rows, 1);
    late->row_ns += k3_os_nanoseconds() - start;
    if (job.has_failed)
        return k3_fail(err, job.err.status, "%s", job.err.text);
    late->row_bytes += (uint64_t)n_rows * job.row_bytes;
    for (int i = 0; i < n_rows; i++)
        K3_TRY(k3_convert_check(&late->converter, k3_host(k3_at(late->table.data, (uint64_t)i * job.row_bytes)), late->embed, job.ids[i], 1,
                                err));
    return K3_OK;
}

void k3_late_stats(k3_late *late, k3_trunk_stat *out, int reset)
{
    *out = (k3_trunk_stat){0};
    if (!late)
        return;
    if (late->stream)
        k3_trunk_stats(late->stream, out, reset);
    out->bytes += late->row_bytes;
    out->wait_ns += late->row_ns;
    if (reset)
        late->row_bytes = late->row_ns = 0;
}
