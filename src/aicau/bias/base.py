"""Estimators of the bias δ = μ_F − μ_Y over the pool, as a cobias matrix Δ̂ in signed factors."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from aicau.core import bregman, decomposition
from aicau.core.errors import TrainingError
from aicau.core.observations import Collapsed, Observations
from aicau.core.omega import Omega
from aicau.core.pool import Frame
from aicau.core.runs import OfRuns, by_run
from aicau.core.task import REGRESSION, Task

T = TypeVar("T")


@dataclass(frozen=True)
class Evidence:
    """What an estimator may see after round k. Leading dimensions are runs.

    Parameters
    ----------
    x : Tensor, shape (n, d)
        The pool.
    observations : Observations, shape (..., l)
        Measurements, one row each.
    predictions : Tensor, shape (..., K, n), or (..., K, n, c) for classification
    keys : Tensor of int64, shape (...)
        One random stream per run, for this round.
    unseen : Tensor of bool, shape (..., K, l)
        Where a member was not trained on a row.
    oracle : callable
        count -> mean of as many realisations, shape (..., n); in a simulation only.
    task : Task
    memo : dict
        What estimators learned from the measurements, kept for a second call; parts of the pool share it.

    Examples
    --------
    >>> import torch
    >>> from aicau import Evidence, Observations, streams
    >>> rows = Observations(torch.tensor([[0]]), torch.tensor([[1.0]]), torch.tensor([0]))
    >>> evidence = Evidence(torch.eye(3), rows, torch.zeros(1, 2, 3), streams.runs(0, 1))
    >>> evidence.residuals()[1]
    tensor([[-1.]], dtype=torch.float64)
    """

    x: Tensor
    observations: Observations
    predictions: Tensor
    keys: Tensor
    unseen: Tensor | None = None
    oracle: Callable[[int], Tensor] | None = None
    task: Task = REGRESSION
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def frame(self) -> Frame:
        """Where the whole pool lies."""
        return self.memo.get(Frame) or Frame.of(self.x)

    def learned(self, key: Any, learn: Callable[[], T]) -> T:
        """What was learned of one run, once; of several runs it is learned again."""
        if self.keys.numel() != 1:
            return learn()
        if key not in self.memo:
            self.memo[key] = learn()
        return self.memo[key]

    def side_information(self) -> Tensor:  # (..., n, d + 2)
        """h = [x, μ_F, σ²_F] (Appendix A)."""
        mean, spread = decomposition.mean(self.predictions), decomposition.epistemic(self.predictions)
        x = self.x.to(mean).expand(*mean.shape, self.x.shape[-1])
        return torch.cat([x, mean[..., None], spread[..., None]], -1)

    def residuals(self) -> tuple[Collapsed, Tensor]:  # (..., l)
        """Measured points and δ there: mean over members minus mean over measurements (Appendix D.3)."""
        seen = self.observations.collapse()
        mean = decomposition.mean(self.predictions).gather(-1, seen.index)
        return seen, torch.where(seen.valid, mean.double() - seen.mean, 0.0)

    def crossfitted(self) -> Tensor:  # (..., l)
        """Residual of every measurement under the members that never saw it; without folds, under all."""
        o = self.observations
        inside = decomposition.mean(self.predictions).double().gather(-1, o.index)
        if self.unseen is None:
            return inside - o.y
        apart = self.unseen.double()
        at = o.index[..., None, :].expand(self.unseen.shape)
        outside = (self.predictions.gather(-1, at).double() * apart).sum(-2) / apart.sum(-2).clamp_min(1)
        return torch.where(apart.sum(-2) > 0, outside, inside) - o.y

    def at_most(self, rows: int) -> tuple["Evidence", Tensor | None]:  # and (..., l) measurements behind each row
        """The same with one mean per point where there are more rows than that. For one run."""
        o = self.observations
        if o.rows <= rows:
            return self, None
        seen = o.collapse()
        at = seen.valid[0].nonzero()[:, 0]
        index = seen.index[:, at]
        few = Observations(index, seen.mean[:, at], torch.zeros_like(index[0]))
        row = torch.searchsorted(*(part.contiguous() for part in (o.index[0].sort().values, index[0])))
        unseen = None if self.unseen is None else self.unseen[..., o.index[0].argsort(stable=True)[row]]
        return replace(self, observations=few, unseen=unseen, memo={}), seen.count[:, at]

    def centre(self) -> Tensor:  # (..., n, c)
        """F̄, the dual mean of the members under the task's divergence; point by point, run by run."""
        d, task = bregman.make(self.task.divergence), self.task
        return by_run(lambda some: bregman.mean_of(d, task.members(some)), self.predictions, lead=self.keys.ndim)


@dataclass(frozen=True)
class Belief(OfRuns):
    """An estimate of E Y over the pool: its mean, and its covariance between points for each entry.

    For values c is 1; for classes the mean are probabilities. Without a factor and a rest E Y counts as known.
    """

    mean: Tensor  # (..., n, c)
    factor: Tensor | None = None  # (..., c, n, r)
    rest: Tensor | None = None  # (..., n, c) the variance that the factor leaves

    def variance(self) -> Tensor:  # (..., n, c)
        whole = torch.zeros_like(self.mean) if self.rest is None else self.rest
        return whole if self.factor is None else whole + (self.factor**2).sum(-1).mT


class BiasEstimator(Protocol):
    """Parameters only; both methods are pure functions of the evidence."""

    waits: ClassVar[bool] = (
        False  # True: on a GPU the host waits for it step by step, so it is started after the others
    )

    def estimate(self, evidence: Evidence) -> Omega:
        """Δ̂ under the squared error, for values."""

    def believe(self, evidence: Evidence) -> Belief:
        """E Y, from which any divergence computes its bias; for classes and counts."""


def assess(estimator: BiasEstimator, evidence: Evidence) -> Omega | Belief:
    """What the task asks for: Δ̂ for values, a belief for classes and counts."""
    found = estimator.estimate(evidence) if evidence.task.squared else estimator.believe(evidence)
    values = found.diagonal() if isinstance(found, Omega) else found.mean + found.variance()
    if not bool(torch.isfinite(values).all()):
        name = type(estimator).__name__.lower()
        raise TrainingError(f"the {name} estimate of the bias diverged; scale the target or the features")
    return found


def place(values: Tensor, seen: Collapsed, onto: Tensor) -> Tensor:  # (..., l), (..., n) -> (..., n)
    """`onto` with `values` written at the measured points."""
    # Padded entries point at index 0: send them to an extra slot and drop it.
    n = onto.shape[-1]
    index = torch.where(seen.valid, seen.index, n)
    wide = torch.cat([onto, onto.new_zeros(*onto.shape[:-1], 1)], -1)
    return wide.scatter(-1, index, values.to(onto))[..., :n]
