"""How far a prediction is from the truth and from a new measurement, learned from left-out measurements.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| u | `local` | (m,) | what models say is unknown: the variance of the process, and how far models are apart |
| n | `own` | (m,) | noise by the process: it calls everything noise that changes faster than it can follow |
| h | `height` | (m,) | place of a predicted value among measured ones, −1 to 1: large values often vary more |
| a, b, c, ρ | `Scales` | () | exp(c h) (a u + b n) is the variance of a new measurement, ρ exp(c h) b n its noise |

All four are the most likely ones for left-out errors and for the scatter of replicates. Without replicates nothing
tells ρ, and its prior stands: the noise that a rougher process (Matérn) finds, by n. Measured points are harder than
the rest of the pool (that is why they were chosen): a left-out error weighs as many candidates as have this point as
their nearest measured one, and something beside, since isolated candidates are nearest to points that are not isolated.

Intervals are quantiles of standardised left-out errors. An error is standardised by scales that were fitted without its
fold (`without_folds`): errors look too regular by scales that were fitted to them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from aicau.gp.optimise import alone

SPREADS = torch.tensor([1.0, 1.0, 1.0, 0.7], dtype=torch.double)  # of the priors of ln a, ln b, c and the logit of ρ
SHARES = (0.05, 0.9)  # the least and the largest ρ that a prior is centred on
BOUNDS = torch.tensor([[-6.0, 6.0], [-9.0, 6.0], [-4.0, 4.0], [-6.0, 6.0]], dtype=torch.double)
HEIGHTS = 33  # measured values that a place is found among
BESIDE = 0.5  # what a measured point weighs beside its own candidates, in mean numbers of candidates
NEAR = 1024  # candidates whose nearest measured point is sought at a time


@dataclass(frozen=True)
class Scales:
    """a, b, c, ρ, and the measured values that heights are found among."""

    parameters: Tensor  # (4,) ln a, ln b, c, the logit of ρ
    values: Tensor  # (HEIGHTS,) ascending

    def parts(self, mean: Tensor, local: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:  # (m,) each -> (m,) twice
        """What is unknown of the truth, and the noise of one measurement: together a new measurement's variance."""
        a, b, share = self.parameters[0].exp(), self.parameters[1].exp(), self.parameters[3].sigmoid()
        factor = (self.parameters[2] * height(mean, self.values)).exp()
        return factor * (a * local + (1 - share) * b * own), factor * share * b * own


def height(mean: Tensor, values: Tensor) -> Tensor:  # (m,), (k,) -> (m,)
    """Place among ascending values, −1 below all to 1 above all, interpolated."""
    place = torch.searchsorted(values, mean.contiguous()).clamp(1, len(values) - 1)
    low, high = values[place - 1], values[place]
    share = ((mean - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
    return (place - 1 + share) * (2 / (len(values) - 1)) - 1


class Errors(NamedTuple):
    """What is known of left-out points; (l,) each."""

    error: Tensor  # mean of a point's measurements minus its left-out prediction
    mean: Tensor  # the left-out prediction
    y: Tensor  # means of measurements
    times: Tensor  # measurements behind each
    local: Tensor  # u of the left-out prediction
    own: Tensor  # n
    squares: Tensor  # squared deviations of measurements from the mean of their point, summed
    share: Tensor  # weight of each, 1 on average


def fit(left: Errors, noise: Tensor) -> Scales:
    """The most likely scales; `noise` is what a rougher process finds."""
    error, mean, y, times, local, own, squares, share = left
    values = torch.quantile(y, torch.linspace(0, 1, HEIGHTS, dtype=y.dtype))
    place = height(mean, values)
    own = own.clamp_min(1e-9)
    expected = torch.zeros(4, dtype=y.dtype)
    expected[3] = (noise / own.mean()).clamp(*SHARES).logit()

    def loss(theta: Tensor) -> tuple[Tensor, Tensor]:  # (1, 4)
        with torch.enable_grad():
            at = theta.detach().requires_grad_()
            a, b, c, logit = at[0]
            scatter = torch.exp(c * place + b) * own * torch.sigmoid(logit)
            total = torch.exp(c * place) * (a.exp() * local + b.exp() * own * torch.sigmoid(-logit)) + scatter / times
            value = (share * (total.log() + error**2 / total)).sum()
            value = value + ((times - 1) * scatter.log() + squares / scatter).sum()
            value = value + (((at[0] - expected) / SPREADS) ** 2).sum()
            (gradient,) = torch.autograd.grad(value, at)
        return value.detach()[None], gradient

    found, _ = alone(loss, expected, BOUNDS[:, 0], BOUNDS[:, 1])
    return Scales(found[0], values)


def without_folds(fold: Tensor, left: Errors, noise: Tensor) -> tuple[Tensor, Tensor]:  # (l,) -> (l,) twice
    """What is unknown of every left-out point, and the noise of one measurement, by the scales of the other folds."""
    found = torch.empty(2, len(fold), dtype=left.mean.dtype)
    for one in fold.unique():
        out = fold == one
        scales = fit(Errors(*(part[~out] for part in left)), noise)
        found[:, out] = torch.stack(scales.parts(left.mean[out], left.local[out], left.own[out]))
    return found[0], found[1]


def shares(fresh: Tensor, measured: Tensor) -> Tensor:  # (n, p), (l, p) coordinates -> (l,)
    """Candidates not measured that have this measured point as their nearest one, and `BESIDE`; 1 on average."""
    nearest = torch.cat([torch.cdist(part, measured).argmin(1) for part in fresh.split(NEAR)])
    beside = BESIDE * max(1.0, len(fresh) / len(measured))
    count = torch.bincount(nearest, minlength=len(measured)).to(fresh) + beside
    return count / count.mean()
