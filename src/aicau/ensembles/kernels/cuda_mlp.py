"""Members of F_k on CUDA (Triton): one program per network, all its epochs in one launch of `train_mlp`.

A network that has stopped ends its program, and nothing returns to the host between epochs. Within an epoch, weights,
gradients and values that outlive one matrix product pass through a scratch buffer of the program's own, which stays in
cache; Adam's moments stay in registers. Tensors are padded to powers of two of at least 16 (what a matrix product
takes); padded weights are zero and stay zero, padded points carry no weight. Packed parameters hold each weight block
as (in, padded out), then its bias, of the padded out.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from aicau.ensembles.kernels.settings import MLPSettings, corrections

PRECISION = "tf32x3"  # of matrix products: "tf32", "tf32x3" or "ieee"
WIDEST = 64
MOST_POINTS = 4096
# Padded points: (points at once, warps), as measured on an H200; larger as the largest.
LAUNCH = {32: (32, 4), 64: (64, 4)}


def pad(n: int) -> int:
    return max(16, triton.next_power_of_2(n))


@triton.jit
def load_matrix(at, ROWS: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """A block (ROWS, WIDTH), with rows of zeros up to PADDED."""
    i = tl.arange(0, PADDED)[:, None]
    return tl.load(at + i * WIDTH + tl.arange(0, WIDTH)[None, :], mask=i < ROWS, other=0.0)


@triton.jit
def store_matrix(at, w, ROWS: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, PADDED)[:, None]
    tl.store(at + i * WIDTH + tl.arange(0, WIDTH)[None, :], w, mask=i < ROWS)


@triton.jit
def load_vector(at, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    return tl.load(at + tl.arange(0, WIDTH))


@triton.jit
def store_vector(at, v, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(at + tl.arange(0, WIDTH), v)


@triton.jit
def adam(  # type: ignore[no-untyped-def]
    parameters, gradient, m, v, finite, correction, b1, c1, b2, c2, decay, SIZE: tl.constexpr, FLAT: tl.constexpr,
):  # fmt: skip
    """One step of Adam with an L2 term on the packed parameters; none where the loss is not finite."""
    cells = tl.arange(0, FLAT)
    real = cells < SIZE
    p = tl.load(parameters + cells, mask=real, other=0.0)
    g = tl.load(gradient + cells, mask=real, other=0.0) + decay * p
    m = b1 * m + c1 * g
    v = b2 * v + c2 * g * g
    rate = tl.load(correction)
    root = tl.load(correction + 1)
    p = tl.where(finite, p - rate * m / (tl.sqrt(v) * root + 1e-8), p)
    tl.store(parameters + cells, p, mask=real)
    return p, m, v


@triton.jit
def relu(z):  # type: ignore[no-untyped-def]
    return tl.where(z < 0, 0.0, z)  # keeps NaN, so that divergence is seen


def supports(settings: MLPSettings, inputs: int, rows: int) -> bool:
    """Three hidden layers, none wider than 64."""
    return len(settings.hidden) == 3 and max(*settings.hidden, inputs) <= WIDEST and 1 <= rows <= MOST_POINTS


def _places(settings: MLPSettings, inputs: int) -> tuple[list[int], int]:
    """Where in the packed row each parameter stands, and the length of that row."""
    places: list[int] = []
    at = 0
    *hidden, (_, last) = settings.layers(inputs)
    for outs, ins in hidden:
        padded = pad(outs)
        places += [at + i * padded + o for o in range(outs) for i in range(ins + 1)]
        at += (ins + 1) * padded
    places += [*range(at, at + last), at + pad(last)]
    return places, at + pad(last) + 16


@triton.jit
def _gradient(  # type: ignore[no-untyped-def]
    x, y, share, start, count, p1, p2, p3, p4,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    DP: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, P3: tl.constexpr,
    BLOCK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Weighted squared error over a block of points and its gradient by every parameter."""
    rows = start + tl.arange(0, BLOCK)
    columns = tl.arange(0, DP)[None, :]
    seen = rows < count
    points = tl.load(x + rows[:, None] * D + columns, mask=seen[:, None] & (columns < D), other=0.0)
    target = tl.load(y + rows, mask=seen, other=0.0)
    weight = tl.load(share + rows, mask=seen, other=0.0)
    w1 = load_matrix(p1, D, DP, P1)
    w2 = load_matrix(p2, H1, P1, P2)
    w3 = load_matrix(p3, H2, P2, P3)
    w4 = load_vector(p4, P3)[None, :]
    a1 = relu(tl.dot(points, w1, input_precision=PRECISION) + load_vector(p1 + D * P1, P1)[None, :])
    a2 = relu(tl.dot(a1, w2, input_precision=PRECISION) + load_vector(p2 + H1 * P2, P2)[None, :])
    a3 = relu(tl.dot(a2, w3, input_precision=PRECISION) + load_vector(p3 + H2 * P3, P3)[None, :])
    error = tl.sum(a3 * w4, 1) + tl.load(p4 + P3) - target
    loss = tl.sum(weight * error * error, 0)
    d4 = 2.0 * weight * error
    d3 = tl.where(a3 > 0, d4[:, None] * w4, 0.0)
    d2 = tl.where(a2 > 0, tl.dot(d3, tl.trans(w3), input_precision=PRECISION), 0.0)
    d1 = tl.where(a1 > 0, tl.dot(d2, tl.trans(w2), input_precision=PRECISION), 0.0)
    by_w1 = tl.dot(tl.trans(points), d1, input_precision=PRECISION)
    by_w2 = tl.dot(tl.trans(a1), d2, input_precision=PRECISION)
    by_w3 = tl.dot(tl.trans(a2), d3, input_precision=PRECISION)
    by_w4 = tl.sum(a3 * d4[:, None], 0)
    return loss, by_w1, tl.sum(d1, 0), by_w2, tl.sum(d2, 0), by_w3, tl.sum(d3, 0), by_w4, tl.sum(d4, 0)


@triton.jit(do_not_specialize=["rows", "group", "patience", "max_epochs"])
def _kernel(  # type: ignore[no-untyped-def]
    x, y, share, counts, parameters, gradients, corrections, epochs, losses,
    rows, group, b1, c1, b2, c2, decay, min_delta, patience, max_epochs,
    D: tl.constexpr, H1: tl.constexpr, H2: tl.constexpr,
    DP: tl.constexpr, P1: tl.constexpr, P2: tl.constexpr, P3: tl.constexpr, SIZE: tl.constexpr, FLAT: tl.constexpr,
    BLOCK: tl.constexpr, ONE: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x (nets / group, rows, D), y (nets / group, rows), share (nets, rows), packed parameters (nets, SIZE), trained in
    place, gradients (nets, SIZE). ONE says that all points fit in one block.
    """
    net = tl.program_id(0).to(tl.int64)
    x += net // group * rows * D
    y += net // group * rows
    share += net * rows
    count = tl.load(counts + net)
    A2: tl.constexpr = (D + 1) * P1
    A3: tl.constexpr = A2 + (H1 + 1) * P2
    A4: tl.constexpr = A3 + (H2 + 1) * P3
    p1 = parameters + net * SIZE
    g1 = gradients + net * SIZE
    m = tl.zeros((FLAT,), tl.float32)
    v = tl.zeros((FLAT,), tl.float32)
    best = tl.full((), float("inf"), tl.float32)
    loss = tl.full((), 0.0, tl.float32)
    epoch = tl.full((), 0, tl.int32)
    waited = tl.full((), 0, tl.int32)
    going = max_epochs > 0
    while going:
        loss, w1, s1, w2, s2, w3, s3, w4, s4 = _gradient(
            x, y, share, 0, count, p1, p1 + A2, p1 + A3, p1 + A4, D, H1, H2, DP, P1, P2, P3, BLOCK, PRECISION
        )
        if not ONE:
            for start in range(BLOCK, count, BLOCK):
                more, dw1, ds1, dw2, ds2, dw3, ds3, dw4, ds4 = _gradient(
                    x, y, share, start, count, p1, p1 + A2, p1 + A3, p1 + A4,
                    D, H1, H2, DP, P1, P2, P3, BLOCK, PRECISION,
                )  # fmt: skip
                loss += more
                w1 += dw1
                s1 += ds1
                w2 += dw2
                s2 += ds2
                w3 += dw3
                s3 += ds3
                w4 += dw4
                s4 += ds4
        store_matrix(g1, w1, D, DP, P1)
        store_vector(g1 + D * P1, s1, P1)
        store_matrix(g1 + A2, w2, H1, P1, P2)
        store_vector(g1 + A2 + H1 * P2, s2, P2)
        store_matrix(g1 + A3, w3, H2, P2, P3)
        store_vector(g1 + A3 + H2 * P3, s3, P3)
        store_vector(g1 + A4, w4, P3)
        tl.store(g1 + A4 + P3, s4)
        tl.debug_barrier()
        loss = tl.where(count > 0, loss, float("nan"))
        finite = tl.abs(loss) < float("inf")
        _, m, v = adam(p1, g1, m, v, finite, corrections + 2 * epoch, b1, c1, b2, c2, decay, SIZE, FLAT)
        tl.debug_barrier()
        epoch += 1
        better = loss < best - min_delta
        best = tl.where(better, loss, best)
        waited = tl.where(better, 0, waited + 1)
        going = finite & (waited <= patience) & (epoch < max_epochs)
    tl.store(epochs + net, epoch)
    tl.store(losses + net, loss)


def train_mlp(
    x: Tensor, y: Tensor, weights: Tensor, parameters: Tensor, settings: MLPSettings
) -> tuple[Tensor, Tensor, Tensor]:
    """Train N·K networks; shapes as in `kernels.train_mlp`. A loss that is not finite ends its network without an
    update."""
    runs, members, rows = weights.shape
    inputs = x.shape[-1]
    x, y, weights = (t.float().contiguous() for t in (x, y, weights))
    epochs = torch.zeros(runs, members, dtype=torch.long, device=x.device)
    losses = torch.zeros(runs, members, device=x.device)
    if not runs * members:
        return parameters.float().clone(), epochs, losses
    seen = weights > 0
    counts = seen.sum(-1)
    share = weights / weights.sum(-1, keepdim=True)
    group = members  # networks that read the same points
    if not bool(seen.all()):  # each network gets its own list of the points it sees
        group, rows = 1, max(1, int(counts.max()))
        order = torch.argsort((~seen).byte(), dim=-1, stable=True)[..., :rows]
        share = share.gather(-1, order)
        y = y[:, None].expand_as(weights).gather(-1, order)
        x = x[:, None].expand(-1, members, -1, -1).gather(2, order[..., None].expand(-1, -1, -1, inputs))
    block, warps = LAUNCH.get(max(min(LAUNCH), pad(rows)), LAUNCH[max(LAUNCH)])
    (h1, h2, h3), (b1, b2) = settings.hidden, settings.betas
    nets = runs * members
    places, size = _places(settings, inputs)
    index = torch.tensor(places, device=x.device)
    packed = torch.zeros(nets, size, device=x.device)
    packed[:, index] = parameters.float().reshape(nets, -1)
    with torch.cuda.device_of(x):
        _kernel[(nets,)](
            x.contiguous(), y.contiguous(), share.contiguous(), counts.int().contiguous(),
            packed, torch.zeros_like(packed), corrections(settings, x.device), epochs, losses,
            rows, group, b1, 1 - b1, b2, 1 - b2, settings.weight_decay, settings.min_delta, settings.patience,
            settings.max_epochs,
            D=inputs, H1=h1, H2=h2, DP=pad(inputs), P1=pad(h1), P2=pad(h2), P3=pad(h3),
            SIZE=size, FLAT=triton.next_power_of_2(size), BLOCK=block, ONE=rows <= block, PRECISION=PRECISION,
            num_warps=warps, num_stages=1,
        )  # fmt: skip
    return packed[:, index].view(runs, members, -1), epochs, losses
