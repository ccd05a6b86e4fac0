"""Conditional: one by one the point with the largest variance under Ω given the points already chosen.

It is a pivoted Cholesky decomposition of Ω: after a point is chosen, what it tells about the others is subtracted. The
cost is linear in the pool, m² columns in all.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, matrix, take_best


@dataclass(frozen=True)
class Conditional:
    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        omega = matrix(score, "conditional")
        factor, left = omega.factor, omega.diagonal()  # (..., n, r), (..., n)
        allowed, chosen = view.allowed, []
        columns: list[Tensor] = []
        for _ in range(m):
            index, allowed = take_best(left, allowed)
            chosen.append(index)
            at = index[..., None]
            own = factor.gather(-2, at[..., None].expand(*at.shape, factor.shape[-1]))  # (..., 1, r)
            column = (factor * (own * omega.weights[..., None, :])).sum(-1)
            if omega.extra is not None:
                column = column.scatter_add(-1, at, omega.extra.expand_as(column).gather(-1, at))
            for earlier in columns:
                column = column - earlier * earlier.gather(-1, at)
            size = left.gather(-1, at)
            # A difference of rounds can leave nothing positive: then the point tells nothing about the others.
            column = torch.where(size > 0, column / size.clamp_min(torch.finfo(size.dtype).tiny).sqrt(), 0.0)
            columns.append(column)
            left = left - column**2
        return torch.stack(chosen, -1)
