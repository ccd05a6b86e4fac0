"""What is measured, and the arithmetic that follows from it; reading, predicting and explaining: `aicau.prediction`.

| task | a measurement | a member predicts |
|---|---|---|
| regression | a number | (..., K, n) |
| classification | a class number 0 … c − 1 | probabilities (..., K, n, c) |
| count | 0, 1, 2 … | rates (..., K, n) |
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core import checks
from aicau.core.errors import InputError, unknown

DIVERGENCES = {"regression": "squared", "classification": "kl", "count": "poisson"}
ERRORS = {"regression": "MSE", "classification": "excess log loss", "count": "excess Poisson divergence"}


@dataclass(frozen=True)
class Task:
    """What a measurement is.

    Parameters
    ----------
    name : {"regression", "classification", "count"}
    classes : int
        Number of classes, for classification only.

    Examples
    --------
    >>> Task("classification", 3).divergence
    'kl'
    """

    name: str = "regression"
    classes: int = 0

    def __post_init__(self) -> None:
        if self.name not in DIVERGENCES:
            raise unknown("task", self.name, list(DIVERGENCES))
        if self.name == "classification":
            checks.positive(self.classes, "classes", 2)
        elif self.classes:
            raise InputError(f"only classification has classes; got {self.classes} for {self.name!r}")

    @property
    def divergence(self) -> str:
        """Name of the Bregman divergence that its error is measured by."""
        return DIVERGENCES[self.name]

    @property
    def error(self) -> str:
        """What the error of a simulation is called in tables."""
        return ERRORS[self.name]

    @property
    def squared(self) -> bool:
        """Whether the error is a squared one, so that it has the matrix Ω."""
        return self.divergence == "squared"

    @property
    def probabilities(self) -> bool:
        """Whether members predict probabilities of classes, with one more dimension."""
        return self.classes > 0

    def vectors(self, values: Tensor) -> Tensor:  # (..., n[, c]) -> (..., n, c), c = 1 where there is none
        """Values as vectors in float64, as `bregman` needs them."""
        return (values if self.probabilities else values[..., None]).double()

    def members(self, predictions: Tensor) -> Tensor:  # (..., K, n[, c]) -> (..., n, K, c)
        """Predictions as vectors of members at each point."""
        return self.vectors(predictions).movedim(-3, -2)

    def units(self, index: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:  # (..., l) twice -> (...) twice
        """Shift and scale of the numbers that models are trained on, (y − shift) / scale.

        For regression the mean and standard deviation over measured points, each counted once; for counts the mean.
        """
        if self.probabilities:
            return torch.zeros_like(y[..., 0]), torch.ones_like(y[..., 0])
        alike = torch.ones_like(y) if y.shape[-1] > 4096 else (index[..., :, None] == index[..., None, :]).sum(-1).to(y)
        weight = 1 / alike
        mean = (y * weight).sum(-1) / weight.sum(-1)
        if not self.squared:
            return torch.zeros_like(mean), torch.where(mean > 0, mean, 1.0)
        spread = ((y - mean[..., None]) ** 2 * weight).sum(-1).div(weight.sum(-1)).sqrt()
        # Relative: energies in joules (1e-20) are as good as anything; only rounding counts as constant.
        largest = y.abs().amax(-1)
        constant = spread <= 1e-12 * largest
        return mean, torch.where(constant, torch.where(largest > 0, largest, 1.0), spread)


REGRESSION = Task()
