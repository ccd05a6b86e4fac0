"""What `gain` knows of one target (aicau.batching.gain has the symbols): the prior covariance k, explicit features for
it by landmarks, A, M and P before a point is chosen (`Basis`), and the gains of some points, step by step (`Work`)."""

from collections.abc import Callable, Iterable
from functools import partial, reduce
from typing import Any, NamedTuple

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import positive
from aicau.core.omega import Cobias, Omega
from aicau.core.runs import PORTION, over, portions
from aicau.ensembles import gradients
from aicau.gp import rbf

KEPT = 1e-7  # of the largest eigenvalue between landmarks: below it there is rounding
MORE = 32  # rows that are made ready at a time
LEAST = 0.02  # noise that k sees at least, in units of the target's variance: networks do not follow every measurement
UNLIKELY = 1e-6  # chance of a point below which only its gain decides
NOISE = 0.1  # variance of a measurement, in units of the target's, where nobody tells
Seen = tuple[Tensor, list[gradients.Layer]]  # of some points: coordinates in lengths, and what networks see


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

    def of(self, x: Tensor, points: Tensor | None) -> Seen:  # (m, d) twice
        """What the kernels need of any points."""
        return x / self.lengths, [] if self.layers is None or points is None else self.layers(points)

    def between(self, a: Seen, b: Seen) -> Tensor:
        smooth = rbf(torch.cdist(a[0], b[0]) ** 2)
        return smooth if not a[1] else 0.5 * (smooth + gradients.between(a[1], b[1]).to(smooth) / self.size)

    def variance(self, a: Seen) -> Tensor:  # (m,)
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
        points = self._seen(index)
        phi = self.covariance.between(points, self.landmarks) @ self.root
        return phi, (self.covariance.variance(points) - (phi**2).sum(-1)).clamp_min(0)

    def _seen(self, index: Tensor) -> Seen:
        view = self.view
        return self.covariance.of(view.x[index], None if view.points is None else view.points[index])


def evenly(n: int, most: int, like: Tensor) -> Tensor:
    """At most `most` of n places, evenly spaced."""
    return torch.linspace(0, max(0, n - 1), min(n, most), dtype=torch.double, device=like.device).long()


class Basis:
    """What is known of one target before a point is chosen."""

    def __init__(self, score: Score, view: View, landmarks: int, members: int | None = None) -> None:
        alpha = score.alpha if score.omega is None else score.omega.diagonal()
        self.alpha, self.noise = positive(alpha[0].nan_to_num(0.0, 0.0, 0.0)).to(view.x), noise_of(view).to(view.x)
        trust = getattr(view.cobias, "trust", None)
        self.trust = 0.0 if trust is None or score.omega is None else max(0.0, 2 * float(trust[0]) - 1)
        self.chance, self.seeks = torch.ones_like(self.alpha), view.chance is not None
        if view.chance is not None:
            self.chance = view.chance[0].to(self.alpha).clamp_min(UNLIKELY).where(~view.measured[0], 0.0)
        self.features = Features(view, landmarks, members)
        self.inside = posterior(view, self.features, self.noise)
        self.counts, self.delta = counts(view, self.features), score.omega if self.trust > 0 else None
        extra = None if score.omega is None else score.omega.extra
        self.apart = torch.zeros_like(self.alpha) if extra is None else extra[0].to(self.alpha)
        self.moments, self.cross = moments(self.alpha, self.counts, self.features, self.delta)
        self.total = float(self.alpha @ self.counts)


class Step(NamedTuple):
    """What a measurement does to others."""

    own: Tensor  # (p,) Aφ
    far: Tensor  # (2, p) AMAφ, of both M
    size: Tensor  # () φᵀAφ + ρ + σ²
    square: Tensor  # (2,) φᵀAMAφ
    seen: Tensor  # (p,) MAφ of the second M


class Learner:
    """Δ of some points, or of features, and how it changes with each choice: Dᵀ, (ΦAP)ᵀ and Pᵀ, a row per column of D.

    A measurement moves predictions by g (y − f), so D becomes D − g dᵀ with d its row at the measured point, and gets
    one column for what is random.
    """

    def __init__(self, bias: Tensor, moved: Tensor, cross: Tensor, signs: Tensor) -> None:  # (r, s) twice, (r, p), (r,)
        self.used, self.parts = len(signs), [bias, moved, cross, signs[:, None]]

    def step(
        self, d: Tensor, found: Step, g: Tensor, h: Tensor, random: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        # (r,), (s,) twice, () -> (s,) twice, () twice
        """D·d, and U·d + D·q of every point, |d|² + e² and q·d; h is ΦA of the step that P makes."""
        bias, moved, cross, signs = (part[: self.used] for part in self.parts)
        q, own = (cross @ found.own).to(d), signs[:, 0] * d
        other = signs[:, 0] * q
        along, back = own @ bias, own @ moved + other @ bias
        numbers = own @ d + random, own @ q
        step, e = found.seen / found.size, random.sqrt()
        bias.addr_(d, g, alpha=-1)
        moved.addr_(d, h, alpha=-1).addr_(q, g, alpha=-1)
        cross.addr_(d.to(step), step, alpha=-1)
        if self.used == len(self.parts[0]):
            self.parts = [torch.cat([part, torch.empty_like(part[:1]).expand(MORE, -1)]) for part in self.parts]
        for part, row in zip(self.parts, (e * g, e * h, e.to(step) * step, torch.ones_like(signs[0])), strict=True):
            part[self.used] = row
        self.used += 1
        return along, back, *numbers


class Work:
    """Some points and their gains; each measurement updates all of them at the cost of a few products."""

    def __init__(self, base: Basis, index: Tensor) -> None:
        parts = zip(*over(base.features.at, portions(index)), strict=True)
        self.phi, self.rest = map(torch.cat, parts)
        self.noise, self.chance, self.seeks = base.noise[index], base.chance[index], base.seeks
        self.inside, self.moments, self.delta, self.trust = base.inside, base.moments, base.delta, base.trust
        by = self.phi @ self.inside.to(self.phi)
        self.variance = (by * self.phi).sum(-1)
        self.shared = torch.stack([((by @ moment.to(by)) * by).sum(-1) for moment in self.moments])
        if base.delta is not None:
            self.counts = base.counts[index]
            self.apart = base.apart[index]
            bias, signs = base.delta.factor[0, index].to(by).mT.contiguous(), base.delta.weights[0].to(by)  # Dᵀ, S
            moved = (by @ base.cross.to(by)).mT.contiguous()
            self.both, self.own = signs @ (moved * bias), signs @ bias.square()
            self.learner = Learner(bias, moved, base.cross.mT.contiguous(), signs)

    def now(self) -> Tensor:  # (s,)
        """The gain of every point."""
        size = self.variance + self.rest + self.noise
        gain = second = self.shared[0] / size
        if self.delta is not None:
            both = self.both + self.counts * (self.variance + self.rest) * self.apart
            right = (2 * both - self.shared[1] * (self.own + self.apart + self.noise) / size) / size
            gain = (1 - self.trust) * gain + self.trust * right
        # Where no measurement pays, a known point (chance 0) must still not come first.
        return self.chance * torch.maximum(gain, UNLIKELY * second) if self.seeks else gain

    def measure(self, place: Tensor) -> Step:
        """One measurement of a point, and what it does to others."""
        phi, size = self.phi[place].to(self.inside), (self.variance + self.rest + self.noise)[place].to(self.inside)
        own = self.inside @ phi
        seen = self.moments @ own  # (2, p)
        found = Step(own, seen @ self.inside, size, seen @ own, seen[1])
        if self.seeks:
            self.chance[place] = 0.0
        by = (self.phi @ own.to(self.phi)) / size.to(self.phi)
        cross, square = self.phi @ found.far.mT.to(self.phi), found.square.to(by)  # (s, 2)
        if self.delta is not None:
            after = (cross[:, 1] - by * square[1]) / size.to(by)
            d = self.learner.parts[0][: self.learner.used, place].clone()
            apart, random = self.apart[place].clone(), self.noise[place]
            along, back, around, beside = self.learner.step(d, found, by, after, random + apart)
            self.both = self.both - by * back - after * along + by * (around * after + beside * by)
            self.own = self.own - by * (2 * along - around * by)
            # At the point itself what is apart falls to (1 − g)², and leans against its neighbours.
            g, e, at = by[place], (random + apart).sqrt(), self.learner.used - 1
            here = (random * g - apart * (1 - g)) / e
            row, fall = self.learner.parts[0][at], e * g - here
            row[place] = here
            off = self.counts[place] * fall * by * (size.to(by) - self.variance[place])
            self.learner.parts[1][at] -= off
            self.learner.parts[2][at] -= (self.counts[place] * fall).to(phi) * phi
            self.both -= off * row
            self.both[place] -= fall * e * after[place]
            self.own[place] += here**2 - (e * g) ** 2
            self.apart[place] = (random * g**2 + apart * (1 - g) ** 2 - here**2).clamp_min(0)
        self.shared = self.shared - 2 * by * cross.mT + by**2 * square[:, None]
        self.variance = (self.variance - by**2 * size.to(by)).clamp_min(0)
        self.inside = self.inside - torch.outer(own, own) / size
        return found


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    return reduce(torch.add, parts)  # of one part, the same bits


def price_of(cost: Tensor, left: float, points: int) -> Tensor:  # (n,)
    """What each counts as costing: not less than what is left for each point; 1 where money decides nothing."""
    price = cost.clamp_min(left / points)
    return torch.where((price > 0) & price.isfinite(), price, 1.0)


def posterior(view: View, features: Features, noise: Tensor) -> Tensor:  # (p, p)
    """A after what was measured, or is pending; a mean of c measurements has the noise σ²/c + ρ."""
    known = view.measured[0].nonzero()[:, 0]
    precision = torch.eye(features.root.shape[-1], dtype=torch.double, device=view.x.device)
    count = measurements(view)[0].to(noise).clamp_min(1)
    for index in portions(known):
        phi, rest = features.at(index)
        precision = precision + ((phi / (noise[index] / count[index] + rest)[:, None]).mT @ phi).double()
    return torch.linalg.inv(precision)


def counts(view: View, features: Features) -> Tensor:  # (n,)
    """How much the error of each candidate counts: its weight, times how many candidates it stands for."""
    weight = torch.ones_like(view.x[:, 0]) if view.weight is None else positive(view.weight[0].to(view.x))
    if view.stands is None:
        return weight
    stands = view.stands[0].to(weight)
    others = stands.index_fill(0, features.index, 0.0)  # a landmark that stood for others would look as if it were all
    return weight * (others if 2 * others.sum() > stands.sum() else stands)  # where few count each is a landmark


def moments(
    alpha: Tensor, counts: Tensor, features: Features, delta: Omega | None
) -> tuple[Tensor, Tensor]:  # (n,) twice -> (2, p, p), (p, r)
    """Σ c α φφᵀ and Σ c φφᵀ over the pool, and P = Σ c φ Dᵀ; c is how much each candidate counts."""
    some = (counts > 0).nonzero()[:, 0]

    def part(index: Tensor) -> tuple[Tensor, Tensor]:
        phi, _ = features.at(index)
        own = phi * counts[index, None]
        bias = phi[:, :0] if delta is None else delta.factor[0, index].to(phi)
        return torch.stack([(own * alpha[index, None]).mT @ phi, own.mT @ phi]).double(), (own.mT @ bias).double()

    found = list(over(part, portions(some)))
    return sum_of(one for one, _ in found), sum_of(two for _, two in found)


def noise_of(view: View) -> Tensor:  # (n,)
    """σ² of one measurement, as the estimator of the bias tells."""
    if isinstance(view.cobias, Cobias) and view.cobias.noise is not None:
        return view.cobias.noise[0].clamp_min(LEAST)
    return torch.full_like(view.x[:, 0], NOISE)
