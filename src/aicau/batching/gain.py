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
multiplied by how likely that is.

The kernels: gradients of the networks (how a measurement moves their predictions), and a Gaussian kernel of the
coordinates with a length per feature, as the process behind the bias has learned them: features that do not matter do
not count. Everything is a sum or a maximum over points, so a large pool goes through in portions.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import Selection, check_enough, take_best
from aicau.batching.features import Features, evenly
from aicau.core.omega import Cobias
from aicau.core.runs import PORTION, over, threads_for

LANDMARKS = 512  # small pools are exact; twice as many cost four times as much
LISTED = 16_384  # points that compete
SAMPLED = 32_768  # points that M is summed over at most (`sample`)
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
    """One run: points in the order of choice, their gain, α, share of the whole and whether they were known."""
    alpha, noise, features = positive(score.alpha[0]).to(view.x), noise_of(view).to(view.x), Features(view, LANDMARKS)
    chance = torch.ones_like(alpha) if view.chance is None else view.chance[0].to(alpha)
    inside = posterior(view, features, noise)
    moment, total = moments(alpha, view, features, inside)
    room = (view.allowed.long() if view.room is None else view.room)[0].clone()
    index = competing(score, view, m, room, noise, chance)
    parts = (
        [features.at(some) for some in index.split(PORTION)]
        if index.is_cuda
        else over(features.at, index.split(PORTION))
    )
    phi, rest = (torch.cat(part) for part in zip(*parts, strict=True))
    work = Work(inside, moment, index, phi, rest + noise[index], chance[index])
    known, chosen = view.measured[0].clone(), []
    for _ in range(m):
        place, worth = work.best(room)
        at = index[place]
        chosen.append((at, worth, alpha[at], worth / total, known[at].clone()))
        room[at] -= 1
        known[at] = True
        work.measure(place)
    return tuple(torch.stack([one[part] for one in chosen]) for part in range(5))


def competing(score: Score, view: View, m: int, room: Tensor, noise: Tensor, chance: Tensor) -> Tensor:  # (n,) each
    """Points that are looked at: all that may be chosen; of very many those of the largest gains by `Screen`."""
    index = (room > 0).nonzero()[:, 0]
    if len(index) <= LISTED:
        return index
    screen, points = Screen(score, view, m), view.points
    parts = index.split(PORTION)
    found = over(
        lambda at: chance[at] * screen.gains(view.x[at], None if points is None else points[at], noise[at]), parts
    )
    return most(zip(parts, found, strict=True))


def most(parts: Iterable[tuple[Tensor, Tensor]]) -> Tensor:  # (s,) and (stages, s) of portions -> (at most LISTED,)
    """Points of the largest gains in each stage, ascending; of equal ones the first. Parts are joined as they come."""
    held: list[tuple[Tensor, Tensor]] = []
    floor: Tensor | float = -torch.inf  # what a point must exceed in some stage

    def joined() -> tuple[Tensor, Tensor, Tensor]:
        index, gain = (torch.cat(part, -1) for part in zip(*held, strict=True))
        best = gain.argsort(descending=True, stable=True)[:, : LISTED // len(gain)]
        kept = best.unique()
        return index[kept], gain[:, kept], gain.gather(-1, best[:, -1:])

    for index, gain in parts:
        over_it = (gain > floor).any(0).nonzero()[:, 0]
        held.append((index[over_it], gain[:, over_it]))
        if sum(len(one) for one, _ in held) > 4 * LISTED:
            index, gain, floor = joined()
            held = [(index, gain)]
    return joined()[0]


class Screen:
    """Gains of any points by few landmarks: they tell where in a large pool to look closely.

    A batch is spread, so the largest gains before the first choice are not enough: other points have the largest later.
    A batch that is chosen from some of the points, by the same landmarks, shows where.
    """

    def __init__(self, score: Score, view: View, m: int) -> None:
        noise, self.features = noise_of(view).to(view.x), Features(view, SKETCHED)
        inside = posterior(view, self.features, noise)
        moment, _ = moments(positive(score.alpha[0]).to(view.x), view, self.features, inside)
        room = (view.allowed.long() if view.room is None else view.room)[0].clone()
        index = (room > 0).nonzero()[:, 0]
        index = index[evenly(len(index), PORTION, view.x)]
        phi, rest = self.features.at(index)
        chance = torch.ones_like(rest) if view.chance is None else view.chance[0, index].to(rest)
        work, steps = Work(inside, moment, index, phi, rest + noise[index], chance), []
        for _ in range(min(m, int(room[index].sum()))):
            place, _ = work.best(room)
            room[index[place]] -= 1
            steps.append(work.measure(place))
        self.inside, self.moment, self.noise = inside.to(view.x), moment.to(view.x), noise.mean()
        self.moves = [torch.stack(part).to(view.x) for part in zip(*steps, strict=True)]
        self.stages = set(evenly(len(steps), STAGES, view.x).tolist())

    def gains(
        self, x: Tensor, points: Tensor | None, noise: Tensor | None
    ) -> Tensor:  # (s, d) twice, (s,) -> (stages, s)
        """Of points that the view need not hold: coordinates, what networks see, σ² (None: as on average)."""
        phi, rest = self.features.of(self.features.covariance.of(x, points))
        rest = rest + (self.noise if noise is None else noise.to(phi))
        variance, shared = forms(phi, self.inside, self.moment)
        own, far, sizes, squares = self.moves
        bys, crosses = (own @ phi.mT).div_(sizes[:, None]), far @ phi.mT
        found = []
        for step, (by, cross) in enumerate(zip(bys, crosses, strict=True)):
            if step in self.stages:
                found.append(shared / (variance + rest))
            shared, variance = moved(shared, variance, by, cross, sizes[step], squares[step])
        return torch.stack(found)


class Work:
    """The points that a step looks at, with φᵀAφ and φᵀAMAφ; each measurement updates both at the cost of a product."""

    def __init__(
        self, inside: Tensor, moment: Tensor, index: Tensor, phi: Tensor, noise: Tensor, chance: Tensor
    ) -> None:  # (p, p) twice, (s,), (s, p), (s,) σ² + ρ, (s,)
        self.inside, self.moment, self.index = inside, moment, index
        self.phi, self.noise, self.chance = phi, noise, chance
        self.variance, self.shared = forms(phi, inside.to(phi), moment.to(phi))

    def best(self, room: Tensor) -> tuple[Tensor, Tensor]:
        """Where the largest gain is, and what it is."""
        gain = self.chance * (self.shared / (self.variance + self.noise)).clamp_min(0)
        place, _ = take_best(gain, room[self.index] > 0)
        return place, gain[place]

    def measure(self, place: Tensor) -> tuple[Tensor, ...]:  # (p,), (p,), (), ()
        """One measurement of a point; gives what it does to any other (`moved`)."""
        phi, size = self.phi[place].to(self.inside), (self.variance + self.noise)[place].to(self.inside)
        own = self.inside @ phi
        seen = self.moment @ own
        far, square = self.inside @ seen, own @ seen
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
    moved = phi @ inside
    return (moved * phi).sum(-1), ((moved @ moment) * moved).sum(-1)


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


def sample(alpha: Tensor) -> tuple[Tensor, Tensor]:  # (n,) -> (s,), (n,)
    """Points that M is summed over, and their weights: all, or of a large pool `SAMPLED`, as likely as α is large.

    They lie evenly spaced along the sum of α, so that few points that count much are all among them.
    """
    there = (alpha > 0).nonzero()[:, 0] if len(alpha) > SAMPLED else torch.arange(len(alpha), device=alpha.device)
    if len(there) <= SAMPLED:
        return there, alpha
    along = alpha.double().cumsum(0)
    steps = (torch.arange(SAMPLED, device=alpha.device) + 0.5) / SAMPLED * along[-1]
    return torch.searchsorted(along, steps).clamp_max(len(alpha) - 1), torch.full_like(
        alpha, float(along[-1]) / SAMPLED
    )
