"""The embedding ψ on CUDA: `train_embedding` in one launch."""

import torch
import triton
from torch import Tensor

from aicau.ensembles.kernels import cuda, pairs
from aicau.ensembles.kernels.cuda import MOST_POINTS, WIDEST, adam_arguments, corrections, pad
from aicau.ensembles.kernels.cuda_training import train
from aicau.ensembles.kernels.settings import EmbeddingSettings

# Points at once and warps, as measured on an H200: one size for all, so that the kernel is compiled once. Blocks of 64
# on 8 warps make Triton 3.6 read outside its shared memory with tf32x3.
BLOCK, WARPS = 32, 8
SPAN = 128  # columns at once where pairs are dealt to mini-batches


def supports(settings: EmbeddingSettings, inputs: int, rows: int) -> bool:
    """Three hidden layers, none wider than 64, nor ψ."""
    widest = max(*settings.hidden, settings.width, inputs)
    return len(settings.hidden) == 3 and widest <= WIDEST and 1 <= rows <= MOST_POINTS


def _places(settings: EmbeddingSettings, inputs: int) -> tuple[list[int], int]:
    """Where in the packed row each parameter stands, and the length of that row."""
    places: list[int] = []
    at = 0
    *hidden, (outs, ins) = settings.layers(inputs)
    for o_s, i_s in hidden:
        padded = pad(o_s)
        places += [at + i * padded + o for o in range(o_s) for i in range(i_s)]
        places += [at + i * padded + o for i in (i_s, i_s + 1) for o in range(o_s)]
        at += (i_s + 2) * padded
    padded = pad(outs)
    places += [at + i * padded + o for o in range(outs) for i in range(ins + 1)]
    return places, at + (ins + 1) * padded


def train_embedding(
    x: Tensor,  # (N, l, p)
    bias: Tensor,  # (N, l)
    split: Tensor,  # (N, l, l) symmetric: 0 = no pair, 1 = training, 2 = validation
    parameters: Tensor,  # (N, P)
    running: Tensor,  # (N, 2, units)
    seeds: Tensor,  # (N,)
    settings: EmbeddingSettings,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # parameters, running, epochs (N,), least validation loss (N,)
    """Train N embeddings ψ on their Gram matrices and keep each one's best epoch."""
    runs, _, inputs = x.shape
    device = x.device
    epochs = torch.zeros(runs, dtype=torch.long, device=device)
    losses = torch.full((runs,), torch.inf, device=device)
    if not runs:
        return parameters.float().clone(), running.float().clone(), epochs, losses
    valid = split.diagonal(dim1=-2, dim2=-1) > 0
    count = valid.sum(-1)
    rows = max(1, int(count.max()))
    points, padded = max(pad(rows), BLOCK), pad(inputs)
    order = torch.argsort((~valid).byte(), dim=-1, stable=True)[:, :rows]  # valid points first
    real = torch.arange(rows, device=device) < count[:, None]
    places = torch.zeros(runs, points, padded, device=device)
    places[:, :rows, :inputs] = x.gather(1, order[..., None].expand(-1, -1, inputs)).float() * real[..., None]
    target = torch.zeros(runs, points, device=device)
    target[:, :rows] = bias.gather(1, order).float() * real
    both = real[:, :, None] & real[:, None, :]

    def arranged(matrix: Tensor, rest: int, dtype: torch.dtype) -> Tensor:  # (N, l, l) -> (N, points, points)
        chosen = matrix.gather(1, order[..., None].expand(-1, -1, matrix.shape[-1]))
        chosen = chosen.gather(2, order[:, None].expand(-1, rows, -1))
        out = torch.full((runs, points, points), rest, dtype=dtype, device=device)
        out[:, :rows, :rows] = torch.where(both, chosen, rest).to(dtype)
        return out

    kinds = arranged(split, 0, torch.int8)
    ranks, steps, moves = pairs.order(split, seeds, settings)
    rank = arranged(ranks, -1, torch.int32)
    weights = torch.zeros(runs, points, device=device)
    weights[:, :rows] = real.float()
    diagonal = kinds.diagonal(dim1=-2, dim2=-1)
    fits, checks = (((kinds == k).sum((-1, -2)) + (diagonal == k).sum(-1)) // 2 for k in (1, 2))
    counts = torch.stack([count, 1 + (checks > 0).long(), fits.clamp_min(1), steps], -1).int()
    rates = corrections(settings, device, settings.max_epochs * int(steps.max()))
    shares = 1 / torch.stack([fits, torch.where(checks > 0, checks, fits)], -1).clamp_min(1).float()

    h1, h2, h3 = settings.hidden
    p1, p2, p3, p4 = (pad(size) for size in (*settings.hidden, settings.width))
    wide, units = max(p1, p2, p3), p1 + p2 + p3
    at, size = _places(settings, inputs)
    index = torch.tensor(at, device=device)
    packed = torch.zeros(runs, size, device=device)
    packed[:, index] = parameters.float()
    unit_index = torch.tensor([*range(h1), *range(p1, p1 + h2), *range(p1 + p2, p1 + p2 + h3)], device=device)
    packed_running = torch.ones(runs, 2, units, device=device)
    packed_running[:, :, unit_index] = running.float()
    best, best_running = packed.clone(), packed_running.clone()
    store = points * (p1 + p2 + p3 + p4 + 2 * wide) + 2 * units + size
    store += -store % 16  # every run's scratch starts on a boundary that wide loads like
    scratch = torch.zeros(runs, store, device=device)
    bits = torch.zeros(runs, points * wide, dtype=torch.int8, device=device)
    with torch.cuda.device_of(x):
        train[(runs,)](
            places, target, kinds, rank, rank.clone(), moves.contiguous(), counts, shares,
            seeds.to(device).long().contiguous(), packed, packed_running, best, best_running, rates,
            epochs, losses, scratch, weights, bits,
            settings.dropout, 1 / (1 - settings.dropout), *adam_arguments(settings), settings.momentum,
            settings.epsilon, settings.patience, settings.max_epochs, len(rates) - 1, points, store,
            D=inputs, H1=h1, H2=h2, H3=h3, DP=padded, P1=p1, P2=p2, P3=p3, P4=p4, WIDE=wide,
            SIZE=size, FLAT=triton.next_power_of_2(size), FLAT_UNITS=triton.next_power_of_2(2 * units),
            BLOCK=BLOCK, SPAN=SPAN, MINI=settings.batch_size is not None, DROP=settings.dropout > 0,
            PRECISION=cuda.PRECISION, num_warps=WARPS, num_stages=1,
        )  # fmt: skip
    return best[:, index], best_running[:, :, unit_index], epochs, losses
