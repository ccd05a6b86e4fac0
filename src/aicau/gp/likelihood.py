"""Kernels, the covariance of measured rows, and the likelihood of their values with its gradient."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

FAR = 75.0  # exp(−75) counts as nothing; what underflows costs a hundred times the time


def rbf(square: Tensor) -> Tensor:
    """k = exp(−r²/2)."""
    return (-0.5 * square).clamp_min_(-FAR).exp_()


def matern(square: Tensor) -> Tensor:
    """Matérn 5/2: k = (1 + √5 r + 5r²/3) exp(−√5 r)."""
    root = (5 * square).sqrt().clamp_max(FAR)
    return (1 + root + (5 / 3) * square) * torch.exp(-root)


def matern_slope(square: Tensor) -> Tensor:
    """−2 ∂k/∂r²."""
    root = (5 * square).sqrt().clamp_max(FAR)
    return (5 / 3) * (1 + root) * torch.exp(-root)


# By name: k(r²), and −2 ∂k/∂r².
SHAPES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "rbf": (rbf, rbf),
    "matern": (matern, matern_slope),
}


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
    return cross.sub_(a @ b.mT, alpha=2).clamp_min_(0)


def kernel(
    a: Tensor,  # (..., l, p)
    b: Tensor,  # (..., n, p)
    theta: Tensor,  # (..., q)
    shape: str = "rbf",
    slope: bool = False,  # True: −2 σ_f² ∂k/∂r²
) -> Tensor:  # (..., l, n)
    """σ_f² k(r²)."""
    return theta[..., 0, None, None].exp() * SHAPES[shape][slope](squares(a, b, theta))


def _columns(at: Tensor, x: Tensor) -> Tensor:  # (..., m), (..., l, p) -> (..., m, p)
    return at[..., None].expand(*at.shape, x.shape[-1])


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
    constant: float = 0.0  # c
    linear: float = 0.0  # variance of the slope by each feature
    shape: str = "rbf"

    @property
    def pairs(self) -> Tensor:  # (..., l, l)
        return self.valid[..., :, None] & self.valid[..., None, :]

    def __getitem__(self, run: slice) -> "Rows":
        """Some of the runs (along the first leading dimension)."""
        return self._map(lambda t: t[run])

    def thin(self, most: int) -> "Rows":
        """At most `most` rows of each run that are not padded, evenly spaced."""
        count = self.valid.sum(-1, keepdim=True)  # (..., 1)
        size = max(1, min(most, int(count.max())))
        if size == self.y.shape[-1]:
            return self
        number = torch.arange(size, device=self.y.device).expand(*count.shape[:-1], -1)
        place = torch.where(count > size, number * (count - 1) // max(1, size - 1), number)
        at = torch.argsort((~self.valid).byte(), dim=-1, stable=True).gather(-1, place)
        kept = self._map(lambda t: t.gather(-1, at) if t.ndim == at.ndim else t.gather(-2, _columns(at, t)))
        return replace(kept, valid=number < count)

    def repeat(self, times: int) -> "Rows":
        """All runs so many times over."""
        return self._map(lambda t: t.repeat(times, *[1] * (t.ndim - 1)))

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Rows":
        parts: dict[str, Any] = {k: function(part) for k, part in vars(self).items() if isinstance(part, Tensor)}
        return replace(self, **parts)

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


def covariance(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:  # (..., l, l) twice
    """K of the rows, and its part σ_f² k."""
    pairs = rows.pairs
    signal = kernel(rows.x, rows.x, theta, rows.shape) * pairs
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
    return whole, signal


def _inverse(cholesky: Tensor, failed: Tensor) -> Tensor:  # (..., l, l), (...) -> (..., l, l)
    """K⁻¹ from the factor of K; anything where the factorisation failed."""
    identity = torch.eye(cholesky.shape[-1], dtype=cholesky.dtype, device=cholesky.device)
    if cholesky.is_cuda:  # a triangular solve is batched there, cholesky_inverse is not
        half = torch.linalg.solve_triangular(cholesky, identity.expand_as(cholesky), upper=False)
        return half.mT @ half
    if bool(failed.any()):
        cholesky = torch.where((failed > 0)[..., None, None], identity, cholesky)
    return torch.cholesky_inverse(cholesky)


def negative_log_likelihood(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:  # (..., q) -> (...), (..., q)
    """−log p(y) up to a constant that depends on the number of rows, and its gradient by theta."""
    whole, signal = covariance(theta, rows)
    cholesky, failed = torch.linalg.cholesky_ex(whole)
    inverse = _inverse(cholesky, failed)
    weights = (inverse @ rows.y[..., None])[..., 0]
    value = 0.5 * (rows.y * weights).sum(-1) + cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # ∂/∂θ_j = −½ tr[(wwᵀ − K⁻¹) ∂K/∂θ_j]; for a length scale ∂K/∂log ℓ_j = −2 σ_f² ∂k/∂r² (h_j − h_j*)²/ℓ_j²,
    # where −2 ∂k/∂r² is k itself for the RBF kernel.
    core = weights[..., :, None] * weights[..., None, :] - inverse
    slope = signal if rows.shape == "rbf" else kernel(rows.x, rows.x, theta, rows.shape, slope=True) * rows.pairs
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
