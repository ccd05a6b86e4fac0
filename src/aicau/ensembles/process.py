"""A Gaussian process as an ensemble: each member a draw from the process fitted to all folds but its own."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.core import checks, streams
from aicau.core.streams import Purpose
from aicau.ensembles.base import Run, check_rows, each_run, fold_membership, some_of
from aicau.gp import Posterior, noise


@dataclass(frozen=True)
class FittedProcess:
    posteriors: tuple[Posterior, ...]  # one per run, with the K folds as its leading dimension
    keys: Tensor  # (...)
    unseen: Tensor  # (..., K, l)
    shift: Tensor  # (..., d)
    scale: Tensor  # (..., d)
    rank: int

    def __getitem__(self, run: Run) -> "FittedProcess":
        """The ensembles of some runs (along the first leading dimension)."""
        kept = some_of(self.posteriors, self.keys.shape, run)
        return FittedProcess(kept, self.keys[run], self.unseen[run], self.shift[run], self.scale[run], self.rank)

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Members average to the mean of the folds' posterior means; each is a joint draw over the points asked for."""
        lead, members = self.keys.shape, self.unseen.shape[-2]
        points = x.double().expand(*lead, *x.shape[-2:])
        points = ((points - self.shift[..., None, :]) / self.scale[..., None, :]).reshape(-1, *x.shape[-2:])
        out = []
        for run, posterior in enumerate(self.posteriors):
            at = points[run].expand(members, -1, -1)
            factor, rest = posterior.factor(at, posterior.pivots(at, self.rank))  # (K, n, r), (K, n)
            key = streams.fold(self.keys.reshape(-1)[run : run + 1], Purpose.WEIGHTS)
            draws = streams.normal(key, members, factor.shape[-1] + 1)[0]
            around = (factor @ draws[:, :-1, None])[..., 0] + draws[:, -1:] * rest.sqrt()
            around = (around - around.mean(0)) * (members / max(1, members - 1)) ** 0.5
            out.append(posterior.mean(at) + around)
        return torch.stack(out).reshape(*lead, members, x.shape[-2]).float()


@dataclass(frozen=True)
class Process:
    """Draws of a Gaussian process as members, each fitted to all folds but its own.

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

    def fit(
        self,
        x: Tensor,  # (..., l, d)
        y: Tensor,  # (..., l)
        keys: Tensor,  # (...)
    ) -> FittedProcess:
        check_rows(x, y, keys)
        shift, scale = centre_and_spread(x.double())
        rows = (x.double() - shift[..., None, :]) / scale[..., None, :]
        unseen = fold_membership(keys, self.members, x)  # (..., K, l)
        posteriors = tuple(
            noise.fit(one.expand(self.members, -1, -1), target.expand(self.members, -1), valid=~apart).posterior
            for one, target, apart in each_run(keys, rows, y.double(), unseen)
        )
        return FittedProcess(posteriors, keys, unseen, shift, scale, self.rank)


def centre_and_spread(x: Tensor) -> tuple[Tensor, Tensor]:  # (..., l, d) -> (..., d) twice
    """Mean and standard deviation of every column; 1 where a column is constant."""
    spread = x.std(-2, correction=0)
    return x.mean(-2), torch.where(spread > 0, spread, 1.0)
