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

import torch
from torch import Tensor

from aicau import decomposition
from aicau.bias import Evidence, Posterior
from aicau.errors import InputError

PRIOR_ROWS = 20.0  # left-out errors that the Gaussian quantile is worth


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


def predict(evidence: Evidence, level: float = 0.9, estimator: Posterior | None = None) -> Prediction:
    """The truth over the pool after round k, with intervals that hold it with probability `level`."""
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1; got {level}")
    found = (Posterior() if estimator is None else estimator).moments(evidence)
    ensemble = decomposition.mean(evidence.predictions).double()
    mean, unknown = ensemble - found.mean, found.variance()
    wide = quantile(found.left_out, level)[..., None]
    own, new = wide * unknown.sqrt(), wide * (unknown + found.aleatoric).sqrt()
    return Prediction(
        mean,
        ensemble,
        decomposition.epistemic(evidence.predictions).double(),
        found.mean**2 + unknown,
        found.aleatoric,
        mean - own,
        mean + own,
        mean - new,
        mean + new,
    )


def quantile(errors: Tensor, level: float) -> Tensor:  # (..., l) -> (...)
    """How many standard deviations hold a share `level` of left-out errors."""
    rows = errors.shape[-1]
    gauss = torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=errors.dtype, device=errors.device))
    rank = min(rows - 1, max(0, -int(-(rows + 1) * level // 1) - 1))
    seen = errors.abs().sort(-1).values[..., rank]
    return (rows * seen + PRIOR_ROWS * gauss) / (rows + PRIOR_ROWS)
