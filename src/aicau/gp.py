"""Gaussian-process regression, batched over runs: anisotropic kernels, weighted noise, batch effects, in a box.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| h | `x` | (..., l, p) | inputs |
| θ | `theta` | (..., q) | logs of σ_f², ℓ_1 … ℓ_p, then σ_n² (where learned), σ_b² and ℓ_b (where batches are known) |
| α | `fixed` | (..., l) | variance that is known: added to the diagonal |
| w | `relative` | (..., l) | variance that is learned, up to its scale: σ_n² w; 1/N for a mean of N measurements |
| b | `batch` | (..., l) | rows with one id share noise of variance σ_b²: a shift, or a field that fades with distance |

The covariance of two rows is σ_f² k(r²) + c + σ_b² exp(−|h − h*|/ℓ_b) [same batch], with r² = Σ_j (h_j − h_j*)²/ℓ_j²
and c the variance of an unknown mean; a shift is a field with ℓ_b = ∞. Padded rows (`valid` false) become rows of the
identity: they change neither the likelihood nor a prediction.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from aicau import kernels
from aicau.optimise import minimise

CONSTANT_BOUNDS = (1e-3, 1e3)
LENGTH_BOUNDS = (1e-2, 1e2)
NOISE_BOUNDS = (1e-6, 1e2)
BATCH_BOUNDS = (1e-6, 1e2)
MOST_ROWS = 512  # of the paper's process: its parameters are learned on at most as many, its weights on all
PIVOTS = 4096  # points a factor's pivots are sought among
CELLS = 2 * 10**7  # entries of a cross-covariance held at once
FAR = 75.0  # exp(−75) counts as nothing; what underflows costs a hundred times the time


def rbf(square: Tensor) -> tuple[Tensor, Tensor]:
    """k = exp(−r²/2), and −2 ∂k/∂r²."""
    value = torch.exp((-0.5 * square).clamp_min(-FAR))
    return value, value


def matern(square: Tensor) -> tuple[Tensor, Tensor]:
    """Matérn 5/2: k = (1 + √5 r + 5r²/3) exp(−√5 r), and −2 ∂k/∂r²."""
    root = (5 * square).sqrt().clamp_max(FAR)
    decay = torch.exp(-root)
    return (1 + root + (5 / 3) * square) * decay, (5 / 3) * (1 + root) * decay


SHAPES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {"rbf": rbf, "matern": matern}


def squares(
    a: Tensor,  # (..., l, p)
    b: Tensor,  # (..., n, p)
    theta: Tensor,  # (..., q)
) -> Tensor:  # (..., l, n)
    """r² by one product; inputs are centred on `b` first, which keeps its rounding small."""
    length = theta[..., None, 1 : 1 + a.shape[-1]].exp()
    centre = b.mean(-2, keepdim=True)
    a, b = (a - centre) / length, (b - centre) / length
    cross = (a**2).sum(-1)[..., :, None] + (b**2).sum(-1)[..., None, :]
    return (cross - 2 * (a @ b.mT)).clamp_min(0)


def kernel(
    a: Tensor,  # (..., l, p)
    b: Tensor,  # (..., n, p)
    theta: Tensor,  # (..., q)
    shape: str = "rbf",
) -> Tensor:  # (..., l, n)
    """σ_f² k(r²)."""
    return theta[..., 0, None, None].exp() * SHAPES[shape](squares(a, b, theta))[0]


@dataclass(frozen=True)
class Rows:
    """What a likelihood is computed from."""

    x: Tensor  # (..., l, p)
    y: Tensor  # (..., l), 0 where padded
    valid: Tensor  # (..., l)
    fixed: Tensor  # (..., l)
    relative: Tensor | None = None  # (..., l); None: no noise is learned
    batch: Tensor | None = None  # (..., l); None: no batches
    fades: bool = False  # what a batch shares: a field over x instead of one shift
    shape: str = "rbf"
    constant: float = 0.0  # c

    @property
    def pairs(self) -> Tensor:  # (..., l, l)
        return self.valid[..., :, None] & self.valid[..., None, :]

    def thin(self, most: int) -> "Rows":
        """At most that many rows, evenly spaced."""
        if self.y.shape[-1] <= most:
            return self
        at = torch.linspace(0, self.y.shape[-1] - 1, most, device=self.y.device).long()
        return replace(
            self,
            x=self.x[..., at, :],
            y=self.y[..., at],
            valid=self.valid[..., at],
            fixed=self.fixed[..., at],
            relative=None if self.relative is None else self.relative[..., at],
            batch=None if self.batch is None else self.batch[..., at],
        )

    def shared(self, theta: Tensor) -> tuple[Tensor, Tensor]:  # (..., l, l) twice
        """The part of the covariance that a batch shares, and |h − h*|/ℓ_b (0 for a shift)."""
        assert self.batch is not None
        same = (self.batch[..., :, None] == self.batch[..., None, :]) & self.pairs
        at = 1 + self.x.shape[-1] + (self.relative is not None)
        size = theta[..., at, None, None].exp() * same
        if not self.fades:
            return size, torch.zeros_like(size)
        plain = torch.zeros_like(theta[..., : 1 + self.x.shape[-1]])
        far = (squares(self.x, self.x, plain).sqrt() / theta[..., at + 1, None, None].exp()).clamp_max(FAR)
        return size * torch.exp(-far), far


def covariance(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
    """K of the rows, its part σ_f² k, and that part's slope by −½ log of the lengths."""
    pairs = rows.pairs
    value, slope = SHAPES[rows.shape](squares(rows.x, rows.x, theta))
    size = theta[..., 0, None, None].exp() * pairs
    signal, slope = size * value, size * slope
    diagonal = rows.fixed
    at = 1 + rows.x.shape[-1]
    if rows.relative is not None:
        diagonal = diagonal + theta[..., at, None].exp() * rows.relative
    whole = signal + torch.diag_embed(torch.where(rows.valid, diagonal, 1.0))
    if rows.constant:
        whole = whole + rows.constant * pairs
    if rows.batch is not None:
        whole = whole + rows.shared(theta)[0]
    return whole, signal, slope


def negative_log_likelihood(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:  # (..., q) -> (...), (..., q)
    """−log p(y) up to a constant that depends on the number of rows, and its gradient by theta."""
    whole, signal, slope = covariance(theta, rows)
    cholesky, failed = torch.linalg.cholesky_ex(whole)
    # L⁻¹ by one triangular solve: on CUDA it is batched, which cholesky_inverse is not.
    identity = torch.eye(whole.shape[-1], dtype=whole.dtype, device=whole.device).expand_as(whole)
    half = torch.linalg.solve_triangular(cholesky, identity, upper=False)
    inverse = half.mT @ half
    weights = (inverse @ rows.y[..., None])[..., 0]
    value = 0.5 * (rows.y * weights).sum(-1) + cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # ∂/∂θ_j = −½ tr[(wwᵀ − K⁻¹) ∂K/∂θ_j]; for a length scale ∂K/∂log ℓ_j = −2 ∂k/∂r² (h_j − h_j*)²/ℓ_j².
    core = weights[..., :, None] * weights[..., None, :] - inverse
    sloped = core * slope
    scaled = rows.x / theta[..., None, 1 : 1 + rows.x.shape[-1]].exp()
    by_length = (sloped.sum(-1)[..., None] * scaled**2).sum(-2) - (scaled * (sloped @ scaled)).sum(-2)
    parts = [-0.5 * (core * signal).sum((-1, -2))[..., None], -by_length]
    at = 1 + rows.x.shape[-1]
    if rows.relative is not None:
        own = core.diagonal(dim1=-2, dim2=-1) * rows.relative * rows.valid
        parts.append(-0.5 * theta[..., at : at + 1].exp() * own.sum(-1, keepdim=True))
    if rows.batch is not None:
        shared, far = rows.shared(theta)
        parts.append(-0.5 * (core * shared).sum((-1, -2))[..., None])
        if rows.fades:
            parts.append(-0.5 * (core * shared * far).sum((-1, -2))[..., None])
    bad = (failed > 0) | ~torch.isfinite(value)
    return torch.where(bad, torch.inf, value), torch.where(bad[..., None], 0.0, torch.cat(parts, -1))


@dataclass(frozen=True)
class Posterior:
    """A fitted process; its answers are in the units of the target, noise and batch effects left out."""

    theta: Tensor  # (..., q)
    rows: Rows
    cholesky: Tensor  # (..., l, l)
    weights: Tensor  # (..., l) K⁻¹ y
    shift: Tensor  # (...)
    scale: Tensor  # (...)

    @classmethod
    def of(cls, theta: Tensor, rows: Rows, shift: Tensor, scale: Tensor) -> "Posterior":
        """With parameters that were found before."""
        whole = covariance(theta, rows)[0]
        cholesky, failed = torch.linalg.cholesky_ex(whole)
        if bool((failed > 0).any()):
            jitter = torch.where(failed > 0, 1e-4, 0.0)[..., None].expand(*failed.shape, whole.shape[-1])
            cholesky = torch.linalg.cholesky(whole + torch.diag_embed(jitter))
        weights = torch.cholesky_solve(rows.y[..., None], cholesky)[..., 0]
        return cls(theta, rows, cholesky, weights, shift, scale)

    def mean(self, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        if at.ndim == 3 and at.shape[-2] * self.rows.x.shape[-2] > CELLS and self.rows.shape == "rbf":
            return torch.stack([self._sum(run, at[run]) for run in range(at.shape[0])])
        parts = [(self._cross(some) @ self.weights[..., None])[..., 0] for some in self._chunks(at)]
        return torch.cat(parts, -1) * self.scale[..., None] + self.shift[..., None]

    def _sum(self, run: int, at: Tensor) -> Tensor:  # (n, p) -> (n,)
        """The same for one run over a large pool, without the matrix between pool and data."""
        valid, length = self.rows.valid[run], self.theta[run, 1 : 1 + at.shape[-1]].exp()
        weights = self.weights[run][valid]
        bumps = kernels.rbf_sum(at / length, self.rows.x[run][valid] / length, weights * self.theta[run, 0].exp())
        return (bumps + self.rows.constant * weights.sum()) * self.scale[run] + self.shift[run]

    def variance(self, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        parts = [self._prior - (self._half(some) ** 2).sum(-2) for some in self._chunks(at)]
        return torch.cat(parts, -1).clamp_min(0) * self.scale[..., None] ** 2

    def factor(self, at: Tensor, rank: int) -> tuple[Tensor, Tensor]:  # (..., n, p) -> (..., n, rank), (..., n)
        """The covariance C of the posterior as F Fᵀ + diag(d): Nyström on pivots, d ≥ 0 keeps its diagonal exact.

        Pivots are those of a pivoted Cholesky decomposition over at most `PIVOTS` points, evenly spread over the rows
        of `at`; the cost is linear in n.
        """
        n = at.shape[-2]
        some = at if n <= PIVOTS else at[..., torch.linspace(0, n - 1, PIVOTS, device=at.device).long(), :]
        pivots = self._pivots(some, min(rank, some.shape[-2]))
        chosen = some.gather(-2, pivots[..., None].expand(*pivots.shape, some.shape[-1]))
        half = self._half(chosen)  # (..., l, r)
        core = self._prior_between(chosen, chosen) - half.mT @ half
        floor = 1e-10 * self._prior[..., None] * torch.eye(core.shape[-1], dtype=core.dtype, device=core.device)
        root = torch.linalg.cholesky(core + floor)
        factors, rests = [], []
        for part in self._chunks(at):
            own = self._half(part)
            cross = self._prior_between(part, chosen) - own.mT @ half
            low = torch.linalg.solve_triangular(root, cross.mT, upper=False).mT
            factors.append(low)
            rests.append((self._prior - (own**2).sum(-2) - (low**2).sum(-1)).clamp_min(0))
        scale = self.scale[..., None]
        return torch.cat(factors, -2) * scale[..., None], torch.cat(rests, -1) * scale**2

    def noise(self) -> Tensor:  # (...)
        """σ_n², the variance of one measurement (of relative weight 1)."""
        assert self.rows.relative is not None
        return self.theta[..., 1 + self.rows.x.shape[-1]].exp() * self.scale**2

    def roughness(self) -> Tensor:  # (...)
        """How much two values differ, squared, per squared distance between near points: σ_f² mean(1/ℓ_j²)."""
        lengths = self.theta[..., 1 : 1 + self.rows.x.shape[-1]]
        return self.theta[..., 0].exp() * torch.exp(-2 * lengths).mean(-1) * self.scale**2

    def batch_variance(self) -> Tensor:  # (...)
        """σ_b²."""
        assert self.rows.batch is not None
        at = 1 + self.rows.x.shape[-1] + (self.rows.relative is not None)
        return self.theta[..., at].exp() * self.scale**2

    def batch_shift(self) -> Tensor:  # (..., l)
        """What each row has from its batch: the best linear unbiased prediction."""
        return (self.rows.shared(self.theta)[0] @ self.weights[..., None])[..., 0] * self.scale[..., None]

    def left_out(self) -> tuple[Tensor, Tensor]:  # (..., l), (..., l)
        """Each row predicted from the others: mean and variance of its value (Rasmussen & Williams 5.12)."""
        own = torch.cholesky_inverse(self.cholesky).diagonal(dim1=-2, dim2=-1)
        mean = (self.rows.y - self.weights / own) * self.scale[..., None] + self.shift[..., None]
        return mean, self.scale[..., None] ** 2 / own

    def left_out_together(self, group: Tensor) -> Tensor:  # (l,) -> (l,)
        """Errors (value minus mean) of the rows of the first run, each predicted without its whole group."""
        inverse, weights = torch.cholesky_inverse(self.cholesky[0]), self.weights[0]
        error = weights / inverse.diagonal()
        _, place, count = group.unique(return_inverse=True, return_counts=True)
        for name in (count > 1).nonzero()[:, 0].tolist():
            at = (place == name).nonzero()[:, 0]
            error[at] = torch.linalg.solve(inverse[at][:, at], weights[at])
        return error * self.scale[0]

    @property
    def _prior(self) -> Tensor:  # (..., 1)
        return self.theta[..., :1].exp() + self.rows.constant

    def _prior_between(self, a: Tensor, b: Tensor) -> Tensor:
        return kernel(a, b, self.theta, self.rows.shape) + self.rows.constant

    def _cross(self, at: Tensor) -> Tensor:  # (..., n, l)
        return self._prior_between(at, self.rows.x) * self.rows.valid[..., None, :]

    def _half(self, at: Tensor) -> Tensor:  # (..., l, n)
        return torch.linalg.solve_triangular(self.cholesky, self._cross(at).mT, upper=False)

    def _chunks(self, at: Tensor) -> tuple[Tensor, ...]:
        lead = math.prod(self.theta.shape[:-1])
        return at.split(max(1, CELLS // (lead * self.rows.x.shape[-2])), dim=-2)

    def _pivots(self, at: Tensor, rank: int) -> Tensor:  # (..., s, p) -> (..., rank)
        half = self._half(at)
        left = self._prior - (half**2).sum(-2)  # (..., s)
        columns: list[Tensor] = []
        pivots = []
        for _ in range(rank):
            best = left.argmax(-1, keepdim=True)  # (..., 1)
            size = left.gather(-1, best).clamp_min(1e-300).sqrt()
            point = at.gather(-2, best[..., None].expand(*best.shape, at.shape[-1]))
            own = half.gather(-1, best[..., None, :].expand(*half.shape[:-1], 1))
            column = self._prior_between(at, point)[..., 0] - (half * own).sum(-2)
            for earlier in columns:
                column = column - earlier * earlier.gather(-1, best)
            column = column / size
            columns.append(column)
            left = (left - column**2).scatter(-1, best, -torch.inf)
            pivots.append(best[..., 0])
        return torch.stack(pivots, -1)


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
        scale = torch.where(spread > 10 * torch.finfo(y.dtype).eps, spread, 1.0)
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
