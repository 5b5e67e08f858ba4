#!/usr/bin/env python3
"""Write tests/golden/: one safetensors file per operation, the tiny checkpoint, the random configurations.

    make_golden.py [OUT]        everything (default: tests/golden of this repository); a rerun writes the same bytes
    make_golden.py --ops [OUT]  the operations only

A file holds several cases; tensor `<case>.<tensor>`; the metadata holds `cases` (their names in order) and, for each,
`<case>.tol` (largest allowed error relative to the largest expected value of the tensor; ids must be equal),
`<case>.outputs` (which tensors are expected values; all others are inputs) and the scalar parameters.
Inputs are exactly what is stored; expected values are computed from them in float64 and rounded once.
"""
import json
import os
import sys
import tempfile

import numpy as np

import cases as models
import k3_numpy
import ops
from make_random import Draw, bf16_bits, make_config, write_checkpoint, write_safetensors


class File:
    def __init__(self, op, seed):
        self.op, self.tensors, self.meta, self.d = op, {}, {"cases": ""}, Draw(seed, {})

    def normal(self, shape, std=1.0, mean=0.0):
        return self.d.f32(shape, std, mean)

    def unit(self, shape, low=0.0, high=1.0):
        return (low + (high - low) * self.d.rng.random_sample(shape)).astype("<f4")

    def bytes(self, shape):
        return self.d.rng.randint(0, 256, shape).astype("u1")

    def case(self, name, tol, inputs, **params):
        params = {n: str(v) for n, v in params.items()}
        out = ops.stored(ops.RUN[self.op](inputs, params))
        assert all(np.isfinite(a).all() for a in out.values()), (self.op, name)
        self.meta["cases"] += "," * bool(self.meta["cases"]) + name
        self.meta.update({f"{name}.{n}": v for n, v in {"tol": str(tol), "outputs": ",".join(out), **params}.items()})
        for n, a in {**inputs, **out}.items():
            self.tensors[f"{name}.{n}"] = ("BF16", a) if a.dtype == np.uint16 else np.asarray(a)
        return out

    def write(self, folder):
        """Wide elements first, so that every tensor lies aligned without gaps."""
        def width(item):
            return 2 if isinstance(item[1], tuple) else item[1].itemsize
        tensors = dict(sorted(self.tensors.items(), key=width, reverse=True))
        return write_safetensors(os.path.join(folder, self.op + ".safetensors"), tensors, self.meta)


# --- stored matrices

SCALED = {"int8": (1, 0), "int4": (2, 0), "int4_g64": (2, 64), "int3_g64": (8 / 3, 64), "int2": (4, 0)}  # codes a byte, group


def stored_matrix(f, kind, rows, cols, low=120, high=126):
    """Random codes over their whole range; scales around 1/8, spread by a factor of ten (mxfp4: scale bytes low..high)."""
    if kind == "f32":
        return {"w": f.normal((rows, cols))}
    if kind == "bf16":
        return {"w": bf16_bits(f.normal((rows, cols)))}
    if kind == "mxfp4":
        return {"w": f.bytes((rows, cols // 2)), "scale": f.d.rng.randint(low, high + 1, (rows, cols // 32)).astype("u1")}
    per_byte, group = SCALED[kind]
    codes = f.bytes((rows, int(cols / per_byte)))
    if kind == "int8":
        codes[codes == 128] = 127  # -128 has a case of its own
    return {"w": codes, "scale": f.unit((rows, cols // group) if group else (rows,), 0.02, 0.2)}


def embed(f):
    for kind, tol in (("f32", 0), ("bf16", 0), ("int8", 1.2e-7), ("int4", 1.2e-7), ("mxfp4", 0)):
        m = stored_matrix(f, kind, 19, 96)
        ids = np.array([18, 0, 7, 7, 3, 18], "<i4")
        f.case(kind, tol, {"ids": ids, "table": m.pop("w"), **m}, type=kind)


def attnres_mix(f):
    for J in range(1, 10):
        T, C = (3, 96) if J < 9 else (2, 1000)
        f.case(f"sources{J}", 4e-6, {"src": f.normal((J, T, C), 0.5), "s": f.normal((C,), 1.5 * C ** -0.5)}, eps=1e-5)
    src = f.normal((1, 4, 33)) + f.normal((6, 4, 33), 0.002)
    f.case("near_ties", 4e-6, {"src": src.astype("<f4"), "s": f.normal((33,), 0.3)}, eps=1e-5)
    src = f.normal((5, 3, 128)) * np.array([1e-3, 1, 300, 3e4, 1e-2], "<f4")[:, None, None]
    f.case("unequal_norms", 4e-6, {"src": src, "s": f.normal((128,), 0.2)}, eps=1e-5)
    f.case("sharp", 2e-5, {"src": f.normal((9, 5, 64), 4), "s": f.normal((64,), 6)}, eps=1e-5)


def rmsnorm(f):
    for T, C in ((1, 7), (4, 33), (3, 128), (2, 7168)):
        f.case(f"c{C}", 2e-6, {"x": f.normal((T, C), 2), "w": f.normal((C,), 0.3, 1)}, eps=1e-5)
    f.case("tiny_values", 2e-6, {"x": f.normal((3, 64), 2e-3), "w": f.normal((64,), 0.3, 1)}, eps=1e-5)
    f.case("eps_1e-6", 2e-6, {"x": f.normal((3, 64), 1e-3), "w": f.normal((64,), 0.3, 1)}, eps=1e-6)


GRANULE = {"f32": 1, "bf16": 1, "int8": 1, "int4": 2, "int2": 4, "mxfp4": 32, "int4_g64": 64, "int3_g64": 64}


def matmul(f):
    for kind, granule in GRANULE.items():
        def shape(name, T, rows, cols, tol=4e-6, x=1.0, **span):
            f.case(f"{kind}_{name}", tol, {**stored_matrix(f, kind, rows, cols, **span), "x": f.normal((T, cols), x)}, type=kind)
        for T, rows, cols in ((1, 1, 64), (1, 37, 192), (3, 5, 320), (17, 37, 128), (2, 3, 7168)):
            shape(f"t{T}_{rows}x{cols}", T, rows, cols)
        odd = {1: (33, 95), 2: (34, 98), 4: (36, 100), 32: (96, 160), 64: (192, 448)}[granule]
        for cols in odd:
            shape(f"t3_5x{cols}", 3, 5, cols)
        # One-hot rows: y is the decoded matrix itself, so that a wrong place or a wrong value has nowhere to hide.
        f.case(f"{kind}_one_hot", 0 if kind in ("f32", "bf16", "mxfp4") else 1.2e-7,
               {**stored_matrix(f, kind, 3, 128), "x": np.eye(128, dtype="<f4")}, type=kind)
    matmul_extremes(f)


def matmul_extremes(f):
    """Matrices whose codes are all at one end, scale bytes far from 127."""
    for low, high, x in ((1, 1, 1.0), (60, 60, 1.0), (127, 127, 1.0), (190, 190, 1.0), (250, 250, 2.0 ** -20), (100, 140, 1.0)):
        name = f"mxfp4_scale{low}" + (f"_{high}" if high > low else "")
        m = stored_matrix(f, "mxfp4", 5, 96, low, high)
        f.case(name, 4e-6, {**m, "x": f.normal((3, 96), x)}, type="mxfp4")
    codes = np.arange(16, dtype="u1")
    f.case("mxfp4_codes_by_row", 2e-6, {"w": np.repeat((codes | codes << 4)[:, None], 16, 1), "scale": np.full((16, 1), 121, "u1"),
                                        "x": f.normal((2, 32))}, type="mxfp4")
    block = np.array([c | (15 - c) << 4 for c in range(16)], "u1")[None]  # column 2i holds code i, column 2i+1 code 15-i
    f.case("mxfp4_codes_by_place", 0, {"w": block, "scale": np.full((1, 1), 127, "u1"), "x": np.eye(32, dtype="<f4")}, type="mxfp4")
    given = np.array([[22, 185, 206, 35] + [0x88] * 12], "u1")  # the specification's worked example, then negative zeros
    f.case("mxfp4_worked_example", 0, {"w": given, "scale": np.full((1, 1), 121, "u1"), "x": np.eye(32, dtype="<f4")[:10]}, type="mxfp4")
    ends = {"int8": (0x80, 0x81, 0x7F), "int4": (0x00, 0xFF, 0x0F), "int4_g64": (0x00, 0xFF, 0xF0), "int3_g64": (0x00, 0xFF),
            "int2": (0x00, 0xFF, 0x1B)}
    for kind, values in ends.items():
        for v in values:
            m = stored_matrix(f, kind, 3, 128)
            f.case(f"{kind}_all_{v:02x}", 4e-6, {"w": np.full_like(m["w"], v), "scale": m["scale"], "x": f.normal((2, 128))}, type=kind)


def shortconv(f):
    for T, C in ((1, 5), (2, 24), (3, 33), (9, 24)):
        f.case(f"t{T}", 2e-6, {"u": f.normal((T, C), 2), "w": f.normal((C, 4), 0.4), "window_in": f.normal((3, C), 2)})
    u, w = f.normal((9, 24), 2), f.normal((24, 4), 0.4)
    f.case("from_zero", 2e-6, {"u": u, "w": w, "window_in": np.zeros((3, 24), "<f4")})
    # The same nine rows in three calls, each from the window that the one before left.
    window = np.zeros((3, 24), "<f4")
    for name, a, b in (("split_first4", 0, 4), ("split_then1", 4, 5), ("split_last4", 5, 9)):
        window = f.case(name, 2e-6, {"u": u[a:b], "w": w, "window_in": window})["window_out"]
    f.case("large", 2e-6, {"u": f.normal((4, 16), 60), "w": f.normal((16, 4), 1), "window_in": f.normal((3, 16), 60)})


def l2norm(f):
    for T, H, D in ((1, 1, 7), (3, 3, 16), (2, 5, 128)):
        f.case(f"d{D}", 2e-6, {"x": f.normal((T, H, D))}, eps=1e-6, scale=float(np.float32(D ** -0.5)))
    f.case("tiny_vectors", 2e-6, {"x": f.normal((4, 3, 128), 1e-4)}, eps=1e-6, scale=1.0)
    f.case("smallest_vectors", 2e-6, {"x": f.normal((2, 3, 64), 1e-7)}, eps=1e-6, scale=1.0)
    f.case("zero_vector", 0, {"x": np.zeros((1, 2, 16), "<f4")}, eps=1e-6, scale=0.25)


def kda_gate(f):
    for name, T, H, D, n, low, high, z in (("spread", 3, 4, 16, 16, -0.4, 1.2, 1.0), ("odd_heads", 5, 3, 24, 24, -0.4, 1.2, 2.0),
                                           ("real_shape", 1, 6, 128, 128, -1.5, 3.0, 1.0), ("no_tail", 2, 5, 16, 5, -3.0, 2.5, 3.0),
                                           ("saturated", 2, 4, 16, 16, 1.0, 3.0, 30.0)):
        a_log = np.zeros(n, "<f4")
        a_log[:H] = np.linspace(low, high, H)
        f.case(name, 4e-6, {"z": f.normal((T, H * D), z), "b": f.normal((T, H), 3 * z), "a_log": a_log, "dt_bias": f.normal((H * D,), 0.5)},
               lower_bound=-5.0)
    a_log = np.array([0.3, -0.2, 0.9, 0, 0, 0, 0, 0], "<f4")
    f.case("other_bound", 4e-6, {"z": f.normal((2, 24)), "b": f.normal((2, 3)), "a_log": a_log, "dt_bias": f.normal((24,), 0.5)},
           lower_bound=-2.0)


def kda_inputs(f, T, H, D, strong=False, slow=False):
    q, k = (k3_numpy.l2norm(f.normal((T, H, D)).astype(np.float64), 1e-6, s).astype("<f4") for s in (D ** -0.5, 1.0))
    g = f.unit((T, H, D), *((-5.0, -4.9) if strong else (-0.05, -0.0005) if slow else (-5.0, -0.001)))
    if not strong and not slow:
        g = np.where(f.unit((T, H, D)) < 0.7, g * np.float32(0.05), g)  # most channels remember, some forget at once
    return dict(q=q, k=k, v=f.normal((T, H, D)), g=g.astype("<f4"), beta=f.unit((T, H), 0.02, 0.98), S_in=f.normal((H, D, D), 0.3))


def kda_recur(f):
    for T, H, D in ((1, 3, 16), (8, 3, 16), (1, 1, 64), (8, 3, 64), (1, 2, 128), (8, 1, 128)):
        t = kda_inputs(f, T, H, D)
        t["alpha"] = np.exp(t.pop("g").astype(np.float64)).astype("<f4")
        f.case(f"t{T}_h{H}_d{D}", 1e-5, t)
    t = kda_inputs(f, 8, 5, 16, slow=True)
    t["alpha"] = np.exp(t.pop("g").astype(np.float64)).astype("<f4")
    t["S_in"] = np.zeros_like(t["S_in"])
    whole = f.case("from_zero", 1e-5, t)
    assert np.abs(whole["S_out"]).max() > 0.1
    t = kda_inputs(f, 4, 1, 16, slow=True)
    t["alpha"], t["beta"] = np.ones((4, 1, 16), "<f4"), np.ones((4, 1), "<f4")
    del t["g"]
    f.case("full_write_no_decay", 1e-5, t)


def kda_chunk(f):
    for T, H, D in ((1, 3, 16), (5, 3, 16), (16, 1, 64), (40, 2, 16), (64, 1, 64), (70, 1, 128), (70, 3, 16), (130, 1, 16)):
        t = kda_inputs(f, T, H, D)
        f.case(f"t{T}_h{H}_d{D}", 2e-5, t)
    f.case("strong_decay", 2e-5, kda_inputs(f, 70, 1, 64, strong=True))
    f.case("slow_decay", 2e-5, kda_inputs(f, 70, 1, 64, slow=True))


def gate_rmsnorm(f):
    for T, H, D in ((1, 3, 16), (4, 5, 24), (2, 3, 128)):
        f.case(f"h{H}_d{D}", 2e-6, {"o": f.normal((T, H, D)), "w": f.normal((D,), 0.3, 1), "gate": f.normal((T, H * D), 2)}, eps=1e-5)
    f.case("tiny_values", 2e-6, {"o": f.normal((3, 2, 16), 2e-3), "w": f.normal((16,), 0.3, 1), "gate": f.normal((3, 32), 2)}, eps=1e-5)
    f.case("saturated_gate", 2e-6, {"o": f.normal((2, 2, 16)), "w": f.normal((16,), 0.3, 1), "gate": f.normal((2, 32), 80)}, eps=1e-5)


def mla_append(f):
    for name, T, lora, rope, pos, std in (("first_row", 1, 32, 8, 0, 1), ("rows_at_11", 5, 32, 8, 11, 1), ("odd", 3, 28, 6, 2, 1),
                                          ("real_shape", 2, 512, 64, 3, 1), ("tiny_values", 2, 32, 8, 0, 3e-3)):
        f.case(name, 2e-6, {"ckv": f.normal((T, lora + rope), std), "w": f.normal((lora,), 0.3, 1)}, pos=pos, kv_lora=lora, rope=rope,
               eps=1e-5)


def mla_attend(f):
    def case(name, T, N, H, lora, nope, rope, v, q=1.0, tol=1e-5, rise=1.0):
        kv_b = k3_numpy.from_bf16(bf16_bits(f.normal((H * (nope + v), lora), lora ** -0.5))).astype("<f4")
        f.case(name, tol, {"q": f.normal((T, H, nope + rope), q), "cache": f.normal((N, lora + rope)) * np.linspace(1, rise, N, dtype="<f4")[:, None],
                           "kv_b": kv_b}, nope=nope, rope=rope,
               v=v, kv_lora=lora, pos0=N - T, scale=float(np.float32((nope + rope) ** -0.5)))
    case("one_position", 1, 1, 4, 32, 24, 8, 16)
    case("one_row_of_70", 1, 70, 4, 32, 24, 8, 16, q=2)
    case("five_from_start", 5, 5, 3, 32, 24, 8, 16, q=2)
    case("five_rows_of_70", 5, 70, 3, 28, 14, 6, 18, q=2)
    case("real_dims", 2, 17, 2, 512, 128, 64, 128, q=2)
    case("long", 3, 300, 2, 32, 24, 8, 16, q=3)
    case("extra_dims_decide", 2, 20, 3, 32, 8, 24, 16, q=3)
    case("overflows_plain_exp", 2, 40, 3, 32, 24, 8, 16, q=120, tol=1e-4)
    case("longer", 5, 1026, 3, 32, 24, 8, 16, q=2)
    case("longer_overflows_plain_exp", 2, 1100, 2, 32, 24, 8, 16, q=120, tol=1e-4, rise=4.0)


def gate_mul(f):
    for n in (1, 33, 1000):
        f.case(f"n{n}", 2e-6, {"x": f.normal((n,), 2), "gate": f.normal((n,), 3)})
    f.case("saturated", 2e-6, {"x": f.normal((64,), 2), "gate": np.linspace(-120, 120, 64).astype("<f4")})


def situ_glu(f):
    magnitudes = np.exp(np.linspace(np.log(0.1), np.log(1000), 60)).astype("<f4")
    both = np.concatenate([-magnitudes[::-1], np.zeros(1, "<f4"), magnitudes])
    g, u = (a.ravel() for a in np.meshgrid(both, both[::11]))
    for b2 in ("25.0", "inf"):
        kind = "_uncapped" if b2 == "inf" else ""
        f.case("grid" + kind, 2e-6, {"g": g, "u": u}, b1=4.0, b2=b2)
        # Saturated neighbours would hide the small values, whose error is judged against the largest of the tensor.
        f.case("small" + kind, 2e-6, {"g": f.normal((777,), 0.05), "u": f.normal((777,), 0.05)}, b1=4.0, b2=b2)
        f.case("usual" + kind, 2e-6, {"g": f.normal((777,), 3), "u": f.normal((777,), 6)}, b1=4.0, b2=b2)
    f.case("other_caps", 2e-6, {"g": f.normal((65,), 3), "u": f.normal((65,), 6)}, b1=2.5, b2=7.0)


def settled(logits, bias, K):
    """No two scores around the cut are so close, without being equal, that float32 could order them otherwise."""
    s = np.sort(k3_numpy.sigma(logits.astype(np.float64)) + bias, axis=1)[:, ::-1][:, :K + 1]
    gap = -np.diff(s, axis=1)
    return ((gap == 0) | (gap > 4e-6)).all()


def router_topk(f):
    def case(name, T, E, K, bias, std=1.0, renormalize=1, scale=1.0, ties=0):
        while True:
            logits = f.normal((T, E), std)
            if ties:
                logits = np.round(logits * ties) / np.float32(ties)
            if settled(logits, bias, K):
                break
        f.case(name, 2e-6, {"logits": logits, "bias": bias}, K=K, renormalize=renormalize, scale=scale)
    for T, E, K in ((5, 8, 2), (4, 33, 5), (3, 256, 8), (4, 896, 16)):
        case(f"e{E}", T, E, K, f.d.spread(E, -0.15, 0.15))
    case("bias_reorders", 6, 33, 4, f.d.spread(33, -0.5, 0.5), std=0.4)
    case("ties", 6, 64, 7, np.zeros(64, "<f4"), ties=2)
    case("ties_896", 2, 896, 16, np.zeros(896, "<f4"), ties=4)
    case("ties_with_bias", 6, 64, 7, np.round(f.normal((64,), 1)) / np.float32(8), ties=2)
    f.case("all_equal", 2e-6, {"logits": np.full((2, 100), 0.25, "<f4"), "bias": np.zeros(100, "<f4")}, K=16, renormalize=1, scale=1.0)
    case("plain_sum", 3, 16, 4, f.d.spread(16, -0.15, 0.15), renormalize=0)
    case("scaled", 3, 16, 4, f.d.spread(16, -0.15, 0.15), scale=2.5)
    case("all_chosen", 2, 8, 8, f.d.spread(8, -0.15, 0.15))
    case("tiny_scores", 3, 16, 4, np.zeros(16, "<f4"), std=3)
    # Every score is near zero: the weights still sum to one.
    low = {"logits": f.normal((2, 12), 2, -40), "bias": f.d.spread(12, -0.15, 0.15)}
    f.case("scores_near_zero", 2e-6, low, K=3, renormalize=1, scale=1.0)


def moe_experts(f):
    def case(name, T, E, K, L, I, ids, low=118, high=122, b2="25.0"):
        t = {"z": f.normal((T, L))}
        for n, rows, cols in (("w1", I, L), ("w3", I, L), ("w2", L, I)):
            m = stored_matrix(f, "mxfp4", E * rows, cols, low, high)
            t[n], t[n + "_scale"] = m["w"].reshape(E, rows, -1), m["scale"].reshape(E, rows, -1)
        w = f.unit((T, K), 0.05, 1)
        f.case(name, 1e-5, {**t, "ids": np.asarray(ids, "<i4"), "weights": (w / w.sum(1, keepdims=True)).astype("<f4")}, b1=4.0, b2=b2)
    case("one_row", 1, 4, 2, 64, 64, [[3, 1]])
    case("repeated", 5, 4, 3, 64, 96, [[0, 1, 2], [2, 1, 0], [1, 2, 3], [2, 0, 1], [1, 0, 2]])
    case("one_expert_for_all", 7, 2, 1, 32, 32, [[1]] * 7)
    case("wide", 2, 3, 2, 160, 32, [[2, 0], [0, 2]])
    case("saturated", 3, 3, 2, 64, 64, [[0, 1], [1, 2], [2, 0]], low=123, high=126)
    case("uncapped", 3, 3, 2, 64, 64, [[0, 1], [1, 2], [2, 0]], b2="inf")


def moe_sum(f):
    """K = 16 and L = 3584 are K3's; weights sum to one, as the router's do, or not."""
    for T, K, L in ((1, 1, 5), (1, 16, 3584), (7, 3, 65), (33, 16, 32)):
        w = f.unit((T, K), 0.05, 1)
        f.case(f"t{T}_k{K}_{L}", 2e-6, {"slots": f.normal((T, K, L)), "weights": (w / w.sum(1, keepdims=True)).astype("<f4")})
    f.case("scaled", 2e-6, {"slots": f.normal((2, 4, 40), 100), "weights": f.unit((2, 4), 0, 2.5)})


def add(f):
    for n in (1, 37, 1000):
        f.case(f"n{n}", 1.2e-7, {"a": f.normal((n,), 3), "b": f.normal((n,))})


def sample(f):
    def case(name, logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
        """The mass at the cuts must not be so near the bound that float32 decides otherwise."""
        p = k3_numpy.sample(ops.f64(logits), temperature, top_k, 1.0, 0.0)[1]
        assert top_p >= 1 or np.abs(np.cumsum(p) - top_p).min() > 2e-6, (name, np.abs(np.cumsum(p) - top_p).min())
        assert min_p == 0 or np.abs(p / p[0] - min_p).min() > 1e-6, name
        f.case(name, 1e-5, {"logits": logits}, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    small = f.normal((37,), 2)
    case("plain", small)
    case("cold", small, 0.25)
    case("hot", small, 3.0)
    case("top_k", small, 0.9, top_k=5)
    case("top_k_all", small, 0.9, top_k=1000)
    case("top_p", small, 0.8, top_p=0.7)
    case("top_p_one_id", small, 0.5, top_p=0.01)
    case("min_p", small, 1.1, min_p=0.05)
    case("all_three", small, 1.3, top_k=12, top_p=0.8, min_p=0.1)
    case("top_k_then_top_p", small, 3.0, top_k=10, top_p=0.6)
    case("top_p_then_min_p", small, 2.0, top_p=0.9, min_p=0.2)
    ties = np.round(f.normal((64,), 1.5)).astype("<f4")
    case("ties_top_k", ties, 1.0, top_k=9)
    case("ties_top_p", ties, 0.7, top_p=0.61)
    case("all_equal_top_k", np.full(50, -3.0, "<f4"), 1.0, top_k=7)
    case("large_logits", f.normal((40,), 400), 2.0, top_p=0.95)
    case("minus_infinity_like", np.where(f.unit((40,)) < 0.5, np.float32(-1e30), f.normal((40,), 2)).astype("<f4"), 1.0)
    # The whole vocabulary. bf16 values: hundreds of ids share each, so the order of equals matters.
    big = bf16_bits(f.normal((163840,), 3.5))
    case("vocabulary_top_k", big, 0.8, top_k=50)
    case("vocabulary_all_three", big, 0.7, top_k=2000, top_p=0.9, min_p=0.02)


WRITERS = [embed, attnres_mix, rmsnorm, matmul, shortconv, l2norm, kda_gate, kda_recur, kda_chunk, gate_rmsnorm, mla_append, mla_attend,
           gate_mul, situ_glu, router_topk, moe_experts, add, sample, moe_sum]


def far_from_ties(model, ids, new):
    """No routing decision and no greedy id hangs on a difference that float32 might lose."""
    cuts, route = [], k3_numpy.router_topk

    def watched(logits, bias, K, *rest):
        s = np.sort(k3_numpy.sigma(logits) + bias, axis=1)[:, ::-1]
        cuts.append((s[:, K - 1] - s[:, K]).min())
        return route(logits, bias, K, *rest)
    k3_numpy.router_topk = watched
    best = np.sort(model.forward(ids + new)[len(ids) - 1:-1], axis=1)
    k3_numpy.router_topk = route
    return min(cuts) > 2e-5 and ((best[:, -1] - best[:, -2]) / np.abs(best).max(1)).min() > 2e-4


def model_case(out, name, folder, ids, n_greedy):
    """hidden: the running sum after each layer."""
    model, trace = k3_numpy.Model(folder), []
    out[name + ".ids"] = np.array(ids, "<i4")
    out[name + ".logits"] = model.forward(ids, trace=trace).astype("<f4")
    new = model.greedy(ids, n_greedy)
    out[name + ".greedy"] = np.array(new, "<i4")
    assert far_from_ties(model, ids, new), name
    return np.stack(trace).astype("<f4")


def write_models(folder, file, out):
    names = list(dict.fromkeys(t.split(".")[0] for t in out))
    write_safetensors(os.path.join(folder, file), out, {"cases": ",".join(names), **{n + ".tol": "2e-5" for n in names}})


def write_tiny(folder):
    write_checkpoint(os.path.join(folder, "tiny"), make_config(), models.TINY_SEED)
    out = {}
    for i, ids in enumerate(models.tiny_prompts(), 1):
        hidden = model_case(out, f"prompt{i}", os.path.join(folder, "tiny"), ids, 24)
        if i == 1:
            out["prompt1.hidden"] = hidden
    write_models(folder, "tiny.safetensors", out)


def write_random(folder, scratch):
    entries, out = models.random_cases(), {}
    with open(os.path.join(folder, "random_configs.json"), "w") as f:
        json.dump(entries, f, indent=1)
        f.write("\n")
    for e in entries:
        write_checkpoint(os.path.join(scratch, e["name"]), e["config"], e["seed"], e["init"])
        model_case(out, e["name"], os.path.join(scratch, e["name"]), e["ids"], e["n_greedy"])
    write_models(folder, "random.safetensors", out)


def main():
    args = [a for a in sys.argv[1:] if a != "--ops"]
    folder = args[0] if args else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "golden")
    os.makedirs(folder, exist_ok=True)
    total = 0
    for seed, writer in enumerate(WRITERS, 100):
        f = File(writer.__name__, seed)
        writer(f)
        size = f.write(folder)
        total += size
        print(f"{f.op:14s} {f.meta['cases'].count(',') + 1:3d} cases {size:9d} bytes")
    print(f"{total} bytes")
    if "--ops" not in sys.argv:
        with tempfile.TemporaryDirectory() as scratch:
            write_tiny(folder)
            write_random(folder, scratch)


if __name__ == "__main__":
    main()
