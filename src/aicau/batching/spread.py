"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean between the
`coordinates` of the pool. Where no α is positive, distance alone decides; where nothing was measured yet, the first
point is the one nearest to the centre of the pool.

A known point may be worth a repeat. Where the estimator of the bias tells (`Cobias`), it keeps d² = `REPEAT`·u, u the
squared distance that the doubt about the truth there is worth, and is chosen again when that times its α is more than
any new point offers; also within a batch, where a measurement of noise v takes u to uv/(u + v). Where nobody tells,
known points come when no new one offers more: first that with the largest α over one more than its measurements.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, take_best
from aicau.core.omega import Cobias

LARGE = 10**6  # numbers in the pool from which no copy of it is made
REPEAT = 0.1  # a repeat tells about one point, a new point about its neighbours too; with 1 strong noise costs more


@dataclass(frozen=True)
class Spread:
    def places(self, view: View) -> Tensor:  # (n, d), or (..., n, q) where every run has its own
        """What distances are measured between."""
        return view.x

    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        x = self.places(view)
        alpha = positive(score.alpha.to(x))
        square = nearest_square(x, view.measured)
        doubt, noise = doubts(view)
        if doubt is not None:
            square = torch.where(view.measured, REPEAT * doubt, square)
        allowed, chosen = view.allowed, []
        taken = torch.zeros_like(allowed, dtype=torch.int64)
        for step in range(m):
            weight = square
            if step == 0 and bool(torch.isinf(square).any()):
                weight = torch.where(torch.isinf(square), nearness_to_centre(x), square)
            worth = alpha * weight
            index, left = take_best(worth, allowed)
            spent = worth.gather(-1, index[..., None]) <= 0
            if bool(spent.any()):
                worth = torch.where(spent, alpha / (1 + measurements(view)), worth)
                index, left = take_best(worth, allowed)
            allowed = left
            chosen.append(index)
            nearer = torch.minimum(square, square_to(x, index))
            if doubt is None or noise is None:
                square = nearer
                continue
            at = index[..., None]
            doubt = doubt.scatter(-1, at, measured_once(doubt.gather(-1, at), noise.gather(-1, at)))
            taken = taken.scatter_add(-1, at, torch.ones_like(at))
            square = torch.where(view.measured | (taken > 0), REPEAT * doubt, nearer)
            if view.room is not None:
                allowed = view.allowed & (taken < view.room)
        return torch.stack(chosen, -1)


def doubts(view: View) -> tuple[Tensor, Tensor] | tuple[None, None]:  # (..., n) twice
    """What is unknown at a point, and the noise of a measurement, as squared distances; None where nobody tells."""
    if isinstance(view.cobias, Cobias) and view.cobias.doubt is not None and view.cobias.noise is not None:
        return view.cobias.doubt.to(view.x).clone(), view.cobias.noise.to(view.x)
    return None, None


def measurements(view: View) -> Tensor:  # (..., n)
    """How often each point was measured."""
    return (view.measured if view.times is None else view.times).to(view.x)


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
