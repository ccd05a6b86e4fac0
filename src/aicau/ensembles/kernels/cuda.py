"""What the CUDA kernels (Triton) share: one program per network, all its epochs in one launch.

A network that has stopped ends its program, and nothing returns to the host between epochs. Within an epoch, weights,
gradients and values that outlive one matrix product pass through a scratch buffer of the program's own, which stays in
cache; Adam's moments stay in registers. Tensors are padded to powers of two of at least 16 (what a matrix product
takes); padded weights are zero and stay zero, padded points carry no weight.

Packed parameters hold each weight block as (in, padded out), then its vectors, each of the padded out: a bias in F_k;
γ and β, and at last a bias, in ψ.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from aicau.ensembles.kernels.settings import EmbeddingSettings, MLPSettings

PRECISION = "tf32x3"  # of matrix products: "tf32", "tf32x3" or "ieee"
WIDEST = 64
MOST_POINTS = 4096


def pad(n: int) -> int:
    return max(16, triton.next_power_of_2(n))


def corrections(
    settings: MLPSettings | EmbeddingSettings, device: torch.device, steps: int | None = None
) -> Tensor:  # (steps, 2)
    """Adam's step length and the factor of √v at every step: its bias corrections, exact for any number of steps.

    With `steps` the table ends where they no longer change: whoever asks for more takes the last row."""
    b1, b2 = settings.betas
    most = math.ceil(-21 / math.log(max(b1, b2))) if 0 < max(b1, b2) < 1 else 1
    step = torch.arange(1, (settings.max_epochs if steps is None else min(steps, most)) + 1, dtype=torch.float64)
    pair = torch.stack([settings.learning_rate / (1 - b1**step), (1 - b2**step).rsqrt()], -1)
    return pair.float().to(device)


def adam_arguments(settings: MLPSettings | EmbeddingSettings) -> tuple[float, ...]:
    b1, b2 = settings.betas
    return (b1, 1 - b1, b2, 1 - b2, settings.weight_decay)


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
