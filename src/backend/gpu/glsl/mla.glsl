/* Runs, tiles and cache rows of mla_append and mla_attend. */
#ifndef K3_MLA_GLSL
#define K3_MLA_GLSL

#include "decode.glsl"
#include "backend/args/mla.h"

layout(buffer_reference, std430, buffer_reference_align = 8) buffer MlaRuns { k3_mla_run at[]; };

k3_mla_run k3_mla_run_of(k3_mla_runs runs, uint i)
{
    if (runs.table == 0ul)
        return runs.only;
    MlaRuns table = MlaRuns(runs.table);
    return k3_mla_run(table.at[i].cache, table.at[i].pos, table.at[i].row, table.at[i].n, table.at[i].first);
}

/* Below every score, and finite, so that the difference of two of them is 0. */
const float K3_LOWEST = -3.0e38;

/* Pairs first .. first+n-1 of a run, as one workgroup takes them, against cache rows begin .. end-1, of which the tile's last row of
 * activations sees all that are not past its own position. */
struct k3_tile {
    k3_mla_run run;
    uint first, n;
    uint begin, end; /* end <= begin: this part holds nothing for the tile */
};

shared uint k3_tile_run;

/* Tile gl_WorkGroupID.x, part gl_WorkGroupID.y. To be called by all invocations of a workgroup of at least runs.n; a barrier in it. */
k3_tile k3_tile_of(k3_mla_attend_args a, uint tile_pairs)
{
    uint tile = gl_WorkGroupID.x, i = gl_LocalInvocationID.x;
    if (i < a.runs.n) {
        k3_mla_run run = k3_mla_run_of(a.runs, i);
        if (run.first <= tile && tile - run.first < (run.n * a.heads + tile_pairs - 1u) / tile_pairs)
            k3_tile_run = i;
    }
    barrier();
    k3_tile found;
    found.run = k3_mla_run_of(a.runs, k3_tile_run);
    found.first = (tile - found.run.first) * tile_pairs;
    found.n = min(tile_pairs, found.run.n * a.heads - found.first);
    found.begin = gl_WorkGroupID.y * a.part_rows;
    found.end = min(found.begin + a.part_rows, found.run.pos + (found.first + found.n - 1u) / a.heads + 1u);
    return found;
}

/* Cache rows that pair i of the tile sees, of those below the tile's end. */
uint k3_tile_limit(k3_tile tile, uint heads, uint i)
{
    return min(tile.end, tile.run.pos + (tile.first + i) / heads + 1u);
}

/* Place of pair i of the tile among all pairs of one part. */
uint k3_tile_pair(k3_tile tile, uint heads, uint i)
{
    return tile.run.row * heads + tile.first + i;
}

#endif
