"""What is fitted, with which priors and within which bounds."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from aicau.gp.likelihood import Rows, negative_log_likelihood
from aicau.gp.optimise import VALUE_TOLERANCE, alone, together
from aicau.gp.posterior import Posterior

CONSTANT_BOUNDS = (1e-3, 1e3)
LENGTH_BOUNDS = (1e-2, 1e2)
NOISE_BOUNDS = (1e-6, 1e2)
BATCH_BOUNDS = (1e-6, 1e2)
NOISE_START, BATCH_START = 0.1, 0.1  # σ_n² and σ_b² that an optimiser starts from
PAPER_STARTS = (1.0, 0.1)  # with the first alone a noisy target may be taken for noise only
FEW, SCREEN = 64, (512, 128)  # places that are tried, with up to FEW rows and with more: these have fewer optima
SCREEN_ROWS, KEEP = 64, 4  # rows that places are tried on; the best so many become starts
COARSE = 200  # least rows of the first, coarse fit
LOOSE = 1e-5  # tolerance with twice as many rows and more: a hundredth of log likelihood says nothing
MOST_ROWS = 512  # most rows that parameters of the paper's process are learned from


@dataclass(frozen=True)
class Process:
    """What is fitted: by default scikit-learn's regressor with a constant times RBF kernel, as in the paper.

    Priors are normal densities (mean, standard deviation) on the logs of the parameters, for a normalised target.
    """

    alpha: float = 1e-6
    noise: bool = False  # learn σ_n²
    constant: float = 0.0
    signal_prior: tuple[float, float] | None = None
    length_prior: tuple[float, float] | None = None
    noise_prior: tuple[float, float] | None = None
    fades: bool = False  # batches share a field over x, not one shift
    starts: tuple[float, ...] = (1.0,)  # length scales to start from; the best optimum counts
    screened: bool = False  # start from the best of many places in the box, too: few rows have many optima
    linear: float = 0.0  # variance of an unknown slope by each feature, of a linear trend under the process
    shape: str = "rbf"  # or "matern"
    tolerance: float = VALUE_TOLERANCE  # relative progress of the objective below which one run stops

    def fit(self, *rows: Any, **options: Any) -> Posterior:
        """The posterior of all rows at the most likely parameters; arguments as of `found`."""
        return Posterior.of(*self.found(*rows, **options))

    def found(
        self,
        x: Tensor,  # (runs, l, p)
        y: Tensor,  # (runs, l)
        valid: Tensor,  # (runs, l)
        relative: Tensor | None = None,  # (runs, l), where noise is learned; None: 1
        batch: Tensor | None = None,  # (runs, l)
        most: int | None = None,
        near: Tensor | None = None,  # (runs, q) parameters to start from, in place of `starts`
    ) -> tuple[Tensor, Rows, Tensor, Tensor]:  # parameters, the normalised rows, what was taken out of y, its unit
        """Maximise the likelihood (times the prior) of the normalised target.

        With more than `most` rows the parameters are fitted on as many, evenly spaced.
        """
        shift, centred, scale = standardise(y, valid)
        if self.noise and relative is None:
            relative = torch.ones_like(y)
        fixed, settings = torch.full_like(y, self.alpha), (self.fades, self.constant, self.linear, self.shape)
        rows = Rows(x, centred / scale[..., None], valid, fixed, relative, batch, *settings)
        features, shared = x.shape[-1], batch is not None
        more = [(NOISE_BOUNDS, NOISE_START)] * self.noise + [(BATCH_BOUNDS, BATCH_START)] * shared
        more += [(LENGTH_BOUNDS, 1.0)] * (shared and self.fades)
        box = [CONSTANT_BOUNDS, *[LENGTH_BOUNDS] * features, *(bounds for bounds, _ in more)]
        lower, upper = torch.tensor(box, dtype=x.dtype, device=x.device).log().unbind(-1)
        starts = [[1.0, *[length] * features, *(start for _, start in more)] for length in self.starts]
        begin = torch.tensor(starts, dtype=x.dtype, device=x.device).log()[:, None].expand(-1, len(y), -1)
        begin = begin if near is None else near[None]
        return self._parameters(rows, begin, lower, upper, most or y.shape[-1], near is None), rows, shift, scale

    def _parameters(
        self,
        rows: Rows,
        starts: Tensor,  # (s, runs, q)
        lower: Tensor,  # (q,)
        upper: Tensor,  # (q,)
        most: int,
        afresh: bool,  # fit half of many rows first, which costs an eighth
    ) -> Tensor:  # (runs, q)
        """The best optimum over the starts; on the CPU one run at a time, so that a run does not depend on others."""
        runs, most = len(rows.y), min(most, rows.y.shape[-1])
        if not rows.y.is_cuda and runs > 1:
            one = [(rows[i : i + 1], starts[:, i : i + 1]) for i in range(runs)]
            return torch.cat([self._parameters(*own, lower, upper, most, afresh) for own in one])
        some, begin = rows.thin(most), starts
        large = most >= 2 * COARSE and not self.screened and not rows.y.is_cuda
        if large and afresh:
            begin = self._parameters(rows, starts, lower, upper, most // 2, True)[None]
        if self.screened:
            begin = torch.cat([begin, self._screen(rows.thin(SCREEN_ROWS), lower, upper)])
        number = len(begin)
        if rows.y.is_cuda:  # all starts at once, as if they were runs
            many = some.repeat(number)
            found = together(lambda theta: self.objective(theta, many), begin.flatten(0, 1), lower, upper)
            thetas, values = found[0].unflatten(0, (number, runs)), found[1].unflatten(0, (number, runs))
        else:
            objective, tolerance = partial(self.objective, rows=some), max(self.tolerance, LOOSE * large)
            each = [alone(objective, start[0], lower, upper, tolerance) for start in begin]
            thetas, values = (torch.stack(part) for part in zip(*each, strict=True))  # (s, runs, q), (s, runs)
        return thetas[values.argmin(0), torch.arange(runs, device=values.device)]

    def _screen(self, rows: Rows, lower: Tensor, upper: Tensor) -> Tensor:  # (q,) twice -> (KEEP, runs, q)
        """The best of evenly spread places in the box for each run; the signal of a normalised target is near 1."""
        lower, upper = lower.clone(), upper.clone()
        lower[0], upper[0] = math.log(0.3), math.log(10)
        number = SCREEN[int(rows.valid.sum(-1).max()) > FEW]
        spread = torch.quasirandom.SobolEngine(len(lower)).draw(number + 1)[1:].to(lower)
        places = lower + spread * (upper - lower)
        values = []
        for some in places.split(128):
            theta = some[:, None].expand(-1, len(rows.y), -1).flatten(0, 1)
            values.append(self.objective(theta, rows.repeat(len(some)))[0].unflatten(0, (len(some), -1)))
        return places[torch.cat(values).argsort(0)[:KEEP]]

    def objective(self, theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """−log of likelihood times prior, and its gradient."""
        value, gradient = negative_log_likelihood(theta, rows)
        at = rows.noise_at
        places = (slice(0, 1), slice(1, at), slice(at, rows.batch_at))  # the last is empty without noise
        for prior, where in zip((self.signal_prior, self.length_prior, self.noise_prior), places, strict=True):
            if prior is not None:
                off = (theta[..., where] - prior[0]) / prior[1]
                pull = torch.zeros_like(theta)
                pull[..., where] = off / prior[1]
                value, gradient = value + 0.5 * (off**2).sum(-1), gradient + pull
        return value, gradient


def standardise(y: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # (runs, l) twice -> (runs,), like y, (runs,)
    """Mean, values minus mean (0 where padded), and standard deviation, 1 where values are equal up to rounding."""
    y = torch.where(valid, y, 0.0)
    largest = y.abs().amax(-1)
    # Squares of very small values would underflow.
    unit = torch.where(largest > torch.finfo(y.dtype).tiny, largest, 1.0)[..., None]
    count = valid.sum(-1)
    scaled = y / unit
    mean = scaled.sum(-1) / count
    centred = torch.where(valid, scaled - mean[..., None], 0.0)
    spread = ((centred**2).sum(-1) / count).sqrt()
    spread = torch.where(spread > 10 * torch.finfo(y.dtype).eps, spread, 1 / unit[..., 0])
    return mean * unit[..., 0], centred * unit, spread * unit[..., 0]


def fit(x: Tensor, y: Tensor, valid: Tensor, alpha: float = 1e-6) -> Posterior:  # (runs, l, p), (runs, l), (runs, l)
    """The paper's process, without noise; the best optimum from `PAPER_STARTS` and many places in the box."""
    return Process(alpha=alpha, starts=PAPER_STARTS, screened=True).fit(x, y, valid, most=MOST_ROWS)
