"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean between the
`coordinates` of the pool. Where no α is positive, distance alone decides; where nothing was measured yet, the first
point is the one nearest to the centre of the pool.

Known points come when no new one offers more: first that with the largest α over one more than its measurements.

What a point is worth only falls while others are chosen. So of a large pool a list of those that are worth the most is
enough, until the best of the list is worth less than the least of it was: then comes the next list (`Field`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import Selection, at, check_enough, largest, take_best
from aicau.core.runs import over, portion, threads, written

LISTED = 65_536  # candidates that compete at a time
NEW, CENTRE, SPENT = range(3)  # what decided: a distance, the centre, no new point
Parts = dict[str, list[Tensor]]


@dataclass(frozen=True)
class Spread:
    """Large scores, far from what is known: the largest score times squared distance, one by one.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct:spread").batching
    Spread()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"score", "distance"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        """The next m points of every run."""
        check_enough(view, m)
        alpha = positive(score.alpha.to(view.x.dtype))
        if len(view.x) <= LISTED or len(view) > 1:
            view = replace(view, x=view.x[:].to(alpha.device))
            chosen, parts = greedy(alpha, view, nearest_square(view.x, view.measured), m)
        else:
            with threads(1):  # portions are computed side by side
                chosen, parts = from_lists(alpha, view, m)
        return Selection(torch.stack(chosen, -1), {name: torch.stack(part, -1) for name, part in parts.items()})

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        score, far = f"{meaning} ({numbers['score']:.3g})", numbers["distance"]
        if numbers["cause"] == CENTRE:
            return "the first point: nearest to the centre of the candidates"
        if numbers["cause"] == SPENT:
            return f"no new point offers more: {score} is the largest for its number of measurements"
        return f"{score} times the squared distance to the nearest known or chosen point ({far:.3g}): the largest left"


def greedy(
    alpha: Tensor,  # (..., n)
    view: View,
    square: Tensor,  # (..., n) of the distance to what is known
    m: int,
    floor: tuple[float, int] | None = None,  # what others are worth at most; of equals, those up to a place come first
    near: Tensor | None = None,  # (n,) to the centre of the pool; None: computed
) -> tuple[list[Tensor], Parts]:
    """The next m points of every run; fewer where others may be worth as much."""
    allowed, chosen = view.allowed, []
    parts: Parts = {"worth": [], "score": [], "distance": [], "cause": []}
    for step in range(m):
        weight = square
        first = torch.isinf(square)
        if step == 0 and bool(first.any()):
            near = nearness_to(view.x.mean(-2, keepdim=True), view.x) if near is None else near
            weight = torch.where(first, near, square)
        worth = alpha * weight
        index, left = take_best(worth, allowed)
        cause = torch.where(at(first, index), CENTRE, NEW)
        if floor is not None and step:
            value, place = float(at(worth, index)), int(index)
            if value < floor[0] or value <= 0 or (value == floor[0] and place > floor[1]):
                break
        spent = at(worth, index) <= 0
        if bool(spent.any()):
            worth = torch.where(spent[..., None], per_measurement(alpha, view), worth)
            index, left = take_best(worth, allowed)
            cause = torch.where(spent, SPENT, cause)
        allowed = left
        chosen.append(index)
        for name, part in (("worth", worth), ("score", alpha), ("distance", square.sqrt())):
            parts[name].append(at(part, index))
        parts["cause"].append(cause)
        square = torch.minimum(square, square_to(view.x, index))
    return chosen, parts


@dataclass
class Field:
    """Of a large pool, for one run: how far every candidate is from what is known, and lists of the best."""

    alpha: Tensor  # (n,)
    view: View
    square: Tensor = field(init=False)  # (n,)

    def __post_init__(self) -> None:
        self.square = torch.full_like(self.alpha, torch.inf)

    def portions(self) -> Iterator[Tensor]:
        return (x.to(self.alpha.device) for x in self.view.x.split(portion(self.alpha.device)))

    def see(self, points: Tensor, few: bool = True) -> None:  # (k, d)
        """What is known from now on."""

        def nearest(x: Tensor) -> Tensor:
            if few:  # as `greedy` does it
                return torch.stack([((x - point) ** 2).sum(-1) for point in points]).amin(0)
            return torch.cdist(x, points).amin(-1) ** 2

        if len(points):
            new = written(over(nearest, self.portions(), points.device), torch.empty_like(self.square))
            self.square = torch.minimum(self.square, new)

    def nearness(self) -> Tensor:  # (n,)
        """Largest at the centre of the pool."""
        device = self.alpha.device
        centre = sum(over(lambda x: x.sum(0), self.portions(), device), torch.zeros_like(self.alpha[:1]))
        near = over(lambda x: nearness_to(centre / len(self.alpha), x), self.portions(), device)
        return written(near, torch.empty_like(self.alpha))


def from_lists(alpha: Tensor, view: View, m: int) -> tuple[list[Tensor], Parts]:  # (1, n)
    """The next m points of one run over a large pool: those that `greedy` finds, index for index."""
    pool, allowed = Field(alpha[0], view), view.allowed[0].clone()
    known = view.measured[0].nonzero()[:, 0]
    pool.see(view.x[known].to(alpha), few=False)
    chosen: list[Tensor] = []
    parts: Parts = {"worth": [], "score": [], "distance": [], "cause": []}
    while len(chosen) < m:
        floor: tuple[float, int] | None = None
        count, near = m - len(chosen), None
        if not len(known) and not chosen:
            near = pool.nearness()
            index, _ = largest(pool.alpha * near, allowed, 1)
            count, near = 1, near[index]
        else:
            index, value = largest(pool.alpha * pool.square, allowed, LISTED)
            least = float(value.min())
            floor = least, int((value == least).nonzero()[-1])
            if len(index) == int(allowed.sum()):
                floor = None  # all are listed
            elif float(value.max()) <= 0:
                index, _ = largest(per_measurement(alpha, view)[0], allowed, count)
                floor = None  # and so it stays
        some = replace(
            view,
            x=view.x[index].to(alpha),
            allowed=torch.ones_like(index[None], dtype=torch.bool),
            measured=view.measured[:, index],
            times=None if view.times is None else view.times[:, index],
        )
        found, own = greedy(alpha[:, index], some, pool.square[None, index], count, floor, near)
        places = torch.cat(found)
        new = index[places]
        chosen.extend(new[:, None])
        for name in parts:
            parts[name].extend(own[name])
        allowed[new] = False
        if len(chosen) < m:
            pool.see(some.x[places])
    return chosen, parts


def positive(alpha: Tensor) -> Tensor:  # (..., n)
    """α without its negative values; 1 everywhere where nothing is positive."""
    alpha = alpha.clamp_min(0)
    return torch.where((alpha > 0).any(-1, keepdim=True), alpha, 1.0)


def per_measurement(alpha: Tensor, view: View) -> Tensor:  # (..., n)
    """What is left of α after one more measurement."""
    return alpha / (1 + measurements(view).to(alpha))


def square_to(x: Tensor, index: Tensor) -> Tensor:  # (n, d), (...) -> (..., n)
    """Squared distance of every point to one point per run."""
    points = x[index]
    return ((x - points[..., None, :]) ** 2).sum(-1)


def nearness_to(centre: Tensor, x: Tensor) -> Tensor:  # (n, d) -> (n,)
    """Largest at the centre of the pool: where the first point goes when nothing was measured."""
    return 1 / (1 + ((x - centre) ** 2).sum(-1))


def nearest_square(x: Tensor, measured: Tensor) -> Tensor:  # (n, d), (..., n) -> (..., n)
    """Squared distance to the nearest measured point; infinite where nothing was measured."""
    rows = []
    for row in measured.reshape(-1, measured.shape[-1]):
        points = x[row]
        if points.shape[0] == 0:
            rows.append(torch.full_like(x[:, 0], torch.inf))
            continue
        parts = x.split(max(1, 10**7 // points.shape[0]))  # at most 10⁷ distances at a time
        rows.append(torch.cat([torch.cdist(part, points).amin(-1) for part in parts]) ** 2)
    return torch.stack(rows).reshape(measured.shape)
