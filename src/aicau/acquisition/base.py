"""Acquisition functions α: what is maximised over the pool (Table 1).

An acquisition is a matrix over the pool where it has one (Σ_F, Δ, their sum) and its diagonal α. Its change between
rounds, in which the aleatoric term cancels, comes in two versions: `difference` is the matrix of round k−1 minus that
of round k; `slope` is how fast it falls over the last rounds, which one noisy round cannot turn round.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from aicau.bias import Belief
from aicau.core import decomposition
from aicau.core.observations import Observations
from aicau.core.omega import Omega
from aicau.core.task import VALUES, Task
from aicau.ensembles import Ensemble, Fitted

CHANGES = {"difference": 2, "slope": 4}  # by how many rounds each looks at, this one included


@dataclass(frozen=True)
class Lesson:
    """What the ensembles were trained on, and how: enough to train them once more."""

    ensemble: Ensemble
    index: Tensor  # (..., l) into the pool
    y: Tensor  # (..., l) batch effects taken out, where they are

    def __getitem__(self, run: slice) -> "Lesson":
        return Lesson(self.ensemble, self.index[run], self.y[run])


@dataclass(frozen=True)
class View:
    """What is known when a batch is chosen."""

    x: Tensor  # (n, d) coordinates of the pool, for distances
    allowed: Tensor  # (..., n) True where one more measurement may be asked for
    measured: Tensor  # (..., n)
    keys: Tensor  # (...)
    predictions: Tensor | None = None  # (..., K, n); (..., K, n, c) for classes
    cobias: Omega | None = None
    fitted: Fitted | None = None  # the ensembles behind the predictions
    observations: Observations | None = None  # (..., l)
    points: Tensor | None = None  # (n, d) the pool as the ensembles see it, not standardised
    room: Tensor | None = None  # (..., n) how often each may still be measured; None: a batch holds it once
    task: Task = VALUES
    belief: Belief | None = None  # in place of the cobias for classes and counts
    lesson: Lesson | None = None  # for rules that train once more before they choose
    skill: Tensor | None = None  # (...) of the members on what they did not see, 0 to 1
    times: Tensor | None = None  # (..., n) how often each was measured; None: once, where it was

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
            room=None if self.room is None else self.room[run],
            belief=None if self.belief is None else self.belief[run],
            lesson=None if self.lesson is None else self.lesson[run],
            skill=None if self.skill is None else self.skill[run],
            times=None if self.times is None else self.times[run],
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

    def change(self, kind: str, history: Sequence["Score"]) -> "Score":
        """How much the score fell, by the scores of the rounds before (the latest last)."""
        return self.difference(history[-1]) if kind == "difference" else self.slope(history)

    def difference(self, previous: "Score") -> "Score":
        """κ: the score of the round before minus this one."""
        both = self.omega is not None and previous.omega is not None
        omega = decomposition.difference(previous.omega, self.omega) if both else None  # type: ignore[type-var]
        return Score(decomposition.difference(previous.alpha, self.alpha), omega, self.note)

    def __add__(self, other: "Score") -> "Score":
        both = self.omega is not None and other.omega is not None
        return Score.of(self.omega + other.omega) if both else Score(self.alpha + other.alpha, None, self.note)  # type: ignore[operator]

    def slope(self, history: Sequence["Score"]) -> "Score":
        """How fast the score falls per round: α by the median over pairs of rounds (Theil and Sen), the matrix by
        least squares, which keeps it a signed factor."""
        scores = [*history[1 - CHANGES["slope"] :], self]
        pairs = combinations(enumerate(scores), 2)
        falls = torch.stack([(a.alpha - b.alpha) / (j - i) for (i, a), (j, b) in pairs])
        order = falls.sort(0).values
        middle = (order[(len(order) - 1) // 2] + order[len(order) // 2]) / 2
        omegas = [score.omega for score in scores if score.omega is not None]
        if len(omegas) < len(scores):
            return Score(middle, None, self.note)
        times = [k - (len(scores) - 1) / 2 for k in range(len(scores))]
        square = sum(t * t for t in times)
        total = omegas[0].scale(-times[0] / square)
        for time, omega in zip(times[1:], omegas[1:], strict=True):
            total = total + omega.scale(-time / square)
        return Score(middle, total, self.note)

    def __getitem__(self, run: slice) -> "Score":
        return Score(self.alpha[run], None if self.omega is None else self.omega[run], self.note)


class Acquisition(Protocol):
    needs_model: ClassVar[bool]
    needs_bias: ClassVar[bool]
    batching: ClassVar[str | None]  # the only batching it works with; None: any

    def score(self, view: View) -> Score: ...
