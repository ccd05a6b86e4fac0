"""Perfect information ("cheating"): the truth where there is no noise, else the mean of 10 whole realisations."""

from dataclasses import dataclass
from typing import ClassVar

from aicau.bias.base import Belief, Evidence, known
from aicau.core import checks, decomposition
from aicau.core.omega import Omega


@dataclass(frozen=True)
class Perfect:
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

    waits: ClassVar[bool] = False
    realisations: int = 10

    def __post_init__(self) -> None:
        checks.positive(self.realisations, "realisations")

    def estimate(self, evidence: Evidence) -> Omega:
        truth = known(evidence.oracle, self.realisations).to(evidence.predictions.device)
        return decomposition.cobias((decomposition.mean(evidence.predictions).double() - truth).float())

    def believe(self, evidence: Evidence) -> Belief:
        truth = known(evidence.oracle, self.realisations).to(evidence.predictions.device)
        return Belief(evidence.task.vectors(truth))
