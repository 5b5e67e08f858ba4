/* How well the next layer's experts are foretold by what is there before this layer's experts are computed, on the bundled model. Linked
 * around k3_moe_forward (-Wl,--wrap=k3_moe_forward), else built as record.c says. Prints shares in percent.
 *
 * A predictor gives every expert of a layer a score; it is judged by its K and 2K best, on all rows and on decoded ones alone, and on the
 * experts that a store with a quarter of all experts in slots does not have. */
#include "drive.h"

#include "model/layers.h"
#include "store/policy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { E = 32, K = 4, LAYERS = 9, ROWS = 256, HIDDEN = 256 };

typedef enum predictor {
    SAME_INPUT, /* router l+1 on this layer's normed FFN input */
    MIXED,      /* mix, norm and router of l+1 on the stream before this layer's FFN */
    SHARED,     /* MIXED with this layer's shared experts in the stream */
    AFTER_FFN,  /* MIXED with all of this layer in the stream: attention is left to compute */
    TWO_AHEAD,  /* mix, norm and router of l+2 on the stream before this layer's FFN */
    LAST_TOKEN, /* the experts of the last token, then those of the one before it */
    MOST_USED,  /* by count so far */
    RECENTLY_USED,
    N_PREDICTORS
} predictor;

static const char *const names[N_PREDICTORS] = {
    "router l+1, this input", "mix+norm+router l+1", "  with shared experts", "  after this FFN", "mix+norm+router l+2",
    "last two tokens",        "most used",           "recently used",
};

typedef struct tally {
    double rows, at_k, at_2k;
    double misses, found_k, read_k, found_2k, read_2k;
} tally;

static tally tallies[N_PREDICTORS][LAYERS], decoded[N_PREDICTORS][LAYERS];
static double right_at_rank[N_PREDICTORS][2 * K], decoded_rows[N_PREDICTORS];

static float logits[N_PREDICTORS][LAYERS][ROWS][E]; /* predicted, for the layer named */
static double counts[LAYERS][E], recent[LAYERS][E];
static int32_t last[LAYERS][2 * K];
static const k3_policy *quarter; /* of a store with a quarter of the experts in slots */
static k3_ref scratch, scratch2, router_out;

k3_status __real_k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err);
k3_status __wrap_k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err);

/* ---- predictors ---------------------------------------------------------------------------------------------------------- */

static void route(k3_forward *f, predictor p, int layer, k3_ref normed)
{
    f->op->matmul(f->be, &(k3_proj){&f->w->layers[layer].moe.router, router_out}, 1, normed, f->T);
    memcpy(logits[p][layer], k3_host(router_out), sizeof(float) * E * (size_t)f->T);
}

/* Scores of `layer` from the stream as it is when layer `now` is about to compute its FFN, or has. */
static void mix_and_route(k3_forward *f, predictor p, int layer, int now)
{
    int n_src = now / f->hp->attn_res_block + 2, C = f->hp->hidden;
    const k3_layer *w = &f->w->layers[layer];
    f->op->attnres_mix(f->be, scratch, f->stream, n_src, w->mlp_res, f->T, C, f->hp->rms_eps);
    f->op->rmsnorm(f->be, scratch, scratch, w->post_norm, f->T, C, C, C, f->hp->rms_eps);
    route(f, p, layer, scratch);
}

/* The same with `more` added to the running sum for the time being. */
static void mix_with(k3_forward *f, predictor p, int layer, int now, k3_ref more)
{
    k3_ref sum = f->stream[now / f->hp->attn_res_block + 1];
    int64_t n = (int64_t)f->T * f->hp->hidden;
    static float kept[ROWS * HIDDEN];
    memcpy(kept, k3_host(sum), sizeof(float) * (size_t)n);
    f->op->add(f->be, sum, sum, more, n);
    mix_and_route(f, p, layer, now);
    memcpy(k3_host(sum), kept, sizeof(float) * (size_t)n);
}

static void predict_before(k3_forward *f, k3_ref n, int layer)
{
    if (layer + 1 >= LAYERS)
        return;
    route(f, SAME_INPUT, layer + 1, n);
    mix_and_route(f, MIXED, layer + 1, layer);
    k3_dense_forward(f, scratch2, n, &f->w->layers[layer].moe.shared);
    mix_with(f, SHARED, layer + 1, layer, scratch2);
    if (layer + 2 < LAYERS)
        mix_and_route(f, TWO_AHEAD, layer + 2, layer);
}

/* ---- judgement ----------------------------------------------------------------------------------------------------------- */

static void scores_of(float *score, const k3_forward *f, predictor p, int layer, int t)
{
    const float *bias = k3_host(f->w->layers[layer].moe.bias);
    for (int e = 0; e < E; e++) {
        score[e] = p == MOST_USED ? (float)counts[layer][e] : p == RECENTLY_USED ? (float)recent[layer][e] : 0;
        if (p < LAST_TOKEN)
            score[e] = 1 / (1 + expf(-logits[p][layer][t][e])) + bias[e];
    }
    for (int i = 0; p == LAST_TOKEN && i < 2 * K; i++)
        if (last[layer][i] >= 0 && score[last[layer][i]] <= 0)
            score[last[layer][i]] = (float)(2 * K - i);
}

static void judge(const k3_forward *f, predictor p, int layer, int t, const int32_t *ids)
{
    float score[E];
    int wanted[E] = {0}, missing[E];
    tally all = {.rows = 1};
    scores_of(score, f, p, layer, t);
    for (int k = 0; k < K; k++)
        wanted[ids[k]] = 1;
    for (int e = 0; e < E; e++) {
        missing[e] = k3_policy_find(quarter, layer * E + e) < 0;
        all.misses += wanted[e] && missing[e];
    }
    for (int rank = 0; rank < 2 * K; rank++) {
        int best = 0;
        for (int e = 1; e < E; e++)
            if (score[e] > score[best])
                best = e;
        if (score[best] < -1e9f || (p >= LAST_TOKEN && score[best] <= 0))
            break;
        score[best] = -1e10f;
        all.at_2k += wanted[best];
        all.found_2k += wanted[best] && missing[best];
        all.read_2k += missing[best];
        right_at_rank[p][rank] += f->T == 1 && wanted[best];
        if (rank == K - 1) {
            all.at_k = all.at_2k;
            all.found_k = all.found_2k;
            all.read_k = all.read_2k;
        }
    }
    decoded_rows[p] += f->T == 1;
    for (int both = 0; both < 1 + (f->T == 1); both++) {
        double *to = (double *)(both ? &decoded[p][layer] : &tallies[p][layer]);
        for (size_t i = 0; i < sizeof all / sizeof(double); i++)
            to[i] += ((double *)&all)[i];
    }
}

static void judge_rows(k3_forward *f, int layer, const int32_t *ids)
{
    for (int t = 0; t < f->T; t++, ids += K) {
        for (int p = 0; p < N_PREDICTORS; p++)
            if ((p >= LAST_TOKEN || layer > 1) && (p != TWO_AHEAD || layer > 2))
                judge(f, (predictor)p, layer, t, ids);
        memmove(last[layer] + K, last[layer], K * sizeof(int32_t));
        memcpy(last[layer], ids, K * sizeof(int32_t));
        for (int e = 0; e < E; e++)
            recent[layer][e] *= 0.9786; /* half in 32 */
        for (int k = 0; k < K; k++) {
            counts[layer][ids[k]]++;
            recent[layer][ids[k]]++;
        }
    }
}

/* ---- a store that reads ahead -------------------------------------------------------------------------------------------- */

/* `guesses` of MIXED are read ahead for a decoded token if they are not in a slot, after what the layer at hand misses. */
typedef struct store {
    int percent, guesses;
    k3_policy *policy;
    char guessed[E]; /* read ahead for the next layer */
    uint64_t misses, read_ahead, useful;
} store;

enum { N_STORES = 9 };

static store stores[N_STORES] = {
    {.percent = 10}, {.percent = 10, .guesses = K}, {.percent = 10, .guesses = 2 * K},
    {.percent = 25}, {.percent = 25, .guesses = K}, {.percent = 25, .guesses = 2 * K},
    {.percent = 50}, {.percent = 50, .guesses = K}, {.percent = 50, .guesses = 2 * K},
};

static void guess(store *s, const k3_forward *f, int layer)
{
    float score[E];
    scores_of(score, f, MIXED, layer, 0);
    for (int g = 0; g < s->guesses; g++) {
        int best = 0;
        for (int e = 1; e < E; e++)
            if (score[e] > score[best])
                best = e;
        score[best] = -1e10f;
        if (k3_policy_find(s->policy, layer * E + best) < 0 && k3_policy_take(s->policy, layer * E + best, 1) >= 0) {
            s->guessed[best] = 1;
            s->read_ahead++;
        }
    }
}

static void go_on(store *s, const k3_forward *f, int layer, const int32_t *ids)
{
    int missing[E], n = 0;
    char seen[E] = {0};
    k3_policy_step(s->policy, layer);
    for (int i = 0; i < f->T * K; i++) {
        if (seen[ids[i]]++)
            continue;
        if (k3_policy_use(s->policy, layer * E + ids[i]) < 0)
            missing[n++] = layer * E + ids[i];
        s->useful += (uint64_t)s->guessed[ids[i]];
    }
    for (int i = 0; i < n; i++)
        k3_policy_take(s->policy, missing[i], 1);
    s->misses += f->T == 1 ? (uint64_t)n : 0;
    memset(s->guessed, 0, sizeof s->guessed);
    if (f->T == 1 && layer + 1 < LAYERS)
        guess(s, f, layer + 1);
}

k3_status __wrap_k3_moe_forward(k3_forward *f, k3_ref y, k3_ref n, int layer, k3_error *err)
{
    if (!scratch.buf) {
        scratch = (k3_ref){f->be->memory->alloc(f->be, 4 * ROWS * HIDDEN, "look-ahead"), 0};
        scratch2 = (k3_ref){f->be->memory->alloc(f->be, 4 * ROWS * HIDDEN, "look-ahead"), 0};
        router_out = (k3_ref){f->be->memory->alloc(f->be, 4 * ROWS * E, "look-ahead"), 0};
        memset(last, -1, sizeof last);
    }
    predict_before(f, n, layer);
    K3_TRY(__real_k3_moe_forward(f, y, n, layer, err));
    if (layer + 1 < LAYERS)
        mix_with(f, AFTER_FFN, layer + 1, layer, y);
    const int32_t *ids = k3_host(f->tier_in[f->i_main]);
    judge_rows(f, layer, ids);
    for (int i = 0; i < N_STORES; i++)
        go_on(&stores[i], f, layer, ids);
    return K3_OK;
}

/* ---- figures ------------------------------------------------------------------------------------------------------------- */

static void print_table(const char *title, tally (*of)[LAYERS])
{
    printf("\n%s\n%-24s", title, "");
    for (int l = 1; l < LAYERS; l++)
        printf("     layer %d", l);
    printf("         all | of misses found, of reads useful: @K, @2K\n");
    for (int p = 0; p < N_PREDICTORS; p++) {
        tally sum = {0};
        printf("%-24s", names[p]);
        for (int l = 1; l < LAYERS; l++) {
            const tally *x = &of[p][l];
            for (size_t i = 0; l > 1 && i < sizeof sum / sizeof(double); i++)
                ((double *)&sum)[i] += ((const double *)x)[i];
            if (x->rows > 0)
                printf(" %5.1f %5.1f", 100 * x->at_k / (K * x->rows), 100 * x->at_2k / (K * x->rows));
            else
                printf("     -     -");
        }
        printf(" %5.1f %5.1f | %5.1f %5.1f, %5.1f %5.1f\n", 100 * sum.at_k / (K * sum.rows), 100 * sum.at_2k / (K * sum.rows),
               100 * sum.found_k / sum.misses, 100 * sum.found_k / sum.read_k, 100 * sum.found_2k / sum.misses,
               100 * sum.found_2k / sum.read_2k);
    }
}

int main(void)
{
    k3_error err;
    k3_drive talk = {NULL, 30, 12, 1, 128}, recall = {"recall at 4k", 6, 2, 1, 128};
    for (int i = 0; i < N_STORES; i++)
        if (k3_policy_open(&stores[i].policy, LAYERS, E, (LAYERS - 1) * E * stores[i].percent / 100, &err) != K3_OK)
            return fprintf(stderr, "%s\n", err.text), 1;
    quarter = stores[3].policy;
    k3_engine *engine = k3_drive_open(128);
    k3_drive_run(engine, &talk);
    k3_drive_run(engine, &recall);
    print_table("all rows: recall@K, recall@2K", tallies);
    print_table("decoded rows", decoded);
    printf("\ndecoded rows: the predicted expert of each rank is wanted\n");
    for (int p = 0; p < N_PREDICTORS; p++) {
        printf("%-24s", names[p]);
        for (int rank = 0; rank < 2 * K; rank++)
            printf(" %5.1f", 100 * right_at_rank[p][rank] / decoded_rows[p]);
        printf("\n");
    }
    printf("\ndecoded tokens, experts a token: slots, guesses a layer, waited for, read ahead, of these useful\n");
    for (int i = 0; i < N_STORES; i++) {
        const store *s = &stores[i];
        double tokens = decoded_rows[MOST_USED] / (LAYERS - 1);
        printf("%3d %%  %d  %5.2f  %5.2f  %5.2f\n", s->percent, s->guesses, (double)s->misses / tokens, (double)s->read_ahead / tokens,
               (double)s->useful / tokens);
        k3_policy_close(s->policy);
    }
    k3_engine_close(engine);
    return 0;
}
