"""Power: m different points drawn at random, each with a probability proportional to a power of α.

Batches stay diverse because they are random, and cost one sort. Drawn with Gumbel noise: the m largest of
β log α(x) + g(x) are a sample without replacement (Kirsch et al., arXiv 2106.12059).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough, take_best
from aicau.batching.spread import positive
from aicau.core import streams
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Power:
    beta: float = 1.0

    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        draws = streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0])
        noisy = self.beta * positive(score.alpha).double().log() - torch.log(-torch.log(draws))
        allowed, chosen = view.allowed, []
        for _ in range(m):
            index, allowed = take_best(noisy, allowed)
            chosen.append(index)
        return torch.stack(chosen, -1)
