"""A Gaussian process as an ensemble: each member a draw from the process fitted to all folds but its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.streams import Purpose
from aicau.ensembles.base import FittedFunctions, check_rows, each_run, fold_membership
from aicau.gp import Posterior, noise


@dataclass(frozen=True)
class Process:
    """Draws of a Gaussian process as members, each fitted to all folds but its own.

    Members average to the mean of the folds' posterior means; each is a joint draw over the points asked for.

    Parameters
    ----------
    members : int
    rank : int
        Columns that a draw's covariance is kept with.

    Examples
    --------
    >>> import torch
    >>> from aicau import Process, streams
    >>> x = torch.rand(1, 12, 2)
    >>> Process().fit(x, x.sum(-1), streams.runs(0, 1)).predict(x[0]).shape
    torch.Size([1, 5, 12])
    """

    members: int = 5
    rank: int = 32

    def __post_init__(self) -> None:
        checks.positive(self.members, "members")

    def fit(self, x: Tensor, y: Tensor, keys: Tensor) -> FittedFunctions:  # (..., l, d), (..., l), (...)
        """Fit the process to the folds of every run, one run after another."""
        check_rows(x, y, keys)
        unseen = fold_membership(keys, self.members, x)  # (..., K, l)
        runs = each_run(keys, x.double(), y.double(), unseen, streams.fold(keys, Purpose.WEIGHTS))
        return FittedFunctions(tuple(self._fit_run(*run) for run in runs), unseen)

    def _fit_run(self, x: Tensor, y: Tensor, unseen: Tensor, key: Tensor) -> "Draws":  # (l, d), (l,), (K, l), ()
        shift, scale = centre_and_spread(x)
        rows = ((x - shift) / scale).expand(self.members, -1, -1)
        fitted = noise.fit(rows, y.expand(self.members, -1), valid=~unseen)
        return Draws(fitted.posterior, key, shift, scale, self.rank)


@dataclass(frozen=True)
class Draws:
    """Joint draws over the points asked for, one for each fold, for one run."""

    posterior: Posterior  # with the K folds as its leading dimension
    key: Tensor  # ()
    shift: Tensor  # (d,)
    scale: Tensor  # (d,)
    rank: int

    def __call__(self, x: Tensor) -> Tensor:  # (n, d) -> (K, n)
        posterior, members = self.posterior, len(self.posterior.scale)
        at = ((x.double() - self.shift) / self.scale).expand(members, -1, -1)
        factor, rest = posterior.factor(at, posterior.pivots(at, self.rank))  # (K, n, r), (K, n)
        draws = streams.normal(self.key, members, factor.shape[-1] + 1)
        around = (factor @ draws[:, :-1, None])[..., 0] + draws[:, -1:] * rest.sqrt()
        around = (around - around.mean(0)) * (members / max(1, members - 1)) ** 0.5
        return (posterior.mean(at) + around).float()


def centre_and_spread(x: Tensor) -> tuple[Tensor, Tensor]:  # (..., l, d) -> (..., d) twice
    """Mean and standard deviation of every column; 1 where a column is constant."""
    spread = x.std(-2, correction=0)
    return x.mean(-2), torch.where(spread > 0, spread, 1.0)
