/* Records which experts the bundled model's router wants: the traces of tests/golden/traces, whose README has the format. It is linked
 * around the store's entry, which sees every choice. In the repository root, with a build in build/release:
 *
 *   B=build/release; LIBS="$(for l in engine model store text sample backend io ckpt base; do echo $B/libk3_$l.a; done)"
 *   cc -O2 -D_GNU_SOURCE -Isrc -Iinclude tools/traces/record.c tools/traces/drive.c -o /tmp/record -Wl,--wrap=k3_experts_assign \
 *      -Wl,--start-group $LIBS -Wl,--end-group -lpcre2-8 -luring -lm -lpthread -ldl
 *   /tmp/record tests/golden/traces */
#include "drive.h"

#include "store/experts.h"

#include <stdio.h>

enum { N_EXPERTS = 32, MANY = 8 };

k3_status __real_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err);
k3_status __wrap_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err);

static FILE *file;

k3_status __wrap_k3_experts_assign(k3_experts *experts, int layer, const int32_t *ids, int T, int K, k3_error *err)
{
    int rows[N_EXPERTS] = {0}, n = 0;
    unsigned char record[2 + N_EXPERTS] = {(unsigned char)layer};
    for (int i = 0; i < T * K; i++)
        rows[ids[i]]++;
    for (int id = 0; id < N_EXPERTS; id++)
        if (rows[id])
            record[2 + n++] = (unsigned char)(id | ((rows[id] < MANY ? rows[id] : MANY) - 1) << 5);
    record[1] = (unsigned char)n;
    fwrite(record, 1, 2 + (size_t)n, file);
    return __real_k3_experts_assign(experts, layer, ids, T, K, err);
}

static const struct {
    const char *name;
    int chunk_rows;
    k3_drive drive;
} traces[] = {
    {"single", 128, {NULL, 0, 5, 1, 96}},
    {"shared", 128, {NULL, 20, 5, 4, 96}},
    {"long", 256, {"recall at 4k", 0, 4, 1, 96}},
};

int main(int argc, char **argv)
{
    if (argc != 2)
        return fprintf(stderr, "usage: record FOLDER\n"), 2;
    for (size_t i = 0; i < sizeof traces / sizeof *traces; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s.bin", argv[1], traces[i].name);
        if (!(file = fopen(path, "wb")))
            return perror(path), 1;
        k3_engine *engine = k3_drive_open(traces[i].chunk_rows);
        k3_drive_run(engine, &traces[i].drive);
        k3_engine_close(engine);
        if (fclose(file))
            return perror(path), 1;
    }
    return 0;
}
