"""Direct estimation (Appendix A): a Gaussian process on h = [x, μ_F, σ²_F] tells what was not measured.

`direct` predicts δ, and Δ̂ has rank 1. `tau` predicts τ = σ²_F + δ² itself; it says nothing of pairs, so its Δ̂ is
diagonal, τ̂ − σ²_F where that is positive.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau import gp
from aicau.bias import classes
from aicau.bias.base import Belief, BiasEstimator, Evidence, place
from aicau.core import decomposition
from aicau.core.errors import InputError
from aicau.core.observations import Collapsed
from aicau.core.omega import Omega
from aicau.core.runs import by_run


@dataclass(frozen=True)
class Direct(BiasEstimator):
    """A Gaussian process predicts δ where nothing was measured (the paper's direct estimation).

    Parameters
    ----------
    alpha : float
        Variance added to the diagonal; the process learns no noise.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct").bias
    Direct(alpha=1e-06)
    """

    waits: ClassVar[bool] = True
    alpha: float = 1e-6

    def estimate(self, evidence: Evidence) -> Omega:
        seen, residual = evidence.residuals()
        return decomposition.cobias(interpolated(evidence, seen, residual, self).float())

    def believe(self, evidence: Evidence) -> Belief:
        if evidence.task.probabilities:
            return classes.direct(evidence)
        factor = self.estimate(evidence).factor.double()  # δ = μ_F − E Y
        return Belief(decomposition.mean(evidence.predictions).double()[..., None] - factor)


@dataclass(frozen=True)
class Tau(BiasEstimator):
    """A Gaussian process predicts τ where nothing was measured (the paper's direct estimation of the PEMSE)."""

    waits: ClassVar[bool] = True
    alpha: float = 1e-6

    def estimate(self, evidence: Evidence) -> Omega:
        seen, residual = evidence.residuals()
        epistemic = decomposition.epistemic(evidence.predictions).double()
        tau = torch.where(seen.valid, epistemic.gather(-1, seen.index) + residual**2, 0.0)
        square = (interpolated(evidence, seen, tau, self) - epistemic).clamp_min(0).float()
        return Omega(torch.zeros_like(square)[..., None], extra=square)

    def believe(self, evidence: Evidence) -> Belief:
        raise InputError(f"tau is a squared error, which {evidence.task.name} does not have; use direct or posterior")


def interpolated(evidence: Evidence, seen: Collapsed, values: Tensor, by: Direct | Tau) -> Tensor:
    # (..., l) -> (..., n)
    """Values at measured points, and elsewhere what a process on the side information says."""
    side = evidence.side_information().double()
    rows = side.take_along_dim(seen.index[..., None], -2)

    def mean(side: Tensor, rows: Tensor, values: Tensor, valid: Tensor) -> Tensor:
        return evidence.learned(by, lambda: gp.fit(rows, values, valid, by.alpha)).mean(side)

    parts = (side, rows, values, seen.valid)
    return place(values, seen, by_run(mean, *parts, points=side.shape[-2], lead=values.ndim - 1))
