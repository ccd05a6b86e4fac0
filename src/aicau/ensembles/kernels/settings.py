"""What the two small networks are and how they are trained; defaults are the paper's Appendix A."""

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core.errors import InputError, unknown

HEADS = ("squared", "softmax", "poisson")


@dataclass(frozen=True)
class MLPSettings:
    """A member of F_k. Its parameters are one row of numbers: per layer (out, in + 1), the bias in the last column."""

    hidden: tuple[int, ...] = (32, 32, 16)
    learning_rate: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    min_delta: float = 1e-4
    patience: int = 10  # stop when the loss has not fallen by more than min_delta for more than this many epochs
    max_epochs: int = 500
    weight_decay: float = 0.0
    head: str = "squared"  # values by squared error, probabilities by cross-entropy, the rate of a count by its loss
    outputs: int = 1  # classes of the softmax head; 1 for the others

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden) or self.max_epochs < 1 or self.patience < 0:
            raise InputError(f"layers and epochs must be positive; got {self.hidden} and {self.max_epochs}")
        if self.head not in HEADS:
            raise unknown("head", self.head, list(HEADS))
        if (self.outputs < 2) if self.head == "softmax" else (self.outputs != 1):
            raise InputError(f"softmax has two outputs or more, {HEADS[0]} and {HEADS[2]} one; got {self.outputs}")

    def sizes(self, inputs: int) -> tuple[int, ...]:
        return (inputs, *self.hidden, self.outputs)

    def layers(self, inputs: int) -> list[tuple[int, int]]:
        """(out, in) of every layer."""
        return [(o, i) for i, o in itertools.pairwise(self.sizes(inputs))]

    def parameters(self, inputs: int) -> int:
        return sum(o * (i + 1) for o, i in self.layers(inputs))

    def blocks(self, parameters: Tensor, inputs: int) -> list[Tensor]:  # (..., P) -> (..., out, in + 1) each
        """The numbers of every layer."""
        layers = self.layers(inputs)
        parts = parameters.split([o * (i + 1) for o, i in layers], -1)
        return [part.unflatten(-1, (o, i + 1)) for part, (o, i) in zip(parts, layers, strict=True)]


@dataclass(frozen=True)
class EmbeddingSettings:
    """ψ of Q = ψ(x)ᵀψ(x*): hidden layers without bias (batch normalisation has one), γ and β, then a linear layer.

    Parameters are one row: per hidden layer W (out, in), γ (out), β (out); last layer (out, in + 1).
    """

    hidden: tuple[int, ...] = (64, 64, 32)
    width: int = 16  # h
    dropout: float = 0.1
    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.999)  # the paper prints (0.999, 0.9), which measures worse: docs/decisions.md
    batch_size: int | None = None  # pairs of a mini-batch; None: all pairs at once
    weight_decay: float = 1e-5
    validation: float = 0.15
    patience: int = 200
    max_epochs: int = 2000
    momentum: float = 0.1  # of the running statistics
    epsilon: float = 1e-5  # of batch normalisation

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1 or not 0 <= self.validation < 1:
            raise InputError("dropout and validation share must be at least 0 and below 1")
        if self.width < 1 or any(width < 1 for width in self.hidden) or self.max_epochs < 1:
            raise InputError("layers and epochs must be positive")
        if self.batch_size is not None and self.batch_size < 1:
            raise InputError(f"a mini-batch holds at least one pair; got {self.batch_size}")

    def sizes(self, inputs: int) -> tuple[int, ...]:
        return (inputs, *self.hidden, self.width)

    def layers(self, inputs: int) -> list[tuple[int, int]]:
        """(out, in) of every layer, the last one included."""
        return [(o, i) for i, o in itertools.pairwise(self.sizes(inputs))]

    def parameters(self, inputs: int) -> int:
        *inner, (o, i) = self.layers(inputs)
        return sum(a * b + 2 * a for a, b in inner) + o * (i + 1)


def corrections(
    settings: MLPSettings | EmbeddingSettings, device: torch.device, steps: int | None = None
) -> Tensor:  # (steps, 2)
    """Adam's step length and the factor of √v at every step; with `steps` up to where they no longer change."""
    b1, b2 = settings.betas
    most = math.ceil(-21 / math.log(max(b1, b2))) if 0 < max(b1, b2) < 1 else 1
    step = torch.arange(1, (settings.max_epochs if steps is None else min(steps, most)) + 1, dtype=torch.float64)
    pair = torch.stack([settings.learning_rate / (1 - b1**step), (1 - b2**step).rsqrt()], -1)
    return pair.float().to(device)
