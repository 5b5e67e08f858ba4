"""On the GPU: the compiled bf16 form against the plain float32 form, and time per step: gpu_check.py FOLDER"""
import sys
import time

import torch

import batch
import config
import data
import model
import optim
import scan
import tok


def check_scan():
    m, b = torch.randn(3, 20, 4, 64, 64, device="cuda") * 0.1, torch.randn(3, 20, 4, 64, 64, device="cuda")
    for reverse in (False, True):
        print("scan kernel against loop:", float((scan._run(m, b, reverse) - scan._loop(m, b, reverse)).abs().max()))


def check_forms(net, f, t, length, rows):
    b = batch.to_batch(*data.rows(5, t, rows, length, length > 2000), "cuda")
    with torch.no_grad():
        z, _ = model.hidden(net, f, b)
        y, _ = model.hidden(net, model.Functions(False), b, half=False)
    live = b["live"].bool()
    print(f"bf16 against float32, rows of {length}:", float((z[live] - y[live]).norm() / y[live].norm()), flush=True)


def step(net, f, opt, b):
    z, _ = model.hidden(net, f, b)
    loss, *_ = f.head_loss(z, model.ste_bf16(net.w["head"]), b["targets"], b["weights"], True)
    (loss / b["weights"].sum()).backward()
    opt.step(0.01)


def main():
    torch.manual_seed(0)
    t = tok.Tokenizer(sys.argv[1])
    net = model.Mini(config.text_config()).cuda()
    check_scan()
    check_forms(net, model.Functions(False), t, 1024, 3)
    check_forms(net, model.Functions(False), t, 5120, 1)
    f, opt = model.Functions(True), optim.Optimizer(net, 1e-3, 1e-3, 0.0)
    tokens, began = 61440, time.time()
    short = batch.to_batch(*data.rows(1, t, tokens // 1024, 1024, False), "cuda")
    long = batch.to_batch(*data.rows(2, t, tokens // 5120, 5120, True), "cuda")
    print("data", time.time() - began, flush=True)
    for name, b in (("short", short), ("long", long)):
        began = time.time()
        step(net, f, opt, b)
        torch.cuda.synchronize()
        print(name, "first step", time.time() - began, flush=True)
        began = time.time()
        for _ in range(10):
            step(net, f, opt, b)
        torch.cuda.synchronize()
        print(name, "ms a step", (time.time() - began) * 100, "MiB", torch.cuda.max_memory_allocated() >> 20, flush=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]) as p:
        for _ in range(3):
            step(net, f, opt, short)
        torch.cuda.synchronize()
    for e in sorted((e for e in p.key_averages() if e.self_device_time_total > 0), key=lambda e: -e.self_device_time_total)[:28]:
        print(f"{e.self_device_time_total / 3000:8.3f} ms {e.count // 3:5d} {e.key[:110]}")


if __name__ == "__main__":
    main()
