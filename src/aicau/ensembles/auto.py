"""An ensemble for real life: the mean of several models, weighed by left-out errors, shrunk where they are not good.

Candidates are the paper's networks, networks on standardised features and targets with weight decay, a Gaussian process
and, where scikit-learn is there, a forest. Each round all are judged on the same rows, by the members that never saw a
row, and weigh as the inverse squares of their left-out mean squared errors. Predicted is c + s(x) Σ_j w_j (f_j − c), c
the mean of the targets. Far from the measurements s is the factor with the smallest left-out error, plus its standard
error, at most 1; it rises to 1 at a measured point. Left-out errors shrink too much rather than too little: a left-out
row is predicted by one member of each candidate, lies farther from the data than most of the pool does, and says
nothing about the points of the pool that were measured (docs/comparison.md has figures).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from aicau.core.errors import InputError
from aicau.core.runs import by_run
from aicau.ensembles.base import Ensemble, Fitted, check_rows
from aicau.ensembles.kernels import MLPSettings
from aicau.ensembles.mlp import MLP
from aicau.ensembles.process import FittedProcess, Process, centre_and_spread
from aicau.ensembles.scikit import Regressors

POWER = 2  # of the inverse errors that candidates are weighed by
REACH = 0.5  # of a measurement, in distances between neighbouring measured points
CELLS = 10**7  # distances held at once


@dataclass(frozen=True)
class FittedScaled:
    inner: Fitted
    x: tuple[Tensor, Tensor]  # shift and scale (..., d)
    y: tuple[Tensor, Tensor]  # shift and scale (...)

    @property
    def unseen(self) -> Tensor:
        return self.inner.unseen

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        shift, scale = self.x
        out = self.inner.predict((x.double() - shift[..., None, :]) / scale[..., None, :])
        return (out * self.y[1][..., None, None] + self.y[0][..., None, None]).float()

    def __getitem__(self, run: int | slice | list[int]) -> "FittedScaled":
        """The ensembles of some runs (along the first leading dimension)."""
        return FittedScaled(self.inner[run], (self.x[0][run], self.x[1][run]), (self.y[0][run], self.y[1][run]))


@dataclass(frozen=True)
class Scaled:
    """Any ensemble on features and targets of mean 0 and variance 1 over the measurements."""

    inner: Ensemble

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedScaled:
        check_rows(x, y, keys)
        x_shift, x_scale = centre_and_spread(x.double())
        y_shift, y_scale = (t[..., 0] for t in centre_and_spread(y.double()[..., None]))
        rows = (x.double() - x_shift[..., None, :]) / x_scale[..., None, :]
        values = (y - y_shift[..., None]) / y_scale[..., None]
        return FittedScaled(self.inner.fit(rows, values, keys), (x_shift, x_scale), (y_shift, y_scale))


@dataclass(frozen=True)
class Nearness:
    """How near points are to the nearest measured one, in standardised features: exp(−½ (d/reach)²)."""

    rows: Tensor  # (..., l, d) standardised
    shift: Tensor  # (..., d)
    scale: Tensor  # (..., d)
    reach: Tensor  # (...)

    @classmethod
    def of(cls, x: Tensor) -> "Nearness":  # (..., l, d)
        shift, scale = centre_and_spread(x.double())
        rows = (x.double() - shift[..., None, :]) / scale[..., None, :]

        def reach(some: Tensor) -> tuple[Tensor]:  # (runs, l, d)
            apart = torch.cdist(some, some, compute_mode="donot_use_mm_for_euclid_dist")
            nearest = torch.where(apart > 0, apart, torch.inf).amin(-1).median(-1).values
            return (torch.where(torch.isinf(nearest), 0.0, REACH * nearest).clamp_min(1e-9),)

        (found,) = by_run(reach, rows.flatten(0, -3))
        return cls(rows, shift, scale, found.reshape(x.shape[:-2]))

    def at(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., n)
        def near(rows: Tensor, points: Tensor, reach: Tensor) -> tuple[Tensor]:
            parts = points.split(max(1, CELLS // rows.shape[-2]), dim=-2)
            nearest = torch.cat([torch.cdist(part, rows).amin(-1) for part in parts], -1)
            return (torch.exp(-0.5 * (nearest / reach[:, None]) ** 2),)

        lead = self.reach.shape
        points = (x.double() - self.shift[..., None, :]) / self.scale[..., None, :]
        tensors = (self.rows.flatten(0, -3), points.flatten(0, -3), self.reach.flatten())
        (found,) = by_run(near, *tensors, points=x.shape[-2])
        return found.reshape(*lead, -1)

    def __getitem__(self, run: int | slice | list[int]) -> "Nearness":
        return Nearness(self.rows[run], self.shift[run], self.scale[run], self.reach[run])


@dataclass(frozen=True)
class FittedAuto:
    candidates: tuple[Fitted, ...]
    weights: Tensor  # (..., candidates) w, sum 1
    centre: Tensor  # (...) c
    shrink: Tensor  # (...) s far from the measurements
    near: Nearness
    error: Tensor  # (..., candidates) left-out mean squared error before shrinking
    names: tuple[str, ...]

    @property
    def unseen(self) -> Tensor:  # (..., K, l)
        """Rows that no candidate's member k was trained on."""
        return torch.stack([one.unseen.to(self.weights.device) for one in self.candidates]).all(0)

    @property
    def best(self) -> list[str]:
        """The name of the candidate that weighs most, runs in order."""
        return [self.names[i] for i in self.weights.argmax(-1).reshape(-1).tolist()]

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Member k is the weighted mean of the candidates' members k, shrunk."""
        centre, shrink = self.centre[..., None, None], self.shrink[..., None]
        factor = shrink + (1 - shrink) * self.near.at(x)  # (..., n)
        parts = (
            weight[..., None, None] * (one.predict(x).to(weight) - centre)
            for one, weight in zip(self.candidates, self.weights.unbind(-1), strict=True)
        )
        return (centre + factor[..., None, :] * sum(parts)).float()

    def __getitem__(self, run: int | slice | list[int]) -> "FittedAuto":
        """The ensembles of some runs (along the first leading dimension)."""
        kept = tuple(one[run] for one in self.candidates)
        return FittedAuto(
            kept, self.weights[run], self.centre[run], self.shrink[run], self.near[run], self.error[run], self.names
        )


@dataclass(frozen=True)
class Auto:
    """Several models, weighed by their left-out errors each round.

    Parameters
    ----------
    members : int
    candidates : sequence of str, optional
        Among "paper", "scaled", "process" and "forest"; None takes all that can be had here.

    Examples
    --------
    >>> from aicau import Auto
    >>> Auto(candidates=["paper", "process"]).candidates
    ('paper', 'process')
    """

    members: int = 5
    candidates: Sequence[str] | None = None

    def __post_init__(self) -> None:
        names = tuple(CANDIDATES) if self.candidates is None else tuple(self.candidates)
        if not names or any(name not in CANDIDATES for name in names):
            raise InputError(f"candidates are among {', '.join(CANDIDATES)}; got {list(names)}")
        if self.candidates is None and find_spec("sklearn") is None:
            names = tuple(name for name in names if name != "forest")
        object.__setattr__(self, "candidates", names)

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedAuto:
        check_rows(x, y, keys)
        assert self.candidates is not None
        fitted = tuple(CANDIDATES[name](self.members).fit(x, y, keys) for name in self.candidates)
        left_out = torch.stack([_left_out(one, x).to(y.device) for one in fitted], -2)  # (..., candidates, l)
        error = ((left_out - y[..., None, :]) ** 2).mean(-1)
        some = error.clamp_min(1e-300)
        weights = (some.amin(-1, keepdim=True) / some) ** POWER
        weights = weights / weights.sum(-1, keepdim=True)
        centre = y.double().mean(-1)
        off, target = (weights[..., None] * left_out).sum(-2) - centre[..., None], y - centre[..., None]
        size = (off**2).sum(-1).clamp_min(1e-300)
        slope = (off * target).sum(-1) / size
        unsure = (target - slope[..., None] * off).std(-1, correction=0) / size.sqrt()
        shrink = (slope + unsure).clamp(0, 1)
        return FittedAuto(fitted, weights, centre, shrink, Nearness.of(x), error, tuple(self.candidates))


def _left_out(fitted: Any, x: Tensor) -> Tensor:  # (..., l)
    """Every measurement by the members that never saw it (all members where everyone saw it)."""
    if isinstance(fitted, FittedProcess):
        return fitted.left_out()
    predictions, apart = fitted.predict(x).double(), fitted.unseen.to(x.device).double()
    apart = torch.where(apart.sum(-2, keepdim=True) > 0, apart, 1.0)
    return (predictions * apart).sum(-2) / apart.sum(-2)


def _forest(members: int) -> Ensemble:
    from sklearn.ensemble import RandomForestRegressor

    return Regressors([RandomForestRegressor(40, min_samples_leaf=2, max_features=0.5) for _ in range(members)])


CANDIDATES: dict[str, Callable[[int], Ensemble]] = {
    "paper": lambda members: MLP(members),
    "scaled": lambda members: Scaled(MLP(members, MLPSettings(weight_decay=1e-2))),
    "process": lambda members: Process(members),
    "forest": _forest,
}
