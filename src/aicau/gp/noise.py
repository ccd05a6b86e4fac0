"""Σ_Y from replicates and batches: what of a measurement is its own, what its batch shares, and what is left.

The model is y_i = c + f(x_i) + g_b(x_i) + ε_i: f a smooth Gaussian process over x, g one independent draw per batch (a
shift, or a field that fades with distance) of variance σ_b² (`shared`), ε independent with a variance σ²_Y(x) that may
change with x. All of it is fitted by the likelihood with the unknown mean c integrated out, which for variance
components is REML.
"""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau import gp

SHRINKAGE = 10.0  # degrees of freedom with which a local variance is pulled to the common one
WIDTHS = (0.25, 0.5, 1.0, 2.0)  # over which the variance may change, in two standardised dimensions
CONSTANT = 10.0  # variance of the unknown mean, in units of the target's
MOST = 500  # rows that hyper-parameters are fitted on; with 512 columns of matrices collide in the cache


def process(features: int, fades: bool = True) -> gp.Process:
    """Priors for standardised features and targets; lengths grow with the distances, as √p."""
    return gp.Process(
        noise=True,
        constant=CONSTANT,
        signal_prior=(0.0, 1.0),
        length_prior=(0.5 * math.log(features / 2), 1.0),
        noise_prior=(math.log(0.1), 1.0),
        fades=fades,
    )


@dataclass(frozen=True)
class Fitted:
    """The model after the measurements, for a batch of runs."""

    posterior: gp.Posterior
    inflation: Tensor  # (runs, l) squared standardised left-out residuals
    width: Tensor  # (runs,) over which the variance changes; infinite: nowhere
    many: gp.Many | None = None  # of all rows, where `posterior` is of some

    @property
    def shared(self) -> Tensor:  # (runs,)
        """σ_b²; 0 without batches."""
        theta, rows, scale = self.posterior.theta, self.posterior.rows, self.posterior.scale
        return torch.zeros_like(scale) if rows.batch is None else theta[..., rows.batch_at].exp() * scale**2

    def both(self, at: Tensor) -> tuple[Tensor, Tensor]:  # (runs, n, p) -> (runs, n) twice
        """Mean and variance of the truth."""
        return (self.many or self.posterior).both(at)

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
        shared = 0 if rows.batch is None else 1 + rows.fades
        fitted = 3 + rows.x.shape[-1] + shared  # the mean, the signal, the noise, a length per feature
        return count / max(count - fitted, count / 2)


def local_factor(at: Tensor, x: Tensor, inflation: Tensor, width: Tensor, apart: bool = False) -> Tensor:
    # (..., n, p), (..., l, p), (..., l), (...) -> (..., n)
    """Variance near `at` over the mean one: a kernel mean of squares, shrunk to 1; `apart`: without own rows."""
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
    settings: gp.Process | None = None,  # None: `process`
) -> Fitted:
    """The model of one batch of runs. With `local` the variance may change with x."""
    valid = torch.ones_like(y, dtype=torch.bool) if valid is None else valid
    settings = process(x.shape[-1], fades) if settings is None else settings
    weight = torch.ones_like(y) if counts is None else 1 / counts.to(y)
    posterior = settings.fit(x, y, valid, weight, batch, most=MOST)
    inflation, width = torch.ones_like(y), torch.full_like(y[:, 0], math.inf)
    if local:
        inflation = _squares(posterior, y)
        width = choose_width(x, inflation)
    if not bool(torch.isinf(width).all()):
        factor = local_factor(x, x, inflation, width)
        factor = factor / factor.mean(-1, keepdim=True)
        posterior = settings.fit(x, y, valid, weight * factor, batch, MOST, posterior.theta)
        inflation = _squares(posterior, y) * factor
    return Fitted(posterior, inflation, width)


def fit_many(x: Tensor, y: Tensor, counts: Tensor) -> Fitted:  # (1, l, p), (1, l) twice
    """`fit` for any number of rows without batches: parameters and noise from some of them, evenly spaced."""
    if y.shape[-1] <= gp.EXACT:
        return fit(x, y, None, counts, local=True)
    some = torch.linspace(0, y.shape[-1] - 1, gp.EXACT, device=y.device).long()
    fitted = fit(x[:, some], y[:, some], None, counts[:, some], local=True)
    own = fitted.posterior
    weight = local_factor(x, own.rows.x, fitted.inflation, fitted.width) / counts.to(y)
    fixed, value = torch.full_like(y, process(1).alpha), (y - own.shift[:, None]) / own.scale[:, None]
    rows = gp.Rows(x, value, torch.ones_like(y, dtype=torch.bool), fixed, weight, constant=CONSTANT)
    return replace(fitted, many=gp.Many.of(own.theta, rows, own.shift, own.scale))


def _squares(posterior: gp.Posterior, y: Tensor) -> Tensor:  # (runs, l)
    """Squared standardised errors of left-out measurements, at most 25 each: one outlier is not a noisy region."""
    mean, variance = posterior.left_out()
    return ((y - mean) ** 2 / variance).clamp_max(25.0)


def several(batch: Tensor) -> bool:  # (..., l)
    """Whether there is more than one batch to tell apart."""
    return bool((batch != batch[..., :1]).any())
