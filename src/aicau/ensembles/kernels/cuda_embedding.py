"""The embedding ψ on CUDA: all epochs of all fits in one launch of `embedding.cu`, compiled at first use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from aicau.ensembles.kernels import pairs
from aicau.ensembles.kernels.settings import EmbeddingSettings, corrections

SOURCE = Path(__file__).with_name("embedding.cu")
THREADS = 512
WIDEST, MOST_POINTS = 64, 4096


def supports(settings: EmbeddingSettings, inputs: int, rows: int) -> bool:
    """Three hidden layers, none wider than 64, nor ψ; and a PyTorch that compiles kernels."""
    widest = max(*settings.hidden, settings.width, inputs)
    shape = len(settings.hidden) == 3 and widest <= WIDEST and 1 <= rows <= MOST_POINTS
    return shape and hasattr(torch.cuda, "_compile_kernel")


@dataclass(frozen=True)
class Shape:
    """What the source is compiled for: units in eights, and rows of points that begin in other banks of memory."""

    settings: EmbeddingSettings
    inputs: int
    rows: int

    @property
    def padded(self) -> tuple[int, ...]:
        """Inputs, units of the three hidden layers and of ψ."""
        return tuple(
            -(-size // k) * k for size, k in zip(self.settings.sizes(self.inputs), (4, 8, 8, 8, 8), strict=True)
        )

    @property
    def stride(self) -> int:
        return max(0, -(-(self.rows - 16) // 32)) * 32 + 16

    @property
    def places(self) -> tuple[list[int], int]:
        """Where in the packed row each parameter stands, and the length of that row."""
        found: list[int] = []
        at = 0
        layers = self.settings.layers(self.inputs)
        for number, ((outs, ins), (width, units)) in enumerate(zip(layers, pairwise(self.padded), strict=True), 1):
            weights = [[at + o * width + i for i in range(ins)] for o in range(outs)]
            after, last = at + units * width, number == len(layers)
            if last:
                found += [place for o, row in enumerate(weights) for place in (*row, after + o)]
            else:
                found += [place for row in weights for place in row]
                found += [after + k * units + o for k in range(2) for o in range(outs)]
            at = after + units * (1 if last else 2)
        return found, at

    @property
    def units(self) -> list[int]:
        """Where running statistics of the hidden units stand."""
        _, p1, p2, _, _ = self.padded
        starts = (0, p1, p1 + p2)
        return [start + k for start, size in zip(starts, self.settings.hidden, strict=True) for k in range(size)]

    @property
    def batch(self) -> int:
        return -(-(self.settings.batch_size or 0) // 4) * 4

    def floats(self) -> tuple[int, int]:
        """Numbers that a fit keeps at hand, and numbers in its rows."""
        inputs, p1, p2, p3, p4 = self.padded
        wide = max(p1, p2, p3 + 2 * p4)
        mini = self.settings.batch_size is not None
        batches = mini * (3 * self.stride // 2 + self.batch)
        kept = self.places[1] + 3 * (p1 + p2 + p3) + 2 * self.stride + 64 + 2 * self.batch + batches
        return kept, (p1 + 2 * wide + p3 + (1 + mini) * inputs) * self.stride

    def defines(self, threads: int, shared: bool) -> dict[str, int]:
        names = ("INPUTS", "P1", "P2", "P3", "P4")
        return dict(zip(names, self.padded, strict=True)) | {
            "STRIDE": self.stride,
            "MINI": int(self.settings.batch_size is not None),
            "SHARED": int(shared),
            "THREADS": threads,
        }


@cache
def _compiled(defines: tuple[tuple[str, int], ...], bytes: int, device: int) -> Any:
    head = "\n".join(f"#define {name} {value}" for name, value in defines)
    kernel = torch.cuda._compile_kernel(f"{head}\n{SOURCE.read_text(encoding='utf-8')}", "train")
    kernel.set_shared_memory_config(bytes)
    return kernel


def launch(shape: Shape, runs: int, arguments: list[Any], device: torch.device) -> None:
    """On a GPU: rows of points in shared memory where they fit, else in a scratch buffer."""
    kept, rows = shape.floats()
    properties: Any = torch.cuda.get_device_properties(device)
    room = properties.shared_memory_per_block_optin
    shared = 4 * (kept + rows) <= room
    if not shared:
        arguments[SCRATCH] = torch.empty(runs * rows, device=device)
    size = 4 * (kept + rows * shared)
    with torch.cuda.device(device):
        kernel = _compiled(tuple(shape.defines(THREADS, shared).items()), size, device.index or 0)
        kernel((runs, 1, 1), (THREADS, 1, 1), arguments, size)


SCRATCH = 17  # which argument


def train_embedding(
    x: Tensor, bias: Tensor, split: Tensor, parameters: Tensor, running: Tensor, seeds: Tensor,
    settings: EmbeddingSettings, launch: Callable[[Shape, int, list[Any], torch.device], None] = launch,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Train N embeddings ψ; shapes as in `kernels.train_embedding`, running (N, 2, units)."""
    runs, _, inputs = x.shape
    device = x.device
    epochs = torch.zeros(runs, dtype=torch.long, device=device)
    losses = torch.full((runs,), torch.inf, device=device)
    if not runs:
        return parameters.float().clone(), running.float().clone(), epochs, losses
    valid = split.diagonal(dim1=-2, dim2=-1) > 0
    count = valid.sum(-1)
    rows = max(1, int(count.max()))
    shape = Shape(settings, inputs, rows)
    order = torch.argsort((~valid).byte(), dim=-1, stable=True)[:, :rows]  # valid points first
    real = torch.arange(rows, device=device) < count[:, None]

    def points(values: Tensor, wide: int) -> Tensor:  # (N, l, p) -> (N, wide, stride)
        out = torch.zeros(runs, wide, shape.stride, device=device)
        own = values.gather(1, order[..., None].expand(-1, -1, values.shape[-1])).float() * real[..., None]
        out[:, : values.shape[-1], :rows] = own.mT
        return out

    def arranged(matrix: Tensor) -> Tensor:  # (N, l, l) -> (N, rows, rows), −1 where there is no point
        chosen = matrix.gather(1, order[..., None].expand(-1, -1, matrix.shape[-1]))
        chosen = chosen.gather(2, order[:, None].expand(-1, rows, -1))
        return torch.where(real[:, :, None] & real[:, None, :], chosen, -1)

    kinds = arranged(split)
    ranks, steps, moves = pairs.order(split, seeds, settings)
    i, j = torch.tril_indices(rows, rows, device=device)
    fit, held = (kinds[:, i, j] == kind for kind in (1, 2))  # (N, pairs)
    held = torch.where(held.any(-1, keepdim=True), held, fit)
    codes = (i * 65536 + j).int().expand(runs, -1)

    def listed(chosen: Tensor, rank: Tensor) -> Tensor:  # (N, pairs) twice -> (N, pairs + 1)
        out = torch.zeros(runs, len(i) + 1, dtype=torch.int32, device=device)
        return out.scatter_(1, torch.where(chosen, rank, len(i)).long(), codes)

    mini = settings.batch_size is not None
    matrix = torch.zeros(*(1, 1, 1) if mini else (runs, shape.stride, shape.stride), dtype=torch.uint8, device=device)
    if not mini:
        matrix[:, :rows, :rows] = kinds == 1
    at, size = shape.places
    index = torch.tensor(at, device=device)
    packed = torch.zeros(runs, size, device=device)
    packed[:, index] = parameters.float()
    units = torch.tensor(shape.units, device=device)
    packed_running = torch.ones(runs, 2, sum(shape.padded[1:4]), device=device)
    packed_running[:, :, units] = running.float()
    best, best_running = packed.clone(), packed_running.clone()
    rates = corrections(settings, device, settings.max_epochs * int(steps.max()))
    most_steps = int(steps.max()) if mini else 0
    numbers = (settings.dropout, *settings.betas, settings.weight_decay, settings.momentum, settings.epsilon)
    train_pairs = listed(fit, arranged(ranks)[:, i, j]) if mini else torch.zeros(1, 1, dtype=torch.int32, device=device)
    arguments: list[Any] = [
        points(x, shape.padded[0]),
        points(bias[..., None], 1),
        matrix,
        train_pairs,
        listed(held, held.cumsum(-1) - 1),
        torch.empty_like(train_pairs),
        torch.empty(runs * most_steps * (1 + 2 * shape.stride + 2 * shape.batch), dtype=torch.int16, device=device),
        moves.contiguous(),
        torch.stack([count, fit.sum(-1), held.sum(-1), steps], -1).int().contiguous(),
        seeds.to(device).long().contiguous(),
        packed,
        packed_running,
        best,
        best_running,
        torch.empty(runs, 3, size, device=device),
        rates,
        torch.tensor(numbers, device=device),
        packed,  # no scratch
        epochs,
        losses,
        len(i) + 1,
        len(rates) - 1,
        settings.patience,
        settings.max_epochs,
        shape.batch,
        most_steps,
    ]
    launch(shape, runs, arguments, device)
    return best[:, index], best_running[:, :, units], epochs, losses
