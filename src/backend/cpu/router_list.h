/* The list of the K best experts of one row, shared by the router kernels of all levels. */
#ifndef K3_BACKEND_CPU_ROUTER_LIST_H
#define K3_BACKEND_CPU_ROUTER_LIST_H

#include <stdint.h>

typedef struct k3_router_list {
    int32_t *ids;  /* [K] */
    float *scores; /* [K] descending; after picking, the weights */
    int K, n;
    int bad; /* a score was NaN */
} k3_router_list;

/* Experts come in ascending id: only a strictly larger score passes an earlier one, so ties go to the lower id. */
static inline void k3_router_offer(k3_router_list *list, int32_t id, float score)
{
    list->bad |= score != score;
    int at = list->n;
    while (at > 0 && score > list->scores[at - 1])
        at--;
    if (at == list->K)
        return;
    list->n += list->n < list->K;
    for (int i = list->n - 1; i > at; i--) {
        list->scores[i] = list->scores[i - 1];
        list->ids[i] = list->ids[i - 1];
    }
    list->scores[at] = score;
    list->ids[at] = id;
}

/* scores hold the UNBIASED sigmoids of the picks; they become weights. */
static inline void k3_router_finish(k3_router_list *list, int renormalize, float scale)
{
    double sum = 1e-20;
    for (int i = 0; i < list->K; i++)
        sum += (double)list->scores[i];
    for (int i = 0; i < list->K; i++)
        list->scores[i] = (float)((double)list->scores[i] / (renormalize ? sum : 1.0) * (double)scale);
    if (list->bad)
        list->ids[0] = -1;
}

#endif
