"""Posterior: a Gaussian process tells where the ensemble is wrong, and the second moment of its posterior is Δ̂.

Far from data the bias is unknown, not zero: Δ̂ = m mᵀ + C says so, with m the mean and C the covariance of the bias
after the measurements. C is kept as a low-rank factor and a diagonal that makes its own diagonal exact; the cost is
linear in the pool.

The process (aicau.gp.noise) sees every measurement as a row: replicates weigh, and what a batch shares is taken out. It
can model the measurements themselves (then δ = μ_F − f, and an ensemble that has begun to fit noise is found out), or
the residuals of members that never saw the row (then it corrects what the ensemble knows already). `best` takes, run by
run, the one that predicts left-out measurements better. Figures for each choice are in docs/comparison.md.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.bias import classes
from aicau.bias.base import Belief, Evidence
from aicau.bias.correction import Correction, Moments
from aicau.core import decomposition
from aicau.core.errors import unknown
from aicau.core.omega import Cobias
from aicau.core.pool import Frame
from aicau.core.runs import by_run, threads, threads_for
from aicau.gp import noise

TARGETS = ("best", "truth", "residual")
BATCHES = ("field", "shift", "none")


@dataclass(frozen=True)
class Posterior:
    """`batches`: what rows of one batch share: a field over x, one shift, or nothing."""

    waits: ClassVar[bool] = True
    target: str = "best"
    batches: str = "field"
    rank: int = 32

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise unknown("target", self.target, list(TARGETS))
        if self.batches not in BATCHES:
            raise unknown("batches", self.batches, list(BATCHES))

    def estimate(self, evidence: Evidence) -> Cobias:
        return self.moments(evidence).cobias()

    def believe(self, evidence: Evidence) -> Belief:
        if evidence.task.kind == "classes":
            return classes.posterior(evidence, self.batches, self.rank)
        found = self.moments(evidence)
        mean = decomposition.mean(evidence.predictions).double() - found.mean
        return Belief(mean[..., None], found.factor[..., None, :, :], found.rest[..., None])

    def moments(self, evidence: Evidence) -> Moments:
        o = evidence.observations
        lead = o.y.shape[:-1]
        x = evidence.x.double()
        frame = Frame.of(x)
        points = frame.coordinates(x)
        ensemble = decomposition.mean(evidence.predictions).double()

        def moments(index: Tensor, y: Tensor, residual: Tensor, batch: Tensor, ensemble: Tensor) -> tuple[Tensor, ...]:
            at = points.expand(index.shape[0], -1, -1)
            fits = self._fits(frame, points[index], y, residual, batch)
            best = torch.stack([one.square for one in fits]).argmin(0)
            found = [one.moments(at, ensemble, self.rank) for i, one in enumerate(fits) if bool((best == i).any())]
            return tuple(
                torch.where((best > 0).reshape(-1, *[1] * (a.ndim - 1)), b, a)
                for a, b in zip(vars(found[0]).values(), vars(found[-1]).values(), strict=True)
            )

        tensors = (o.index, o.y, evidence.crossfitted(), o.batch, ensemble)
        flat = [t.reshape(-1, t.shape[-1]) for t in tensors]
        parts = by_run(moments, *flat, points=points.shape[0])
        return Moments(*(part.reshape(*lead, *part.shape[1:]) for part in parts))

    def correction(
        self,
        evidence: Evidence,  # of one run
        counts: Tensor | None = None,  # (1, l) measurements a row is the mean of; None: 1
    ) -> Correction:
        """The process itself, for a pool that is asked some candidates at a time."""
        o, frame = evidence.observations, Frame.of(evidence.x)  # no copy of the pool in double precision
        rows = frame.coordinates(evidence.x[o.index].double())
        with threads(1):
            found = self._fits(frame, rows, o.y, evidence.crossfitted(), o.batch, counts)
        return min(found, key=lambda one: float(one.square))

    def cobias(self, correction: Correction, x: Tensor, ensemble: Tensor) -> Cobias:  # (n, d), (1, n)
        """What `estimate` gives, from a process that was fitted before."""
        with threads_for(x.shape[0]):
            at = correction.frame.coordinates(x.double())[None]
            return correction.moments(at, ensemble.double(), self.rank).cobias()

    def _fits(
        self,
        frame: Frame,
        rows: Tensor,  # (runs, l, p) coordinates
        y: Tensor,  # (runs, l), like the rest
        residual: Tensor,
        batch: Tensor,
        counts: Tensor | None = None,
    ) -> list[Correction]:
        """One for each target that is in question."""
        together = batch if self.batches != "none" and noise.several(batch) else None
        fits = []
        for target in ("truth", "residual") if self.target == "best" else (self.target,):
            value = y if target == "truth" else residual
            process = noise.fit(rows, value, together, counts, self.batches == "field", True)
            fits.append(Correction.of(process, value, target == "truth", frame))
        return fits
