"""The prior covariance of `gain` (aicau.batching.gain has its symbols), and explicit features for it by landmarks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aicau.acquisition.base import View
from aicau.core.runs import PORTION
from aicau.ensembles import gradients
from aicau.gp import rbf

KEPT = 1e-7  # of the largest eigenvalue between landmarks: below it there is rounding


class Covariance:
    """k of one run, between any points of the pool; scales are those of some evenly spaced points."""

    def __init__(self, view: View, some: Tensor, members: int | None = None) -> None:  # None: all networks
        lengths = getattr(view.cobias, "lengths", None)
        self.lengths = view.x.new_ones(view.x.shape[-1]) if lengths is None else lengths[0].to(view.x)
        if lengths is None:
            square = torch.cdist(view.x[some], view.x[some]) ** 2
            near = square[square > 0]
            self.lengths = self.lengths * (near.median().sqrt() if len(near) else 1.0)
        fitted: Any = view.fitted
        self.layers: Callable[[Tensor], list[gradients.Layer]] | None = None
        if view.points is not None and not view.task.probabilities and hasattr(fitted, "layers"):
            self.layers = partial(fitted.layers, members=members)
        self.size = 1.0
        if self.layers is not None:
            self.size = float(gradients.squares(self.layers(view.points[some])).mean())  # type: ignore[index]
            self.layers = self.layers if self.size > 0 else None

    def of(self, x: Tensor, points: Tensor | None) -> tuple[Tensor, list[gradients.Layer]]:  # (m, d) twice
        """What the kernels need of any points."""
        return x / self.lengths, [] if self.layers is None or points is None else self.layers(points)

    def between(self, a: tuple[Tensor, list[gradients.Layer]], b: tuple[Tensor, list[gradients.Layer]]) -> Tensor:
        smooth = rbf(torch.cdist(a[0], b[0]) ** 2)
        return smooth if not a[1] else 0.5 * (smooth + gradients.between(a[1], b[1]).to(smooth) / self.size)

    def variance(self, a: tuple[Tensor, list[gradients.Layer]]) -> Tensor:  # (m,)
        one = torch.ones_like(a[0][:, 0])
        return one if not a[1] else 0.5 * (one + gradients.squares(a[1]).to(one) / self.size)


class Features:
    """φ and ρ of any points of the pool."""

    def __init__(self, view: View, most: int, members: int | None = None) -> None:
        n, known = len(view.x), view.measured[0].nonzero()[:, 0]
        known = known[evenly(len(known), most // 2, view.x)] if n > most else known[:0]
        some = evenly(n, most - len(known), view.x)
        self.covariance = Covariance(view, some, members)
        self.index, self.view = torch.cat([known, some]).unique(), view
        self.landmarks = self._seen(self.index)
        values, vectors = torch.linalg.eigh(self.covariance.between(self.landmarks, self.landmarks).double())
        kept = values > KEPT * values[-1]
        self.root = (vectors[:, kept] / values[kept].sqrt()).to(view.x)
        self.whole: tuple[Tensor, Tensor] | None = None  # of a small pool, kept
        self.whole = self.at(torch.arange(n, device=view.x.device)) if n <= PORTION else None

    def at(self, index: Tensor) -> tuple[Tensor, Tensor]:  # (m,) -> (m, p), (m,)
        """φ and ρ."""
        if self.whole is not None:
            return self.whole[0][index], self.whole[1][index]
        return self.of(self._seen(index))

    def _seen(self, index: Tensor) -> tuple[Tensor, list[gradients.Layer]]:
        view = self.view
        return self.covariance.of(view.x[index], None if view.points is None else view.points[index])

    def of(self, points: tuple[Tensor, list[gradients.Layer]]) -> tuple[Tensor, Tensor]:  # (m, p), (m,)
        """The same of any points."""
        phi = self.covariance.between(points, self.landmarks) @ self.root
        return phi, (self.covariance.variance(points) - (phi**2).sum(-1)).clamp_min(0)


def evenly(n: int, most: int, like: Tensor) -> Tensor:
    """At most `most` of n places, evenly spaced."""
    return torch.linspace(0, max(0, n - 1), min(n, most), dtype=torch.double, device=like.device).long()
