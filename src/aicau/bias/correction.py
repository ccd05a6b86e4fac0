"""Correction: a Gaussian process fitted to measured points, which tells the bias of an ensemble at any point.

It models the measurements themselves (then δ = μ_F − f) or the bias. It is small, holds nothing of the pool but the
frame of its coordinates, and can be asked for some candidates at a time.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau import gp
from aicau.core.omega import Cobias
from aicau.core.pool import Frame
from aicau.core.runs import PORTION, mapped, over, threads_for
from aicau.gp import noise

MANY = "many."  # before the names of all rows, where the noise is known from some


@dataclass(frozen=True)
class Moments:
    """The bias after the measurements, and what goes with it."""

    mean: Tensor  # (..., n) m
    factor: Tensor  # (..., n, r) of C
    rest: Tensor  # (..., n) the diagonal of C that the factor leaves
    aleatoric: Tensor  # (..., n) σ²_Y of one measurement, its batch included
    lengths: Tensor  # (..., d) over which the truth changes, by feature
    trust: Tensor  # (...) share of the squared bias at left-out measurements that it predicts, 0 to 1

    def variance(self) -> Tensor:  # (..., n)
        """The diagonal of C."""
        return (self.factor**2).sum(-1) + self.rest

    def cobias(self) -> Cobias:
        """Δ̂ = m mᵀ + C."""
        whole = torch.cat([self.mean[..., None], self.factor], -1).float()
        return Cobias(whole, None, self.rest.float(), self.aleatoric.float(), self.lengths, self.trust)


@dataclass(frozen=True)
class Correction:
    """Of one or several runs that stand together."""

    process: noise.Fitted
    truth: bool  # it models the measurements; False: the bias
    square: Tensor  # (runs,) mean squared error of left-out measurements
    left_out: Tensor  # (runs, l) their standardised errors
    frame: Frame

    def trust(self, residual: Tensor) -> Tensor:  # (runs, l) left-out errors of the ensemble -> (runs,)
        """Share of the squared bias at left-out measurements that the process predicts, 0 to 1."""
        square = (residual**2).mean(-1)
        bias = (
            (square - self.process.posterior.noise() - self.process.shared).clamp_min(1e-3 * square).clamp_min(1e-300)
        )
        return ((square - self.square) / bias).clamp(0, 1)

    @classmethod
    def of(cls, process: noise.Fitted, truth: bool, frame: Frame) -> "Correction":
        predicted, spread = process.left_out()
        posterior = process.posterior
        error = posterior.rows.y * posterior.scale[..., None] + posterior.shift[..., None] - predicted
        return cls(process, truth, (error**2).mean(-1), error * (process.inflated() / spread).sqrt(), frame)

    def moments(self, x: Tensor, ensemble: Tensor, rank: int, pivots: Tensor | None = None) -> Moments:
        # (n, d), μ_F (runs, n), (runs, rank, p)
        """Over the pool; where there is no factor (rank 0), in portions side by side. A factor is made of pivots, which
        are found here where they are not given."""
        if rank or len(x) <= 2 * PORTION or x.is_cuda:
            with threads_for(len(x)):
                return self._moments(x.double(), ensemble, rank, pivots)
        parts = zip(x.split(PORTION), ensemble.split(PORTION, -1), strict=True)
        mean, rest, own = mapped(lambda *some: torch.cat(some, -1), *over(lambda part: self.at(*part), parts))
        return Moments(
            mean, rest[..., None][..., :0], rest, own, self.process.posterior.lengths(), torch.zeros_like(self.square)
        )

    def pivots(self, x: Tensor, rank: int) -> Tensor:  # (n, d) -> (runs, rank, p)
        """Coordinates that a factor of C can be made of."""
        return self.process.posterior.pivots(self._at(x.double()), rank)

    def _at(self, x: Tensor) -> Tensor:  # (n, d) -> (runs, n, p)
        return self.frame.coordinates(x).expand(len(self.square), -1, -1)

    def _moments(self, x: Tensor, ensemble: Tensor, rank: int, pivots: Tensor | None = None) -> Moments:  # (n, d)
        at = self._at(x)
        posterior = self.process.posterior
        if not rank:
            mean, rest = self.process.both(at)
            factor = rest[..., None][..., :0]
        else:
            pivots = posterior.pivots(at, rank) if pivots is None else pivots
            mean, (factor, rest) = posterior.mean(at), posterior.factor(at, pivots)
            if self.process.many is not None:  # mean and variance are those of all rows
                mean, variance = self.process.both(at)
                share = variance / ((factor**2).sum(-1) + rest).clamp_min(1e-300)
                factor, rest = factor * share.sqrt()[..., None], rest * share
        bias = ensemble - mean if self.truth else mean
        return Moments(bias, factor, rest, self._noise(at), posterior.lengths(), torch.zeros_like(self.square))

    def at(self, x: Tensor, ensemble: Tensor) -> tuple[Tensor, Tensor, Tensor]:  # (m, d), (runs, m) -> (runs, m) each
        """Mean and variance of the bias of some candidates, and the variance of one measurement."""
        found = self._moments(x, ensemble, 0)
        return found.mean, found.rest, found.aleatoric

    def noise(self, x: Tensor) -> Tensor:  # (m, d) -> (m,)
        """Variance of one measurement of some candidates, for one run."""
        return self._noise(self._at(x))[0]

    def _noise(self, at: Tensor) -> Tensor:  # (runs, n, p) -> (runs, n)
        return self.process.variance_at(at) + self.process.shared[..., None]

    def state(self) -> dict[str, Tensor]:
        """What `load` needs."""
        process, posterior, frame = self.process, self.process.posterior, self.frame
        kept = posterior.rows.tensors() | {"theta": posterior.theta, "shift": posterior.shift, "scale": posterior.scale}
        kept |= {"inflation": process.inflation, "width": process.width, "shared": process.shared}
        kept |= {"square": self.square, "left_out": self.left_out}
        kept |= {"frame": torch.stack([frame.mean, frame.spread, frame.stretch])}
        more = {} if process.many is None else process.many.rows.tensors()
        return kept | {f"{MANY}{name}": part for name, part in more.items()}

    def words(self) -> dict[str, Any]:
        """What `state` cannot hold."""
        return {"truth": self.truth, "fades": self.process.posterior.rows.fades}

    @classmethod
    def load(cls, tensors: dict[str, Tensor], truth: bool, fades: bool) -> "Correction":
        """What `state` and `words` gave."""
        t, flat = tensors, {"constant": noise.CONSTANT}
        rows, found = gp.Rows.load(t, fades=fades, **flat), (t["theta"], t["shift"], t["scale"])
        more = {name.removeprefix(MANY): part for name, part in t.items() if name.startswith(MANY)}
        many = gp.Many.of(found[0], gp.Rows.load(more, **flat), *found[1:]) if more else None
        posterior = gp.Posterior.of(found[0], rows, *found[1:])
        own = noise.Fitted(posterior, t["inflation"], t["width"], many)
        return cls(own, truth, t["square"], t["left_out"], Frame(*t["frame"]))
