"""Kernels, the covariance of measured rows, and the likelihood of their values with its gradient."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

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
    linear: float = 0.0  # variance of the slope by each feature

    @property
    def pairs(self) -> Tensor:  # (..., l, l)
        return self.valid[..., :, None] & self.valid[..., None, :]

    def __getitem__(self, run: slice) -> "Rows":
        """Some of the runs (along the first leading dimension)."""
        return replace(
            self,
            x=self.x[run],
            y=self.y[run],
            valid=self.valid[run],
            fixed=self.fixed[run],
            relative=None if self.relative is None else self.relative[run],
            batch=None if self.batch is None else self.batch[run],
        )

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
    if rows.linear:
        whole = whole + rows.linear * (rows.x @ rows.x.mT) * pairs
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
