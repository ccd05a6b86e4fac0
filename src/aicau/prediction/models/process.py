"""Gaussian processes with a free length scale per feature, which is worth most where few of many features matter.

Up to `HONEST` rows every fold is predicted by a process that was fitted anew without it: many length scales fit
themselves to the rows, so that rows they have seen say little about others. Above, left-out predictions keep the
parameters that were fitted to all rows (a closed form).
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau import gp
from aicau.prediction.models.base import LeftOut, Points

MOST = 256  # rows that the parameters are fitted on: a cubic cost
HONEST = 150
LENGTHS = (1.0, 2.0)  # of ln ℓ / √(p/2): mean and standard deviation of the prior
NOISE = (math.log(0.05), 1.5)  # the same of ln σ_n²


@dataclass(frozen=True)
class ProcessModel:
    """A Gaussian process with a length scale per feature."""

    posterior: gp.Posterior

    @classmethod
    def fit(cls, points: Points, shape: str, trend: float = 0.0) -> "tuple[ProcessModel, LeftOut]":
        """Maximum a posteriori, from one start; all folds in one batch."""
        rows = len(points.y)
        every = torch.ones(1, rows, dtype=torch.bool)
        if rows <= HONEST:
            every = torch.cat([every, *(points.fold[None] != fold for fold in points.fold.unique())])
        x, y, relative = (part.expand(len(every), *part.shape) for part in (points.at, points.y, 1 / points.count))
        process = settings(shape, x.shape[-1], trend)
        found = process.fit(x, y, every, relative, most=MOST)
        whole = gp.Posterior.of(found.theta[:1], found.rows[:1], found.shift[:1], found.scale[:1])
        if rows > HONEST:
            error, variance = whole.left_out_groups(points.fold)
            return cls(whole), LeftOut(points.y - error, (variance - whole.noise()[0] / points.count).clamp_min(0))
        out = (~every).int().argmax(0)  # which of the batch never saw a row
        mean, variance = (part.gather(0, out[None])[0] for part in (found.mean(x), found.variance(x)))
        return cls(whole), LeftOut(mean, variance)

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior mean."""
        return self.posterior.mean(at[None])[0]

    def variance(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior variance of the truth."""
        return self.posterior.variance(at[None])[0]

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""
        own, rows = self.posterior, self.posterior.rows
        assert rows.relative is not None
        kept = {"theta": own.theta, "x": rows.x, "y": rows.y, "relative": rows.relative, "fixed": rows.fixed}
        return kept | {"shift": own.shift, "scale": own.scale}

    @classmethod
    def load(cls, t: dict[str, Tensor], shape: str, trend: float = 0.0) -> "ProcessModel":
        """What `tensors` gave."""
        valid, own = torch.ones_like(t["y"], dtype=torch.bool), settings(shape, t["x"].shape[-1], trend)
        rows = gp.Rows(
            t["x"], t["y"], valid, t["fixed"], t["relative"], shape=shape, constant=own.constant, linear=own.linear
        )
        return cls(gp.Posterior.of(t["theta"], rows, t["shift"], t["scale"]))


def settings(shape: str, features: int, trend: float) -> gp.Process:
    """Wide priors: they hold what the rows say nothing about, and leave the rest free."""
    return gp.Process(
        shape=shape,
        noise=True,
        constant=10.0,
        signal_prior=(0.0, 1.0),
        length_prior=(0.5 * math.log(features / 2) + LENGTHS[0], LENGTHS[1]),
        noise_prior=NOISE,
        linear=trend / features,
    )
