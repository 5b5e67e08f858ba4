/* Logit bias, penalties and log-probabilities: pure functions on host logits, before or beside a pick. */
#include "base/error.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static k3_status check_number(float x, const char *name, k3_error *err)
{
    return x >= -100 && x <= 100 ? K3_OK : k3_fail(err, K3_E_INVALID, "%s: %g found, -100 to 100 wanted", name, (double)x);
}

static k3_status check(const k3_adjustment *a, size_t n, const int32_t *history, size_t n_history, k3_error *err)
{
    K3_TRY(check_number(a->presence, "presence penalty", err));
    K3_TRY(check_number(a->frequency, "frequency penalty", err));
    if (!(a->repetition >= 0 && a->repetition <= 100))
        return k3_fail(err, K3_E_INVALID, "repetition penalty: %g found, 0 (off) to 100 wanted", (double)a->repetition);
    if (a->window < -1)
        return k3_fail(err, K3_E_INVALID, "penalty window: %lld found, -1 (all), 0 (off) or a count wanted", (long long)a->window);
    for (size_t i = 0; i < a->n_biases; i++) {
        if (a->bias_ids[i] < 0 || (size_t)a->bias_ids[i] >= n)
            return k3_fail(err, K3_E_INVALID, "logit bias: id %d is outside the vocabulary (0 to %zu)", a->bias_ids[i], n - 1);
        K3_TRY(check_number(a->biases[i], "logit bias", err));
    }
    for (size_t i = 0; i < n_history; i++)
        if (history[i] >= 0 && (size_t)history[i] >= n)
            return k3_fail(err, K3_E_INVALID, "history: id %d is outside the vocabulary (0 to %zu)", history[i], n - 1);
    return K3_OK;
}

static float repeated(float x, float penalty)
{
    return penalty == 0 ? x : x > 0 ? fminf(x / penalty, FLT_MAX) : x * penalty;
}

/* If the id is in the window: x[id] = x[id] / repetition, or x[id] * repetition where x[id] <= 0; then x[id] -= presence + frequency *
 * (times it is there). Ids below 0 (injected rows) do not count. */
k3_status k3_logits_adjust(float *logits, size_t n, const k3_adjustment *a, const int32_t *history, size_t n_history, k3_error *err)
{
    K3_TRY(check(a, n, history, n_history, err));
    size_t window = a->window < 0 || (uint64_t)a->window > n_history ? n_history : (size_t)a->window;
    if (window && (a->presence != 0 || a->frequency != 0 || (a->repetition != 0 && a->repetition != 1))) {
        unsigned char *seen = calloc(n, 1);
        if (!seen)
            return k3_fail(err, K3_E_NOMEM, "penalties: no memory for %zu ids", n);
        for (size_t i = n_history - window; i < n_history; i++) {
            if (history[i] < 0)
                continue;
            float *x = &logits[history[i]], first = seen[history[i]] ? 0 : a->presence;
            if (!seen[history[i]])
                *x = repeated(*x, a->repetition);
            *x -= a->frequency + first;
            seen[history[i]] = 1;
        }
        free(seen);
    }
    for (size_t i = 0; i < a->n_biases; i++)
        logits[a->bias_ids[i]] += a->biases[i];
    return K3_OK;
}

/* Keeps ids [n_top] sorted by falling logit; candidates come in ascending id, so a tie stays behind. */
static void offer(int32_t *ids, size_t *n_kept, size_t n_top, const float *logits, int32_t id)
{
    size_t at = *n_kept;
    while (at > 0 && logits[id] > logits[ids[at - 1]])
        at--;
    if (at == n_top)
        return;
    *n_kept += *n_kept < n_top;
    for (size_t i = *n_kept - 1; i > at; i--)
        ids[i] = ids[i - 1];
    ids[at] = id;
}

k3_status k3_logprobs(float *of_id, int32_t *top_ids, float *top, size_t n_top, int32_t id, const float *logits, size_t n, k3_error *err)
{
    float max = -INFINITY;
    if (!n || n > INT32_MAX || n_top > n)
        return k3_fail(err, K3_E_INVALID, "logprobs: the %zu best of %zu logits asked for", n_top, n);
    if (id < 0 || (size_t)id >= n)
        return k3_fail(err, K3_E_INVALID, "logprobs: id %d is outside the vocabulary (0 to %zu)", id, n - 1);
    for (size_t i = 0; i < n; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return k3_fail(err, K3_E_NUMERIC, "logits: id %zu is %g; finite numbers wanted", i, (double)logits[i]);
        max = logits[i] > max ? logits[i] : max;
    }
    if (max == -INFINITY)
        return k3_fail(err, K3_E_NUMERIC, "logits: all %zu are -inf; at least one finite number wanted", n);
    double total = 0;
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++) {
        total += exp((double)logits[i] - (double)max);
        if (n_top)
            offer(top_ids, &n_kept, n_top, logits, (int32_t)i);
    }
    double norm = (double)max + log(total);
    *of_id = (float)((double)logits[id] - norm);
    for (size_t i = 0; i < n_top; i++)
        top[i] = (float)((double)logits[top_ids[i]] - norm);
    return K3_OK;
}
