"""What is fitted, with which priors and within which bounds."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aicau.gp.likelihood import Rows, negative_log_likelihood
from aicau.gp.optimise import minimise
from aicau.gp.posterior import Posterior

CONSTANT_BOUNDS = (1e-3, 1e3)
LENGTH_BOUNDS = (1e-2, 1e2)
NOISE_BOUNDS = (1e-6, 1e2)
BATCH_BOUNDS = (1e-6, 1e2)
MOST_ROWS = 512  # of the paper's process: its parameters are learned on at most as many, its weights on all


@dataclass(frozen=True)
class Process:
    """What is fitted: the defaults are scikit-learn's regressor with a constant times RBF kernel, as in the paper.

    Priors are normal densities (mean, standard deviation) on the logs of the parameters, in units of the normalised
    target: without them a handful of points fit anything, or are called all noise.
    """

    shape: str = "rbf"
    alpha: float = 1e-6
    noise: bool = False  # learn σ_n²
    constant: float = 0.0
    signal_prior: tuple[float, float] | None = None
    length_prior: tuple[float, float] | None = None
    noise_prior: tuple[float, float] | None = None
    fades: bool = False  # batches share a field over x, not one shift
    linear: float = 0.0  # variance of an unknown slope by each feature, of a linear trend under the process
    start: tuple[float, float, float] = field(default=(1.0, 0.1, 0.1))  # ℓ, σ_n², σ_b²

    def fit(
        self,
        x: Tensor,  # (runs, l, p)
        y: Tensor,  # (runs, l)
        valid: Tensor,  # (runs, l)
        relative: Tensor | None = None,  # (runs, l); None: 1
        batch: Tensor | None = None,  # (runs, l)
        most: int | None = None,
    ) -> Posterior:
        """Maximise the likelihood (times the prior) of the normalised target.

        With more than `most` rows the parameters are fitted on as many, evenly spaced; all rows enter the posterior.
        """
        count = valid.sum(-1)
        shift = (y * valid).sum(-1) / count
        centred = (y - shift[..., None]) * valid
        spread = ((centred**2).sum(-1) / count).sqrt()
        rounding = 10 * torch.finfo(y.dtype).eps * (y * valid).abs().amax(-1)
        scale = torch.where(spread > rounding, spread, 1.0)
        if self.noise and relative is None:
            relative = torch.ones_like(y)
        rows = Rows(
            x,
            centred / scale[..., None],
            valid,
            torch.full_like(y, self.alpha),
            relative if self.noise else None,
            batch,
            self.fades,
            self.shape,
            self.constant,
            self.linear,
        )
        length, noise, shared = self.start
        begin = [1.0, *[length] * x.shape[-1]]
        box = [CONSTANT_BOUNDS, *[LENGTH_BOUNDS] * x.shape[-1]]
        if rows.relative is not None:
            begin, box = [*begin, noise], [*box, NOISE_BOUNDS]
        if rows.batch is not None:
            begin, box = [*begin, shared], [*box, BATCH_BOUNDS]
            if rows.fades:
                begin, box = [*begin, length], [*box, LENGTH_BOUNDS]
        bounds = torch.tensor(box, dtype=x.dtype, device=x.device).log()
        start = torch.tensor(begin, dtype=x.dtype, device=x.device).log().expand(x.shape[0], -1)
        some = rows if most is None else rows.thin(most)
        theta = minimise(lambda t: self.objective(t, some), start, bounds[:, 0], bounds[:, 1])
        return Posterior.of(theta, rows, shift, scale)

    def objective(self, theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """−log of likelihood times prior, and its gradient."""
        value, gradient = negative_log_likelihood(theta, rows)
        at = 1 + rows.x.shape[-1]
        for prior, where in (
            (self.signal_prior, slice(0, 1)),
            (self.length_prior, slice(1, at)),
            (self.noise_prior if rows.relative is not None else None, slice(at, at + 1)),
        ):
            if prior is not None:
                off = (theta[..., where] - prior[0]) / prior[1]
                pull = torch.zeros_like(theta)
                pull[..., where] = off / prior[1]
                value, gradient = value + 0.5 * (off**2).sum(-1), gradient + pull
        return value, gradient


def fit(x: Tensor, y: Tensor, valid: Tensor, alpha: float = 1e-6) -> Posterior:  # (runs, l, p), (runs, l), (runs, l)
    """The paper's process: no noise but `alpha`, from σ_f² = ℓ_j = 1, as scikit-learn's regressor does."""
    return Process(alpha=alpha).fit(x, y, valid, most=MOST_ROWS)


def log_likelihood(theta: Tensor, x: Tensor, y: Tensor, alpha: float = 1e-6) -> Tensor:
    """log p(y) with its constant, for unpadded rows: what scikit-learn calls log_marginal_likelihood."""
    valid = torch.ones_like(y, dtype=torch.bool)
    value, _ = negative_log_likelihood(theta, Rows(x, y, valid, torch.full_like(y, alpha)))
    return -value - 0.5 * y.shape[-1] * math.log(2 * math.pi)
