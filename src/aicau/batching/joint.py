"""Joint: `spread` with distances in coordinates and in what members predict, by how well they predict held-out rows.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| z | `places` | (..., n, d + K) | [x, √(2s)·F_k(x)], predictions scaled to vary over the pool as much as x, in all |
| s | `view.skill` | (...) | share of the variance that members explain of measurements they did not see |

Where few of many features matter, two points far apart in x may be the same to the ensemble, and two near ones
different. Where measurements are mostly noise, predictions differ by the noise they learned, and s is small.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import Selection
from aicau.batching.spread import greedy, reason

WEIGHT = 2.0  # of predictions that hold wholly: half as much and as much were worse on data sets (docs/comparison.md)


@dataclass(frozen=True)
class Joint:
    """`Spread` with distances in features and predicted values: the batching rule of `default` for values.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("default").batching
    Joint()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"score", "distance", "predictions"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        """The next m points of every run."""
        return greedy(score, view, m, places(view))

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        return reason(numbers, meaning, "distance in features and predictions")


def places(view: View) -> Tensor:  # (n, d), or (..., n, d + K·c) with c entries per prediction
    """What distances are measured between."""
    if view.predictions is None or view.skill is None:
        return view.x
    out = view.task.members(view.predictions).flatten(-2).to(view.x)
    square = varies(out)
    square = torch.where(square > 0, WEIGHT * varies(view.x) / square, 0.0)
    out = out * (view.skill.to(square) * square).sqrt()[..., None, None]
    return torch.cat([view.x.expand(*out.shape[:-1], -1), out], -1)


def varies(x: Tensor) -> Tensor:  # (..., n, d) -> (...)
    """Variance over the pool, summed over columns."""
    return x.var(-2, correction=0).sum(-1)
