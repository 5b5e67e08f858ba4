#!/usr/bin/env python3
"""Prove that the tests can fail: change one thing in a copy of the sources, build, and see a test fail.

Each mutant is one plausible mistake (specification 9.3 and more). The copy is built once, then once more for each mutant;
the tests named are run until one fails. A mutant that no test notices ends the run with an error.

    mutants.py [--only NAME] [--work FOLDER]
"""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CPU = "src/backend/cpu/"
OPS = ["test_ops"]
MODEL = ["test_golden_model"]
BOTH = OPS + MODEL

# name, file, text, replacement, tests of which one must fail
MUTANTS = [
    ("swapped nibbles", CPU + "decode.h", "(codes[col / 2] >> (col % 2 * 4))", "(codes[col / 2] >> (4 - col % 2 * 4))", BOTH),
    ("A_log by channel", CPU + "kda_gate.c", "exp((double)a_log[h])", "exp((double)a_log[(i * D) % H])", BOTH),
    ("L2 epsilon on the mean", CPU + "l2norm.c", "sqrt(square + (double)eps)", "sqrt(square + (double)eps * D)", OPS),
    ("error from the state before the decay", CPU + "kda_recur.c", "(double)k[d] * ((double)alpha[d] * h->state[",
     "(double)k[d] * ((double)1 * h->state[", BOTH),
    ("output read before the update", CPU + "kda_recur.c", "sum[j] += (double)q[d] * S[j];\n",
     "sum[j] += (double)q[d] * ((double)S[j] - beta * k[d] * e[j]);\n", BOTH),
    ("biased scores used as weights", CPU + "router_topk.c", "list.scores[k] = 1 / (1 + expf(-row[list.ids[k]]));",
     "list.scores[k] = 1 / (1 + expf(-row[list.ids[k]])) + bias[list.ids[k]];", BOTH),
    ("norm on each expert instead of the sum", "src/model/ffn.c",
     "        if (w->norm.buf)\n            op->rmsnorm(f->be, f->mixed, f->mixed, w->norm, T, L, L, L, hp->rms_eps);\n",
     """        if (w->norm.buf) {
            int32_t *one = f->host_ids;
            for (int t = 0; t < T; t++)
                for (int k = 0; k < K; k++) {
                    k3_ref y1 = k3_at(f->router, 0), at = k3_at(f->mixed, 4 * (uint64_t)t * (uint64_t)L);
                    op->moe_experts(f->be, y1, k3_at(z, 4 * (uint64_t)t * (uint64_t)L), one + t * K + k, k3_at(f->top_w, 4 * (uint64_t)(t * K + k)), table, 1, 1, hp->situ_b1, hp->situ_b2);
                    op->rmsnorm(f->be, y1, y1, w->norm, 1, L, L, L, hp->rms_eps);
                    if (k == 0) op->gate_mul(f->be, at, y1, y1, 0), f->be->memory->copy(f->be, at, y1, 4 * (uint64_t)L);
                    else op->add(f->be, at, at, y1, L);
                }
        }
""", MODEL),
    ("the 64 extra MLA dims dropped", CPU + "mla_append.c", "at + kv, from + kv, rope);", "at + kv, from + kv, 0);", BOTH),
    ("snapshot before the mix", "src/model/forward.c", "    if (*n_blocks) {\n        mix(f, f->x, *n_blocks, w->attn_res);",
     "    if (*n_blocks) {\n        mix(f, f->x, *n_blocks - (l % f->hp->attn_res_block == 0), w->attn_res);", MODEL),
    ("running sum not restarted", "src/model/forward.c", "    if (!restart)\n        f->op->add(f->be, p, p, a, n);",
     "    if (!restart)\n        f->op->add(f->be, p, p, a, n);\n    else if (*n_blocks > 1)\n        f->op->add(f->be, p, f->stream[*n_blocks - 1], a, n);", MODEL),
    ("chat segments joined before BPE", "src/text/chat_writer.c",
     "        K3_TRY(write_word(w, key));\n        K3_TRY(write_word(w, \"=\\\"\"));\n",
     "        strncat(key, \"=\\\"\", 2);\n        K3_TRY(write_word(w, key));\n", ["test_chat_render"]),
    ("softplus decay gate", CPU + "kda_gate.c", "(double)lower / (1 + exp(-rate * (", "-rate * log1p(exp(1.0 * (", BOTH),
    ("tanh cap without the sigmoid", CPU + "situ_glu.c", " / (1 + exp(-(double)g[i]))", "", BOTH),
    ("up branch uncapped", CPU + "situ_glu.c", "isinf(b2) ? (double)u[i]", "1 ? (double)u[i]", BOTH),
    ("ties to the higher id", CPU + "router_list.h", "score > list->scores[at - 1]", "score >= list->scores[at - 1]", OPS),
    ("weights not renormalised", CPU + "router_list.h", "(renormalize ? sum : 1.0)", "(0 ? sum : 1.0)", BOTH),
    ("w1 and w3 exchanged", "src/store/experts.c", "&x->experts[i].w1, K3_R_W1, K3_R_W1_SCALE", "&x->experts[i].w1, K3_R_W3, K3_R_W3_SCALE", MODEL),
    ("query not scaled by D^-1/2", "src/model/kda.c", "1.0f / sqrtf((float)D)", "1.0f", MODEL),
    ("value normalised too", "src/model/kda.c", "    k3_project(f, f->z, &w->f_b, low);", "    op->l2norm(f->be, f->o, f->o, T, H, D, 1e-6f, 1.0f);\n    k3_project(f, f->z, &w->f_b, low);", MODEL),
    ("convolution taps reversed", CPU + "shortconv.c", "width + j] * past[j];", "width + j] * past[width - 1 - j];", OPS),
    ("MLA gate dropped", "src/model/mla.c", "    if (f->hp->mla_gate)\n", "    if (0)\n", MODEL),
    ("mixture of normed vectors", "src/model/forward.c", "    norm(f, f->n, f->x, f->w->norm);", "    norm(f, f->x, f->x, f->w->norm);\n    norm(f, f->n, f->x, f->w->norm);", MODEL),
]


def run(command, **kw):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kw)


def build(work, targets):
    done = run(["ninja", "-C", os.path.join(work, "build"), *targets])
    return done.returncode == 0, done.stdout[-2000:]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--only")
    ap.add_argument("--work")
    a = ap.parse_args()
    work = a.work or tempfile.mkdtemp(prefix="k3-mutants-")
    for name in ("src", "include", "tests", "cmake", "apps", "tools", "docs"):
        shutil.copytree(os.path.join(ROOT, name), os.path.join(work, name), dirs_exist_ok=True)
    shutil.copy(os.path.join(ROOT, "CMakeLists.txt"), work)
    if os.path.exists(os.path.join(ROOT, ".venv")) and not os.path.exists(os.path.join(work, ".venv")):
        os.symlink(os.path.join(ROOT, ".venv"), os.path.join(work, ".venv"))
    run(["cmake", "-S", work, "-B", os.path.join(work, "build"), "-G", "Ninja", "-DK3_WERROR=OFF"], check=True)
    tests = sorted({t for m in MUTANTS for t in m[4]})
    good, text = build(work, tests)
    if not good:
        sys.exit("the unchanged sources do not build:\n" + text)
    for t in tests:
        if run([os.path.join(work, "build", "tests", t)], cwd=work).returncode:
            sys.exit(f"{t} fails on the unchanged sources")
    for name, file, old, *_ in MUTANTS:
        with open(os.path.join(work, file)) as f:
            n = f.read().count(old)
        if n != 1:
            sys.exit(f"mutant '{name}': its text stands {n} times in {file}, wanted once")
    missed = 0
    for name, file, old, new, names in MUTANTS:
        if a.only and a.only not in name:
            continue
        path = os.path.join(work, file)
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text.replace(old, new))
        good, log = build(work, names)
        caught = next((t for t in names if run([os.path.join(work, "build", "tests", t)], cwd=work).returncode), None) if good else None
        with open(path, "w") as f:
            f.write(text)
        if not good:
            sys.exit(f"mutant '{name}' does not build:\n{log}")
        missed += caught is None
        print(f"{name:45} {'caught by ' + caught if caught else 'NOT CAUGHT'}", flush=True)
    if not a.work:
        shutil.rmtree(work)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
