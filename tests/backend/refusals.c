#include "refusals.h"

#include "fixture.h"

static void refuse_products(k3_backend *be, k3_ref x, k3_ref y)
{
    random_stream r = {2};
    k3_ref ids = new_bytes(be, 64);
    k3_mat good = random_mat(be, &r, K3_MXFP4, 32, 32, 0), unknown = good, odd = good, bare = good,
           wide = random_mat(be, &r, K3_F32, 2, 33, 0);
    unknown.type = K3_N_TYPES;
    odd.cols = 33;
    bare.scale.buf = NULL;
    be->ops->matmul(be, &(k3_proj){&unknown, y}, 1, x, 1);
    must_fail(be, K3_E_UNSUPPORTED, "matmul", "unknown");
    be->ops->matmul(be, &(k3_proj){&odd, y}, 1, x, 1);
    must_fail(be, K3_E_UNSUPPORTED, "matmul: a mxfp4", "multiple of 32");
    be->ops->matmul(be, &(k3_proj){&bare, y}, 1, x, 1);
    must_fail(be, K3_E_INVALID, "matmul: a mxfp4", "scales");
    be->ops->matmul(be, (k3_proj[2]){{&good, y}, {&wide, y}}, 2, x, 1);
    must_fail(be, K3_E_INVALID, "projection 1 takes 33", "32");
    be->ops->embed(be, y, &unknown, ids, 1);
    must_fail(be, K3_E_UNSUPPORTED, "embed", "unknown");
}

static void refuse_attention(k3_backend *be, k3_ref x, k3_ref y)
{
    random_stream r = {2};
    k3_mat good = random_mat(be, &r, K3_MXFP4, 32, 32, 0), unknown = good;
    k3_mla_dims d = {1, 16, 8, 16, 32, K3_INT8};
    k3_run run = {0, 1, 0, y};
    unknown.type = K3_N_TYPES;
    be->ops->mla_append(be, x, x, &run, 1, &d, 0);
    must_fail(be, K3_E_UNSUPPORTED, "mla_append", "int8");
    be->ops->mla_attend(be, x, x, &good, &run, 1, &d, 1);
    must_fail(be, K3_E_UNSUPPORTED, "mla_attend", "int8");
    d.cache = K3_F32;
    be->ops->mla_attend(be, x, x, &unknown, &run, 1, &d, 1);
    must_fail(be, K3_E_UNSUPPORTED, "mla_attend", "unknown");
    d.heads = 2;
    be->ops->mla_attend(be, x, x, &good, &run, 1, &d, 1);
    must_fail(be, K3_E_INVALID, "mla_attend: kv_b is [32, 32]", "[64, 32]");
}

static void refuse_experts(k3_backend *be, k3_ref x, k3_ref y)
{
    static const struct {
        int32_t second;
        k3_status status;
        const char *a, *b;
    } pairs[] = {{1, K3_E_UNSUPPORTED, "w3 of expert 1 is int8", "mxfp4"},
                 {4, K3_E_INVALID, "moe_experts", "expert 4"},
                 {-3, K3_E_INVALID, "moe_experts", "expert -3"},
                 {3, K3_E_INVALID, "w2 of expert 3 is [64, 32]", "[32, 32]"}};
    random_stream r = {2};
    k3_mat good = random_mat(be, &r, K3_MXFP4, 32, 32, 0);
    k3_expert fine = {good, good, good}, coded = {good, random_mat(be, &r, K3_INT8, 32, 32, 0), good}, bent = fine;
    bent.w2 = random_mat(be, &r, K3_MXFP4, 64, 32, 0);
    const k3_expert *table[4] = {&fine, &coded, NULL, &bent};
    for (int i = 0; i < 4; i++) {
        int32_t pair[2] = {0, pairs[i].second};
        k3_moe moe = {.T = 1, .K = 2, .E = 4, .L = 32, .I = 32, .b1 = 4, .b2 = 25, .host_ids = pair, .experts = table};
        moe.ids = put_bytes(be, pair, sizeof pair);
        be->ops->moe_experts(be, y, x, &moe);
        must_fail(be, pairs[i].status, pairs[i].a, pairs[i].b);
    }
}

static void refuse_shapes(k3_backend *be, k3_ref x, k3_ref y)
{
    k3_ref src[33];
    k3_run run = {0, 1, 0, y};
    for (int i = 0; i < 33; i++)
        src[i] = x;
    be->ops->attnres_mix(be, x, src, 33, x, 1, 1, 0);
    must_fail(be, K3_E_UNSUPPORTED, "attnres_mix", "33");
    be->ops->shortconv(be, x, y, x, &run, 1, 8, 9);
    must_fail(be, K3_E_UNSUPPORTED, "shortconv", "9");
    be->ops->router_topk(be, x, x, x, x, 1, 4, 5, 1, 1);
    must_fail(be, K3_E_INVALID, "router_topk", "5");
}

void check_refusals(k3_backend *be)
{
    k3_ref x = new_floats(be, 8192), y = new_floats(be, 8192);
    refuse_products(be, x, y);
    refuse_attention(be, x, y);
    refuse_experts(be, x, y);
    refuse_shapes(be, x, y);
}
