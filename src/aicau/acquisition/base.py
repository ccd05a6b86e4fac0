"""What an acquisition sees (`View`), and what it gives: α over the pool and its matrix, where there is one."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from aicau.bias import Belief
from aicau.core.bregman import Divergence
from aicau.core.observations import Observations
from aicau.core.omega import Cobias, Omega
from aicau.core.runs import OfRuns
from aicau.core.task import REGRESSION, Task
from aicau.ensembles import Fitted


@dataclass(frozen=True)
class View(OfRuns):
    """What is known when a batch is chosen. Leading dimensions are runs.

    Parameters
    ----------
    x : Tensor, shape (n, d)
        Coordinates of the pool, for distances.
    allowed : Tensor of bool, shape (..., n)
        Where one more measurement may be asked for.
    measured : Tensor of bool, shape (..., n)
        Where something was measured, or is pending.
    keys : Tensor of int64, shape (...)
        One random stream per run.
    predictions : Tensor, shape (..., K, n), or (..., K, n, c) for classification
    cobias : Omega
        Δ̂, for regression.
    belief : Belief
        The estimate of E Y, in place of the cobias for classification and counts.
    fitted : Fitted
        The ensembles behind the predictions.
    observations : Observations, shape (..., l)
        The measurements.
    points : Tensor, shape (n, d)
        The pool as the ensembles see it.
    room : Tensor of int64, shape (..., n)
        How often each point may still be measured; None: a batch holds it once.
    task : Task
    skill : Tensor, shape (...)
        How well members predict rows they did not see, 0 to 1.
    times : Tensor of int64, shape (..., n)
        How often each point was measured; None: once, where it was.
    weight : Tensor, shape (..., n)
        How much the error of each point counts; None: all alike.
    chance : Tensor, shape (..., n)
        Where only points that are good themselves are looked for: how likely each is; None: any point will do.
    stands : Tensor, shape (..., n)
        Where x is a part of a larger pool: how many candidates each point stands for; None: itself.
    others : tuple of (Score, View)
        What is known of further targets that the same batch is to serve, each with its score.
    level : Tensor, shape (...)
        Where x is a part of a larger pool: the acquisition's mean over all of it.
    cost : Tensor, shape (..., n)
        Of one measurement; None: there is no `budget`, the most that a batch may cost.

    Examples
    --------
    >>> import torch
    >>> from aicau import View, streams
    >>> none = torch.zeros(2, 4, dtype=torch.bool)
    >>> len(View(torch.eye(4), ~none, none, streams.runs(0, 2)))
    2
    """

    common: ClassVar[tuple[str, ...]] = ("x", "points", "task", "others", "budget")
    x: Tensor
    allowed: Tensor
    measured: Tensor
    keys: Tensor
    predictions: Tensor | None = None
    cobias: Omega | None = None
    fitted: Fitted | None = None
    observations: Observations | None = None
    points: Tensor | None = None
    room: Tensor | None = None
    task: Task = REGRESSION
    belief: Belief | None = None
    skill: Tensor | None = None
    times: Tensor | None = None
    weight: Tensor | None = None
    chance: Tensor | None = None
    stands: Tensor | None = None
    level: Tensor | None = None
    others: "tuple[tuple[Score, View], ...]" = ()
    cost: Tensor | None = None
    budget: float = float("inf")

    @property
    def members(self) -> Tensor:
        """The predictions, for a score that needs them."""
        assert self.predictions is not None
        return self.predictions

    def with_estimate(self, estimate: Omega | Belief | None) -> "View":
        """With the result of a bias estimator, if there is one."""
        return replace(self, belief=estimate) if isinstance(estimate, Belief) else replace(self, cobias=estimate)

    def __getitem__(self, run: slice) -> "View":
        """Of some runs (along the first leading dimension)."""
        others = tuple((score[run], view[run]) for score, view in self.others)
        return replace(super().__getitem__(run), others=others)

    def __len__(self) -> int:
        return self.allowed.shape[0]


@dataclass(frozen=True)
class Score(OfRuns):
    """α over the pool, and the matrix it is the diagonal of, where there is one.

    Parameters
    ----------
    alpha : Tensor, shape (..., n)
    omega : Omega
        The matrix; None where there is none.
    note : str
        Why there is no matrix.

    Examples
    --------
    >>> import torch
    >>> from aicau import Omega, Score
    >>> Score.of(Omega(torch.tensor([[1.0], [2.0]]))).alpha
    tensor([1., 4.])
    """

    common: ClassVar[tuple[str, ...]] = ("note",)
    alpha: Tensor
    omega: Omega | None = None
    note: str = ""

    @classmethod
    def of(cls, omega: Omega) -> "Score":
        """The score whose matrix is `omega`."""
        return cls(omega.diagonal(), omega)

    def difference(self, previous: "Score") -> "Score":
        """κ: the score of the round before minus this one."""
        omega = previous.omega - self.omega if self.omega and previous.omega else None
        return Score(previous.alpha - self.alpha, omega, self.note)

    def times(self, factor: Tensor) -> "Score":  # (...)
        """In other units."""
        omega = self.omega and self.omega.scale(factor[..., None])
        return Score(self.alpha * factor[..., None].to(self.alpha), omega, self.note)

    def weigh(self, weight: Tensor) -> "Score":  # (..., n)
        """α(z) w(z), and the matrix with √w on both sides."""
        return Score(self.alpha * weight.to(self.alpha), self.omega and self.omega.weigh(weight), self.note)

    def __add__(self, other: "Score") -> "Score":
        whole = self.omega + other.omega if self.omega and other.omega else None
        return Score.of(whole) if whole else Score(self.alpha + other.alpha, None, self.note)


@dataclass(frozen=True)
class Acquisition:
    """What is maximised: a pure function of the view, and what that function needs."""

    function: Callable[..., Score]  # of the view, and of the form where it has forms
    meaning: str  # what α is, in a few plain words: part of every reason
    needs_model: bool = True
    needs_bias: bool = False
    batching: str | None = None  # the only batching it works with; None: any
    in_error: bool = False  # α is in units of the task's error (a square, for regression)
    has_forms: bool = False
    form: str | Divergence | None = None  # None: the divergence of the task
    level: Callable[[View], Tensor] | None = None  # gives `View.level`, for a score that uses it

    def score(self, view: View) -> Score:
        """α over the pool, with its matrix where there is one."""
        return self.function(view, self.form) if self.has_forms else self.function(view)


def measurements(view: View) -> Tensor:  # (..., n)
    """How often each point was measured."""
    return (view.measured if view.times is None else view.times).to(torch.get_default_dtype())


def among(score: Score, view: View, index: Tensor) -> tuple[Score, View]:
    """Score and view of some candidates, with what rules over a large pool use."""

    def some(part: Tensor | None) -> Tensor | None:
        return None if part is None else part[:, index]

    names = ("allowed", "measured", "room", "times", "weight", "chance", "cost")
    own: dict[str, Any] = {name: some(getattr(view, name)) for name in names}
    own |= dict.fromkeys(("predictions", "observations", "belief"))
    if isinstance(view.cobias, Cobias):
        factor = view.cobias.factor[:, index, :0]
        own["cobias"] = Cobias(factor, None, None, some(view.cobias.noise), view.cobias.lengths, view.cobias.trust)
    points, omega = None if view.points is None else view.points[index], score.omega
    if omega is not None:
        omega = Omega(omega.factor[:, index], omega.weights, some(omega.extra))
    return Score(score.alpha[:, index], omega, score.note), replace(view, x=view.x[index], points=points, **own)
