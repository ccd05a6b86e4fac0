"""Acquisition functions α: what is maximised over the pool (Table 1).

An acquisition is a matrix over the pool where it has one (Σ_F, Δ, their sum) and its diagonal α; the difference version
is the same matrix of round k−1 minus that of round k, in which the aleatoric term cancels.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from torch import Tensor

from aicau import decomposition
from aicau.ensembles import Fitted
from aicau.observations import Observations
from aicau.omega import Omega


@dataclass(frozen=True)
class View:
    """What is known when a batch is chosen."""

    x: Tensor  # (n, d) standardised pool
    allowed: Tensor  # (..., n) True where one more measurement may be asked for
    measured: Tensor  # (..., n)
    keys: Tensor  # (...)
    predictions: Tensor | None = None  # (..., K, n)
    cobias: Omega | None = None
    fitted: Fitted | None = None  # the ensembles behind the predictions
    observations: Observations | None = None  # (..., l)
    points: Tensor | None = None  # (n, d) the pool as the ensembles see it, not standardised

    def __getitem__(self, run: slice) -> "View":
        """Some of the runs (along the first leading dimension)."""
        return replace(
            self,
            allowed=self.allowed[run],
            measured=self.measured[run],
            keys=self.keys[run],
            predictions=None if self.predictions is None else self.predictions[run],
            cobias=None if self.cobias is None else self.cobias[run],
            fitted=None if self.fitted is None else self.fitted[run],
            observations=None if self.observations is None else self.observations[run],
        )


@dataclass(frozen=True)
class Score:
    """α over the pool, and the matrix it is the diagonal of, where there is one."""

    alpha: Tensor  # (..., n)
    omega: Omega | None = None

    @classmethod
    def of(cls, omega: Omega) -> "Score":
        return cls(omega.diagonal(), omega)

    def difference(self, previous: "Score") -> "Score":
        """κ: the score of the round before minus this one."""
        both = self.omega is not None and previous.omega is not None
        omega = decomposition.difference(previous.omega, self.omega) if both else None  # type: ignore[type-var]
        return Score(decomposition.difference(previous.alpha, self.alpha), omega)

    def __getitem__(self, run: slice) -> "Score":
        return Score(self.alpha[run], None if self.omega is None else self.omega[run])


class Acquisition(Protocol):
    needs_model: ClassVar[bool]
    needs_bias: ClassVar[bool]
    batching: ClassVar[str | None]  # the only batching it works with; None: any

    def score(self, view: View) -> Score: ...
