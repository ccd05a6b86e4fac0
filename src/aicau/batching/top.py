"""Top-m: the m points with the largest α."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, take_best


@dataclass(frozen=True)
class Top:
    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        allowed, chosen = view.allowed, []
        for _ in range(m):
            index, allowed = take_best(score.alpha, allowed)
            chosen.append(index)
        return torch.stack(chosen, -1)
