"""Direct estimation: a Gaussian process on h = [x, μ_F, σ²_F] predicts δ where nothing was measured; Δ̂ has rank 1."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from aicau import gp
from aicau.bias import classes
from aicau.bias.base import Belief, Evidence, place
from aicau.core import decomposition
from aicau.core.observations import Collapsed
from aicau.core.omega import Omega
from aicau.core.runs import by_run


@dataclass(frozen=True)
class Direct:
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
        return decomposition.cobias(interpolated(evidence, seen, residual, self.alpha).float())

    def believe(self, evidence: Evidence) -> Belief:
        if evidence.task.probabilities:
            return classes.direct(evidence)
        factor = self.estimate(evidence).factor.double()  # δ = μ_F − E Y
        return Belief(decomposition.mean(evidence.predictions).double()[..., None] - factor)


def interpolated(evidence: Evidence, seen: Collapsed, values: Tensor, alpha: float) -> Tensor:  # (..., l) -> (..., n)
    """Values at measured points, and elsewhere what a process on the side information says."""
    side = evidence.side_information().double()
    rows = seen.index[..., None].expand(*seen.index.shape, side.shape[-1])
    flat = [
        side.reshape(-1, *side.shape[-2:]),
        side.gather(-2, rows).reshape(-1, *rows.shape[-2:]),
        values.reshape(-1, values.shape[-1]),
        seen.valid.reshape(-1, values.shape[-1]),
    ]

    def mean(side: Tensor, rows: Tensor, values: Tensor, valid: Tensor) -> tuple[Tensor]:
        return (gp.fit(rows, values, valid, alpha).mean(side),)

    (estimate,) = by_run(mean, *flat, points=side.shape[-2])
    return place(values, seen, estimate.reshape(side.shape[:-1]))
