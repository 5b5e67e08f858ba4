#!/usr/bin/env python3
"""Many clients at once against `k3 serve` with the bundled model: whole and streamed answers, some hang up in the middle, some read slowly, some send
nonsense. Each answer that was read to its end must equal the one to the same request alone; afterwards nothing runs, and memory has not grown.
Usage: load.py [BINARY [SECONDS [CLIENTS]]]; without more, a short run for CI."""
import asyncio
import json
import random
import sys
import time
import urllib.request

from server import Server

BAD = [(b"", 400), (b"{", 400), (b"[]", 400), (b'{"messages": 1}', 400), (b'{"messages": []}', 400), (b'{"messages": [{"role": "user", "content": "x"}], "temperature": "0"}', 400),
       (b'{"messages": [{"role": "king", "content": "x"}]}', 400), (b"[" * 5000, 400), (b'{"a": NaN}', 400), (b'\xff\xfe', 400),
       (b'{"model": "nonsense", "messages": [{"role": "user", "content": "x"}]}', 404)]


async def exchange(host, port, body, hang_up_after=None, pause=0.0, path="/v1/chat/completions"):
    """Status and body of one request; None if it hung up after so many bytes."""
    reader, writer = await asyncio.open_connection(host, port, limit=1 << 20)
    try:
        writer.write(b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        await writer.drain()
        got = b""
        while True:
            piece = await reader.read(200 if pause else 65536)
            if not piece:
                break
            got += piece
            if hang_up_after is not None and len(got) >= hang_up_after:
                return None
            if pause:
                await asyncio.sleep(pause)
        head, _, rest = got.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            whole = b""
            while rest:
                size, _, rest = rest.partition(b"\r\n")
                n = int(size, 16)
                whole += rest[:n]
                rest = rest[n + 2:]
                if n == 0:
                    break
            rest = whole
        return int(head.split()[1]), rest
    finally:
        writer.close()
        try:
            await writer.wait_closed()
        except OSError:
            pass


def joined(stream):
    """The message that the events of a stream make, its reason to end, and whether it ended as it should."""
    message, finish = {"content": "", "reasoning_content": "", "calls": []}, None
    events = [line[6:] for line in stream.decode().split("\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]", events[-1]
    for event in events[:-1]:
        choice = json.loads(event)["choices"][0]
        delta = choice["delta"]
        message["content"] += delta.get("content") or ""
        message["reasoning_content"] += delta.get("reasoning_content") or ""
        for piece in delta.get("tool_calls", []):
            if piece["index"] == len(message["calls"]):
                message["calls"].append([piece["function"]["name"], ""])
            message["calls"][piece["index"]][1] += piece["function"].get("arguments", "")
        finish = choice["finish_reason"] or finish
    return message, finish


def whole(body):
    choice = json.loads(body)["choices"][0]
    m = choice["message"]
    return {"content": m.get("content") or "", "reasoning_content": m.get("reasoning_content") or "",
            "calls": [[c["function"]["name"], c["function"]["arguments"]] for c in m.get("tool_calls", [])]}, choice["finish_reason"]


def requests(n, seed):
    """Tasks of every family, greedy and drawn."""
    r = random.Random(seed)
    tasks = json.load(open("tests/golden/mini/eval.json"))
    out = []
    for task in r.sample(tasks, n):
        request = dict(task["request"], max_tokens=300, temperature=r.choice([0, 0, 1.0]), seed=r.randrange(1000))
        request["thinking"] = {"type": "enabled" if task["request"].get("thinking", True) else "disabled"}
        request.pop("thinking_effort", None)
        out.append({k: v for k, v in request.items() if v is not None})
    return out


class Load:
    def __init__(self, url, wanted, seconds):
        self.host, self.port = url.split("//")[1].split(":")
        self.wanted, self.end = wanted, time.monotonic() + seconds
        self.counts = dict.fromkeys(("whole", "streamed", "slow", "left", "refused"), 0)
        self.wrong = []

    async def client(self, seed):
        r = random.Random(seed)
        while time.monotonic() < self.end and len(self.wrong) < 5:
            kind = r.choices(("whole", "streamed", "slow", "left", "refused"), (30, 30, 8, 17, 15))[0]
            request, answer = r.choice(self.wanted)
            body = json.dumps(dict(request, stream=kind != "whole")).encode()
            try:
                if kind == "refused":
                    bad, status = r.choice(BAD)
                    got = await exchange(self.host, self.port, bad)
                    ok = got[0] == status and "message" in json.loads(got[1])["error"]
                elif kind == "left":
                    await exchange(self.host, self.port, body, hang_up_after=r.choice([0, 1, 300, 2000]))
                    ok = True
                else:
                    got = await exchange(self.host, self.port, body, pause=0.01 if kind == "slow" else 0)
                    ok = got[0] == 200 and (whole if kind == "whole" else joined)(got[1]) == answer
            except Exception as e:
                ok, got = False, repr(e)
            if not ok:
                self.wrong.append((kind, request, got, answer))
            self.counts[kind] += 1


def metric(url, name):
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    return float(next(line.split()[-1] for line in text.splitlines() if line.startswith(name + " ")))


async def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "build/release/k3"
    seconds, n_clients = float(sys.argv[2]) if len(sys.argv) > 2 else 6, int(sys.argv[3]) if len(sys.argv) > 3 else 64
    server = Server("--quiet", "--strict-model", "--prefix-cache", "64M", binary=binary)
    load = Load(server.url, [], 0)
    wanted = []
    for request in requests(24 if seconds < 30 else 60, 5):
        got = await exchange(load.host, load.port, json.dumps(request).encode())
        assert got[0] == 200, got
        wanted.append((request, whole(got[1])))
    load = Load(server.url, wanted, seconds)
    started, tokens = time.monotonic(), metric(server.url, "k3_generated_tokens_total")
    memory = []

    async def watch():
        while time.monotonic() < load.end:
            await asyncio.sleep(seconds / 8)
            memory.append(server.memory())

    await asyncio.gather(watch(), *(load.client(i) for i in range(n_clients)))
    rate = (metric(server.url, "k3_generated_tokens_total") - tokens) / (time.monotonic() - started)
    for _ in range(200):
        if metric(server.url, "k3_requests_running") + metric(server.url, "k3_requests_waiting") == 0:
            break
        await asyncio.sleep(0.05)
    busy = server.cpu_seconds()
    await asyncio.sleep(1)
    idle = server.cpu_seconds() - busy
    print(f"{n_clients} clients, {seconds:.0f} s: {sum(load.counts.values())} requests {load.counts}, {rate:.0f} new tokens/s")
    print("memory, MB:", *(m >> 20 for m in memory))
    problems = [f"{kind}: {request} gave {got}, wanted {answer}"[:2000] for kind, request, got, answer in load.wrong]
    if metric(server.url, "k3_requests_running") != 0:
        problems.append("something still runs")
    if idle > 0.2:
        problems.append(f"idle, it used {idle:.2f} s of processor time in a second")
    # From a quarter of the time on: sessions that are kept have reached their limit by then.
    if memory[-1] > memory[1] + (48 << 20):
        problems.append(f"memory grew from {memory[1] >> 20} to {memory[-1] >> 20} MB")
    for request, answer in wanted[:5]:
        got = await exchange(load.host, load.port, json.dumps(request).encode())
        if whole(got[1]) != answer:
            problems.append(f"afterwards {request} gave {got[1]}, wanted {answer}")
    status = server.stop()
    if status != 0:
        problems.append(f"k3 serve ended with status {status}: " + "".join(server.log[-10:]))
    print(*problems, sep="\n")
    sys.exit(bool(problems))


asyncio.run(main())
