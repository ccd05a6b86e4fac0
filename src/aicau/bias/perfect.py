"""Perfect information ("cheating"): the truth where there is no noise, else the mean of 10 whole realisations."""

from dataclasses import dataclass
from typing import ClassVar

from aicau import checks, decomposition
from aicau.bias.base import Evidence
from aicau.errors import InputError
from aicau.omega import Omega


@dataclass(frozen=True)
class Perfect:
    waits: ClassVar[bool] = False
    realisations: int = 10

    def __post_init__(self) -> None:
        checks.positive(self.realisations, "realisations")

    def estimate(self, evidence: Evidence) -> Omega:
        if evidence.oracle is None:
            raise InputError(
                "perfect information needs a problem that knows the truth; with measurements use direct or quadratic"
            )
        known = evidence.oracle(self.realisations).to(evidence.predictions.device)
        return decomposition.cobias((decomposition.mean(evidence.predictions).double() - known).float())
