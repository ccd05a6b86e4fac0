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
their nearest measured one.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.gp.optimise import alone

SPREADS = torch.tensor([1.0, 1.0, 0.5, 0.7], dtype=torch.double)  # of the priors of ln a, ln b, c and the logit of ρ
SHARES = (0.05, 0.9)  # the least and the largest ρ that a prior is centred on
BOUNDS = torch.tensor([[-6.0, 6.0], [-9.0, 6.0], [-2.0, 2.0], [-6.0, 6.0]], dtype=torch.double)
HEIGHTS = 33  # measured values that a place is found among
NEAR = 1024  # candidates whose nearest measured point is sought at a time
HALF = 0.5  # candidates that a measured point stands for beside its own


@dataclass(frozen=True)
class Scales:
    """a, b, c, ρ, and the measured values that heights are found among."""

    parameters: Tensor  # (4,) ln a, ln b, c, the logit of ρ
    values: Tensor  # (HEIGHTS,) ascending

    def factor(self, mean: Tensor) -> Tensor:  # (m,) -> (m,)
        """exp(c h)."""
        return (self.parameters[2] * height(mean, self.values)).exp()

    def parts(self, mean: Tensor, local: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:  # (m,) each -> (m,) twice
        """What is unknown of the truth, and the noise of one measurement: together a new measurement's variance."""
        a, b, share = self.parameters[0].exp(), self.parameters[1].exp(), self.parameters[3].sigmoid()
        factor = self.factor(mean)
        return factor * (a * local + (1 - share) * b * own), factor * share * b * own


def height(mean: Tensor, values: Tensor) -> Tensor:  # (m,), (k,) -> (m,)
    """Place among ascending values, −1 below all to 1 above all, interpolated."""
    place = torch.searchsorted(values, mean.contiguous()).clamp(1, len(values) - 1)
    low, high = values[place - 1], values[place]
    share = ((mean - low) / (high - low).clamp_min(1e-300)).clamp(0, 1)
    return (place - 1 + share) * (2 / (len(values) - 1)) - 1


def fit(
    error: Tensor,  # (l,) mean of a point's measurements minus its left-out prediction
    mean: Tensor,  # (l,) the left-out prediction
    y: Tensor,  # (l,) means of measurements
    count: Tensor,  # (l,) measurements behind each
    local: Tensor,  # (l,) u of the left-out prediction
    own: Tensor,  # (l,) n
    squares: Tensor,  # (l,) squared deviations of measurements from the mean of their point, summed
    share: Tensor,  # (l,) weight of each, 1 on average
    noise: Tensor,  # () that a rougher process finds
) -> Scales:
    """The most likely scales."""
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
            total = torch.exp(c * place) * (a.exp() * local + b.exp() * own * torch.sigmoid(-logit)) + scatter / count
            value = (share * (total.log() + error**2 / total)).sum()
            value = value + ((count - 1) * scatter.log() + squares / scatter).sum()
            value = value + (((at[0] - expected) / SPREADS) ** 2).sum()
            (gradient,) = torch.autograd.grad(value, at)
        return value.detach()[None], gradient

    found, _ = alone(loss, expected, BOUNDS[:, 0], BOUNDS[:, 1])
    return Scales(found[0], values)


def shares(fresh: Tensor, measured: Tensor) -> Tensor:  # (n, p), (l, p) coordinates -> (l,)
    """Candidates that are not measured and have this measured point as their nearest one, 1 on average."""
    nearest = torch.cat([torch.cdist(part, measured).argmin(1) for part in fresh.split(NEAR)])
    count = torch.bincount(nearest, minlength=len(measured)).to(fresh) + HALF
    return count / count.mean()
