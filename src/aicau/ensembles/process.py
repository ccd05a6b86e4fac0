"""A Gaussian process as an ensemble: each member a draw from the process fitted to all folds but its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.streams import Purpose
from aicau.ensembles.base import FittedFunctions, Function, check_rows, each_run, fold_membership
from aicau.gp import noise


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

    def _fit_run(self, x: Tensor, y: Tensor, unseen: Tensor, key: Tensor) -> Function:  # (l, d), (l,), (K, l), ()
        members, (shift, scale) = self.members, centre_and_spread(x)
        rows = ((x - shift) / scale).expand(members, -1, -1)
        posterior = noise.fit(rows, y.expand(members, -1), valid=~unseen).posterior

        def function(at: Tensor) -> Tensor:  # (n, d) -> (K, n)
            at = ((at.double() - shift) / scale).expand(members, -1, -1)
            factor, rest = posterior.factor(at, posterior.pivots(at, self.rank))  # (K, n, r), (K, n)
            draws = streams.normal(key, members, factor.shape[-1] + 1)
            around = (factor @ draws[:, :-1, None])[..., 0] + draws[:, -1:] * rest.sqrt()
            around = (around - around.mean(0)) * (members / max(1, members - 1)) ** 0.5
            return (posterior.mean(at) + around).float()

        return function


def centre_and_spread(x: Tensor) -> tuple[Tensor, Tensor]:  # (..., l, d) -> (..., d) twice
    """Mean and standard deviation of every column; 1 where a column is constant."""
    spread = x.std(-2, correction=0)
    return x.mean(-2), torch.where(spread > 0, spread, 1.0)
