#!/usr/bin/env python3
"""Write docs/coverage.md from the results of tests/backend/test_ops.

    coverage.py build/release/tests/coverage-ops.tsv > docs/coverage.md

Each line of the input: op, weight type, backend, "one" or "many" rows, cases, largest error, largest tolerance. A missing op, or an error
above its tolerance, ends the run: the page cannot claim what no test has shown.
"""
import sys

GOLDEN = "tests/golden/"
MODEL = ("tests/engine/test_golden_model.c", GOLDEN + "tiny.safetensors")
SESSION = "tests/engine/test_session.c"
SERVICES = "tests/backend/test_services.c"
SIMD = "tests/backend/test_simd.c"

# area, row, ops that compute it, what else shows it
ROWS = [
    ("forward pass", "embedding lookup", ["embed"], []),
    ("forward pass", "AttnRes mix: before attention, before the FFN, at the end", ["attnres_mix"], []),
    ("forward pass", "RMSNorm of any tensor", ["rmsnorm"], []),
    ("forward pass", "KDA layer", ["matmul", "shortconv", "l2norm", "kda_gate", "kda_recur", "gate_rmsnorm"], MODEL),
    ("forward pass", "gated MLA layer", ["matmul", "rmsnorm", "mla_append", "mla_attend", "gate_mul"], MODEL),
    ("forward pass", "LatentMoE", ["matmul", "router_topk", "moe_experts", "rmsnorm", "situ_glu", "add"], MODEL),
    ("forward pass", "dense FFN (layer 0)", ["matmul", "situ_glu"], MODEL),
    ("forward pass", "running-sum update and snapshot", ["add"], MODEL),
    ("forward pass", "head: mix, norm, lm_head", ["attnres_mix", "rmsnorm", "matmul"], MODEL),
    ("forward pass", "sampling", [], ("tests/sample/test_sampler.c", GOLDEN + "sample.safetensors")),
    ("KDA", "causal convolution with SiLU and carried window", ["shortconv"], []),
    ("KDA", "L2 norm of q and k", ["l2norm"], []),
    ("KDA", "decay and write strength", ["kda_gate"], []),
    ("KDA", "state recurrence", ["kda_recur"], []),
    ("KDA", "state recurrence, chunked form", ["kda_chunk"], []),
    ("KDA", "head-wise RMSNorm with sigmoid gate", ["gate_rmsnorm"], []),
    ("KDA", "output projection", ["matmul"], []),
    ("MLA", "q_a and norm, q_b", ["matmul", "rmsnorm"], []),
    ("MLA", "kv_a, norm of the latent, 64 extra dims kept raw, cache append (f32 and bf16)", ["matmul", "mla_append"], []),
    ("MLA", "output gate", ["matmul", "gate_mul"], []),
    ("MLA", "absorbed query, scores, causal softmax, context in latent space, value projection", ["mla_attend"], []),
    ("MLA", "output projection", ["matmul"], []),
    ("MoE", "router product", ["matmul"], []),
    ("MoE", "sigmoid, selection bias, top-16 of 896, lowest index first on ties", ["router_topk"], []),
    ("MoE", "latent down and up projection, norm of the sum", ["matmul", "rmsnorm"], []),
    ("routed expert", "W1, W3, SiTU-GLU, W2, MXFP4, weighted sum in rank order, one or a group, gathered by address", ["moe_experts"], []),
    ("shared experts", "gate, up, SiTU-GLU, down, added to the output", ["matmul", "situ_glu", "add"], []),
    ("inputs and state", "embedding rows injected in place of ids", [], (SESSION,)),
    ("inputs and state", "state allocation, growth, reset, snapshot, restore", [], (SESSION,)),
    ("projections sharing an input", "two or more matrices on one input in one call", ["matmul"], (SIMD,)),
    ("projections sharing an input", "gate, up and activation of an expert in one call", ["moe_experts"], []),
    ("projections sharing an input", "SiLU alone (in the convolution), SiTU alone", ["shortconv", "situ_glu"], []),
    ("large-row products", "tiled GEMM: a weight is decoded once for up to 64 rows (16 in scalar)", ["matmul"], (SIMD,)),
]
TYPES = ["f32", "bf16", "int8", "int4", "int4_g64", "int3_g64", "int2", "mxfp4"]
SERVICE_ROWS = [
    ("open by name and level, say why not; close", "names_open_what_they_say, unknown_names_list_what_there_is"),
    ("wrap and release host pages without a copy", "copies_stay_inside, budget_is_kept"),
    ("upload, download, copy", "copies_stay_inside"),
    ("memory information, settable budget", "budget_is_kept, memory_is_zeroed_and_aligned"),
    ("statistics with reset", "statistics_count_and_reset"),
    ("first failure kept until sync", "first_failure_is_kept"),
    ("types and shapes refused by name", "types_are_refused_by_name, shapes_are_refused"),
    ("equal bits for every split of calls and number of threads", "test_simd: *_bits_ignore_splits_and_threads"),
]


def read(path):
    results = {}
    for line in open(path, encoding="ascii"):
        op, kind, backend, rows, _, error, tolerance = line.rstrip("\n").split("\t")
        if float(error) > float(tolerance):
            sys.exit(f"{op} {kind} on {backend}: error {error} is above {tolerance}")
        results.setdefault((op, backend.split(":")[0]), []).append((kind, rows, float(error)))
    return results


def worst(results, op, kind=None, rows=None):
    found = [e for k, r, e in results.get((op, "cpu"), []) if kind in (None, k) and rows in (None, r)]
    if not found:
        sys.exit(f"{op}: no result for {kind or 'any type'}, {rows or 'any number of'} rows; run test_ops first")
    return max(found)


def digits(error):
    return "0" if error == 0 else f"{error:.0e}"


def main():
    results = read(sys.argv[1])
    out = print
    out("# What each backend computes natively\n")
    out("Generated by `tools/coverage.py` from what `test_ops` measured. Errors are the largest over all golden cases and CPU levels, relative")
    out("to the largest expected value of an output, and rounded to one digit; a row of several operations shows the largest of them. Golden")
    out("files are `tests/golden/<op>.safetensors`. Vulkan and Metal are not here yet.\n")
    out("| area | row | CPU | operations | error | also shown by |\n|---|---|---|---|---|---|")
    for area, row, ops, others in ROWS:
        error = digits(max(worst(results, op) for op in ops)) if ops else ""
        out(f"| {area} | {row} | native | {', '.join(f'`{op}`' for op in ops)} | {error} | {', '.join(f'`{o}`' for o in others)} |")
    out("\n## Weight types\n\nOne row is decode, many rows are prefill; both are kernels of the level. Names are stored, never guessed.\n")
    out("| type | CPU | `matmul` error, one row | many rows |\n|---|---|---|---|")
    for kind in TYPES:
        out(f"| `{kind}` | native | {digits(worst(results, 'matmul', kind, 'one'))} | {digits(worst(results, 'matmul', kind, 'many'))} |")
    out("\n`embed` reads all eight, `mla_attend` takes `kv_b` in all eight and a cache in f32 or bf16, `moe_experts` takes mxfp4 and refuses the rest.\n")
    out(f"## Services\n\nTests are in `{SERVICES}` unless named otherwise.\n\n| service | CPU | tests |\n|---|---|---|")
    for row, tests in SERVICE_ROWS:
        out(f"| {row} | native | {tests} |")
    out("\nNot meaningful on the CPU, which computes at once: reloading kernels, asynchronous submission and collection, a second device, whole")
    out("layers in one submission, falling back to the CPU.")


main()
