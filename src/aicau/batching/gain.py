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
not count. Everything is a sum or a maximum over points, so a large pool goes through in portions.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import Selection, check_enough, take_best
from aicau.batching.features import Features
from aicau.core.errors import InputError
from aicau.core.omega import Cobias
from aicau.core.runs import threads_for

LANDMARKS = 512  # small pools are exact; twice as many cost four times as much
LISTED = 4096  # points that are looked at together
HELD = 8 * LISTED  # points that wait with their features in memory
NAMES = ("index", "phi", "noise", "variance", "shared")  # of what is held
SAMPLED = 32_768  # points that M is summed over at most (`sample`)
UNLIKELY = 1e-6  # chance of a point below which only its gain decides
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

    `first` holds the gain of every point before any is chosen. What is chosen only lowers it (but for rare points), so
    a step looks at those points whose gain at first is above the best gain now; the others need not be computed again.

    With further targets (`view.others`) the gain is the sum of theirs. With costs it counts per cost, but no point
    counts as cheaper than what is left of the budget for each point that is left: money that is left over buys nothing.
    """
    works = [Work(*pair) for pair in ((score, view), *view.others)]
    first = torch.where(view.allowed[0], sum_of(work.first() for work in works), -torch.inf)
    room = (view.allowed.long() if view.room is None else view.room)[0].clone()
    known, chosen, left, lead = view.measured[0].clone(), [], view.budget, works[0]
    price = torch.ones_like(first[:1]).expand_as(first)
    for step in range(m):
        if view.cost is not None:
            price = view.cost[0].to(first).clamp_min(left / (m - step))
            room[view.cost[0] > left] = 0
            first[room == 0] = -torch.inf
            if not bool((room > 0).any()):
                break
        rate = first if view.cost is None else first / price
        while not len(lead.index) or float(rate.max()) > float(best(works, room, price)[1]):
            values, more = rate.topk(min(len(rate), LISTED))
            more = more[values > -torch.inf].sort().values
            if not len(more):
                break
            first[more] = rate[more] = -torch.inf
            for work in works:
                work.add(more)
            if len(lead.index) > HELD:  # the worst wait again, with their gain as it is now
                gain = sum_of(work.now() for work in works)
                order = (gain / price[lead.index]).argsort(descending=True, stable=True)
                kept, gone = (part.sort().values for part in order.tensor_split([HELD // 2]))
                index = lead.index[gone]
                first[index] = torch.where(room[index] > 0, gain[gone], -torch.inf)
                rate[index] = first[index] / price[index]
                for work in works:
                    work.keep(kept)
        place = best(works, room, price)[0]
        at, worth = lead.index[place], sum_of(work.now()[place] for work in works)
        chosen.append(
            (
                at,
                worth,
                sum_of(work.alpha[at] for work in works),
                worth / sum(w.total for w in works),
                known[at].clone(),
            )
        )
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


def best(works: Sequence["Work"], room: Tensor, price: Tensor) -> tuple[Tensor, Tensor]:
    """Where the largest gain per price is among the points looked at, and what it is."""
    index = works[0].index
    gain = sum_of(work.now() for work in works) / price[index]
    place, _ = take_best(gain, room[index] > 0)
    return place, torch.where(room[index[place]] > 0, gain[place], -1.0)


class Work:
    """The points that a step looks at, with φᵀAφ and φᵀAMAφ; each measurement updates both at the cost of a product."""

    def __init__(self, score: Score, view: View) -> None:
        self.alpha, self.features = positive(score.alpha[0]).to(view.x), Features(view, LANDMARKS)
        self.sigma2 = noise_of(view).to(view.x)
        self.seeks = view.chance is not None
        self.chance = torch.ones_like(self.alpha)
        if view.chance is not None:
            self.chance = view.chance[0].to(self.alpha).clamp_min(UNLIKELY).where(~view.measured[0], 0.0)
        self.inside = posterior(view, self.features, self.sigma2)
        self.moment, self.total = torch.zeros_like(self.inside), 0.0
        some, weight = sample(self.alpha)
        for index, phi, rest in portions(self.features, some):
            own = weight[index, None]
            self.moment += ((phi * own).mT @ phi).double()
            self.total += float((own[:, 0] * (((phi @ self.inside.to(phi)) * phi).sum(-1) + rest)).sum())
        self.index = torch.zeros_like(self.chance[:0], dtype=torch.int64)
        self.phi = self.chance.new_zeros(0, len(self.inside))
        self.noise = self.variance = self.shared = self.phi[:, 0]

    def first(self) -> Tensor:  # (n,)
        """The gain of every point of the pool."""
        found = []
        for index, phi, rest in portions(self.features, torch.arange(len(self.alpha), device=self.alpha.device)):
            variance, shared = self.parts(phi)
            found.append(shared / (variance + (rest + self.sigma2[index])))
        return self.chance * torch.cat(found)

    def parts(self, phi: Tensor) -> tuple[Tensor, Tensor]:  # (s, p) -> (s,) twice
        """φᵀAφ and φᵀAMAφ."""
        moved = phi @ self.inside.to(phi)
        return (moved * phi).sum(-1), ((moved @ self.moment.to(phi)) * moved).sum(-1)

    def add(self, index: Tensor) -> None:
        """Further points."""
        phi, rest = self.features.at(index)
        own = zip(NAMES, (index, phi, rest + self.sigma2[index], *self.parts(phi)), strict=True)
        self.__dict__.update({name: torch.cat([getattr(self, name), part]) for name, part in own})

    def now(self) -> Tensor:  # (s,)
        """The gain of every point."""
        return self.chance[self.index] * (self.shared / (self.variance + self.noise)).clamp_min(0)

    def keep(self, places: Tensor) -> None:
        """All other points are left out."""
        self.__dict__.update({name: getattr(self, name)[places] for name in NAMES})

    def measure(self, place: Tensor) -> None:
        """One measurement of a point."""
        if self.seeks:
            self.chance[self.index[place]] = 0.0
        phi, size = self.phi[place].to(self.inside), (self.variance + self.noise)[place].to(self.inside)
        own = self.inside @ phi
        seen = self.moment @ own
        by = (self.phi @ own.to(self.phi)) / size.to(self.phi)
        cross = self.phi @ (self.inside @ seen).to(self.phi)
        self.shared = self.shared - 2 * by * cross + by**2 * (own @ seen).to(by)
        self.variance = (self.variance - by**2 * size.to(by)).clamp_min(0)
        self.inside = self.inside - torch.outer(own, own) / size


def portions(features: Features, index: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Some of the pool in portions: indices, φ and ρ."""
    for some in index.split(LISTED):
        yield some, *features.at(some)


def posterior(view: View, features: Features, noise: Tensor) -> Tensor:  # (p, p)
    """A after what was measured, or is pending; a mean of c measurements has the noise σ²/c + ρ."""
    known = view.measured[0].nonzero()[:, 0]
    precision = torch.eye(features.root.shape[-1], dtype=torch.double, device=view.x.device)
    count = measurements(view)[0].to(noise).clamp_min(1)
    for index in known.split(LISTED):
        phi, rest = features.at(index)
        precision = precision + ((phi / (noise[index] / count[index] + rest)[:, None]).mT @ phi).double()
    return torch.linalg.inv(precision)


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
    if len(alpha) <= SAMPLED:
        return torch.arange(len(alpha), device=alpha.device), alpha
    along = alpha.double().cumsum(0)
    steps = (torch.arange(SAMPLED, device=alpha.device) + 0.5) / SAMPLED * along[-1]
    places = torch.searchsorted(along, steps).clamp_max(len(alpha) - 1)
    return places, torch.full_like(alpha, float(along[-1]) / SAMPLED)
