"""Acquisition functions α: what is maximised over the pool (Table 1).

An acquisition is a matrix over the pool where it has one (Σ_F, Δ, their sum) and its diagonal α; the difference version
is the same matrix of round k−1 minus that of round k, in which the aleatoric term cancels.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from torch import Tensor

from aicau import decomposition
from aicau.bias import Belief
from aicau.ensembles import Fitted
from aicau.observations import Observations
from aicau.omega import Omega
from aicau.task import VALUES, Task


@dataclass(frozen=True)
class View:
    """What is known when a batch is chosen."""

    x: Tensor  # (n, d) standardised pool
    allowed: Tensor  # (..., n) True where one more measurement may be asked for
    measured: Tensor  # (..., n)
    keys: Tensor  # (...)
    predictions: Tensor | None = None  # (..., K, n); (..., K, n, c) for classes
    cobias: Omega | None = None
    fitted: Fitted | None = None  # the ensembles behind the predictions
    observations: Observations | None = None  # (..., l)
    points: Tensor | None = None  # (n, d) the pool as the ensembles see it, not standardised
    task: Task = VALUES
    belief: Belief | None = None  # in place of the cobias for classes and counts

    def told(self, estimate: Omega | Belief | None) -> "View":
        """With what a bias estimator found, where one was asked."""
        return replace(self, belief=estimate) if isinstance(estimate, Belief) else replace(self, cobias=estimate)

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
            belief=None if self.belief is None else self.belief[run],
        )


@dataclass(frozen=True)
class Score:
    """α over the pool, and the matrix it is the diagonal of, where there is one."""

    alpha: Tensor  # (..., n)
    omega: Omega | None = None
    note: str = ""  # why there is no matrix

    @classmethod
    def of(cls, omega: Omega) -> "Score":
        return cls(omega.diagonal(), omega)

    def difference(self, previous: "Score") -> "Score":
        """κ: the score of the round before minus this one."""
        both = self.omega is not None and previous.omega is not None
        omega = decomposition.difference(previous.omega, self.omega) if both else None  # type: ignore[type-var]
        return Score(decomposition.difference(previous.alpha, self.alpha), omega, self.note)

    def __add__(self, other: "Score") -> "Score":
        both = self.omega is not None and other.omega is not None
        return Score.of(self.omega + other.omega) if both else Score(self.alpha + other.alpha, None, self.note)  # type: ignore[operator]

    def __getitem__(self, run: slice) -> "Score":
        return Score(self.alpha[run], None if self.omega is None else self.omega[run], self.note)


class Acquisition(Protocol):
    needs_model: ClassVar[bool]
    needs_bias: ClassVar[bool]
    batching: ClassVar[str | None]  # the only batching it works with; None: any

    def score(self, view: View) -> Score: ...
