/* router_topk on vectors of experts; include after a vec header and vec_math.h. Only the sigmoids are vectors; the list is router_list.h's.
 */
#include "backend/cpu/kernels.h"
#include "backend/cpu/router_list.h"

void K3_KERNEL(router_topk)(int32_t *ids, float *weights, const float *logits, const float *bias, int E, int K, int renormalize,
                            float scale, int64_t first, int64_t last)
{
    for (int64_t t = first; t < last; t++) {
        const float *row = logits + t * E;
        k3_router_list list = {ids + t * K, weights + t * K, K, 0, 0};
        float lane[VF_LANES];
        for (int e = 0; e < E; e += VF_LANES) {
            vf_store(lane, vf_add(vf_sigmoid(vf_load_upto(row + e, E - e)), vf_load_upto(bias + e, E - e)));
            for (int i = 0; i < VF_LANES && e + i < E; i++)
                k3_router_offer(&list, e + i, lane[i]);
        }
        for (int k = 0; k < K; k += VF_LANES) {
            for (int i = 0; i < VF_LANES; i++)
                lane[i] = k + i < K ? row[list.ids[k + i]] : 0.0f;
            vf_store_upto(list.scores + k, vf_sigmoid(vf_load(lane)), K - k);
        }
        k3_router_finish(&list, renormalize, scale);
    }
}
