"""Gain: one by one the point whose measurement lowers the error that is expected over the whole pool the most.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| k | `Covariance` | – | prior covariance: mean of two kernels, each of mean variance 1 |
| α | `score.alpha` | (n,) | expected squared error (times what counts), where it is positive |
| φ | `Features` | (n, p) | k(x, x') ≈ φ·φ': Nyström on landmarks |
| ρ | `rest` | (n,) | k(x, x) − φ·φ, what the landmarks do not share |
| σ² | `noise` | (n,) | variance of one measurement |
| A | `inside` | (p, p) | (I + Σ_i φ_i φ_iᵀ/(σ²_i + ρ_i))⁻¹ after what was measured and chosen |
| M | `moment` | (p, p) | Σ_z α(z) φ_z φ_zᵀ |

One measurement at x lowers the variance at z by k(z, x)²/(k(x, x) + σ²), k the covariance after what was measured and
chosen; so the gain is Σ_z α(z) k(z, x)²/(k(x, x) + σ²(x)) = φᵀAMAφ/(φᵀAφ + ρ + σ²). Without α this is what BAIT and
integrated variance (IVR, qNIPV) choose. A known point competes by the same formula: its k is small, and large noise
makes a new point there worth as little. Where points are wanted that are good themselves (`view.chance`), the gain is
multiplied by how likely that is, of a known one by 0: what is found need not be found again.

The kernels: gradients of the networks (how a measurement moves their predictions), and a Gaussian kernel of the
coordinates with a length per feature, as the process behind the bias has learned them: features that do not matter do
not count. Everything is a sum or a maximum over points; of a large pool `Screen` tells which to look at.
"""

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import Selection, check_enough, take_best
from aicau.batching.features import SAMPLED, Features, evenly, sample
from aicau.core.errors import InputError
from aicau.core.omega import Cobias
from aicau.core.runs import PORTION, over, threads_for

LANDMARKS = 512  # small pools are exact; twice as many cost four times as much
LISTED = 16_384  # points that compete
UNLIKELY = 1e-6  # chance of a point below which only its gain decides
SKETCHED = 128  # landmarks of `Screen`
STAGES = 16  # of a batch that are looked at
NOISE = 0.1  # variance of a measurement, in units of the target's, where nobody tells


@dataclass(frozen=True)
class Gain:
    """The largest fall of the error expected over all candidates, one by one: the rule of `default` for values.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("default").batching
    Gain()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"score", "distance"})
    joint: ClassVar[bool] = True

    def select(self, score: Score, view: View, m: int) -> Selection:
        """The next m points of every run."""
        check_enough(view, m)
        with threads_for(len(view.x)):  # the same bits whoever calls
            found = [greedy(score[run : run + 1], view[run : run + 1], m) for run in range(len(view))]
        index, *parts = (torch.stack(part) for part in zip(*found, strict=True))
        return Selection(index, dict(zip(("worth", "score", "share", "known"), parts, strict=True)))

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        again = "a known point: one more measurement" if numbers["known"] else "a measurement here"
        return (
            f"{again} lowers what is unknown over all candidates, weighed by the {meaning}"
            f" ({numbers['score']:.3g} here), by {numbers['share']:.2%}, the most of all; others learn from it by their"
            " distance"
        )


def greedy(score: Score, view: View, m: int) -> tuple[Tensor, ...]:  # (m,) each
    """One run: points in the order of choice, their gain, α, share of the whole and whether they were known.

    With further targets (`view.others`) the gain is the sum of theirs. With costs it counts per cost, but no point
    counts as cheaper than what is left of the budget for each point that is left: money that is left over buys nothing.
    """
    pairs = ((score, view), *view.others)
    bases = [Basis(*pair, LANDMARKS) for pair in pairs]
    room = (view.allowed.long() if view.room is None else view.room)[0].clone()
    index = competing(pairs, m, room)
    works = [Work(base, index) for base in bases]
    known, chosen, left = view.measured[0].clone(), [], view.budget
    price = torch.ones_like(works[0].variance)
    for step in range(m):
        if view.cost is not None:
            price = view.cost[0, index].to(price).clamp_min(left / (m - step))
            room[view.cost[0] > left] = 0
            if not bool((room > 0).any()):
                break
        gain = sum_of(work.now() for work in works)
        place, _ = take_best(gain / price, room[index] > 0)
        at = index[place]
        alpha, total = sum_of(base.alpha[at] for base in bases), sum(base.total for base in bases)
        chosen.append((at, gain[place], alpha, gain[place] / total, known[at].clone()))
        room[at] -= 1
        known[at] = True
        left -= 0.0 if view.cost is None else float(view.cost[0, at])
        for work in works:
            work.measure(place)
    if not chosen:
        raise InputError(f"no point of the next batch costs {left:g} or less; raise the budget")
    return tuple(torch.stack([one[part] for one in chosen]) for part in range(5))


def sum_of(parts: Iterable[Tensor]) -> Tensor:
    return functools.reduce(torch.add, parts)  # of one part, the same bits


def competing(pairs: Sequence[tuple[Score, View]], m: int, room: Tensor) -> Tensor:  # (n,)
    """Points that are looked at: all that may be chosen; of very many those of the largest gains by `Screen`."""
    index = (room > 0).nonzero()[:, 0]
    if len(index) <= LISTED:
        return index
    screens, parts = [(Screen(*pair, m), pair[1]) for pair in pairs], index.split(PORTION)

    def gains(at: Tensor) -> Tensor:
        return sum_of(one.gains(v.x[at], None if v.points is None else v.points[at], at) for one, v in screens)

    return most(zip(parts, over(gains, parts), strict=True))[0]


def most(parts: Iterable[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:  # (s,) and (stages, s) of portions
    """At most `LISTED` points of the largest gains in each stage, ascending, with their gains; of equal ones the first.

    Parts are joined as they come. What comes out is a part itself: lists of many machines are joined in the same way.
    """
    held: list[tuple[Tensor, Tensor]] = []
    floor: Tensor | float = -torch.inf  # what a point must exceed in some stage

    def joined() -> tuple[Tensor, Tensor, Tensor]:
        index, gain = (torch.cat(part, -1) for part in zip(*held, strict=True))
        best = gain.argsort(descending=True, stable=True)[:, : LISTED // len(gain)]
        kept = best.unique()
        return index[kept], gain[:, kept], gain.gather(-1, best[:, -1:])

    for index, gain in parts:
        kept = (gain > floor).any(0)
        held.append((index[kept], gain[:, kept]))
        if sum(len(one) for one, _ in held) > 4 * LISTED:
            index, gain, floor = joined()
            held = [(index, gain)]
    return joined()[:2]


class Screen:
    """Gains of any points by few landmarks: they tell where in a large pool to look closely.

    Before the first choice other points have the largest gains than later: a batch chosen from some points shows where.
    """

    def __init__(self, score: Score, view: View, m: int) -> None:
        self.base, room = Basis(score, view, SKETCHED), (view.allowed.long() if view.room is None else view.room)[0]
        index = (room > 0).nonzero()[:, 0]
        index = index[evenly(len(index), PORTION, view.x)]
        work, left, steps = Work(self.base, index), room[index], []
        self.inside, self.moment = self.base.inside.to(view.x), self.base.moment.to(view.x)
        self.price = None if view.cost is None else view.cost[0].to(view.x).clamp_min(view.budget / m)
        for _ in range(min(m, int(left.sum()))):
            place, _ = take_best(work.now(), left > 0)
            left[place] -= 1
            steps.append(work.measure(place))
        self.moves = [torch.stack(part).to(view.x) for part in zip(*steps, strict=True)]
        self.stages = set(evenly(len(steps), STAGES, view.x).tolist())

    def gains(  # (s, d) twice, (s,) twice -> (stages, s)
        self, x: Tensor, points: Tensor | None, index: Tensor | None = None, noise: Tensor | None = None
    ) -> Tensor:
        """Of points by coordinates and by what networks see, per cost. The view has them where they have an index; of
        others σ² is told (None: as on average)."""
        base = self.base
        phi, rest = base.features.of(base.features.covariance.of(x, points))
        if index is None:
            rest, factor = rest + (base.noise.mean() if noise is None else noise.to(phi)), None
        else:
            rest, factor = rest + base.noise[index], base.chance[index]
            factor = factor if self.price is None else factor / self.price[index]
        variance, shared = forms(phi, self.inside, self.moment)
        own, far, sizes, squares = self.moves
        bys, crosses = (own @ phi.mT).div_(sizes[:, None]), far @ phi.mT
        found = []
        for step, (by, cross) in enumerate(zip(bys, crosses, strict=True)):
            if step in self.stages:
                found.append(shared / (variance + rest))
            shared, variance = moved(shared, variance, by, cross, sizes[step], squares[step])
        return torch.stack(found) if factor is None else factor * torch.stack(found)


class Basis:
    """What is known of one target before a point is chosen."""

    def __init__(self, score: Score, view: View, landmarks: int) -> None:
        self.alpha, self.noise = positive(score.alpha[0]).to(view.x), noise_of(view).to(view.x)
        self.chance, self.seeks = torch.ones_like(self.alpha), view.chance is not None
        if view.chance is not None:
            self.chance = view.chance[0].to(self.alpha).clamp_min(UNLIKELY).where(~view.measured[0], 0.0)
        self.features = Features(view, landmarks)
        self.inside = posterior(view, self.features, self.noise)
        self.moment, self.total = moments(self.alpha, view, self.features, self.inside)


class Work:
    """The points that a step looks at, with φᵀAφ and φᵀAMAφ; each measurement updates both at the cost of a product."""

    def __init__(self, base: Basis, index: Tensor) -> None:
        parts = zip(*over(base.features.at, index.split(PORTION)), strict=True)
        self.phi, rest = map(torch.cat, parts)
        self.noise, self.chance, self.seeks = rest + base.noise[index], base.chance[index], base.seeks
        self.inside, self.moment = base.inside, base.moment
        self.variance, self.shared = forms(self.phi, self.inside.to(self.phi), self.moment.to(self.phi))

    def now(self) -> Tensor:  # (s,)
        """The gain of every point."""
        return self.chance * (self.shared / (self.variance + self.noise)).clamp_min(0)

    def measure(self, place: Tensor) -> tuple[Tensor, ...]:  # (p,), (p,), (), ()
        """One measurement of a point; gives what it does to any other (`moved`)."""
        phi, size = self.phi[place].to(self.inside), (self.variance + self.noise)[place].to(self.inside)
        own = self.inside @ phi
        seen = self.moment @ own
        far, square = self.inside @ seen, own @ seen
        if self.seeks:
            self.chance[place] = 0.0
        by, cross = (self.phi @ own.to(self.phi)) / size.to(self.phi), self.phi @ far.to(self.phi)
        self.shared, self.variance = moved(self.shared, self.variance, by, cross, size.to(by), square.to(by))
        self.inside = self.inside - torch.outer(own, own) / size
        return own, far, size, square


def moved(
    shared: Tensor, variance: Tensor, by: Tensor, cross: Tensor, size: Tensor, square: Tensor
) -> tuple[Tensor, Tensor]:  # (s,) four times, () twice -> (s,) twice
    """φᵀAMAφ and φᵀAφ after a measurement."""
    return shared - 2 * by * cross + by**2 * square, (variance - by**2 * size).clamp_min(0)


def forms(phi: Tensor, inside: Tensor, moment: Tensor) -> tuple[Tensor, Tensor]:  # (s, p) -> (s,) twice
    """φᵀAφ and φᵀAMAφ."""
    by = phi @ inside
    return (by * phi).sum(-1), ((by @ moment) * by).sum(-1)


def posterior(view: View, features: Features, noise: Tensor) -> Tensor:  # (p, p)
    """A after what was measured, or is pending; a mean of c measurements has the noise σ²/c + ρ."""
    known = view.measured[0].nonzero()[:, 0]
    precision = torch.eye(features.root.shape[-1], dtype=torch.double, device=view.x.device)
    count = measurements(view)[0].to(noise).clamp_min(1)
    for index in known.split(PORTION):
        phi, rest = features.at(index)
        precision = precision + ((phi / (noise[index] / count[index] + rest)[:, None]).mT @ phi).double()
    return torch.linalg.inv(precision)


def moments(alpha: Tensor, view: View, features: Features, inside: Tensor) -> tuple[Tensor, float]:  # (p, p)
    """M, and the error expected over the whole pool."""
    alpha = alpha if view.stands is None else alpha * view.stands[0].to(alpha)
    if len(alpha) >= SAMPLED:  # a landmark that stood for others would look as if it were all of them
        alpha = alpha.index_fill(0, features.index, 0.0)
    some, weight = sample(alpha)
    before = inside.to(view.x)

    def sums(index: Tensor) -> tuple[Tensor, float]:  # of a portion
        phi, rest = features.at(index)
        own = weight[index, None]
        expected = ((phi @ before) * phi).sum(-1) + rest
        return ((phi * own).mT @ phi).double(), float((own[:, 0] * expected).sum())

    moment, total = torch.zeros_like(inside), 0.0
    for one, part in over(sums, some.split(PORTION)):
        moment += one
        total += part
    return moment, total


def noise_of(view: View) -> Tensor:  # (n,)
    """σ² of one measurement, as the estimator of the bias tells."""
    if isinstance(view.cobias, Cobias) and view.cobias.noise is not None:
        return view.cobias.noise[0].clamp_min(1e-6)
    return torch.full_like(view.x[:, 0], NOISE)


def positive(alpha: Tensor) -> Tensor:  # (n,)
    """α without what is negative or no number; 1 everywhere where nothing is positive."""
    alpha = alpha.nan_to_num(0.0, 0.0, 0.0).clamp_min(0)
    return alpha if bool((alpha > 0).any()) else torch.ones_like(alpha)
