"""What plates share: the shift of every batch (plate, day), estimated by REML.

If batches share nothing, half of all likelihoods still rise a little with σ_b² > 0. So shifts and σ_b² are multiplied
by the probability that batches differ at all: the logistic function of the rise of the log likelihood minus ½ ln l,
what one more parameter is worth for l rows (the Bayesian information criterion). The truth under the shifts is a rough
process with a length scale per feature: a smoother one would take what it misses of the truth for shifts.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau import gp
from aicau.core.observations import Observations
from aicau.core.pool import Frame
from aicau.core.runs import by_run, over, threads
from aicau.gp import noise

FAR = 1e3  # standardised distance of a control from everything: nothing is learned from one about the other
EFFECT_ROWS = 800  # most rows that batch effects are estimated from


def process(features: int) -> gp.Process:
    """Matérn, with wide priors."""
    lengths, own = (0.5 * math.log(features / 2) + 1.0, 2.0), (math.log(0.05), 1.5)
    plain = noise.process(features, fades=False)
    return replace(plain, shape="matern", length_prior=lengths, noise_prior=own, tolerance=1e-6)


@dataclass(frozen=True)
class PlateEffects:
    """What the batches (plates, days) of one run added to their measurements, in the unit of the measurements."""

    variance: float  # σ_b²
    interval: tuple[float, float]  # 95%, of σ_b²
    batches: Tensor  # (b,) ids, ascending
    shift: Tensor  # (b,) estimated effect of each batch
    error: Tensor  # (b,) its standard error


@dataclass(frozen=True)
class Controls:
    """Measurements of references that stand on several batches, (k,) each: points far from all candidates."""

    name: Tensor  # numbers of the references
    y: Tensor
    batch: Tensor

    def join(self, x: Tensor, y: Tensor, batch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        # (runs, l, p), (runs, l) twice
        """Rows of candidates with those of controls behind them."""
        centred = self.y.clone()
        for one in self.name.unique():
            mine = self.name == one
            # The mean of the means of its batches: a batch with many wells does not pull it to its own shift.
            means = [self.y[mine & (self.batch == b)].mean() for b in self.batch[mine].unique()]
            centred[mine] -= torch.stack(means).mean()
        far = (FAR * (1 + self.name.to(x)))[:, None].expand(-1, x.shape[-1])
        far, own, plates = (part.expand(len(y), *part.shape) for part in (far, centred.to(y), self.batch))
        own = own + y.mean(-1, keepdim=True)
        return torch.cat([x, far], 1), torch.cat([y, own], 1), torch.cat([batch, plates], 1)


def plate_effects(x: Tensor, y: Tensor, batch: Tensor, controls: Controls | None = None) -> PlateEffects:
    # (l, p) standardised features, (l,) twice; replicates have rows of their own
    """The shift of every batch and the variance between batches; all 0 if fewer than two batches are known.

    Rows whose batch is unknown, a negative number, are left out.
    """
    known = (batch >= 0).nonzero()[:, 0]
    some = known[torch.linspace(0, len(known) - 1, min(len(known), EFFECT_ROWS)).long()]
    names = batch[some].unique()
    if len(names) < 2:
        return PlateEffects(0.0, (0.0, 0.0), names, y.new_zeros(len(names)), y.new_zeros(len(names)))
    with threads(1):
        fitted, certain = compared(x[some].double()[None], y[some].double()[None], batch[some][None], controls)
    sure = float(certain[0])
    shift, error = (part[0] for part in fitted.posterior.batch_shift())
    row = torch.stack([(batch[some] == name).nonzero()[0, 0] for name in names])  # one of each batch
    low, high = interval(fitted)
    low = low if sure > 0.975 else 0.0  # else more than 2.5% lie at 0
    return PlateEffects(sure * float(fitted.shared[0]), (low, high), names, sure * shift[row], error[row])


def without_plates(
    x: Tensor, observations: Observations, controls: Controls | None = None
) -> tuple[Tensor, Tensor]:  # (n, d), (..., l) -> (..., l), (...)
    """Measurements minus the shift of their batch (as in `plate_effects`), and the variance between batches."""
    o, frame = observations, Frame.of(x)

    def shifts(index: Tensor, y: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        if not noise.several(batch):
            return torch.zeros_like(y), torch.zeros_like(y[:, 0])
        some = torch.linspace(0, y.shape[-1] - 1, min(y.shape[-1], EFFECT_ROWS), device=y.device).long()
        fitted, sure = compared(frame.coordinates(x[index[:, some]].double()), y[:, some], batch[:, some], controls)
        same = batch[:, :, None] == batch[:, None, some]  # (runs, l, rows used)
        shift = sure[:, None] * fitted.posterior.batch_shift()[0].gather(-1, same.int().argmax(-1))
        return torch.where(same.any(-1), shift, 0.0), sure * fitted.shared

    shift, shared = by_run(shifts, o.index, o.y, o.batch, points=len(x), lead=o.y.ndim - 1)
    return o.y - shift, shared


def compared(
    x: Tensor, y: Tensor, batch: Tensor, controls: Controls | None = None
) -> tuple[noise.Fitted, Tensor]:  # (runs, l, p), (runs, l) twice -> and (runs,)
    """The fit, and the probability that batches differ at all, by the likelihood with and without them."""
    if controls is not None:
        x, y, batch = controls.join(x, y, batch)
    settings = process(x.shape[-1])
    fitted, bare = over(lambda own: noise.fit(x, y, own, settings=settings), [batch, None])
    together, without = (settings.objective(own.posterior.theta, own.posterior.rows)[0] for own in (fitted, bare))
    return fitted, torch.sigmoid(without - together - 0.5 * math.log(y.shape[-1]))


def interval(fitted: noise.Fitted) -> tuple[float, float]:
    """95% interval of σ_b² from the curvature of the likelihood by all parameters; from 0 where σ_b² sits there."""
    posterior, rows, step = fitted.posterior, fitted.posterior.rows, 1e-3
    at, settings = rows.batch_at, process(rows.x.shape[-1])

    def slope(theta: Tensor) -> Tensor:
        return settings.objective(theta, rows)[1][0]

    moves = step * torch.eye(posterior.theta.shape[-1]).to(posterior.theta)
    columns = [slope(posterior.theta + move) - slope(posterior.theta - move) for move in moves]
    curvature = torch.stack(columns) / (2 * step)
    curvature = 0.5 * (curvature + curvature.mT)
    values, vectors = torch.linalg.eigh(curvature)
    # Flat or falling directions (a parameter at its bound) carry no information: let them be wide.
    spread = float(((vectors[at] ** 2) / values.clamp_min(1e-2)).sum().sqrt())
    scale, centre = float(posterior.scale[0]) ** 2, float(posterior.theta[0, at])
    absent = math.exp(centre) < 10 * gp.BATCH_BOUNDS[0]
    low = 0.0 if absent else math.exp(centre - 1.96 * spread) * scale
    high = math.exp(min(centre + 1.96 * spread, math.log(gp.BATCH_BOUNDS[1]))) * scale
    return low, high
