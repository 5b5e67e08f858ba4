/* bench_gpu: time, bytes and rates of every operation at K3's real shapes on one device, beside the ceilings of the same run. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "usage: bench_gpu [--backend NAME] [--only OP] [--rounds N] [--small] [--json]\n"
                            "  --backend NAME  what computes, as k3 takes it [vulkan]\n"
                            "  --only OP       only jobs whose operation begins so: gemv, gemm, moe, kda, mla_attend, sample, ...\n"
                            "  --rounds N      rounds, of which medians are printed [7]\n"
                            "  --small         small shapes: that it works, not how fast\n"
                            "  --json          one JSON object on stdout in place of the table\n";

static const shape k3_shape = {.hidden = 7168,
                               .inner = 12288,
                               .dense = 33792,
                               .shared = 6144,
                               .latent = 3584,
                               .expert_inner = 3072,
                               .heads = 96,
                               .head = 128,
                               .experts = 896,
                               .choices = 16,
                               .vocab = 163840,
                               .prefill = 512,
                               .attend_rows = 128,
                               .sequences = 8,
                               .context = {4096, 32768, 131072},
                               .nope = 128,
                               .rope = 64,
                               .v = 128,
                               .kv_lora = 512,
                               .q_lora = 1536,
                               .block = 512u << 20,
                               .blocks = {32, 3, 2, 2, 1, 1}};
static const shape small_shape = {.hidden = 256,
                                  .inner = 512,
                                  .dense = 512,
                                  .shared = 256,
                                  .latent = 128,
                                  .expert_inner = 96,
                                  .heads = 4,
                                  .head = 128,
                                  .experts = 24,
                                  .choices = 4,
                                  .vocab = 2048,
                                  .prefill = 32,
                                  .attend_rows = 8,
                                  .sequences = 2,
                                  .context = {64, 128, 512},
                                  .nope = 128,
                                  .rope = 64,
                                  .v = 128,
                                  .kv_lora = 512,
                                  .q_lora = 256,
                                  .block = 8u << 20,
                                  .blocks = {2, 1, 1, 1, 1, 1}};

static int parse(options *o, int n, char **arguments)
{
    *o = (options){.backend = "vulkan", .rounds = 7};
    for (int i = 1; i < n; i++) {
        const char *a = arguments[i], *value = i + 1 < n ? arguments[i + 1] : NULL;
        if (strcmp(a, "--small") == 0)
            o->small = 1;
        else if (strcmp(a, "--json") == 0)
            o->json = 1;
        else if (strcmp(a, "--backend") == 0 && value)
            o->backend = arguments[++i];
        else if (strcmp(a, "--only") == 0 && value)
            o->only = arguments[++i];
        else if (strcmp(a, "--rounds") == 0 && value && atoi(value) >= 1 && atoi(value) <= MAX_ROUNDS)
            o->rounds = atoi(arguments[++i]);
        else
            return 0;
    }
    return 1;
}

/* The time a rate is made from: the device's own where there is one. */
static double best_time(const row *r)
{
    return r->device > 0 ? r->device : r->wall;
}

static double rate(double amount, double microseconds)
{
    return microseconds > 0 ? amount / (microseconds * 1e-6) : 0;
}

/* What the layers' times say for a pass through K3; nothing here was run as a whole. */
static void print_whole(const bench *b)
{
    const int rows[] = {1, b->shape.prefill};
    for (int i = 0; i < 2; i++) {
        double device = bench_extrapolate(b, rows[i], 0), wall = bench_extrapolate(b, rows[i], 1);
        if (wall > 0)
            printf("\nextrapolated, not measured: 69 KDA, 24 MLA, 92 MoE, 1 dense and the head for %d row%s: %.3f ms by the clock (%.1f "
                   "tokens/s), "
                   "%.3f ms on the device",
                   rows[i], i ? "s" : "", wall * 1e-3, rate(rows[i], wall), device * 1e-3);
    }
    putchar('\n');
}

static void print_table(const bench *b)
{
    printf("%s\n%d rounds, medians. Microseconds a call: between the device's time stamps; by the clock, one after another; by the clock, "
           "free to\n"
           "overlap, from the submission on; of those one after another, the host's part. Bytes and their share of the copy's from the "
           "first\nof these that there is.\n"
           "copy: %.1f GB/s, read and written\n\n",
           b->device, b->options->rounds, b->copy_rate * 1e-9);
    printf("%-12s %-44s %10s %10s %10s %8s %10s %9s %7s %9s\n", "operation", "shape", "device", "clock", "overlap", "host", "MB", "GB/s",
           "share", "TFLOP/s");
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        double t = best_time(r);
        if (r->error[0]) {
            printf("%-12s %-44s %s\n", r->op, r->shape, r->error);
            continue;
        }
        printf("%-12s %-44s %10.2f %10.2f %10.2f %8.2f %10.3f %9.1f %6.1f%% %9.3f%s\n", r->op, r->shape, r->device, r->wall, r->apart,
               r->recording, r->bytes * 1e-6, rate(r->bytes, t) * 1e-9, b->copy_rate > 0 ? 100 * rate(r->bytes, t) / b->copy_rate : 0,
               rate(r->flops, t) * 1e-12, r->ceiling ? "  exact mode: plain f32" : "");
    }
    if (!b->options->small)
        print_whole(b);
}

static void print_text(const char *text)
{
    putchar('"');
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= 0x20)
            putchar(*text);
    putchar('"');
}

static void print_json(const bench *b)
{
    printf("{\"device\": ");
    print_text(b->device);
    printf(", \"rounds\": %d, \"small\": %s, \"copy_bytes_per_s\": %.0f, \"rows\": [", b->options->rounds,
           b->options->small ? "true" : "false", b->copy_rate);
    for (int i = 0; i < b->n_rows; i++) {
        const row *r = &b->rows[i];
        double t = best_time(r);
        printf("%s\n{\"op\": \"%s\", \"shape\": \"%s\", \"exact\": %s", i ? "," : "", r->op, r->shape, r->ceiling ? "true" : "false");
        if (r->error[0]) {
            printf(", \"error\": ");
            print_text(r->error);
        } else {
            printf(", \"calls\": %d, \"device_us\": %.3f, \"clock_us\": %.3f, \"overlap_us\": %.3f, \"host_us\": %.3f, \"bytes\": %.0f, "
                   "\"flops\": %.0f, \"bytes_per_s\": %.0f, \"copy_share\": %.4f, \"flop_per_s\": %.0f",
                   r->calls, r->device, r->wall, r->apart, r->recording, r->bytes, r->flops, rate(r->bytes, t),
                   b->copy_rate > 0 ? rate(r->bytes, t) / b->copy_rate : 0, rate(r->flops, t));
        }
        putchar('}');
    }
    printf("\n], \"extrapolated_us\": {\"decode_clock\": %.3f, \"decode_device\": %.3f, \"prefill_clock\": %.3f, \"prefill_device\": %.3f, "
           "\"prefill_rows\": %d}}\n",
           bench_extrapolate(b, 1, 1), bench_extrapolate(b, 1, 0), bench_extrapolate(b, b->shape.prefill, 1),
           bench_extrapolate(b, b->shape.prefill, 0), b->shape.prefill);
}

/* With time stamps, then without them, then the f32 ceiling in exact mode. */
static k3_status measure(bench *b, k3_error *err)
{
    k3_status status = K3_OK;
    for (int pass = 0; status == K3_OK && pass < 3; pass++) {
        double started = bench_seconds();
        status = bench_open(b, pass == 0, pass == 2, err);
        if (status == K3_OK && pass == 2) {
            bench_ceiling(b);
        } else if (status == K3_OK) {
            bench_copy_rate(b);
            bench_large(b);
            bench_small(b);
            bench_layers(b);
        }
        bench_close(b);
        fprintf(stderr, "bench_gpu: pass %d of 3, %.1f s\n", pass + 1, bench_seconds() - started);
    }
    return status;
}

int main(int n, char **arguments)
{
    options o;
    if (!parse(&o, n, arguments)) {
        fputs(usage, stderr);
        return 2;
    }
    static bench b;
    k3_error err = {0};
    b.options = &o;
    b.shape = o.small ? small_shape : k3_shape;
    if (measure(&b, &err) != K3_OK) {
        fprintf(stderr, "bench_gpu: %s\n", err.text);
        return 1;
    }
    (o.json ? print_json : print_table)(&b);
    return 0;
}
