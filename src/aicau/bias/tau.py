"""Direct estimation of τ itself (Appendix A): a Gaussian process on h = [x, μ_F, σ²_F] predicts σ²_F + δ².

It says nothing of pairs: Δ̂ is diagonal, τ̂ − σ²_F where that is positive.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from aicau.bias.base import Belief, Evidence
from aicau.bias.direct import interpolated
from aicau.core import decomposition
from aicau.core.errors import InputError
from aicau.core.omega import Omega


@dataclass(frozen=True)
class Tau:
    """A Gaussian process predicts τ where nothing was measured (the paper's direct estimation of the PEMSE).

    Parameters
    ----------
    alpha : float
        Variance added to the diagonal; the process learns no noise.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:tau").bias
    Tau(alpha=1e-06)
    """

    waits: ClassVar[bool] = True
    alpha: float = 1e-6

    def estimate(self, evidence: Evidence) -> Omega:
        seen, residual = evidence.residuals()
        epistemic = decomposition.epistemic(evidence.predictions).double()
        tau = torch.where(seen.valid, epistemic.gather(-1, seen.index) + residual**2, 0.0)
        square = (interpolated(evidence, seen, tau, self.alpha) - epistemic).clamp_min(0).float()
        return Omega(torch.zeros_like(square)[..., None], extra=square)

    def believe(self, evidence: Evidence) -> Belief:
        raise InputError(f"tau is a squared error, which {evidence.task.name} does not have; use direct or posterior")
