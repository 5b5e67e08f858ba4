#!/usr/bin/env python3
"""Write docs/coverage.md from the results of tests/backend/test_ops.

    coverage.py build/release/tests/coverage-ops.tsv > docs/coverage.md

Each line of the input: op, weight type, level, "one" or "many" rows, cases, largest error, largest tolerance. A missing op, an error above
its tolerance, or a test that is named here and not there, ends the run: the page cannot claim what no test has shown.
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
BACKENDS = {"cpu": "CPU", "vulkan": "Vulkan", "metal": "Metal"}
MODEL = ("engine/test_golden_model", "engine/test_vulkan_model", "engine/test_metal_model")
SESSION = ("engine/test_session",)
PRODUCTS = ("backend/test_simd", "backend/test_vulkan_jobs")

# area, row, ops that compute it, tests besides test_ops that show it
ROWS = [
    ("forward pass", "embedding lookup", ["embed"], ()),
    ("forward pass", "AttnRes mix: before attention, before the FFN, at the end", ["attnres_mix"], ()),
    ("forward pass", "RMSNorm of any tensor", ["rmsnorm"], ()),
    ("forward pass", "KDA layer", ["matmul", "shortconv", "l2norm", "kda_gate", "kda_recur", "gate_rmsnorm"], MODEL),
    ("forward pass", "gated MLA layer", ["matmul", "rmsnorm", "mla_append", "mla_attend", "gate_mul"], MODEL),
    ("forward pass", "LatentMoE", ["matmul", "router_topk", "moe_experts", "moe_sum", "rmsnorm", "situ_glu", "add"], MODEL),
    ("forward pass", "dense FFN (layer 0)", ["matmul", "situ_glu"], MODEL),
    ("forward pass", "running-sum update and snapshot", ["add"], MODEL),
    ("forward pass", "head: mix, norm, lm_head", ["attnres_mix", "rmsnorm", "matmul"], MODEL),
    ("forward pass", "sampling: softmax, temperature, top-k, top-p, seeded pick", ["sample"], ("sample/test_sampler", "backend/test_sample")),
    ("KDA", "causal convolution with SiLU and carried window", ["shortconv"], ()),
    ("KDA", "L2 norm of q and k", ["l2norm"], ()),
    ("KDA", "decay and write strength", ["kda_gate"], ()),
    ("KDA", "state recurrence", ["kda_recur"], ()),
    ("KDA", "state recurrence, chunked form", ["kda_chunk"], ()),
    ("KDA", "head-wise RMSNorm with sigmoid gate", ["gate_rmsnorm"], ()),
    ("KDA", "output projection", ["matmul"], ()),
    ("MLA", "q_a and norm, q_b", ["matmul", "rmsnorm"], ()),
    ("MLA", "kv_a, norm of the latent, 64 extra dims kept raw, cache append (f32 and bf16)", ["matmul", "mla_append"], ()),
    ("MLA", "output gate", ["matmul", "gate_mul"], ()),
    ("MLA", "absorbed query, scores, causal softmax, context in latent space, value projection", ["mla_attend"], ()),
    ("MLA", "output projection", ["matmul"], ()),
    ("MoE", "router product", ["matmul"], ()),
    ("MoE", "sigmoid, selection bias, top-16 of 896, lowest index first on ties", ["router_topk"], ()),
    ("MoE", "latent down and up projection, norm of the sum", ["matmul", "rmsnorm"], ()),
    ("routed expert", "W1, W3, SiTU-GLU, W2, MXFP4, one or a group, gathered by address", ["moe_experts"], ()),
    ("routed expert", "weighted sum in rank order, whoever computed the parts, issued and taken later", ["moe_sum"], ("engine/test_tiers",)),
    ("shared experts", "gate, up, SiTU-GLU, down, added to the output", ["matmul", "situ_glu", "add"], ()),
    ("inputs and state", "embedding rows injected in place of ids", ["embed"], SESSION),
    ("inputs and state", "state allocation, growth, reset, snapshot, restore", [], SESSION + ("engine/test_vulkan_model",)),
    ("projections sharing an input", "two or more matrices on one input in one call", ["matmul"], PRODUCTS),
    ("projections sharing an input", "gate, up and activation of an expert in one call", ["moe_experts"], ()),
    ("projections sharing an input", "SiLU alone (in the convolution), SiTU alone", ["shortconv", "situ_glu"], ()),
    ("large-row products", "tiled GEMM: a weight is decoded once for many rows", ["matmul"], PRODUCTS),
]
TYPES = ["f32", "bf16", "int8", "int4", "int4_g64", "int3_g64", "int2", "mxfp4"]
# The CPU has no such op: the engine draws on the host.
ON_THE_HOST = {("sample", "cpu"): "sample/test_sampler"}

SERVICES = "backend/test_services"
VULKAN = "backend/test_vulkan_services"
FAULTS = "backend/test_vulkan_faults"
ENGINE = "engine/test_vulkan_model"
DEVICES = "apps/test_devices"
HOST = "metal/test_metal_host"
METAL = "engine/test_metal_model"
# service, tests on the CPU, on Vulkan, on Metal; None: means nothing there
SERVICE_ROWS = [
    ("open by name, level or device, say why not",
     [(SERVICES, "names_open_what_they_say"), (SERVICES, "unknown_names_list_what_there_is")],
     [(FAULTS, "h07_no_device_is_one_clear_line"), (FAULTS, "h08_a_software_device_is_taken_only_when_asked_for"),
      (FAULTS, "h18_what_is_needed_is_named"), (DEVICES, "h07_without_a_loader_the_cpu_answers")],
     [(HOST, "devices_are_found_by_number_and_name"), (HOST, "what_a_device_lacks_is_named")]),
    ("build the kernels, test them, keep them between runs", None,
     [(FAULTS, "h21_a_kernel_that_computes_nonsense_is_found_at_start"),
      (FAULTS, "h23_compiled_kernels_are_kept_if_they_can_be_trusted")],
     [(METAL, "exact_mode_meets_the_cpu"), (HOST, "any_call_may_fail")]),
    ("close on every exit", [(SERVICES, "names_open_what_they_say")],
     [(VULKAN, "it_opens_and_closes_at_any_time"), (FAULTS, "h03_any_allocation_may_fail"),
      (DEVICES, "everything_goes_back_on_every_exit")],
     [(HOST, "it_opens_and_closes_at_any_time"), (HOST, "any_call_may_fail")]),
    ("reload kernels and memory while running", None, [(ENGINE, "h26_a_device_lost_between_requests_is_replaced")],
     [(HOST, "kernels_are_read_anew_while_it_runs"), (METAL, "h26_a_lost_device_changes_no_token")]),
    ("wrap and release host pages without a copy", [(SERVICES, "copies_stay_inside"), (SERVICES, "budget_is_kept")],
     [(VULKAN, "host_pages_are_wrapped_and_released")],
     [(HOST, "host_pages_are_seen_without_a_copy"), (HOST, "host_pages_may_go_once_released"),
      (METAL, "h15_a_file_larger_than_a_buffer_is_seen_through_several"), (METAL, "mapped_experts_are_not_copied")]),
    ("upload, download, copy", [(SERVICES, "copies_stay_inside")],
     [(VULKAN, "uploads_copies_and_downloads_keep_their_order"), (VULKAN, "nothing_reaches_outside_a_buffer")],
     [(HOST, "bytes_are_copied_at_any_address")]),
    ("memory information: used, budget, slabs, tensors", [(SERVICES, "budget_is_kept"), (SERVICES, "memory_is_zeroed_and_aligned")],
     [(VULKAN, "the_budget_is_kept"), (FAULTS, "h20_all_heaps_of_the_device_are_used")],
     [(HOST, "memory_is_zeroed_and_seen_by_the_host"), (HOST, "the_working_set_is_respected")]),
    ("settable budget and allocation priority", [(SERVICES, "budget_is_kept")],
     [(VULKAN, "the_budget_is_kept"), (FAULTS, "h04_memory_beyond_the_budget_is_not_taken")],
     [(HOST, "the_working_set_is_respected"), (METAL, "h13_the_recommended_working_set_is_respected")]),
    ("statistics with reset", [(SERVICES, "statistics_count_and_reset")],
     [(VULKAN, "statistics_count_and_reset"), (VULKAN, "the_weights_read_are_counted")], [(HOST, "operations_are_timed")]),
    ("asynchronous submission and collection", None,
     [(VULKAN, "submit_starts_and_sync_collects"), (VULKAN, "barriers_stand_where_ranges_meet"), (FAULTS, "h05_no_submission_is_long")],
     [(METAL, "neither_width_nor_order_matters"), (HOST, "a_buffer_made_amid_commands_is_known_to_them")]),
    ("a second device for experts", [("engine/test_tiers", "further_devices_hold_experts")],
     [(VULKAN, "a_second_device_works_beside_the_first"), (ENGINE, "a_second_device_holds_experts")],
     [(HOST, "two_devices_work_side_by_side")]),
    ("whole layers in one submission", None, [(ENGINE, "whole_layers_go_in_one_submission")],
     [(METAL, "whole_layers_go_in_one_command_buffer")]),
    ("fall-back to the CPU, never a partial result", None,
     [(ENGINE, "h12_a_lost_device_never_gives_a_part_of_a_result"), (ENGINE, "h03_no_allocation_that_fails_is_the_end"),
      (DEVICES, "h12_h26_a_lost_device_changes_no_token")],
     [(METAL, "h26_a_lost_device_changes_no_token"), (METAL, "a_part_of_the_experts_changes_no_token")]),
    ("first failure kept until sync", [(SERVICES, "first_failure_is_kept")], [(VULKAN, "the_first_failure_is_kept")],
     [(HOST, "any_submission_may_run_out_of_memory"), (HOST, "a_device_lost_at_any_submission_is_said")]),
    ("types and shapes refused by name", [(SERVICES, "types_are_refused_by_name"), (SERVICES, "shapes_are_refused")],
     [(VULKAN, "types_and_shapes_are_refused_by_name")],
     [(SERVICES, "types_are_refused_by_name")]),
    ("equal bits: any split and number of threads (CPU), every repeat (GPUs)", [("backend/test_simd", "bits_ignore_splits_and_threads")],
     [("backend/test_vulkan_jobs", "h16_gives_the_same_bits_every_time")],
     [(METAL, "neither_width_nor_order_matters")]),
]


def read(path):
    results = {}
    for line in open(path, encoding="ascii"):
        op, kind, level, rows, _, error, tolerance = line.rstrip("\n").split("\t")
        if float(error) > float(tolerance):
            sys.exit(f"{op} {kind} on {level}: error {error} is above {tolerance}")
        results.setdefault((op, re.split("[:+]", level)[0]), []).append((kind, rows, float(error)))
    return results


def worst(results, op, backend, kind=None, rows=None):
    found = [e for k, r, e in results.get((op, backend), []) if kind in (None, k) and rows in (None, r)]
    if not found:
        sys.exit(f"{op} on {backend}: no result for {kind or 'any type'}, {rows or 'any number of'} rows; run test_ops first")
    return max(found)


def digits(error):
    return "0" if error == 0 else f"{error:.0e}"


def cell(results, ops, backend):
    """native, and the largest error of the ops."""
    ops = [op for op in ops if (op, backend) not in ON_THE_HOST]
    return "native, " + digits(max(worst(results, op, backend) for op in ops)) if ops else "native"


def path_of(test):
    path = f"tests/{test}.c"
    if not os.path.exists(os.path.join(ROOT, path)):
        sys.exit(f"{path} is named here and does not exist")
    return path


def named(tests):
    """The tests by file; each must be a function there."""
    if tests is None:
        return "-"
    for test, name in tests:
        if not re.search(rf"\b{name}\(", open(os.path.join(ROOT, path_of(test)), encoding="utf-8").read()):
            sys.exit(f"{path_of(test)} has no test {name}")
    files = list(dict.fromkeys(test for test, _ in tests))
    return "; ".join(f"`{os.path.basename(f)}`: " + ", ".join(name for test, name in tests if test == f) for f in files)


def main():
    results = read(sys.argv[1])
    out = print
    out("# What each backend computes natively\n")
    out("Generated by `tools/coverage.py` from what `test_ops` measured. Errors are the largest over all golden cases, over one row and many,")
    out("and over a backend's levels, with exact mode; relative to the largest expected value of an output, and rounded to one digit. A row of")
    out("several operations shows the largest of them. Golden files are `tests/golden/<op>.safetensors`. Vulkan was measured on a software")
    out("device, under validation; Metal on the harness of `tests/metal`, which executes the text that ships: it has never run on Apple hardware.")
    out("Outside exact mode the CPU multiplies int8, int4, int4_g64, int2 and mxfp4 weights with x rounded to 8 bits ([numerics.md](numerics.md)): its largest errors")
    out("are those of cases whose products cancel; with other types, and in exact mode, they are below 3e-6.\n")
    out(f"| area | row | {' | '.join(BACKENDS.values())} | operations | also shown by |\n|---|---|{'---|' * len(BACKENDS)}---|---|")
    for area, row, ops, others in ROWS:
        cells = " | ".join(cell(results, ops, backend) for backend in BACKENDS)
        out(f"| {area} | {row} | {cells} | {', '.join(f'`{op}`' for op in ops)} | {', '.join(f'`{path_of(o)}`' for o in others)} |")
    out("\n## Weight types\n\n`matmul`: one row is decode, many rows are prefill; both are kernels of the backend. Names are stored, never guessed.\n")
    columns = [f"{name}: {rows} row{'s' * (rows == 'many')}" for name in BACKENDS.values() for rows in ("one", "many")]
    out(f"| type | {' | '.join(columns)} |\n|---|{'---|' * len(columns)}")
    for kind in TYPES:
        cells = (f"native, {digits(worst(results, 'matmul', b, kind, rows))}" for b in BACKENDS for rows in ("one", "many"))
        out(f"| `{kind}` | {' | '.join(cells)} |")
    out("\n`embed` reads all eight, `mla_attend` takes `kv_b` in all eight and a cache in f32 or bf16, `moe_experts` takes mxfp4 and refuses the rest.\n")
    out("## Services\n\nA dash: the CPU computes at once, from memory that the engine has anyway.\n\n| service | CPU | Vulkan | Metal |\n|---|---|---|---|")
    for row, *shown in SERVICE_ROWS:
        out(f"| {row} | {' | '.join(named(tests) for tests in shown)} |")


main()
