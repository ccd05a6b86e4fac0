"""Posterior: a Gaussian process tells where the ensemble is wrong, and the second moment of its posterior is Δ̂.

Far from data the bias is unknown, not zero: Δ̂ = m mᵀ + C says so, with m the mean and C the covariance of the bias
after the measurements. C is kept as a low-rank factor and a diagonal that makes its own diagonal exact; the cost is
linear in the pool.

The process (aicau.noise) sees every measurement as a row: replicates weigh, and what a batch shares is taken out. It
can model the measurements themselves (then δ = μ_F − f, and an ensemble that has begun to fit noise is found out), or
the residuals of members that never saw the row (then it corrects what the ensemble knows already). `best` takes, run by
run, the one that predicts left-out measurements better. Figures for each choice are in docs/comparison.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau import decomposition, noise
from aicau.bias import classes
from aicau.bias.base import Belief, Evidence
from aicau.errors import unknown
from aicau.omega import Cobias
from aicau.pool import coordinates
from aicau.runs import by_run

TARGETS = ("best", "truth", "residual")
BATCHES = ("field", "shift", "none")


@dataclass(frozen=True)
class Moments:
    """The bias after the measurements, and what goes with it."""

    mean: Tensor  # (..., n) m
    factor: Tensor  # (..., n, r) of C
    rest: Tensor  # (..., n) the diagonal of C that the factor leaves
    aleatoric: Tensor  # (..., n) σ²_Y of one measurement, its batch included
    left_out: Tensor  # (..., l) standardised errors of left-out measurements
    roughness: Tensor  # (..., 1) how much the truth changes, squared, over a squared distance of one

    def variance(self) -> Tensor:  # (..., n)
        """The diagonal of C."""
        return (self.factor**2).sum(-1) + self.rest


@dataclass(frozen=True)
class Posterior:
    """`batches`: what rows of one batch share: a field over x, one shift, or nothing."""

    waits: ClassVar[bool] = True
    target: str = "best"
    batches: str = "field"
    rank: int = 32
    shape: str = "rbf"

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise unknown("target", self.target, list(TARGETS))
        if self.batches not in BATCHES:
            raise unknown("batches", self.batches, list(BATCHES))

    def estimate(self, evidence: Evidence) -> Cobias:
        found = self.moments(evidence)
        whole = torch.cat([found.mean[..., None], found.factor], -1).float()
        doubt, noise = (part / found.roughness for part in (found.variance(), found.aleatoric))
        return Cobias(whole, None, found.rest.float(), doubt.float(), noise.float())

    def believe(self, evidence: Evidence) -> Belief:
        if evidence.task.kind == "classes":
            return classes.posterior(evidence, self.batches, self.rank, self.shape)
        found = self.moments(evidence)
        mean = decomposition.mean(evidence.predictions).double() - found.mean
        return Belief(mean[..., None], found.factor[..., None, :, :], found.rest[..., None])

    def moments(self, evidence: Evidence) -> Moments:
        o = evidence.observations
        lead = o.y.shape[:-1]
        points = coordinates(evidence.x.double())
        ensemble = decomposition.mean(evidence.predictions).double()

        def moments(index: Tensor, y: Tensor, residual: Tensor, batch: Tensor, ensemble: Tensor) -> tuple[Tensor, ...]:
            at = points.expand(index.shape[0], -1, -1)
            # Asked here, where a run stands alone on the CPU: its estimate must not depend on its neighbours.
            local = bool((noise.replicated(index) >= noise.REPLICATED).all())
            together = batch if self.batches != "none" and noise.several(batch) else None
            fits = []
            for target in ("truth", "residual") if self.target == "best" else (self.target,):
                value = y if target == "truth" else residual
                model = noise.fit(points[index], value, together, None, self.batches == "field", local, self.shape)
                predicted, spread = model.posterior.left_out()
                fits.append((model, ensemble if target == "truth" else None, value - predicted, spread))
            square = torch.stack([(error**2).mean(-1) for _, _, error, _ in fits])
            best = square.argmin(0)
            found = [_describe(*fit, at, self.rank) if bool((best == i).any()) else None for i, fit in enumerate(fits)]
            there = [one for one in found if one is not None]
            return tuple(
                torch.where((best > 0).reshape(-1, *[1] * (a.ndim - 1)), b, a)
                for a, b in zip(there[0], there[-1], strict=True)
            )

        tensors = (o.index, o.y, evidence.crossfitted(), o.batch, ensemble)
        flat = [t.reshape(-1, t.shape[-1]) for t in tensors]
        parts = by_run(moments, *flat, points=points.shape[0])
        return Moments(*(part.reshape(*lead, *part.shape[1:]) for part in parts))


def _describe(
    model: noise.Fitted,
    ensemble: Tensor | None,  # (runs, n) μ_F where the process models the measurements; None: it models the residuals
    error: Tensor,  # (runs, l) of left-out measurements
    spread: Tensor,  # (runs, l) their variance
    at: Tensor,  # (runs, n, p)
    rank: int,
) -> tuple[Tensor, ...]:
    """The fields of `Moments`."""
    mean = model.posterior.mean(at)
    factor, rest = model.posterior.factor(at, rank)
    aleatoric = model.variance_at(at) + model.shared[..., None]
    bias = mean if ensemble is None else ensemble - mean
    return bias, factor, rest, aleatoric, error / spread.sqrt(), model.posterior.roughness()[..., None]
