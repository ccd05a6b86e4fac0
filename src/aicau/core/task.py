"""What is measured: values, one of several classes, or counts; and what follows from it.

| task | a measurement | a member predicts | divergence | error of a simulation |
|---|---|---|---|---|
| values | a number | (..., K, n) | squared | MSE to the truth |
| classes | 0 … c − 1 | probabilities (..., K, n, c) | kl | excess log loss: D[p‖F̄] |
| counts | 0, 1, 2 … | rates (..., K, n) | poisson | – |
"""

from dataclasses import dataclass

from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError, unknown

KINDS = {"values": "squared", "classes": "kl", "counts": "poisson"}


@dataclass(frozen=True)
class Task:
    kind: str = "values"
    classes: int = 0  # of classes only

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise unknown("task", self.kind, list(KINDS))
        if self.kind == "classes":
            checks.positive(self.classes, "classes", 2)
        elif self.classes:
            raise InputError(f"only the task 'classes' has classes; got {self.classes} for {self.kind!r}")

    @property
    def divergence(self) -> str:
        return KINDS[self.kind]

    def members(self, predictions: Tensor) -> Tensor:  # (..., K, n[, c]) -> (..., n, K, c), c = 1 where there is none
        """Predictions as vectors of members at each point, in float64, as `bregman` wants them."""
        own = predictions if self.kind == "classes" else predictions[..., None]
        return own.movedim(-3, -2).double()

    @property
    def error(self) -> str:
        """What the error of a simulation is called in tables."""
        return "excess log loss" if self.kind == "classes" else "MSE"


VALUES = Task()
