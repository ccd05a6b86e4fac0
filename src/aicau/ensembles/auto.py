"""An ensemble for real life: each round the model that predicts left-out measurements best, shrunk where none is good.

Candidates are the paper's networks, networks on standardised features and targets with weight decay, a Gaussian process
and, where scikit-learn is there, a forest. All are judged on the same rows: networks and forests by the members that
never saw a row, the process by fits without the row's fold. What is chosen predicts c + s (f − c), c the mean of the
targets and s between 0 and 1 the factor with the smallest left-out error, less its standard error: where nothing
clearly beats the mean, s is near 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from aicau.ensembles.base import Ensemble, Fitted, check_rows
from aicau.ensembles.estimators import Regressors
from aicau.ensembles.mlp import MLP
from aicau.ensembles.process import FittedProcess, Process, centre_and_spread
from aicau.errors import InputError
from aicau.kernels import MLPSettings


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
class FittedAuto:
    candidates: tuple[Fitted, ...]
    choice: Tensor  # (...) which candidate
    centre: Tensor  # (...) c
    shrink: Tensor  # (...) s
    error: Tensor  # (..., candidates) left-out mean squared error before shrinking
    names: tuple[str, ...]

    @property
    def unseen(self) -> Tensor:  # (..., K, l)
        stacked = torch.stack([one.unseen.to(self.choice.device) for one in self.candidates])
        flat = stacked.flatten(1, self.choice.ndim)
        chosen = flat[self.choice.reshape(-1), torch.arange(flat.shape[1], device=flat.device)]
        return chosen.reshape(stacked.shape[1:])

    @property
    def chosen(self) -> list[str]:
        """The name of each run's model, runs in order."""
        return [self.names[i] for i in self.choice.reshape(-1).tolist()]

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        out: Tensor | None = None
        for number, one in enumerate(self.candidates):
            picked = self.choice == number
            if bool(picked.any()):
                some = one.predict(x).to(self.choice.device)
                out = some if out is None else torch.where(picked[..., None, None], some, out)
        assert out is not None
        centre, shrink = self.centre[..., None, None], self.shrink[..., None, None]
        return (centre + shrink * (out - centre)).float()

    def __getitem__(self, run: int | slice | list[int]) -> "FittedAuto":
        """The ensembles of some runs (along the first leading dimension)."""
        kept = tuple(one[run] for one in self.candidates)
        return FittedAuto(kept, self.choice[run], self.centre[run], self.shrink[run], self.error[run], self.names)


@dataclass(frozen=True)
class Auto:
    """`candidates`: names among CANDIDATES; None takes all that can be had here."""

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
        choice = error.argmin(-1)
        best = left_out.gather(-2, choice[..., None, None].expand(*choice.shape, 1, y.shape[-1]))[..., 0, :]
        centre = y.double().mean(-1)
        off, target = best - centre[..., None], y - centre[..., None]
        size = (off**2).sum(-1).clamp_min(1e-300)
        slope = (off * target).sum(-1) / size
        unsure = (target - slope[..., None] * off).std(-1, correction=0) / size.sqrt()
        shrink = (slope - unsure).clamp(0, 1)
        return FittedAuto(fitted, choice, centre, shrink, error, tuple(self.candidates))


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
