"""Σ_Y from replicates and batches: what of a measurement is its own, what its batch shares, and what is left.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| y_i | `y` | (..., l) | measurements, one row each, replicates apart |
| g_b | `shift` | (..., l) | what the batch (plate, day, round) of a row added to it |
| σ_b² | `shared` | (...) | variance of g_b |
| σ²_Y(x) | `variance` | (..., n) | variance of what is a measurement's own |

The model is y_i = c + f(x_i) + g_b(x_i) + ε_i: f a smooth Gaussian process over x, g one independent draw per batch (a
shift, or a field that fades with distance), ε independent with a variance that may change with x. All of it is fitted
by the likelihood with the unknown mean c integrated out, which for variance components is REML. A plate that lifts all
its values is thus told from a region where the truth is high, as far as the data allow, and `corrected` has it taken
out by generalised least squares.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau import gp
from aicau.core.observations import Observations
from aicau.core.pool import Frame
from aicau.core.runs import by_run, threads

SHRINKAGE = 10.0  # degrees of freedom with which a local variance is pulled to the common one
WIDTHS = (0.25, 0.5, 1.0, 2.0)  # over which the variance may change, in two standardised dimensions
FREE = 3  # features up to which every length scale has a prior of its own width
CONSTANT = 10.0  # variance of the unknown mean, in units of the target's
MOST = 512  # rows that hyper-parameters are fitted on
FAR = 1e3  # standardised distance of a control from everything: nothing is learned from one about the other
EFFECT_ROWS = 800  # rows that batch effects are estimated from: a batch is known from some of its rows


def process(features: int, fades: bool = True) -> gp.Process:
    """Priors: everything of order one once standardised, some noise, longer lengths where distances are (as √p).

    With many features their lengths are held together: a hundred free ones fit any hundred rows.
    """
    return gp.Process(
        noise=True,
        constant=CONSTANT,
        signal_prior=(0.0, 1.0),
        length_prior=(0.5 * math.log(features / 2), min(1.0, (FREE / features) ** 0.5)),
        noise_prior=(math.log(0.1), 1.0),
        fades=fades,
    )


@dataclass(frozen=True)
class Fitted:
    """The model after the measurements, for a batch of runs."""

    posterior: gp.Posterior
    shift: Tensor  # (runs, l)
    shared: Tensor  # (runs,)
    inflation: Tensor  # (runs, l) squared standardised left-out residuals
    width: Tensor  # (runs,) over which the variance changes; infinite: nowhere

    def variance_at(self, at: Tensor) -> Tensor:  # (runs, n, p) -> (runs, n)
        """σ²_Y over the pool."""
        common = self.posterior.noise()[..., None]
        return common * local_factor(at, self.posterior.rows.x, self.inflation, self.width)

    def left_out(self) -> tuple[Tensor, Tensor]:  # (runs, l) twice
        """Each row predicted from the others, and the variance of its value; its own noise is estimated without it."""
        mean, variance = self.posterior.left_out()
        rows = self.posterior.rows
        assert rows.relative is not None
        given = [local_factor(rows.x, rows.x, self.inflation, self.width, apart) for apart in (True, False)]
        own = self.posterior.noise()[..., None] * rows.relative
        return mean, variance + own * (given[0] / given[1] - 1)

    def inflated(self) -> float:
        """How much larger a squared error is than a left-out one of rows that the parameters were fitted to."""
        rows = self.posterior.rows
        count = rows.y.shape[-1]
        lengths = min(rows.x.shape[-1], FREE)  # more are held together by their prior
        fitted = 3 + lengths + (0 if rows.batch is None else 1 + rows.fades)  # with the mean, the signal and the noise
        return count / max(count - fitted, count / 2)


def local_factor(
    at: Tensor,  # (..., n, p)
    x: Tensor,  # (..., l, p)
    inflation: Tensor,  # (..., l)
    width: Tensor,  # (...)
    apart: bool = False,  # True: a point's own rows do not count
) -> Tensor:  # (..., n)
    """How much larger the variance is near `at` than on average: a kernel mean of squares, shrunk to 1."""
    if not apart and bool(torch.isinf(width).all()):
        return inflation.new_ones(()).expand(*width.shape, at.shape[-2])
    scale = width.clamp_max(1e6).log()[..., None].expand(*width.shape, 1 + x.shape[-1])
    parts, own = [], inflation.to(at)[..., None]
    for some in gp.chunks(at, inflation.numel()):
        square = gp.squares(some, x.to(at), scale.to(at))
        near = torch.where(square > 1e-12, gp.rbf(square), 0.0) if apart else gp.rbf(square)
        parts.append(((near @ own)[..., 0] + SHRINKAGE) / (near.sum(-1) + SHRINKAGE))
    return torch.where(torch.isinf(width)[..., None], 1.0, torch.cat(parts, -1).to(inflation))


def choose_width(x: Tensor, inflation: Tensor) -> Tensor:  # (..., l, p), (..., l) -> (...)
    """The width under which the squared errors of other points best predict those of a point; maybe infinite."""
    widths = [*(w * (x.shape[-1] / 2) ** 0.5 for w in WIDTHS), math.inf]
    losses = []
    for width in widths:
        local = local_factor(x, x, inflation, torch.full_like(inflation[..., 0], width), apart=True)
        losses.append((local.log() + inflation / local).sum(-1))
    return torch.tensor(widths, dtype=x.dtype, device=x.device)[torch.stack(losses, -1).argmin(-1)]


def fit(
    x: Tensor,  # (runs, l, p) standardised features of each row
    y: Tensor,  # (runs, l)
    batch: Tensor | None = None,  # (runs, l)
    counts: Tensor | None = None,  # (runs, l) measurements a row is the mean of; None: 1
    fades: bool = True,
    local: bool = False,
    valid: Tensor | None = None,  # (runs, l) rows that count; None: all
) -> Fitted:
    """The model of one batch of runs. With `local` the variance may change with x."""
    valid = torch.ones_like(y, dtype=torch.bool) if valid is None else valid
    settings = process(x.shape[-1], fades)
    weight = torch.ones_like(y) if counts is None else 1 / counts.to(y)
    posterior = settings.fit(x, y, valid, weight, batch, most=MOST)
    inflation, width = torch.ones_like(y), torch.full_like(y[:, 0], math.inf)
    if local:
        inflation = _squares(posterior, y)
        width = choose_width(x, inflation)
    if not bool(torch.isinf(width).all()):
        factor = local_factor(x, x, inflation, width)
        factor = factor / factor.mean(-1, keepdim=True)
        posterior = settings.fit(x, y, valid, weight * factor, batch, most=MOST)
        inflation = _squares(posterior, y) * factor
    shared = posterior.batch_variance() if batch is not None else torch.zeros_like(y[:, 0])
    shift = posterior.batch_shift()[0] if batch is not None else torch.zeros_like(y)
    return Fitted(posterior, shift, shared, inflation, width)


def _squares(posterior: gp.Posterior, y: Tensor) -> Tensor:  # (runs, l)
    """Squared standardised errors of left-out measurements, at most 25 each: one outlier is not a noisy region."""
    mean, variance = posterior.left_out()
    return ((y - mean) ** 2 / variance).clamp_max(25.0)


@dataclass(frozen=True)
class PlateEffects:
    """What the batches (plates, days) of one run added to their measurements, in the unit of the measurements."""

    variance: float  # σ_b²
    interval: tuple[float, float]  # 95%, of σ_b²
    batches: Tensor  # (b,) ids, ascending
    shift: Tensor  # (b,) estimated effect of each batch
    error: Tensor  # (b,) its standard error

    def of(self, batch: Tensor) -> Tensor:  # (l,) -> (l,)
        """The effect on each row; 0 for a batch that was not estimated."""
        place = torch.searchsorted(self.batches, batch).clamp_max(len(self.batches) - 1)
        return torch.where(self.batches[place] == batch, self.shift[place], 0.0)


@dataclass(frozen=True)
class Controls:
    """Measurements of references that stand on several batches, (k,) each; none of them is a candidate.

    Each is a point of its own, far from all others, with its own mean: it says how far its batch is shifted.
    """

    name: Tensor  # numbers of the references
    y: Tensor
    batch: Tensor

    def join(
        self,
        x: Tensor,  # (runs, l, p)
        y: Tensor,  # (runs, l)
        batch: Tensor,  # (runs, l)
    ) -> tuple[Tensor, Tensor, Tensor]:
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


def plate_effects(
    x: Tensor,  # (l, p)
    y: Tensor,  # (l,)
    batch: Tensor,  # (l,)
    counts: Tensor | None = None,  # (l,)
    controls: Controls | None = None,
) -> PlateEffects:
    """Estimate the shift of every batch and the variance between batches by REML.

    Parameters
    ----------
    x : Tensor, shape (l, p)
        Standardised features of each measurement.
    y : Tensor, shape (l,)
        Measurements, replicates in rows of their own.
    batch : Tensor, shape (l,)
        Number of the batch of each measurement; a negative number means that it is unknown. Such rows are left out.
    counts : Tensor, shape (l,), optional
        How many measurements a row is the mean of; 1 if not given.
    controls : Controls, optional
        References that stand on the same batches.

    Returns
    -------
    PlateEffects
        Variance between batches with its 95% interval, and per batch the shift (the best linear unbiased prediction)
        with its standard error. All are 0 where fewer than two batches are known: a single one cannot be compared.

    Examples
    --------
    >>> import torch
    >>> from aicau.gp import noise
    >>> x = torch.linspace(-1, 1, 40).double()[:, None]
    >>> batch = torch.arange(40) % 4
    >>> found = noise.plate_effects(x, torch.sin(x[:, 0]) + batch, batch)
    >>> [round(float(shift)) for shift in found.shift - found.shift[0]]
    [0, 1, 2, 3]
    """
    known = (batch >= 0).nonzero()[:, 0]
    some = known[torch.linspace(0, max(0, len(known) - 1), min(len(known), EFFECT_ROWS)).long()]
    names = batch[some].unique()
    if len(names) < 2:
        return PlateEffects(0.0, (0.0, 0.0), names, y.new_zeros(len(names)), y.new_zeros(len(names)))
    rows = x[some].double()[None], y[some].double()[None], batch[some][None]
    weight = None if counts is None else counts[some][None].to(rows[1])
    if controls is not None:
        rows = controls.join(*rows)
        weight = None if weight is None else torch.cat([weight, weight.new_ones(1, len(controls.y))], 1)
    with threads(1):
        fitted = fit(*rows, weight, fades=False)
    shift, error = (part[0] for part in fitted.posterior.batch_shift())
    row = torch.stack([(batch[some] == name).nonzero()[0, 0] for name in names])  # one of each batch
    return PlateEffects(float(fitted.shared[0]), interval(fitted), names, shift[row], error[row])


def without_plates(
    x: Tensor,  # (n, d)
    observations: Observations,  # (..., l)
    controls: Controls | None = None,
) -> tuple[Tensor, Tensor]:  # (..., l), (...)
    """Measurements with the shift of their batch taken out, and the variance between batches; for any number of runs.

    The same estimate as `plate_effects`, from at most `EFFECT_ROWS` rows, evenly spaced: some rows are enough to know
    a batch. Controls see the shift of their batch, too.
    """
    o, frame = observations, Frame.of(x)

    def shifts(index: Tensor, y: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        if not several(batch):
            return torch.zeros_like(y), torch.zeros_like(y[:, 0])
        some = torch.linspace(0, y.shape[-1] - 1, min(y.shape[-1], EFFECT_ROWS), device=y.device).long()
        rows = frame.coordinates(x[index[:, some]].double()), y[:, some], batch[:, some]
        fitted = fit(*(rows if controls is None else controls.join(*rows)), fades=False)
        same = batch[:, :, None] == batch[:, None, some]  # (runs, l, rows used)
        shift = fitted.shift.gather(-1, same.int().argmax(-1))
        return torch.where(same.any(-1), shift, 0.0), fitted.shared

    shift, shared = by_run(shifts, o.index, o.y, o.batch, lead=o.y.ndim - 1)
    return o.y - shift, shared


def several(batch: Tensor) -> bool:  # (..., l)
    """Whether there is more than one batch to tell apart."""
    return bool((batch != batch[..., :1]).any())


def interval(fitted: Fitted) -> tuple[float, float]:
    """95% interval of σ_b² from the curvature of the likelihood by all parameters; from 0 where σ_b² sits there."""
    posterior = fitted.posterior
    at = 1 + posterior.rows.x.shape[-1] + 1
    settings = process(posterior.rows.x.shape[-1], posterior.rows.fades)
    count = posterior.theta.shape[-1]
    step = 1e-3
    moves = step * torch.eye(count, dtype=torch.double, device=posterior.theta.device)
    columns = [
        settings.objective(posterior.theta + move, posterior.rows)[1][0]
        - settings.objective(posterior.theta - move, posterior.rows)[1][0]
        for move in moves
    ]
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
