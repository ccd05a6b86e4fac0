"""What models of values have in common: the measured points they are fitted to, and what they say of left-out ones."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Points:
    """Measured points, one row each."""

    at: Tensor  # (l, p) coordinates (`aicau.core.pool.Frame`)
    y: Tensor  # (l,) means of their measurements
    count: Tensor  # (l,) measurements of each
    fold: Tensor  # (l,) points of one fold are left out together; points with the same features share one
    seed: int  # of what is random
    knots: Tensor  # (2, p, k) values of every feature among the candidates, and their ranks (`ranks.knots_of`)


@dataclass(frozen=True)
class LeftOut:
    """What a model says of every measured point without its fold."""

    mean: Tensor  # (l,)
    variance: Tensor | None = None  # (l,) of the truth; None: it cannot tell


class Model(Protocol):
    """A fitted model; it holds nothing of the pool."""

    @classmethod
    def fit(cls, points: Points) -> "tuple[Model, LeftOut]":
        """The model of measured points, and what it says of each without its fold."""

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "Model":
        """What `tensors` gave."""

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """What it predicts."""

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""
