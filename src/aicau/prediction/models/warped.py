"""A Gaussian process of a bent target, for targets with one long tail (costs, counts, resistances).

The target is standardised and bent by Yeo & Johnson's power λ, the one under which it is most Gaussian; a process is
fitted to what comes out. Predicted is the mean of the bent-back posterior, by Gauss-Hermite quadrature. Values are kept
within half a range beyond what was measured: bent back, a long step would become an enormous one.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from aicau.prediction.models.base import LeftOut, Points
from aicau.prediction.models.process import ProcessModel

POWERS = torch.linspace(0, 2, 41, dtype=torch.double)  # λ: 0 takes a logarithm above, 2 below, 1 leaves all as it is
NODES, SHARES = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(9))
BEYOND = 0.5  # ranges of the bent target


def bend(y: Tensor, power: Tensor) -> Tensor:  # broadcast
    """Yeo & Johnson's transformation."""

    def above(size: Tensor, by: Tensor) -> Tensor:
        return torch.where(by.abs() < 1e-9, size.log1p(), ((by * size.log1p()).exp() - 1) / by)

    return torch.where(y >= 0, above(y.clamp_min(0), power), -above((-y).clamp_min(0), 2 - power))


def unbend(z: Tensor, power: Tensor) -> Tensor:
    """Back: the inverse of `bend`."""

    def above(size: Tensor, by: Tensor) -> Tensor:
        return torch.where(by.abs() < 1e-9, size, (by * size).log1p() / by).expm1()

    return torch.where(z >= 0, above(z.clamp_min(0), power), -above((-z).clamp_min(0), 2 - power))


def best_power(y: Tensor) -> Tensor:  # (l,) standardised -> ()
    """The λ of the largest likelihood of a normal distribution, among `POWERS`."""
    bent = bend(y, POWERS[:, None])
    slope = (POWERS - 1) * (y.sign() * y.abs().log1p()).sum()
    spread = bent.var(-1, correction=0).clamp_min(1e-12)
    return POWERS[(slope - 0.5 * len(y) * spread.log()).argmax()]


@dataclass(frozen=True)
class WarpedModel:
    """The process, and how its target was bent."""

    process: ProcessModel
    bent: Tensor  # (5,) shift and scale of the target, λ, the least and the largest bent value allowed

    @classmethod
    def fit(cls, points: Points) -> "tuple[WarpedModel, LeftOut]":
        """Power first, then the process, without a trend."""
        shift, spread = points.y.mean(), points.y.std(correction=0)
        scale = torch.where(spread > 0, spread, 1.0)
        y = (points.y - shift) / scale
        power = best_power(y)
        bent = bend(y, power)
        room = BEYOND * (bent.amax() - bent.amin())
        how = torch.stack([shift, scale, power, bent.amin() - room, bent.amax() + room])
        process, left_out = ProcessModel.fit(replace(points, y=bent), trend=0.0)
        found = cls(process, how)
        assert left_out.variance is not None
        return found, LeftOut(found._back(left_out.mean, left_out.variance))

    def _back(self, mean: Tensor, variance: Tensor) -> Tensor:  # (m,) twice -> (m,)
        shift, scale, power, least, most = self.bent
        z = (mean[:, None] + NODES * variance.sqrt()[:, None]).clamp(least, most)
        return (unbend(z, power) @ (SHARES / SHARES.sum())) * scale + shift

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The mean in the target's own units."""
        return self._back(*self.process.both(at))

    def tensors(self) -> dict[str, Tensor]:
        return self.process.tensors() | {"bent": self.bent}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "WarpedModel":
        return cls(ProcessModel.load(tensors, trend=0.0), tensors["bent"])
