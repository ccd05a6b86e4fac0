"""Joint: `spread` with distances in what goes in and what comes out: coordinates, and predictions as far as they hold.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| z | `places` | (..., n, d + K) | [x, √(2s)·F_k(x)], predictions scaled to vary over the pool as much as x, in all |
| s | `view.skill` | (...) | share of the variance that members explain of measurements they did not see |

Where few of many features matter, two points far apart in x may be the same to the ensemble, and two near ones
different. Where measurements are mostly noise, predictions differ by the noise they learned, and s is small.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import View
from aicau.batching.spread import Spread

WEIGHT = 2.0  # of predictions that hold wholly: half as much and as much were worse on data sets (docs/comparison.md)


@dataclass(frozen=True)
class Joint(Spread):
    def places(self, view: View) -> Tensor:  # with c entries per prediction (..., n, d + K·c)
        if view.predictions is None or view.skill is None:
            return view.x
        out = view.predictions.to(view.x)
        out = out.movedim(-3, -2).flatten(-2) if view.task.kind == "classes" else out.mT
        square = varies(out)
        square = torch.where(square > 0, WEIGHT * varies(view.x) / square, 0.0)
        out = out * (view.skill.to(square) * square).sqrt()[..., None, None]
        return torch.cat([view.x.expand(*out.shape[:-1], -1), out], -1)


def varies(x: Tensor) -> Tensor:  # (..., n, d) -> (...)
    """Variance over the pool, summed over columns."""
    return x.var(-2, correction=0).sum(-1)
