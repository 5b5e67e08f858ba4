#include "store/drive_watch.h"

static const uint64_t window_ns = 30000000000u, piece_ns = 1000000000;
static const double least_share = 0.7;

void k3_drive_watch_add(k3_drive_watch *w, uint64_t bytes, uint64_t busy_ns)
{
    if (!busy_ns && !bytes)
        return;
    int is_start = w->start.busy_ns < window_ns;
    k3_watch_sum *piece = &w->pieces[w->newest];
    if (piece->busy_ns >= piece_ns || (!is_start && !w->since_ns)) { /* no piece belongs to the first window and to what follows */
        w->newest = (w->newest + 1) % K3_WATCH_PIECES;
        piece = &w->pieces[w->newest];
        *piece = (k3_watch_sum){0, 0};
    }
    piece->bytes += bytes;
    piece->busy_ns += busy_ns;
    w->start.bytes += is_start ? bytes : 0;
    w->start.busy_ns += is_start ? busy_ns : 0;
    w->since_ns += is_start ? 0 : busy_ns;
}

k3_watch_sum k3_drive_watch_last(const k3_drive_watch *w)
{
    k3_watch_sum sum = {0, 0};
    for (int i = 0; i < K3_WATCH_PIECES && sum.busy_ns < window_ns; i++) {
        const k3_watch_sum *piece = &w->pieces[(w->newest - i + K3_WATCH_PIECES) % K3_WATCH_PIECES];
        sum.bytes += piece->bytes;
        sum.busy_ns += piece->busy_ns;
    }
    return sum;
}

double k3_watch_rate(const k3_watch_sum *sum)
{
    return sum->busy_ns ? (double)sum->bytes * 1e9 / (double)sum->busy_ns : 0;
}

int k3_drive_watch_fell(k3_drive_watch *w)
{
    k3_watch_sum last = k3_drive_watch_last(w);
    if (w->has_fallen || w->since_ns < window_ns || k3_watch_rate(&last) >= least_share * k3_watch_rate(&w->start))
        return 0;
    w->has_fallen = 1;
    return 1;
}
