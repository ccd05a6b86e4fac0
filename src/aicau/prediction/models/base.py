"""What models of values have in common: the measured points they are fitted to, and what they say of left-out ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Points:
    """Measured points, one row each.

    Parameters
    ----------
    at : Tensor, shape (l, p)
        Coordinates (`aicau.core.pool.Frame`).
    y : Tensor, shape (l,)
        Means of their measurements.
    count : Tensor, shape (l,)
        Measurements of each.
    fold : Tensor of int64, shape (l,)
        Points of one fold are left out together; points with the same features share one.
    seed : int
        Of what is random.
    knots : Tensor, shape (2, p, k)
        Values of every feature among the candidates, and their ranks (`ranks.knots_of`).
    """

    at: Tensor
    y: Tensor
    count: Tensor
    fold: Tensor
    seed: int
    knots: Tensor


class Model(Protocol):
    """A fitted model; it holds nothing of the pool."""

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """What it predicts."""

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""


@dataclass(frozen=True)
class LeftOut:
    """What a model says of every measured point without its fold."""

    mean: Tensor  # (l,)
    variance: Tensor | None = None  # (l,) of the truth; None: it cannot tell


@dataclass(frozen=True)
class Kind:
    """How a model is fitted and loaded."""

    fit: Callable[[Points], tuple[Model, LeftOut]]
    load: Callable[[dict[str, Tensor]], Model]
