"""Eigen batching (paper Section 3.3): one point per leading mode of Ω, where the mode's eigenvector is largest.

What the paper leaves open is decided here (figures in docs/decisions.md):

- points that may not be measured are removed from Ω before the decomposition, so every mode lives on candidates only;
- modes are taken in falling order of their eigenvalue while it is positive;
- where two modes peak at one point, the later mode takes its next largest entry;
- when there are fewer positive modes than points asked for, `fill` chooses the rest: at `random`, by `top` score, or by
  going round the modes again (`cycle`).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, matrix, take_best
from aicau.core import streams
from aicau.core.errors import unknown
from aicau.core.streams import Purpose

FILLS = ("random", "top", "cycle")


@dataclass(frozen=True)
class Eigen:
    fill: str = "random"

    def __post_init__(self) -> None:
        if self.fill not in FILLS:
            raise unknown("fill rule", self.fill, list(FILLS))

    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        omega = matrix(score, "eigen")
        spare = self._fill(score, view).to(omega.factor)
        values, vectors = omega.restrict(view.allowed).top_eigenpairs(m)
        size = vectors.abs_()  # (..., n, q)
        positive = (values > 0).sum(-1)  # (...)
        allowed, chosen = view.allowed, []
        for slot in range(m):
            mode = positive.new_full(positive.shape, slot)
            if self.fill == "cycle":
                mode = mode % positive.clamp_min(1)
            at = mode.clamp_max(size.shape[-1] - 1)[..., None, None].expand(*size.shape[:-1], 1)
            own = size.gather(-1, at)[..., 0]
            index, allowed = take_best(torch.where((mode < positive)[..., None], own, spare), allowed)
            chosen.append(index)
        return torch.stack(chosen, -1)

    def _fill(self, score: Score, view: View) -> Tensor:  # (..., n)
        if self.fill == "random":
            return streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0])
        return score.alpha
