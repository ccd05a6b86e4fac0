"""A Gaussian process of ranks: every feature is replaced by its rank among the candidates.

Doses in powers of ten, skewed sizes, hours of a day with few levels: where a feature's spacing says little, its order
says more. A rank is a matter of the pool, which is known, and not of what was measured.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau.prediction.models.base import LeftOut, Points
from aicau.prediction.models.process import ProcessModel

KNOTS = 65  # values of a feature whose ranks are kept; between them ranks are interpolated


def knots_of(at: Tensor) -> Tensor:  # (n, p) -> (2, p, KNOTS)
    """Some values of every feature, and their ranks: of equal values the mean rank, uniform with variance 1."""
    size = min(len(at), KNOTS)
    values = at.sort(0).values[torch.linspace(0, len(at) - 1, size, device=at.device).round().long()].mT.contiguous()
    low, high = (torch.searchsorted(values, values, right=right) for right in (False, True))
    rank = ((low + high).to(at) / (2 * size) - 0.5) * math.sqrt(12)
    return torch.stack([values, rank])


def ranked(at: Tensor, knots: Tensor) -> Tensor:  # (n, p), (2, p, k) -> (n, p)
    """Ranks of any values, interpolated; beyond the first and the last knot nothing changes."""
    values, rank = knots
    points = at.mT.to(values).contiguous()  # (p, n)
    high = torch.searchsorted(values, points, right=True).clamp(1, values.shape[-1] - 1)
    ends = [part.gather(-1, place) for part in (values, rank) for place in (high - 1, high)]
    gap = ends[1] - ends[0]
    share = torch.where(gap > 0, (points - ends[0]) / torch.where(gap > 0, gap, 1.0), 1.0).clamp(0, 1)
    return torch.lerp(ends[2], ends[3], share).mT.to(at).contiguous()


@dataclass(frozen=True)
class RanksModel:
    """The process, and what turns features into ranks."""

    process: ProcessModel
    knots: Tensor  # (2, p, k)

    @classmethod
    def fit(cls, points: Points) -> "tuple[RanksModel, LeftOut]":
        """The process of the ranks."""
        process, left_out = ProcessModel.fit(replace(points, at=ranked(points.at, points.knots)))
        return cls(process, points.knots), left_out

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The posterior mean."""
        return self.process.mean(ranked(at, self.knots))

    def tensors(self) -> dict[str, Tensor]:
        return self.process.tensors() | {"knots": self.knots}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "RanksModel":
        return cls(ProcessModel.load(tensors), tensors["knots"])
