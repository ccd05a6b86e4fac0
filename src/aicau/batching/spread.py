"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean between the
`coordinates` of the pool. Where no α is positive, distance alone decides; where nothing was measured yet, the first
point is the one nearest to the centre of the pool.

Known points come when no new one offers more: first that with the largest α over one more than its measurements.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, measurements
from aicau.batching.base import Selection, at, check_enough, take_best

LARGE = 10**6  # numbers in the pool from which no copy of it is made
NEW, CENTRE, SPENT = range(3)  # what decided: a distance, the centre, no new point


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
        alpha = positive(score.alpha.to(view.x))
        square = nearest_square(view.x, view.measured)
        allowed, chosen = view.allowed, []
        parts: dict[str, list[Tensor]] = {"worth": [], "score": [], "distance": [], "cause": []}
        for step in range(m):
            weight = square
            first = torch.isinf(square)
            if step == 0 and bool(first.any()):
                weight = torch.where(first, nearness_to_centre(view.x), square)
            worth = alpha * weight
            index, left = take_best(worth, allowed)
            cause = torch.where(at(first, index), CENTRE, NEW)
            spent = at(worth, index) <= 0
            if bool(spent.any()):
                worth = torch.where(spent[..., None], alpha / (1 + measurements(view).to(alpha)), worth)
                index, left = take_best(worth, allowed)
                cause = torch.where(spent, SPENT, cause)
            allowed = left
            chosen.append(index)
            for name, part in (("worth", worth), ("score", alpha), ("distance", square.sqrt())):
                parts[name].append(at(part, index))
            parts["cause"].append(cause)
            square = torch.minimum(square, square_to(view.x, index))
        return Selection(torch.stack(chosen, -1), {name: torch.stack(part, -1) for name, part in parts.items()})

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        score, far = f"{meaning} ({numbers['score']:.3g})", numbers["distance"]
        if numbers["cause"] == CENTRE:
            return "the first point: nearest to the centre of the candidates"
        if numbers["cause"] == SPENT:
            return f"no new point offers more: {score} is the largest for its number of measurements"
        return f"{score} times the squared distance to the nearest known or chosen point ({far:.3g}): the largest left"


def positive(alpha: Tensor) -> Tensor:  # (..., n)
    """α without its negative values; 1 everywhere where nothing is positive."""
    alpha = alpha.clamp_min(0)
    return torch.where((alpha > 0).any(-1, keepdim=True), alpha, 1.0)


def square_to(x: Tensor, index: Tensor) -> Tensor:  # (n, d), (...) -> (..., n)
    """Squared distance of every point to one point per run."""
    points = x[index]
    if x.numel() < LARGE:
        return ((x - points[..., None, :]) ** 2).sum(-1)
    # A large pool: the same without a copy of it, by the direct formula (no cancellation).
    flat = torch.cdist(points[..., None, :], x, compute_mode="donot_use_mm_for_euclid_dist")
    return flat[..., 0, :] ** 2


def nearness_to_centre(x: Tensor) -> Tensor:  # (n, d) -> (n,)
    """Largest at the centre of the pool: where the first point goes when nothing was measured."""
    return 1 / (1 + ((x - x.mean(-2, keepdim=True)) ** 2).sum(-1))


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
