"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean between the
`coordinates` of the pool. Where no α is positive, distance alone decides; where nothing was measured yet, the first
point is the one nearest to the centre of the pool.

A known point may be worth a repeat. Where the estimator of the bias says how unsure it is (`Cobias`), the point keeps
d² = `REPEAT`·u, u the squared distance that the doubt about the truth there is worth, and is chosen again when that
times its α is more than any new point offers; also within a batch, where a measurement of noise v takes u to
uv/(u + v). Without such an estimate, known points come when no new one offers more: first that with the largest α over
one more than its measurements.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View, doubts, measurements
from aicau.batching.base import Selection, at, check_enough, take_best

LARGE = 10**6  # numbers in the pool from which no copy of it is made
REPEAT = 0.1  # a repeat tells about one point, a new point about its neighbours too; with 1 strong noise costs more
NEW, CENTRE, DOUBT, SPENT = range(4)  # what decided: a distance, the centre, doubt about a known point, no new point


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
        return greedy(score, view, m, view.x)

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        return reason(numbers, meaning, "distance")


def greedy(score: Score, view: View, m: int, x: Tensor) -> Selection:  # x: (n, d), or (..., n, q) per run
    """The largest α·d², one by one, with distances between the rows of `x`."""
    check_enough(view, m)
    alpha = positive(score.alpha.to(x))
    square = nearest_square(x, view.measured)
    doubt, noise = doubts(view)
    if doubt is not None:
        square = torch.where(view.measured, REPEAT * doubt, square)
    known = view.measured
    allowed, chosen = view.allowed, []
    taken = torch.zeros_like(allowed, dtype=torch.int64)
    parts: dict[str, list[Tensor]] = {"worth": [], "score": [], "distance": [], "cause": []}
    for step in range(m):
        weight = square
        first = torch.isinf(square)
        if step == 0 and bool(first.any()):
            weight = torch.where(first, nearness_to_centre(x), square)
        worth = alpha * weight
        index, left = take_best(worth, allowed)
        cause = torch.where(at(known, index), DOUBT, torch.where(at(first, index), CENTRE, NEW))
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
        nearer = torch.minimum(square, square_to(x, index))
        if doubt is None or noise is None:
            square = nearer
            continue
        here = index[..., None]
        doubt = doubt.scatter(-1, here, measured_once(doubt.gather(-1, here), noise.gather(-1, here)))
        taken = taken.scatter_add(-1, here, torch.ones_like(here))
        known = view.measured | (taken > 0)
        square = torch.where(known, REPEAT * doubt, nearer)
        if view.room is not None:
            allowed = view.allowed & (taken < view.room)
    return Selection(torch.stack(chosen, -1), {name: torch.stack(part, -1) for name, part in parts.items()})


def reason(numbers: dict[str, float], meaning: str, distance: str) -> str:
    """Why a point was chosen, in words; `distance` says between what."""
    score, far = f"{meaning} ({numbers['score']:.3g})", numbers["distance"]
    if numbers["cause"] == CENTRE:
        return "the first point: nearest to the centre of the candidates"
    if numbers["cause"] == SPENT:
        return f"no new point offers more: {score} is the largest for its number of measurements"
    if numbers["cause"] == DOUBT:
        return f"a known point: what is still unknown there counts as a {distance} of {far:.3g}, times {score}"
    return f"{score} times the squared {distance} to the nearest known or chosen point ({far:.3g}): the largest left"


def measured_once(doubt: Tensor, noise: Tensor) -> Tensor:
    """What is left of the doubt after one more measurement."""
    return doubt * noise / (doubt + noise).clamp_min(torch.finfo(doubt.dtype).tiny)


def positive(alpha: Tensor) -> Tensor:  # (..., n)
    """α without its negative values; 1 everywhere where nothing is positive."""
    alpha = alpha.clamp_min(0)
    return torch.where((alpha > 0).any(-1, keepdim=True), alpha, 1.0)


def square_to(x: Tensor, index: Tensor) -> Tensor:  # (..., n, d), (...) -> (..., n)
    """Squared distance of every point to one point per run."""
    points = x[index] if x.ndim == 2 else x.take_along_dim(index[..., None, None], -2)[..., 0, :]
    if x.numel() < LARGE:
        return ((x - points[..., None, :]) ** 2).sum(-1)
    # A large pool: the same without a copy of it, by the direct formula (no cancellation).
    flat = torch.cdist(points[..., None, :], x, compute_mode="donot_use_mm_for_euclid_dist")
    return flat[..., 0, :] ** 2


def nearness_to_centre(x: Tensor) -> Tensor:  # (..., n, d) -> (..., n)
    """Largest at the centre of the pool: where the first point goes when nothing was measured."""
    return 1 / (1 + ((x - x.mean(-2, keepdim=True)) ** 2).sum(-1))


def nearest_square(x: Tensor, measured: Tensor) -> Tensor:  # (..., n, d), (..., n) -> (..., n)
    """Squared distance to the nearest measured point; infinite where nothing was measured."""
    flat = measured.reshape(-1, measured.shape[-1])
    rows = []
    for own, row in zip(x.expand(*measured.shape, -1).reshape(*flat.shape, -1), flat, strict=True):
        points = own[row]
        if points.shape[0] == 0:
            rows.append(torch.full_like(own[:, 0], torch.inf))
            continue
        parts = own.split(max(1, 10**7 // points.shape[0]))  # at most 10⁷ distances at a time
        rows.append(torch.cat([torch.cdist(part, points).amin(-1) for part in parts]) ** 2)
    return torch.stack(rows).reshape(measured.shape)
