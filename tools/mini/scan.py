"""The chunk-to-chunk state recurrence of KDA with its gradient, and the small triangular solve."""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:  # machines without it take the plain loop
    triton = None


def solve_unit_lower(A, X):
    """(I + A)^-1 X for strictly lower A [..., 16, 16]: (I - A)(I + A^2)(I + A^4)(I + A^8) X, exact for 16 rows.

    Powers of A can reach C(15, 7) times its entries, so these products stay in float32.
    """
    A2 = A @ A
    A4 = A2 @ A2
    A8 = A4 @ A4
    X = X + A8 @ X
    X = X + A4 @ X
    X = X + A2 @ X
    return X - A @ X


def _loop(M, B, reverse):
    """out[c] = state before step c; state = M[c] state + B[c]. M, B [R, n, h, D, D]."""
    out = torch.empty_like(B)
    state = torch.zeros_like(B[:, 0])
    order = range(B.shape[1] - 1, -1, -1) if reverse else range(B.shape[1])
    for c in order:
        out[:, c] = state
        state = (M[:, c].transpose(-1, -2) if reverse else M[:, c]) @ state + B[:, c]
    return out


if triton is not None:
    @triton.jit
    def _kernel(M, B, out, n: tl.constexpr, heads, sr, sc, REVERSE: tl.constexpr, D: tl.constexpr, BV: tl.constexpr):
        """One program: one row and head, BV columns of the state. sr, sc: strides of M's logical row and column."""
        pid = tl.program_id(0).to(tl.int64)
        col0 = tl.program_id(1) * BV
        row, head = pid // heads, pid % heads
        i = tl.arange(0, D)
        j = tl.arange(0, BV)
        mat = i[:, None] * sr + i[None, :] * sc
        blk = i[:, None] * D + (col0 + j)[None, :]
        state = tl.zeros((D, BV), tl.float32)
        for s in range(n):
            c = n - 1 - s if REVERSE else s
            base = ((row * n + c) * heads + head) * D * D
            tl.store(out + base + blk, state)
            m = tl.load(M + base + mat)
            b = tl.load(B + base + blk)
            state = tl.dot(m, state, input_precision="ieee") + b


def _run(M, B, reverse):
    if not (B.is_cuda and B.dtype == torch.float32 and triton is not None):
        return _loop(M, B, reverse)
    R, n, h, D, _ = B.shape
    out = torch.empty_like(B)
    bv = 16
    _kernel[(R * h, D // bv)](M, B, out, n, h, 1 if reverse else D, D if reverse else 1, REVERSE=reverse, D=D, BV=bv, num_warps=4)
    return out


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, M, B):
        S = _run(M, B, False)
        ctx.save_for_backward(M, S)
        return S

    @staticmethod
    def backward(ctx, dS):
        M, S = ctx.saved_tensors
        dB = _run(M, dS.contiguous(), True)  # gradient of each step's result
        return dB @ S.transpose(-1, -2), dB


@torch.compiler.disable
def scan(m, b, rows):
    """States before each chunk, [N, h, D, D], for N chunks in `rows` rows, each row starting from zero."""
    shape = (rows, b.shape[0] // rows, *b.shape[1:])
    return _Scan.apply(m.contiguous().view(shape), b.contiguous().view(shape)).view(b.shape)
