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

TREND = 1.0  # variance of a linear trend under the process, for all features together
MOST = 500  # rows that the parameters are fitted on: a cubic cost
HONEST = 150
LENGTHS = (1.0, 2.0)  # of ln ℓ / √(p/2): mean and standard deviation of the prior
NOISE = (math.log(0.05), 1.5)  # the same of ln σ_n²


@dataclass(frozen=True)
class ProcessModel:
    """A Gaussian process with a length scale per feature."""

    posterior: gp.Posterior | gp.Many

    @classmethod
    def fit(cls, points: Points, trend: float = TREND) -> "tuple[ProcessModel, LeftOut]":
        """Maximum a posteriori, from one start; folds start from what all rows found."""
        x, y, relative = points.at[None], points.y[None], 1 / points.count[None]
        process, every = settings(x.shape[-1], trend), torch.ones_like(y, dtype=torch.bool)
        whole = gp.fitted(*process.found(x, y, every, relative, most=MOST))
        if y.shape[-1] > HONEST:
            error, variance = whole.left_out_groups(points.fold)
            return cls(whole), LeftOut(points.y - error, (variance - whole.noise()[0] / points.count).clamp_min(0))
        mean, spread = torch.empty_like(points.y), torch.empty_like(points.y)
        for fold in points.fold.unique():
            out = points.fold == fold
            kept = ~out
            without = process.fit(x[:, kept], y[:, kept], every[:, kept], relative[:, kept], near=whole.theta)
            mean[out], spread[out] = without.mean(x[:, out])[0], without.variance(x[:, out])[0]
        return cls(whole), LeftOut(mean, spread)

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior mean."""
        return self.posterior.mean(at[None])[0]

    def both(self, at: Tensor) -> tuple[Tensor, Tensor]:  # (m, p) -> (m,) twice
        """Mean and variance of the truth."""
        mean, variance = self.posterior.both(at[None])
        return mean[0], variance[0]

    def tensors(self) -> dict[str, Tensor]:
        own = self.posterior
        return own.rows.tensors() | {"theta": own.theta, "shift": own.shift, "scale": own.scale}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], trend: float = TREND) -> "ProcessModel":
        own = settings(tensors["x"].shape[-1], trend)
        rows = gp.Rows.load(tensors, shape=own.shape, constant=own.constant, linear=own.linear)
        return cls(gp.fitted(tensors["theta"], rows, tensors["shift"], tensors["scale"]))


def settings(features: int, trend: float) -> gp.Process:
    """Wide priors: they hold what the rows say nothing about, and leave the rest free."""
    return gp.Process(
        shape="matern",
        noise=True,
        constant=10.0,
        signal_prior=(0.0, 1.0),
        length_prior=(0.5 * math.log(features / 2) + LENGTHS[0], LENGTHS[1]),
        noise_prior=NOISE,
        linear=trend / features,
        tolerance=1e-6,
    )
