"""The chunked training form equals the token-by-token recurrence in float64; gradients of the scan are right."""
import sys

import numpy as np
import torch

import batch
import config
import data
import decode
import model
import scan
import tok


def forms_agree(folder):
    torch.manual_seed(1)
    net = model.Mini(config.text_config()).double()
    for key, p in net.w.items():
        if "res_proj" in key:
            p.data.normal_(0, 0.05)
    net.bias.uniform_(-0.1, 0.1)
    t = tok.Tokenizer(folder)
    ids, weights, docs = data.rows(5, t, 2, 256, False)
    b = batch.to_batch(ids, weights, docs, "cpu")
    b = {k: v.double() if torch.is_tensor(v) and v.dtype == torch.float32 else v for k, v in b.items()}
    z, loads = model.hidden(net, model.Functions(False), b, half=False)
    logits = z @ net.w["head"].T
    worst, flat = 0.0, b["docs"].numpy()
    for doc in np.unique(flat):
        at = np.flatnonzero(flat == doc)
        dec = decode.Decoder(net, 1, len(at), torch.float64)
        out = torch.cat([dec.step(b["ids"][i:i + 1]) for i in at])
        worst = max(worst, float((out - logits[at]).norm() / out.norm()))
    print("chunked against recurrence, relative:", worst, "documents", len(np.unique(flat)))
    assert worst < 1e-12
    assert abs(float(loads.sum()) - 8 * 4 * float(b["live"].sum())) < 1e-6


def scan_gradient():
    m = (torch.randn(4, 2, 8, 8, dtype=torch.float64) * 0.3).requires_grad_()
    b = torch.randn(4, 2, 8, 8, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, b: scan.scan(m, b, 2), (m, b))
    print("scan gradient: right")


def formats():
    w = torch.randn(64, 128) * 0.05
    q = model.mxfp4(w)
    assert torch.equal(model.mxfp4(q), q) and float((q - w).norm() / w.norm()) < 0.15
    x = torch.tensor([[0.0, 0.26, -0.74, 0.76, 1.2, 1.3, 2.4, 2.6, 3.4, 3.6, 4.9, 5.1, 6.0, -6.0, 7.9] + [0.0] * 17])
    assert model.mxfp4(x)[0, :15].tolist() == [0, 0.5, -0.5, 1, 1, 1.5, 2, 3, 3, 4, 4, 6, 6, -6, 6]
    print("MXFP4 rounding: right")


if __name__ == "__main__":
    formats()
    scan_gradient()
    with torch.no_grad():
        forms_agree(sys.argv[1])
