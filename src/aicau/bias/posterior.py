"""Posterior: a Gaussian process tells where the ensemble is wrong, and the second moment of its posterior is Δ̂.

Far from data the bias is unknown, not zero: Δ̂ = m mᵀ + C says so, with m the mean and C the covariance of the bias
after the measurements. C is kept as a low-rank factor and a diagonal that makes its own diagonal exact; the cost is
linear in the pool.

The process (aicau.gp.noise) sees every measurement as a row: replicates weigh, and what a batch shares is taken out. It
can model the measurements themselves (then δ = μ_F − f, which shows where an ensemble has begun to fit noise), or
the residuals of members that never saw the row (then it corrects what the ensemble knows already). `best` takes, run by
run, the one that predicts left-out measurements better. Figures for each choice are in docs/comparison.md.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from aicau.bias import classes
from aicau.bias.base import Belief, BiasEstimator, Evidence
from aicau.bias.correction import Correction, Moments
from aicau.core import decomposition
from aicau.core.errors import unknown
from aicau.core.omega import Cobias
from aicau.core.pool import Frame
from aicau.core.runs import by_run, mapped, over, threads
from aicau.gp import EXACT, noise

TARGETS = ("best", "truth", "residual")
BATCHES = ("field", "shift", "none")
FEW = 200  # rows above which processes are fitted side by side


@dataclass(frozen=True)
class Posterior(BiasEstimator):
    """The second moment of a Gaussian process over measurements, replicates and plates.

    Parameters
    ----------
    target : {"best", "truth", "residual"}
        What the process models: the measurements, the residuals of members that did not see them, or whichever predicts
        left-out measurements better.
    batches : {"field", "shift", "none"}
        What rows of one batch share: a field over x, one shift, or nothing.
    rank : int
        Columns that the covariance of the bias is kept with; 0 where a batching rule needs its diagonal only.
    most_rows : int
        Measurements that the process sees one by one; of more it sees the mean of each point.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("br:posterior:gain").bias.rank, Strategy.parse("br:posterior:spread").bias.rank
    (32, 0)
    """

    waits: ClassVar[bool] = True
    target: str = "best"
    batches: str = "field"
    rank: int = 32
    most_rows: int = EXACT

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise unknown("target", self.target, list(TARGETS))
        if self.batches not in BATCHES:
            raise unknown("batches", self.batches, list(BATCHES))

    def estimate(self, evidence: Evidence) -> Cobias:
        """Δ̂ = m mᵀ + C."""
        return self.moments(evidence).cobias()

    def believe(self, evidence: Evidence) -> Belief:
        """E Y with its covariance, for classification and counts."""
        if evidence.task.probabilities:
            return classes.posterior(evidence, self.batches, self.rank)
        found = self.moments(evidence)
        mean = decomposition.mean(evidence.predictions).double() - found.mean
        return Belief(mean[..., None], found.factor[..., None, :, :], found.rest[..., None])

    def moments(self, evidence: Evidence) -> Moments:
        """Mean and covariance of the bias over the pool."""
        ensemble = decomposition.mean(evidence.predictions).double()
        if evidence.keys.numel() == 1:
            own, pivots = self.correction(evidence), None
            if self.rank:
                pivots = evidence.learned((self, "pivots"), lambda: own.pivots(evidence.x, self.rank))
            flat = own.moments(evidence.x, ensemble.reshape(1, -1), self.rank, pivots)
            flat = replace(flat, trust=own.trust(evidence.crossfitted().reshape(1, -1)))
            return mapped(lambda part: part.reshape(*evidence.keys.shape, *part.shape[1:]), flat)
        o = evidence.observations
        frame = Frame.of(evidence.x)

        def moments(index: Tensor, y: Tensor, residual: Tensor, batch: Tensor, ensemble: Tensor) -> Moments:
            rows = frame.coordinates(evidence.x[index].double())
            fits = self._fits(frame, rows, y, residual, batch)
            best = torch.stack([one.square for one in fits]).argmin(0)
            found = [
                replace(one.moments(evidence.x, ensemble, self.rank), trust=one.trust(residual))
                for i, one in enumerate(fits)
                if bool((best == i).any())
            ]

            def better(a: Tensor, b: Tensor) -> Tensor:
                return torch.where((best > 0).reshape(-1, *[1] * (a.ndim - 1)), b, a)

            return mapped(better, found[0], found[-1])

        tensors = (o.index, o.y, evidence.crossfitted(), o.batch, ensemble)
        return by_run(moments, *tensors, points=len(evidence.x), lead=evidence.keys.ndim)

    def correction(self, evidence: Evidence) -> Correction:
        """The fitted process itself, for one run: it can be asked for some candidates at a time."""
        if self not in evidence.memo:
            some, counts = evidence.at_most(self.most_rows)
            o, frame = some.observations, evidence.frame  # no copy of the pool in double precision
            index, y, residual, batch = (part.reshape(1, -1) for part in (o.index, o.y, some.crossfitted(), o.batch))
            rows = frame.coordinates(evidence.x[index].double())
            with threads(1) if index.device.type == "cpu" else nullcontext():
                found = self._fits(frame, rows, y, residual, batch, None if counts is None else counts.reshape(1, -1))
            evidence.memo[self] = min(found, key=lambda one: float(one.square))
        return evidence.memo[self]

    def _fits(
        self, frame: Frame, rows: Tensor, y: Tensor, residual: Tensor, batch: Tensor, counts: Tensor | None = None
    ) -> list[Correction]:  # coordinates (runs, l, p); (runs, l) each
        """One for each target that is in question."""
        together = batch if self.batches != "none" and noise.several(batch) else None

        def fit(target: str) -> Correction:
            value = y if target == "truth" else residual
            if counts is not None:
                return Correction.of(noise.fit_many(rows, value, counts), target == "truth", frame)
            process = noise.fit(rows, value, together, None, self.batches == "field", True)
            return Correction.of(process, target == "truth", frame)

        targets = ("truth", "residual") if self.target == "best" else (self.target,)
        return list(over(fit, targets) if y.numel() > FEW and not y.is_cuda else map(fit, targets))
