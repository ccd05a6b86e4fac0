"""Spread: one by one the point with the largest α(x)·d(x)², d the distance to the nearest measured or chosen point.

It is greedy error-weighted quantisation of the pool; the cost is linear in n. Distances are Euclidean in standardised
x. Where no α is positive, distance alone decides; where nothing was measured yet, the first point is the one nearest to
the centre of the pool.

A measured point is only as near as what is still unknown there allows. Where the estimator of the bias tells
(`Cobias`), d² is the smallest |x − x_i|² + u(x_i) over measured points, u the squared distance that the doubt about the
truth at x_i is worth. A measured point then keeps d² = u: it is repeated when that times its α is more than any new
point offers, also within a batch, where a measurement of noise v takes u to uv/(u + v).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, take_best
from aicau.omega import Cobias

LARGE = 10**6  # numbers in the pool from which no copy of it is made


@dataclass(frozen=True)
class Spread:
    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        alpha = positive(score.alpha.to(view.x))
        doubt, noise = doubts(view)
        square = nearest_square(view.x, view.measured, doubt)
        allowed, chosen = view.allowed, []
        taken = torch.zeros_like(allowed, dtype=torch.int64)
        for step in range(m):
            weight = square
            if step == 0 and bool(torch.isinf(square).any()):
                weight = torch.where(torch.isinf(square), nearness_to_centre(view.x), square)
            index, allowed = take_best(alpha * weight, allowed)
            chosen.append(index)
            at = index[..., None]
            near = square_to(view.x, index)
            if doubt is not None and noise is not None:
                left, own = doubt.gather(-1, at), noise.gather(-1, at)
                left = left * own / (left + own).clamp_min(torch.finfo(left.dtype).tiny)
                doubt, near = doubt.scatter(-1, at, left), near + left
                if view.room is not None:
                    taken = taken.scatter_add(-1, at, torch.ones_like(at))
                    allowed = view.allowed & (taken < view.room)
            square = torch.minimum(square, near)
        return torch.stack(chosen, -1)


def doubts(view: View) -> tuple[Tensor, Tensor] | tuple[None, None]:  # (..., n) twice
    """What is unknown at a point, and the noise of a measurement, as squared distances; None where nobody tells."""
    if isinstance(view.cobias, Cobias) and view.cobias.doubt is not None and view.cobias.noise is not None:
        return view.cobias.doubt.to(view.x), view.cobias.noise.to(view.x)
    return None, None


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
    flat = torch.cdist(points.reshape(-1, x.shape[1]), x, compute_mode="donot_use_mm_for_euclid_dist")
    return flat.reshape(*index.shape, -1) ** 2


def nearness_to_centre(x: Tensor) -> Tensor:  # (n, d) -> (n,)
    """Largest at the centre of the pool: where the first point goes when nothing was measured."""
    return 1 / (1 + ((x - x.mean(0)) ** 2).sum(-1))


def nearest_square(
    x: Tensor,  # (n, d)
    measured: Tensor,  # (..., n)
    doubt: Tensor | None = None,  # (..., n)
) -> Tensor:  # (..., n)
    """Squared distance to the nearest measured point, its doubt included; infinite where nothing was measured."""
    more = torch.zeros_like(x[:, 0]).expand(measured.shape) if doubt is None else doubt
    rows = []
    for row, own in zip(measured.reshape(-1, x.shape[0]), more.reshape(-1, x.shape[0]), strict=True):
        points = x[row]
        if points.shape[0] == 0:
            rows.append(torch.full_like(x[:, 0], torch.inf))
            continue
        parts = x.split(max(1, 10**7 // points.shape[0]))  # at most 10⁷ distances at a time
        rows.append(torch.cat([(torch.cdist(part, points) ** 2 + own[row]).amin(-1) for part in parts]))
    return torch.stack(rows).reshape(measured.shape)
