/* y[t,c] = silu(sum_j w[c,j] u[t-width+1+j, c]) (specification 3.4). Workgroup (x, y, z) takes 128 channels of ROWS rows of run z, a thread
 * one channel of them. Inputs before the run's first row come from the window [width-1, C]; the only threads that read it, those of the
 * first rows, also put the last inputs there, so that no read meets a write. */
#version 450
#extension GL_GOOGLE_include_directive : require
#include "math.glsl"
#include "runs.glsl"
#include "backend/args/shortconv.h"

layout(local_size_x = 128) in;
layout(constant_id = 0) const uint WIDTH = 4;
layout(push_constant, std430) uniform Push
{
    k3_shortconv_args a;
};

const uint ROWS = 8;
const uint MAX_WIDTH = 8; /* at most ROWS + 1: inputs before a later block of rows are the run's own */

void main()
{
    uint c = gl_GlobalInvocationID.x, first = gl_WorkGroupID.y * ROWS;
    Run run = k3_run_of(a.runs, gl_WorkGroupID.z);
    if (c >= a.C || first >= run.n)
        return;
    /* Channel c of the run's rows is a column with C floats between neighbours. */
    uint64_t column = 4ul * (uint64_t(run.row) * a.C + c);
    F32 u = F32(a.u + column), y = F32(a.y + column), w = F32(a.w + 4ul * (c * WIDTH)), window = F32(run.state + 4ul * c);
    float taps[MAX_WIDTH], past[MAX_WIDTH], now[ROWS];
    [[unroll]] for (uint i = 0u; i < ROWS; i++)
        now[i] = first + i < run.n ? u.at[(first + i) * a.C] : 0.0;
    [[unroll]] for (uint j = 0u; j < WIDTH - 1u; j++)
        past[j] = first > 0u ? u.at[(first + j + 1u - WIDTH) * a.C] : window.at[j * a.C];
    [[unroll]] for (uint j = 0u; j < WIDTH; j++)
        taps[j] = w.at[j];

    [[unroll]] for (uint i = 0u; i < ROWS; i++) {
        if (first + i < run.n) {
            past[WIDTH - 1u] = now[i];
            float sum = 0.0;
            [[unroll]] for (uint j = 0u; j < WIDTH; j++)
                sum += taps[j] * past[j];
            y.at[(first + i) * a.C] = k3_silu(sum);
            [[unroll]] for (uint j = 0u; j < WIDTH - 1u; j++)
                past[j] = past[j + 1u];
        }
    }
    if (first == 0u)
        [[unroll]] for (uint j = 0u; j < WIDTH - 1u; j++)
            window.at[j * a.C] = run.n > ROWS ? u.at[(run.n + j + 1u - WIDTH) * a.C] : past[j];
}
