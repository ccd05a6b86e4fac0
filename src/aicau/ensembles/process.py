"""A Gaussian process as an ensemble: its posterior mean and draws around it as members."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau import checks, noise, streams
from aicau.ensembles.base import check_rows, fold_membership
from aicau.gp import Posterior
from aicau.streams import Purpose


@dataclass(frozen=True)
class FittedProcess:
    posteriors: tuple[Posterior, ...]  # one per run on the CPU, one for all elsewhere
    keys: Tensor  # (...)
    unseen: Tensor  # (..., K, l) nobody leaves a row out
    shift: Tensor  # (..., d)
    scale: Tensor  # (..., d)
    members: int
    rank: int

    def __getitem__(self, run: int | slice | list[int]) -> "FittedProcess":
        """The ensembles of some runs (along the first leading dimension)."""
        place = torch.arange(self.keys.numel()).reshape(self.keys.shape)[run].flatten().tolist()
        kept = tuple(self.posteriors[i] for i in place)
        return FittedProcess(
            kept, self.keys[run], self.unseen[run], self.shift[run], self.scale[run], self.members, self.rank
        )

    def predict(self, x: Tensor) -> Tensor:  # (..., n, d) or (n, d) -> (..., K, n)
        """Members average to the posterior mean; they are one joint draw over the points asked for."""
        lead = self.keys.shape
        points = x.double().expand(*lead, *x.shape[-2:])
        points = ((points - self.shift[..., None, :]) / self.scale[..., None, :]).reshape(-1, *x.shape[-2:])
        out = []
        for run, posterior in enumerate(self.posteriors):
            at = points[run : run + 1]
            mean = posterior.mean(at)
            factor, rest = posterior.factor(at, self.rank)
            key = streams.fold(self.keys.reshape(-1)[run : run + 1], Purpose.WEIGHTS)
            draws = streams.normal(key, self.members, factor.shape[-1] + 1)
            draws = (draws - draws.mean(-2, keepdim=True)) * (self.members / max(1, self.members - 1)) ** 0.5
            low = draws[..., :-1] @ factor.mT  # (1, K, n)
            out.append(mean[..., None, :] + low + draws[..., -1:] * rest.sqrt()[..., None, :])
        return torch.cat(out).reshape(*lead, self.members, x.shape[-2]).float()

    def left_out(self) -> Tensor:  # (..., l)
        """Every measurement by a process fitted without its fold, hyper-parameters and all: as networks are judged."""
        apart = fold_membership(self.keys, self.members, self.unseen.shape[-1])
        apart = apart.reshape(-1, *apart.shape[-2:])  # (runs, K, l)
        out = []
        for posterior, folds in zip(self.posteriors, apart, strict=True):
            x, y = posterior.rows.x, posterior.rows.y * posterior.scale[..., None] + posterior.shift[..., None]
            parts = [noise.fit(x, y, valid=~fold[None]).posterior.mean(x) for fold in folds]
            own = torch.cat(parts) * folds
            out.append(own.sum(0) / folds.sum(0).clamp_min(1))
        return torch.stack(out).reshape(*self.keys.shape, -1)


@dataclass(frozen=True)
class Process:
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
        rows = ((x.double() - shift[..., None, :]) / scale[..., None, :]).reshape(-1, *x.shape[-2:])
        values = y.double().reshape(-1, y.shape[-1])
        posteriors = tuple(noise.fit(rows[i : i + 1], values[i : i + 1]).posterior for i in range(len(rows)))
        unseen = torch.zeros(*keys.shape, self.members, y.shape[-1], dtype=torch.bool, device=y.device)
        return FittedProcess(posteriors, keys, unseen, shift, scale, self.members, self.rank)


def centre_and_spread(x: Tensor) -> tuple[Tensor, Tensor]:  # (..., l, d) -> (..., d) twice
    """Mean and standard deviation of every column; 1 where a column is constant."""
    spread = x.std(-2, correction=0)
    return x.mean(-2), torch.where(spread > 0, spread, 1.0)
