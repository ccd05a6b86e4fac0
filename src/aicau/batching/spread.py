"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean between the
`coordinates` of the pool. Where no α is positive, distance alone decides; where nothing was measured yet, the first
point is the one nearest to the centre of the pool.

Known points come when no new one offers more: first that with the largest α over one more than its measurements.

What a point is worth only falls while others are chosen. So of a large pool a list of those that are worth the most is
enough, until the best of the list is worth less than the least of it was: then comes the next list.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, among, measurements
from aicau.batching.base import Batching, Parts, Selection, at, check_enough, largest, positive, take_best
from aicau.core.runs import over, portion, threads, written

LISTED = 65_536  # candidates that compete at a time
NEW, CENTRE, SPENT = range(3)  # what decided: a distance, the centre, no new point


@dataclass(frozen=True)
class Spread(Batching):
    """Large scores, far from what is known: the largest score times squared distance, one by one.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct:spread").batching
    Spread()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"score", "distance"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        check_enough(view, m)
        alpha = positive(score.alpha.to(view.x.dtype))
        if len(view.x) <= LISTED or len(view) > 1:
            view = replace(view, x=view.x[:].to(alpha.device))
            square = [nearest_square(view.x, view.x[row]) for row in view.measured.reshape(-1, len(view.x))]
            chosen, parts = greedy(alpha, view, torch.stack(square).reshape(view.measured.shape), m)
        else:
            with threads(1):  # portions are computed side by side
                chosen, parts = from_lists(alpha, view, m)
        return Selection.of(chosen, parts)

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
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
        square = torch.minimum(square, square_to(view.x, view.x[index]))
    return chosen, parts


def from_lists(alpha: Tensor, view: View, m: int) -> tuple[list[Tensor], Parts]:  # (1, n)
    """The next m points of one run over a large pool: those that `greedy` finds, index for index."""
    device, worth = alpha.device, alpha[0]
    known = view.measured[0].nonzero()[:, 0]
    view = replace(view, allowed=view.allowed.clone())
    allowed = view.allowed[0]  # fewer with every list

    def portions() -> Iterator[Tensor]:
        return (x.to(device) for x in view.x.split(portion(device)))

    def of_all(function: Callable[[Tensor], Tensor]) -> Tensor:  # (n,)
        return written(over(function, portions(), device), torch.empty_like(worth))

    square = torch.full_like(worth, torch.inf)
    if len(known):
        square = of_all(partial(nearest_square, points=view.x[known].to(alpha)))
    chosen: list[Tensor] = []
    parts: Parts = {}
    while len(chosen) < m:
        floor: tuple[float, int] | None = None
        count, near = m - len(chosen), None
        if not len(known) and not chosen:
            centre = sum(over(lambda x: x.sum(0), portions(), device), torch.zeros_like(worth[:1])) / len(worth)
            near = of_all(partial(nearness_to, centre))
            index, _ = largest(worth * near, allowed, 1)
            count, near = 1, near[index]
        else:
            index, value = largest(worth * square, allowed, LISTED)
            if len(index) < int(allowed.sum()):  # not all are listed
                least = float(value.min())
                if float(value.max()) > 0:
                    floor = least, int((value == least).nonzero()[-1])
                else:  # and so it stays
                    index, _ = largest(per_measurement(alpha, view)[0], allowed, count)
        score, some = among(Score(alpha), view, index)
        some = replace(some, x=some.x.to(alpha))
        found, own = greedy(score.alpha, some, square[None, index], count, floor, near)
        places = torch.cat(found)
        new = index[places]
        chosen.extend(new[:, None])
        for name, part in own.items():
            parts.setdefault(name, []).extend(part)
        allowed[new] = False
        if len(chosen) < m:
            square = torch.minimum(square, of_all(partial(nearest_chosen, points=some.x[places])))
    return chosen, parts


def per_measurement(alpha: Tensor, view: View) -> Tensor:  # (..., n)
    """What is left of α after one more measurement."""
    return alpha / (1 + measurements(view).to(alpha))


def square_to(x: Tensor, points: Tensor) -> Tensor:  # (n, d), (..., d) -> (..., n)
    """Squared distance of every point to one point per run."""
    return ((x - points[..., None, :]) ** 2).sum(-1)


def nearest_chosen(x: Tensor, points: Tensor) -> Tensor:  # (n, d), (k, d) -> (n,)
    """Squared distance to the nearest of some points, to the bit as `greedy` has it."""
    return reduce(torch.minimum, (square_to(x, point) for point in points))


def nearness_to(centre: Tensor, x: Tensor) -> Tensor:  # (n, d) -> (n,)
    """Largest at the centre of the pool: where the first point goes when nothing was measured."""
    return 1 / (1 + ((x - centre) ** 2).sum(-1))


def nearest_square(x: Tensor, points: Tensor) -> Tensor:  # (n, d), (k, d) -> (n,)
    """Squared distance to the nearest of some points, at most 10⁷ at a time; infinite where there is none."""
    if not len(points):
        return torch.full_like(x[:, 0], torch.inf)
    return torch.cat([torch.cdist(part, points).amin(-1) for part in x.split(max(1, 10**7 // len(points)))]) ** 2
