"""Perfect information ("cheating"): the truth where there is no noise, else the mean of 10 whole realisations."""

from dataclasses import dataclass

from torch import Tensor

from aicau.bias.base import Belief, BiasEstimator, Evidence
from aicau.core import checks, decomposition
from aicau.core.errors import InputError
from aicau.core.omega import Omega


@dataclass(frozen=True)
class Perfect(BiasEstimator):
    """Knows the truth: for simulations only.

    Parameters
    ----------
    realisations : int
        Under noise the truth is the mean of as many whole realisations, as in the paper.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("br:perfect").bias
    Perfect(realisations=10)
    """

    realisations: int = 10

    def __post_init__(self) -> None:
        checks.positive(self.realisations, "realisations")

    def truth(self, evidence: Evidence) -> Tensor:  # (..., n); (..., n, c) for classes
        """What perfect information sees; an error without a problem that knows the truth."""
        if evidence.oracle is None:
            raise InputError(
                "perfect information needs a problem that knows the truth; with measurements use direct or quadratic"
            )
        return evidence.oracle(self.realisations).to(evidence.predictions.device)

    def estimate(self, evidence: Evidence) -> Omega:
        mean = decomposition.mean(evidence.predictions).double()
        return decomposition.cobias((mean - self.truth(evidence)).float())

    def believe(self, evidence: Evidence) -> Belief:
        return Belief(evidence.task.vectors(self.truth(evidence)))
