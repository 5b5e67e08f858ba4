"""From packed rows (data.rows) to what the training forward reads."""
import numpy as np
import torch

MAX_DOCS = 12288  # entries of the padded list of document ends


def host_batch(ids, weights, docs):
    """ids, weights, docs [R, L] -> numpy arrays. Targets and weights are shifted: position t predicts token t + 1 of its document."""
    R, L = ids.shape
    flat = (docs + (np.arange(R)[:, None] * 100000)).reshape(-1).astype(np.int32)  # document numbers unique across rows
    same = np.zeros((R * L, 3), np.float32)
    for back in (1, 2, 3):
        same[back:, 3 - back] = flat[back:] == flat[:-back]
    targets = np.roll(ids.reshape(-1), -1)
    w = np.roll(weights.reshape(-1), -1) * np.append(flat[1:] == flat[:-1], False)
    starts = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
    head = flat[::16]
    keep = np.append(head[1:] == head[:-1], False).astype(np.float32)
    cu = np.full(min(MAX_DOCS, R * L // 16 + 1), R * L, np.int32)  # the tail is documents of length zero
    cu[:len(starts)] = starts
    return dict(ids=ids.reshape(-1).astype(np.int64), targets=targets.astype(np.int64), weights=w.astype(np.float32), taps=same,
                keep=keep, docs=flat, cu=cu, live=(docs.reshape(-1) > 0).astype(np.float32))


def to_batch(ids, weights, docs, device):
    out = {k: torch.from_numpy(np.ascontiguousarray(v)).to(device) for k, v in host_batch(ids, weights, docs).items()}
    return dict(out, longest=ids.shape[1], rows=ids.shape[0])
