"""How each golden file is computed: stored inputs and parameters -> expected outputs, by the functions of k3_numpy.

make_golden.py writes files with it, check_mutants.py replays files with it while a function of k3_numpy is replaced by a
mutant. A function is always looked up in the module at the time of the call, so that a replacement is seen.
"""
import json
import struct

import numpy as np

import k3_numpy as k


def f64(a):
    """Stored F32, or BF16 as 16-bit patterns, -> float64."""
    return k.from_bf16(a) if a.dtype == np.uint16 else a.astype(np.float64)


def run_embed(t, p):
    return {"y": k.embed(t["ids"], k.decode_weight(p["type"], t["table"], t.get("scale")))}


def run_attnres_mix(t, p):
    return {"y": k.attnres_mix(f64(t["src"]), f64(t["s"]), float(p["eps"]))}


def run_rmsnorm(t, p):
    return {"y": k.rmsnorm(f64(t["x"]), f64(t["w"]), float(p["eps"]))}


def run_matmul(t, p):
    return {"y": k.matmul(k.decode_weight(p["type"], t["w"], t.get("scale")), f64(t["x"]))}


def run_shortconv(t, p):
    y, window = k.shortconv(f64(t["u"]), f64(t["w"]), f64(t["window_in"]))
    return {"y": y, "window_out": window}


def run_l2norm(t, p):
    return {"y": k.l2norm(f64(t["x"]), float(p["eps"]), float(p["scale"]))}


def run_kda_gate(t, p):
    T, H = t["b"].shape
    g, alpha, beta = k.kda_gate(f64(t["z"]), f64(t["b"]), f64(t["a_log"]), f64(t["dt_bias"]), float(p["lower_bound"]))
    return {"g": g, "alpha": alpha, "beta": beta}


def run_kda_recur(t, p):
    o, S = k.kda_recur(*(f64(t[n]) for n in ("q", "k", "v", "alpha", "beta", "S_in")))
    return {"o": o, "S_out": S}


def run_kda_chunk(t, p):
    """The expected values come from the recurrence, from g itself: alpha, where a kernel wants it, is exp(g)."""
    o, S = k.kda_recur(f64(t["q"]), f64(t["k"]), f64(t["v"]), np.exp(f64(t["g"])), f64(t["beta"]), f64(t["S_in"]))
    return {"o": o, "S_out": S}


def run_gate_rmsnorm(t, p):
    return {"y": k.gate_rmsnorm(f64(t["o"]), f64(t["w"]), f64(t["gate"]), float(p["eps"]))}


def run_mla_append(t, p):
    return {"rows": k.mla_append(f64(t["ckv"]), f64(t["w"]), float(p["eps"]))}


def run_mla_attend(t, p):
    return {"o": k.mla_attend(f64(t["q"]), f64(t["cache"]), f64(t["kv_b"]), int(p["nope"]), int(p["v"]), int(p["pos0"]), float(p["scale"]))}


def run_gate_mul(t, p):
    return {"y": k.gate_mul(f64(t["x"]), f64(t["gate"]))}


def run_situ_glu(t, p):
    return {"y": k.situ_glu(f64(t["g"]), f64(t["u"]), float(p["b1"]), float(p["b2"]))}


def run_router_topk(t, p):
    ids, weights = k.router_topk(f64(t["logits"]), f64(t["bias"]), int(p["K"]), p["renormalize"] == "1", float(p["scale"]))
    return {"ids": ids, "weights": weights}


def run_moe_experts(t, p):
    def expert(e):
        return [k.decode_mxfp4(t[n][e], t[n + "_scale"][e]) for n in ("w1", "w3", "w2")]

    return {"y": k.moe_experts(f64(t["z"]), expert, t["ids"], f64(t["weights"]), float(p["b1"]), float(p["b2"]))}


def run_moe_sum(t, p):
    return {"y": k.moe_sum(f64(t["slots"]), f64(t["weights"]))}


def run_add(t, p):
    return {"y": k.add(f64(t["a"]), f64(t["b"]))}


def run_sample(t, p):
    ids, q = k.sample(f64(t["logits"]), float(p["temperature"]), int(p["top_k"]), float(p["top_p"]), float(p["min_p"]))
    return {"ids": ids, "p": q}


RUN = {name.removeprefix("run_"): f for name, f in list(globals().items()) if name.startswith("run_")}


def stored(outputs):
    """As the file holds them: ids as i32, everything else as f32."""
    return {n: a.astype("<i4") if a.dtype.kind == "i" else a.astype("<f4") for n, a in outputs.items()}


def read(path):
    """A golden file -> [(case, tensors, parameters)], tensors as stored (BF16 as uint16)."""
    with open(path, "rb") as f:
        blob = f.read()
    n = struct.unpack_from("<Q", blob)[0]
    header = json.loads(blob[8:8 + n])
    meta = header.pop("__metadata__")
    kinds = {"F32": "<f4", "BF16": "<u2", "U8": "u1", "I32": "<i4"}
    cases = {name: ({}, {}) for name in meta["cases"].split(",")}
    for name, e in header.items():
        case, tensor = name.split(".", 1)
        begin, end = e["data_offsets"]
        cases[case][0][tensor] = np.frombuffer(blob[8 + n + begin:8 + n + end], kinds[e["dtype"]]).reshape(e["shape"])
    for key, value in meta.items():
        if key != "cases":
            case, param = key.split(".", 1)
            cases[case][1][param] = value
    return [(c, t, p) for c, (t, p) in cases.items()]


def error(got, want):
    """Of one output tensor: ids that differ count as infinite, everything else relative to the largest expected value."""
    if got.shape != want.shape:
        return np.inf
    if want.dtype.kind == "i":
        return 0.0 if (got == want).all() else np.inf
    top = np.abs(want).max()
    with np.errstate(all="ignore"):
        e = np.abs(got - want).max() / (top if top else 1.0)
    return float(e) if np.isfinite(e) else np.inf
