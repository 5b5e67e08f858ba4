/* A trunk that does not fit memory: the same bits for every budget, each byte read once a pass, failures by name, nothing allocated. */
#include "model/forward.h"
#include "support/count_allocations.h"
#include "support/tiny_checkpoint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef __APPLE__
#define K3_READ st_atimespec
#define K3_CHANGED st_mtimespec
#else
#define K3_READ st_atim
#define K3_CHANGED st_mtim
#endif

#define MINI "models/k3-mini"

enum { CHUNK = 80, PROMPT = 100, NEW = 4, BUDGETS = 8, MOST_LOGITS = 1 << 16 };

/* ---- a machine ---------------------------------------------------------------------------------------------------------- */

typedef struct machine {
    k3_ckpt *ckpt;
    const k3_hparams *hp;
    k3_backend *be;
    k3_weights *w;
    k3_experts *experts;
    k3_forward *forward;
} machine;

typedef struct kind {
    k3_trunk trunk;
    int exact;
} kind;

static const kind kinds[] = {{K3_TRUNK_BF16, 0}, {K3_TRUNK_INT8, 0}, {K3_TRUNK_INT4, 0}, {K3_TRUNK_BF16, 1}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static void must(k3_status status, const k3_error *err)
{
    if (status != K3_OK)
        fail_msg("status %d: %s", (int)status, err->text);
}

static k3_status try_open(machine *m, const char *model, kind what, uint64_t budget, k3_error *err)
{
    k3_backend_config config = {.threads = 2, .exact = what.exact};
    k3_weights_config weights = {.trunk = what.trunk, .trunk_bytes = budget, .threads = 2};
    k3_experts_config experts = {.open = k3_backend_open, .backend = config};
    *m = (machine){0};
    must(k3_ckpt_open(&m->ckpt, model, err), err);
    m->hp = k3_ckpt_hparams(m->ckpt);
    must(k3_cpu_open(&m->be, NULL, &config, err), err);
    k3_status status = k3_weights_load(&m->w, m->ckpt, m->be, &weights, err);
    if (status != K3_OK)
        return status;
    must(k3_experts_open(&m->experts, m->ckpt, m->be, &experts, err), err);
    must(k3_forward_open(&m->forward, m->w, m->experts, K3_F32, CHUNK, 2, err), err);
    must(k3_experts_load(m->experts, 0, (uint64_t)1 << 28, NULL, NULL, err), err);
    return K3_OK;
}

static machine open_machine(const char *model, kind what, uint64_t budget)
{
    machine m;
    k3_error err;
    must(try_open(&m, model, what, budget, &err), &err);
    return m;
}

static void close_machine(machine *m)
{
    k3_forward_close(m->forward);
    k3_experts_close(m->experts);
    k3_weights_free(m->w);
    m->be->close(m->be);
    k3_ckpt_close(m->ckpt);
}

/* x may be rounded for the trunk's own matrices; the router, KDA's decay and write strength, and the head see it in f32. */
static void who_may_see_x_rounded(void **state)
{
    (void)state;
    machine m = open_machine(MINI, kinds[0], 0);
    int n_routers = 0, n_kda = 0;
    assert_false(m.w->head.rounds_x);
    for (int l = 0; l < m.hp->n_layers; l++) {
        const k3_layer *layer = &m.w->layers[l];
        const k3_kda_weights *kda = &layer->kda;
        if (layer->is_moe) {
            assert_false(layer->moe.router.rounds_x);
            assert_true(layer->moe.shared.gate.rounds_x && layer->moe.shared.down.rounds_x);
            n_routers++;
        }
        if (layer->is_mla) {
            assert_true(layer->mla.q_a.rounds_x && layer->mla.kv_a.rounds_x && layer->mla.o.rounds_x);
            continue;
        }
        assert_true(kda->q.rounds_x && kda->k.rounds_x && kda->v.rounds_x && kda->g.rounds_x && kda->o.rounds_x);
        assert_false(kda->f_a.rounds_x || kda->f_b.rounds_x || kda->b.rounds_x);
        n_kda++;
    }
    assert_true(n_routers > 0 && n_kda > 0);
    close_machine(&m);
}

static uint64_t budget_of(const machine *m, k3_trunk trunk, int i)
{
    uint64_t least = k3_trunk_least_bytes(m->ckpt, trunk), all = k3_weights_bytes(m->ckpt, trunk);
    assert_true(least < all);
    return least + (all - least) * (uint64_t)i / BUDGETS;
}

/* ---- a run: two sequences, the first in chunks, then both together ------------------------------------------------------- */

typedef struct run {
    k3_state *states[2];
    float logits[MOST_LOGITS];
    size_t n;
} run;

static void start_run(run *r, const machine *m)
{
    k3_error err;
    r->n = 0;
    for (int i = 0; i < 2; i++) {
        must(k3_state_open(&r->states[i], m->hp, K3_F32, &err), &err);
        must(k3_state_restart(r->states[i], m->be, &err), &err);
        must(k3_state_reserve(r->states[i], PROMPT + NEW, &err), &err);
    }
}

static void end_run(run *r)
{
    for (int i = 0; i < 2; i++)
        k3_state_close(r->states[i]);
}

/* n rows, the last n_want of which give logits. */
static k3_status prefill(run *r, const machine *m, int first, int n, int n_want, k3_error *err)
{
    int32_t ids[CHUNK], want[CHUNK];
    for (int i = 0; i < n; i++)
        ids[i] = (int32_t)(((first + i) * 73 + 5) % 11 * 17 % m->hp->vocab);
    for (int i = 0; i < n_want; i++)
        want[i] = n - n_want + i;
    k3_span span = {r->states[0], 0, n};
    k3_pass pass = {.ids = ids, .n_rows = n, .spans = &span, .n_spans = 1, .want = want, .n_want = n_want, .logits = r->logits + r->n};
    assert_true(r->n + (size_t)n_want * (size_t)m->hp->vocab <= MOST_LOGITS);
    K3_TRY(k3_forward_run(m->forward, &pass, err));
    r->n += (size_t)n_want * (size_t)m->hp->vocab;
    return K3_OK;
}

static k3_status decode(run *r, const machine *m, int i, k3_error *err)
{
    int32_t ids[2] = {(int32_t)(i * 31 % m->hp->vocab), (int32_t)((i * 57 + 3) % m->hp->vocab)}, want[2] = {0, 1};
    k3_span spans[2] = {{r->states[0], 0, 1}, {r->states[1], 1, 1}};
    k3_pass pass = {.ids = ids, .n_rows = 2, .spans = spans, .n_spans = 2, .want = want, .n_want = 2, .logits = r->logits + r->n};
    assert_true(r->n + 2 * (size_t)m->hp->vocab <= MOST_LOGITS);
    K3_TRY(k3_forward_run(m->forward, &pass, err));
    r->n += 2 * (size_t)m->hp->vocab;
    return K3_OK;
}

static k3_status run_all(run *r, const machine *m, k3_error *err)
{
    int most = (int)(MOST_LOGITS / m->hp->vocab) - 2 * NEW, n_want = most < 40 ? most : 40;
    K3_TRY(prefill(r, m, 0, CHUNK, 0, err));
    K3_TRY(prefill(r, m, CHUNK, PROMPT - CHUNK, PROMPT - CHUNK < n_want ? PROMPT - CHUNK : n_want, err));
    for (int i = 0; i < NEW; i++)
        K3_TRY(decode(r, m, i, err));
    return K3_OK;
}

static run whole, got;

static void run_on(run *r, const machine *m)
{
    k3_error err;
    start_run(r, m);
    must(run_all(r, m, &err), &err);
    end_run(r);
}

static void check_same(void)
{
    assert_int_equal(got.n, whole.n);
    assert_memory_equal(got.logits, whole.logits, got.n * sizeof *got.logits);
}

/* ---- tests ---------------------------------------------------------------------------------------------------------------- */

static void every_budget(const char *model, kind what)
{
    machine m = open_machine(model, what, 0);
    assert_null(m.w->late);
    run_on(&whole, &m);
    uint64_t all = m.w->bytes, budgets[BUDGETS + 1];
    for (int i = 0; i <= BUDGETS; i++)
        budgets[i] = budget_of(&m, what.trunk, i);
    assert_int_equal(all, budgets[BUDGETS]);
    close_machine(&m);
    for (int i = 0; i <= BUDGETS; i++) {
        m = open_machine(model, what, budgets[i]);
        assert_int_equal(m.w->late == NULL, i == BUDGETS);
        assert_in_range(m.w->bytes, 1, budgets[i]);
        run_on(&got, &m);
        check_same();
        close_machine(&m);
    }
}

/* Case F19. */
static void every_budget_gives_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++)
        every_budget(tiny_model, kinds[i]);
    every_budget(MINI, kinds[1]);
    every_budget(MINI, kinds[3]);
}

static void less_than_the_least_is_refused_with_figures(void **state)
{
    (void)state;
    for (int i = 0; i < N_KINDS; i++) {
        machine m;
        k3_error err;
        must(k3_ckpt_open(&m.ckpt, tiny_model, &err), &err);
        uint64_t least = k3_trunk_least_bytes(m.ckpt, kinds[i].trunk);
        k3_ckpt_close(m.ckpt);
        assert_int_equal(try_open(&m, tiny_model, kinds[i], least - 1, &err), K3_E_NOMEM);
        char figure[40];
        snprintf(figure, sizeof figure, "at least %.6f GB", (double)least * 1e-9);
        if (!strstr(err.text, figure))
            fail_msg("\"%s\" does not say \"%s\"", err.text, figure);
        close_machine(&m);
    }
}

/* Reads begun between two passes are those of one pass: the ring has gone round once, wherever it stands. */
static void every_byte_is_read_once_a_pass(void **state)
{
    (void)state;
    k3_trunk_sizes sizes;
    k3_error err;
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < BUDGETS; i++) {
            machine m;
            must(k3_ckpt_open(&m.ckpt, tiny_model, &err), &err);
            uint64_t budget = budget_of(&m, kinds[k].trunk, i);
            k3_ckpt_close(m.ckpt);
            m = open_machine(tiny_model, kinds[k], budget);
            k3_trunk_plan plan;
            must(k3_weights_measure(&sizes, m.ckpt, kinds[k].trunk, &err), &err);
            assert_true(k3_trunk_make_plan(&plan, &sizes, budget));
            uint64_t head = plan.has_head ? 0 : sizes.head.stored, row = plan.has_embed ? 0 : 2 * TINY_HIDDEN;
            start_run(&got, &m);
            must(prefill(&got, &m, 0, 8, 1, &err), &err);
            k3_trunk_stat stat;
            k3_late_stats(m.w->late, &stat, 1);
            for (int pass = 0; pass < 3; pass++) {
                int n_want = pass == 1 ? 0 : 2;
                must(prefill(&got, &m, 8 + 4 * pass, 4, n_want, &err), &err);
                k3_late_stats(m.w->late, &stat, 1);
                uint64_t bytes = plan.token_bytes - (n_want ? 0 : head) + 4 * row;
                /* Vectors between two matrices are read along with them. */
                assert_in_range(stat.bytes, bytes, bytes + (plan.n_pinned < TINY_LAYERS ? sizes.always : 0));
            }
            end_run(&got);
            close_machine(&m);
        }
}

static void a_larger_budget_reads_less(void **state)
{
    (void)state;
    for (int k = 0; k < 3; k++) {
        k3_ckpt *ckpt;
        k3_error err;
        k3_trunk_sizes sizes;
        k3_trunk_plan plan, before;
        must(k3_ckpt_open(&ckpt, tiny_model, &err), &err);
        must(k3_weights_measure(&sizes, ckpt, kinds[k].trunk, &err), &err);
        uint64_t least = k3_trunk_least_bytes(ckpt, kinds[k].trunk), all = k3_weights_bytes(ckpt, kinds[k].trunk);
        assert_false(k3_trunk_make_plan(&before, &sizes, least - 1));
        assert_int_equal(before.bytes, least);
        uint64_t most = 0; /* the head counts so much more than its bytes */
        for (int l = 0; l < TINY_LAYERS; l++)
            most = sizes.layers[l].stored > most ? sizes.layers[l].stored : most;
        for (uint64_t budget = least; budget <= all; budget += 1000) {
            assert_true(k3_trunk_make_plan(&plan, &sizes, budget));
            assert_in_range(plan.bytes, 1, budget);
            assert_true(plan.token_bytes + (plan.has_head ? 0 : most) <= before.token_bytes + (before.has_head ? 0 : most));
            before = plan;
        }
        assert_true(k3_trunk_make_plan(&plan, &sizes, all));
        assert_int_equal(plan.bytes, all);
        assert_int_equal(plan.token_bytes, 0);
        assert_true(plan.n_pinned == TINY_LAYERS && plan.has_head && plan.has_embed);
        k3_ckpt_close(ckpt);
    }
}

static void shard_path(char path[300], int shard)
{
    snprintf(path, 300, "%s/model-%05d-of-000003.safetensors", tiny_model, shard + 1);
}

typedef struct kept_file {
    char path[300];
    char *bytes;
    size_t n;
    struct stat st;
} kept_file;

static void cut_file(kept_file *f, int shard)
{
    const char *name;
    shard_path(f->path, shard);
    name = strrchr(f->path, '/') + 1;
    f->bytes = tiny_get_file(tiny_model, name, &f->n);
    assert_int_equal(stat(f->path, &f->st), 0);
    assert_int_equal(truncate(f->path, 5000), 0);
}

static void restore_file(kept_file *f)
{
    int fd = open(f->path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, f->bytes, f->n, 0), (ssize_t)f->n);
    assert_int_equal(futimens(fd, (struct timespec[]){f->st.K3_READ, f->st.K3_CHANGED}), 0);
    close(fd);
    free(f->bytes);
}

/* Case G07: a shard is cut while the model runs. What is already in memory may still be computed with; then the pass fails by name, and
 * after the file is whole again the next request gives the right tokens. */
static void a_cut_shard_fails_by_name_and_is_gone_on_from(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++)
        for (int shard = 0; shard < 3; shard++) {
            kept_file file;
            k3_error err;
            machine m = open_machine(tiny_model, kinds[k], 0);
            uint64_t budget = budget_of(&m, kinds[k].trunk, 0);
            run_on(&whole, &m);
            close_machine(&m);
            m = open_machine(tiny_model, kinds[k], budget);
            run_on(&got, &m);
            cut_file(&file, shard);
            k3_status status = K3_OK;
            start_run(&got, &m);
            for (int i = 0; i < 2 && status == K3_OK; i++)
                status = prefill(&got, &m, i, 1, 1, &err);
            end_run(&got);
            assert_int_equal(status, K3_E_IO);
            if (!strstr(err.text, strrchr(file.path, '/')) || (shard < 2 && !strstr(err.text, "layer ")))
                fail_msg("%s", err.text);
            restore_file(&file);
            run_on(&got, &m);
            check_same();
            close_machine(&m);
        }
}

/* Case G07: another file takes a shard's name. A model that runs goes on with the file that it has open; what opens the file only now,
 * after its header was read, refuses the new one. */
static void a_replaced_shard_is_not_mixed_in(void **state)
{
    (void)state;
    k3_error err;
    machine m = open_machine(tiny_model, kinds[0], 0);
    uint64_t budget = budget_of(&m, kinds[0].trunk, 0);
    run_on(&whole, &m);
    close_machine(&m);
    for (int is_late = 0; is_late < 2; is_late++)
        for (int shard = 0; shard < 2; shard++) {
            char path[300], away[320], place[] = "has taken its place";
            size_t n;
            m = open_machine(tiny_model, kinds[0], is_late ? 0 : budget);
            if (!is_late)
                run_on(&got, &m);
            shard_path(path, shard);
            snprintf(away, sizeof away, "%s.away", path);
            char *bytes = tiny_get_file(tiny_model, strrchr(path, '/') + 1, &n);
            assert_int_equal(rename(path, away), 0);
            memset(bytes, 0x11, n);
            tiny_put_file(tiny_model, strrchr(path, '/') + 1, bytes, n);
            free(bytes);
            run_on(&got, &m);
            check_same();
            if (is_late) {
                k3_weights *w;
                assert_int_equal(k3_weights_load(&w, m.ckpt, m.be,
                                                 &(k3_weights_config){.trunk = K3_TRUNK_BF16, .trunk_bytes = budget, .threads = 1}, &err),
                                 K3_E_IO);
                assert_true(strstr(err.text, place) && strstr(err.text, path));
            }
            close_machine(&m);
            assert_int_equal(rename(away, path), 0);
        }
}

/* A value that is not finite, which a resident trunk finds when it is loaded. */
static void a_damaged_layer_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {TINY_BODY "layers.5.self_attn.o_proj.weight", "language_model.lm_head.weight",
                                        TINY_BODY "embed_tokens.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int k = 0; k < 2; k++) {
            tiny_checkpoint *tiny = tiny_new(3);
            k3_error err;
            tiny_tensor *t = tiny_find(tiny, names[i]);
            memcpy(t->data + 2 * TINY_HIDDEN * 34 + 10, "\x80\x7f", 2); /* a row that the prompt names */
            char *damaged = tiny_settle(tiny);
            machine m = {0};
            must(k3_ckpt_open(&m.ckpt, damaged, &err), &err);
            uint64_t least = k3_trunk_least_bytes(m.ckpt, kinds[k].trunk);
            k3_ckpt_close(m.ckpt);
            /* A head so small may stay in memory. */
            k3_status status = try_open(&m, damaged, kinds[k], least, &err);
            k3_trunk_plan plan;
            k3_trunk_sizes sizes;
            must(k3_weights_measure(&sizes, m.ckpt, kinds[k].trunk, NULL), NULL);
            assert_true(k3_trunk_make_plan(&plan, &sizes, least));
            int is_late = i != 1 || !plan.has_head;
            assert_int_equal(status, is_late ? K3_OK : K3_E_FORMAT);
            for (int pass = 0; pass < 2 * is_late; pass++) {
                start_run(&got, &m);
                assert_int_equal(prefill(&got, &m, 0, 40, 1, &err), K3_E_FORMAT);
                end_run(&got);
            }
            if (!strstr(err.text, names[i]) || !strstr(err.text, "not finite"))
                fail_msg("%s", err.text);
            close_machine(&m);
            tiny_remove_folder(damaged);
        }
}

/* ---- allocations ------------------------------------------------------------------------------------------------------------ */

static void a_token_allocates_nothing(void **state)
{
    (void)state;
#ifdef HAS_OWN_MALLOC
    print_message("SKIP: a sanitizer or another C library owns malloc\n");
    skip();
#endif
    for (int k = 0; k < 2; k++) {
        machine m;
        k3_error err;
        must(k3_ckpt_open(&m.ckpt, tiny_model, &err), &err);
        uint64_t budget = budget_of(&m, kinds[k].trunk, 2);
        k3_ckpt_close(m.ckpt);
        m = open_machine(tiny_model, kinds[k], budget);
        start_run(&got, &m);
        long before = 0;
        for (int i = 0; i < 24; i++) {
            before = n_allocations;
            got.n = 0;
            must(decode(&got, &m, i, &err), &err);
            if (i > 3)
                assert_int_equal(n_allocations - before, 0);
        }
        assert_true(n_allocations > 0);
        end_run(&got);
        close_machine(&m);
    }
}

static int setup(void **state)
{
    (void)state;
    tiny_model = tiny_settle(tiny_new(3));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_may_see_x_rounded),
        cmocka_unit_test(every_budget_gives_the_same_bits),
        cmocka_unit_test(less_than_the_least_is_refused_with_figures),
        cmocka_unit_test(every_byte_is_read_once_a_pass),
        cmocka_unit_test(a_larger_budget_reads_less),
        cmocka_unit_test(a_cut_shard_fails_by_name_and_is_gone_on_from),
        cmocka_unit_test(a_replaced_shard_is_not_mixed_in),
        cmocka_unit_test(a_damaged_layer_is_named),
        cmocka_unit_test(a_token_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, setup, tiny_teardown);
}
