"""Debiased prediction: μ_F − δ̂ with intervals, and what the uncertainty is made of.

| name | meaning |
|---|---|
| `mean` | μ_F − m, the ensemble with its estimated bias taken out |
| `ensemble` | μ_F as it is |
| `epistemic` | σ²_F, how much the members disagree |
| `bias` | m² + C, expected square of the ensemble's bias |
| `aleatoric` | σ²_Y, variance of one measurement (its batch included) |
| `low`, `high` | interval for the truth |
| `new_low`, `new_high` | interval for the next measurement |

After the correction C is what is left to learn about the truth. The intervals are Gaussian, widened or narrowed by how
large the standardised errors of left-out measurements turned out (a conformal quantile, shrunk to the Gaussian one).
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.bias import Evidence, Posterior
from aicau.core import decomposition
from aicau.core.errors import InputError

PRIOR_ROWS = 20.0  # left-out errors that the Gaussian quantile is worth
PARTS = ("epistemic", "bias", "aleatoric")
COLUMNS = ("mean", "low", "high", "new_low", "new_high", *PARTS, "ensemble")


@dataclass(frozen=True)
class Prediction:
    mean: Tensor  # (..., n), like all
    ensemble: Tensor
    epistemic: Tensor
    bias: Tensor
    aleatoric: Tensor
    low: Tensor
    high: Tensor
    new_low: Tensor
    new_high: Tensor

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """By their names in a table."""
        return {name: getattr(self, name).numpy() for name in COLUMNS}

    def in_units(self, shift: float, scale: float) -> "Prediction":
        """The same where the target was (y − shift) / scale."""
        return Prediction(**{k: v * scale**2 if k in PARTS else v * scale + shift for k, v in vars(self).items()})


def predict(evidence: Evidence, level: float = 0.9, estimator: Posterior | None = None) -> Prediction:
    """The truth over the pool after round k, with intervals that hold it with probability `level`."""
    found = (Posterior() if estimator is None else estimator).moments(evidence)
    wide = quantile(found.left_out, level)
    return debiased(evidence.predictions, found.mean, found.variance(), found.aleatoric, wide)


def debiased(
    members: Tensor,  # (..., K, n)
    bias: Tensor,  # (..., n) m
    unknown: Tensor,  # (..., n) the diagonal of C
    aleatoric: Tensor,  # (..., n)
    wide: Tensor,  # (...) half an interval in standard deviations
) -> Prediction:
    """μ_F − m, and intervals around it."""
    ensemble = decomposition.mean(members).double()
    mean, wide = ensemble - bias, wide[..., None]
    own, new = wide * unknown.sqrt(), wide * (unknown + aleatoric).sqrt()
    spread = decomposition.epistemic(members).double()
    ends = (mean - own, mean + own, mean - new, mean + new)
    return Prediction(mean, ensemble, spread, bias**2 + unknown, aleatoric, *ends)


def uncorrected(
    members: Tensor,  # (..., K, n)
    bias: Tensor,  # (..., n) expected square of the bias
    aleatoric: float,  # of one measurement, without its batch
    shared: float,  # variance of what a batch adds
    width: float,  # how much wider than the parts say
    level: float,
) -> Prediction:
    """μ_F as it is, where too little was measured to say in which direction it is off."""
    mean, spread = decomposition.mean(members).double(), decomposition.epistemic(members).double()
    error, wide = width**2 * (spread + bias), gaussian(level)
    own, new = wide * error.sqrt(), wide * (error + width**2 * aleatoric + shared).sqrt()
    noise = torch.full_like(mean, aleatoric + shared)
    return Prediction(mean, mean, spread, bias, noise, mean - own, mean + own, mean - new, mean + new)


def quantile(errors: Tensor, level: float) -> Tensor:  # (..., l) -> (...)
    """How many standard deviations hold a share `level` of left-out errors."""
    rows, gauss = errors.shape[-1], gaussian(level)
    rank = min(rows - 1, max(0, -int(-(rows + 1) * level // 1) - 1))
    seen = errors.abs().sort(-1).values[..., rank]
    return (rows * seen + PRIOR_ROWS * gauss) / (rows + PRIOR_ROWS)


def gaussian(level: float) -> float:
    """The same of a normal distribution."""
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1; got {level}")
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.double)))
