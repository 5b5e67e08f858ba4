/* Experts dealt to tiers: the CPU posing as a device, with a budget. */
#include "store/experts.h"

#include "backend/args/moe.h"
#include "support/tiny_checkpoint.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { ALL = 12 * TINY_EXPERTS, LAYER = 5 };

static k3_ckpt *ckpt;

/* Whether the device's memory is shown to the host, as it is where both share it. */
static int shows_memory;

static void *show_nothing(k3_backend *be, k3_ref dst, uint64_t bytes)
{
    (void)be;
    (void)dst;
    (void)bytes;
    return NULL;
}

static k3_status open_posing(k3_backend **out, const k3_backend_config *config, char *note, size_t note_size, k3_error *err)
{
    k3_backend_config cpu = *config;
    (void)note;
    (void)note_size;
    cpu.threads = 1;
    K3_TRY(k3_cpu_open(out, NULL, &cpu, err));
    static k3_memory_ops hidden;
    (*out)->is_device = 1;
    hidden = *(*out)->memory;
    hidden.host = show_nothing;
    if (!shows_memory)
        (*out)->memory = &hidden;
    if (config->vram)
        (*out)->memory->set_budget(*out, config->vram);
    return K3_OK;
}

typedef struct store {
    k3_backend *be;
    k3_experts *experts;
    k3_tier *tiers;
    int n_tiers, i_main;
    const k3_expert *cpu[TINY_EXPERTS]; /* what the CPU was handed of the layer at hand */
} store;

/* room: slots that the budget of each device has space for; the table of addresses is paid for. */
static store open_store(int room, const char *devices)
{
    store s;
    k3_error err;
    uint64_t one = k3_experts_slot_bytes(k3_ckpt_hparams(ckpt));
    k3_experts_config config = {.open = open_posing, .backend = {.threads = 1}, .devices = devices};
    config.backend.vram = sizeof(struct k3_expert_address) * TINY_LAYERS * TINY_EXPERTS + one * (uint64_t)room;
    if (open_posing(&s.be, &config.backend, NULL, 0, &err) != K3_OK || k3_experts_open(&s.experts, ckpt, s.be, &config, &err) != K3_OK ||
        k3_experts_load(s.experts, 0, (uint64_t)1 << 30, NULL, NULL, &err) != K3_OK)
        fail_msg("%s", err.text);
    s.tiers = k3_experts_tiers(s.experts, &s.n_tiers, &s.i_main);
    return s;
}

static void close_store(store *s)
{
    k3_experts_close(s->experts);
    s->be->close(s->be);
}

static void assign(store *s, int layer, const int32_t *ids, int T, int K)
{
    k3_error err;
    if (k3_experts_assign(s->experts, layer, ids, T, K, &err) != K3_OK)
        fail_msg("%s", err.text);
    const k3_expert *const *view = s->tiers[s->n_tiers - 1].view;
    memset(s->cpu, 0, sizeof s->cpu);
    for (int n = 1; n;) {
        if (k3_experts_next(s->experts, &n, &err) != K3_OK)
            fail_msg("%s", err.text);
        for (int id = 0; id < TINY_EXPERTS; id++) {
            assert_false(view[id] && s->cpu[id]); /* none is handed out twice */
            s->cpu[id] = view[id] ? view[id] : s->cpu[id];
        }
    }
}

static const void *stored(k3_role role, int layer, int id, size_t *n)
{
    static unsigned char bytes[TINY_EXPERT_INNER * TINY_LATENT];
    const k3_tensor_info *t = k3_ckpt_role(ckpt, role, layer, id);
    assert_int_equal(k3_ckpt_read(ckpt, bytes, t, 0, t->bytes, NULL), K3_OK);
    *n = (size_t)t->bytes;
    return bytes;
}

static void check_tensor(k3_ref ref, k3_role role, int layer, int id)
{
    size_t n;
    const void *want = stored(role, layer, id, &n);
    assert_memory_equal(k3_host(ref), want, n);
}

static void check_expert(const k3_expert *e, int layer, int id)
{
    assert_non_null(e);
    check_tensor(e->w1.data, K3_R_W1, layer, id);
    check_tensor(e->w1.scale, K3_R_W1_SCALE, layer, id);
    check_tensor(e->w2.data, K3_R_W2, layer, id);
    check_tensor(e->w2.scale, K3_R_W2_SCALE, layer, id);
    check_tensor(e->w3.data, K3_R_W3, layer, id);
    check_tensor(e->w3.scale, K3_R_W3_SCALE, layer, id);
}

static void check_slots(void)
{
    store s = open_store(3, NULL);
    const int32_t ids[2] = {6, 1};
    k3_experts_tiers(s.experts, &s.n_tiers, &s.i_main);
    assert_int_equal(s.n_tiers, 2);
    assert_int_equal(s.tiers[0].n_slots, 3);
    assign(&s, LAYER, ids, 1, 2);
    assert_int_equal(s.tiers[0].n_pairs, 0);
    assert_int_equal(s.tiers[1].n_pairs, 2);
    check_expert(s.cpu[6], LAYER, 6);
    assert_int_equal(k3_experts_promote(s.experts, NULL), K3_OK);
    assign(&s, LAYER, ids, 1, 2);
    assert_int_equal(s.tiers[0].n_pairs, 2);
    assert_int_equal(s.tiers[1].n_pairs, 0);
    assert_null(s.cpu[6]);
    for (int i = 0; i < 2; i++) {
        const k3_expert *e = s.tiers[0].view[ids[i]];
        check_expert(e, LAYER, ids[i]);
        const k3_ref refs[6] = {e->w1.data, e->w1.scale, e->w2.data, e->w2.scale, e->w3.data, e->w3.scale};
        for (int j = 0; j < 6; j++)
            assert_int_equal(refs[j].at % 256, 0);
    }
    /* The same ids in another layer are other experts. */
    assign(&s, LAYER + 1, ids, 1, 2);
    assert_int_equal(s.tiers[1].n_pairs, 2);
    assert_null(s.tiers[0].view[6]);
    check_expert(s.cpu[6], LAYER + 1, 6);
    close_store(&s);
}

static void a_slot_holds_the_expert_as_stored_and_aligned(void **state)
{
    (void)state;
    for (shows_memory = 0; shows_memory < 2; shows_memory++)
        check_slots();
}

static void what_many_rows_want_is_brought_at_once(void **state)
{
    (void)state;
    store s = open_store(2, NULL);
    int32_t ids[8 * 2];
    for (int t = 0; t < 8; t++) {
        ids[2 * t] = 3;
        ids[2 * t + 1] = t < 7 ? 4 : 5;
    }
    assign(&s, LAYER, ids, 8, 2);
    assert_int_equal(s.tiers[0].n_pairs, 8);
    assert_int_equal(s.tiers[1].n_pairs, 8);
    check_expert(s.tiers[0].view[3], LAYER, 3);
    check_expert(s.cpu[4], LAYER, 4);
    close_store(&s);
}

static void what_the_layer_needs_is_not_evicted(void **state)
{
    (void)state;
    store s = open_store(2, NULL);
    int32_t ids[8 * 4];
    for (int t = 0; t < 8; t++)
        for (int k = 0; k < 4; k++)
            ids[4 * t + k] = k;
    for (int round = 0; round < 3; round++) {
        assign(&s, LAYER, ids, 8, 4);
        assert_int_equal(s.tiers[0].n_pairs, 16);
        assert_int_equal(s.tiers[1].n_pairs, 16);
        for (int id = 0; id < 4; id++)
            check_expert(s.tiers[0].view[id] ? s.tiers[0].view[id] : s.cpu[id], LAYER, id);
        assert_int_equal(k3_experts_promote(s.experts, NULL), K3_OK);
    }
    /* Another layer takes both slots; the first one's are gone. */
    assign(&s, LAYER + 1, ids, 8, 4);
    assert_int_equal(s.tiers[0].n_pairs, 16);
    check_expert(s.tiers[0].view[0], LAYER + 1, 0);
    assign(&s, LAYER, ids, 1, 4);
    assert_int_equal(s.tiers[1].n_pairs, 4);
    close_store(&s);
}

static void all_experts_make_a_table_of_addresses(void **state)
{
    (void)state;
    store s = open_store(ALL, NULL);
    k3_moe moe = {.T = 3, .K = 2};
    int n, n_slots, n_experts;
    assert_true(k3_experts_whole(s.experts, &moe, LAYER));
    const struct k3_expert_address *table = k3_host(moe.table);
    for (int id = 0; id < TINY_EXPERTS; id++) {
        check_expert(moe.experts[id], LAYER, id);
        const k3_expert *e = moe.experts[id];
        assert_int_equal(table[id].w1, (uintptr_t)k3_host(e->w1.data));
        assert_int_equal(table[id].w1_scale, (uintptr_t)k3_host(e->w1.scale));
        assert_int_equal(table[id].w2, (uintptr_t)k3_host(e->w2.data));
        assert_int_equal(table[id].w2_scale, (uintptr_t)k3_host(e->w2.scale));
        assert_int_equal(table[id].w3, (uintptr_t)k3_host(e->w3.data));
        assert_int_equal(table[id].w3_scale, (uintptr_t)k3_host(e->w3.scale));
    }
    k3_experts_resident(s.experts, &n, &n_slots, &n_experts);
    assert_int_equal(n, ALL);
    assert_int_equal(n_experts, ALL);
    /* Making room elsewhere ends that; everything goes on with fewer slots. */
    assert_true(k3_experts_shrink(s.experts));
    assert_false(k3_experts_whole(s.experts, &moe, LAYER));
    const int32_t ids[1] = {2};
    assign(&s, LAYER, ids, 1, 1);
    assert_int_equal(s.tiers[1].n_pairs, 1);
    while (k3_experts_shrink(s.experts))
        ;
    k3_experts_resident(s.experts, &n, &n_slots, &n_experts);
    assert_int_equal(n, 0);
    assert_int_equal(n_slots, 0);
    close_store(&s);
}

static void two_devices_share_the_experts(void **state)
{
    (void)state;
    store s = open_store(ALL / 2, "a,b");
    k3_moe moe = {0};
    int32_t ids[TINY_EXPERTS];
    assert_int_equal(s.n_tiers, 4);
    assert_int_equal(s.tiers[0].n_slots, ALL / 2);
    assert_int_equal(s.tiers[1].n_slots, ALL / 2);
    assert_int_equal(s.tiers[2].n_slots, 0);
    assert_false(k3_experts_whole(s.experts, &moe, LAYER));
    for (int i = 0; i < TINY_EXPERTS; i++)
        ids[i] = i;
    for (int l = 1; l <= 12; l++) {
        assign(&s, l, ids, 1, TINY_EXPERTS);
        assert_int_equal(s.tiers[3].n_pairs, 0);
        for (int id = 0; id < TINY_EXPERTS; id++)
            check_expert(s.tiers[l > 6].view[id], l, id);
    }
    close_store(&s);
}

/* The file ends, or holds what is no number, after it was opened: the request fails by name, and the slot is free for the next. */
static void what_cannot_be_read_leaves_no_trace(void **state)
{
    (void)state;
    enum { ROWS = 8 }; /* wanted by so many that it is brought at once */
    k3_error err;
    int n_resident, n_slots, n_all;
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++)
        ids[i] = 4;
    for (shows_memory = 0; shows_memory < 2; shows_memory++) {
        const k3_tensor_info *scale = k3_ckpt_role(ckpt, K3_R_W2_SCALE, LAYER, 4);
        store s = open_store(2, NULL);
        int fd = open(k3_ckpt_shard_path(ckpt, scale->shard), O_RDWR);
        unsigned char kept, bad = 255;
        assert_true(fd >= 0);
        assert_int_equal(pread(fd, &kept, 1, (off_t)scale->offset + 3), 1);
        assert_int_equal(pwrite(fd, &bad, 1, (off_t)scale->offset + 3), 1);
        assert_int_equal(k3_experts_assign(s.experts, LAYER, ids, ROWS, 1, &err), K3_E_FORMAT);
        assert_non_null(strstr(err.text, "layer 5 expert 4 w2"));
        k3_experts_resident(s.experts, &n_resident, &n_slots, &n_all);
        assert_int_equal(n_resident, 0);
        assert_int_equal(pwrite(fd, &kept, 1, (off_t)scale->offset + 3), 1);
        close(fd);
        assign(&s, LAYER, ids, ROWS, 1);
        check_expert(s.tiers[0].view[4], LAYER, 4);
        close_store(&s);
    }
}

static void ids_that_do_not_exist_are_refused(void **state)
{
    (void)state;
    store s = open_store(2, NULL);
    k3_error err;
    for (int32_t id = -1; id <= TINY_EXPERTS; id += TINY_EXPERTS + 1) {
        const int32_t ids[2] = {1, id};
        assert_int_equal(k3_experts_assign(s.experts, LAYER, ids, 1, 2, &err), K3_E_INVALID);
        assert_non_null(strstr(err.text, "layer 5: expert"));
        assign(&s, LAYER, ids, 1, 1);
        assert_int_equal(s.tiers[1].n_pairs + s.tiers[0].n_pairs, 1);
    }
    close_store(&s);
}

static int setup(void **state)
{
    k3_error err;
    tiny_setup(state);
    if (k3_ckpt_open(&ckpt, tiny_model, &err) != K3_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int teardown(void **state)
{
    k3_ckpt_close(ckpt);
    return tiny_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_holds_the_expert_as_stored_and_aligned),
        cmocka_unit_test(what_many_rows_want_is_brought_at_once),
        cmocka_unit_test(what_the_layer_needs_is_not_evicted),
        cmocka_unit_test(all_experts_make_a_table_of_addresses),
        cmocka_unit_test(two_devices_share_the_experts),
        cmocka_unit_test(what_cannot_be_read_leaves_no_trace),
        cmocka_unit_test(ids_that_do_not_exist_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
