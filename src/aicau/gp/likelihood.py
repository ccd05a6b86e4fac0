"""Kernels, the covariance of measured rows, and the likelihood of their values with its gradient."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor

from aicau.core.runs import OfRuns, mapped

FAR = 75.0  # exp(−75) counts as nothing; what underflows costs a hundred times the time


def rbf(square: Tensor) -> Tensor:
    """k = exp(−r²/2)."""
    return (-0.5 * square).clamp_min_(-FAR).exp_()


def matern(square: Tensor) -> tuple[Tensor, Tensor]:
    """Matérn 5/2: k = (1 + √5 r + 5r²/3) exp(−√5 r), and −2 ∂k/∂r² = 5/3 (1 + √5 r) exp(−√5 r)."""
    root = (5 * square).sqrt_().clamp_max_(FAR)
    fall = torch.exp(-root)
    slope = (root + 1).mul_(fall)
    return torch.addcmul(slope, square, fall, value=5 / 3), (5 / 3) * slope


# The kernel k(r²), and −2 ∂k/∂r².
SHAPES: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {"rbf": lambda r2: (rbf(r2),) * 2, "matern": matern}


def squares(a: Tensor, b: Tensor, theta: Tensor) -> Tensor:  # (..., l, p), (..., n, p), (..., q) -> (..., l, n)
    """r² by one product; inputs are centred on `b` first, which keeps its rounding small."""
    length = theta[..., None, 1 : 1 + a.shape[-1]].exp()
    centre = b.mean(-2, keepdim=True)
    a, b = (a - centre) / length, (b - centre) / length
    cross = (a**2).sum(-1)[..., :, None] + (b**2).sum(-1)[..., None, :]
    return cross.sub_(a @ b.mT, alpha=2).clamp_min_(0)


@dataclass(frozen=True)
class Rows(OfRuns):
    """What a likelihood is computed from."""

    common: ClassVar[tuple[str, ...]] = ("fades", "constant", "linear", "shape")
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

    @cached_property
    def pairs(self) -> Tensor | None:  # (..., l, l)
        """Where both rows count; None where all do. On CUDA nobody waits for the answer."""
        if not self.valid.is_cuda and bool(self.valid.all()):
            return None
        return self.valid[..., :, None] & self.valid[..., None, :]

    def thin(self, most: int) -> "Rows":
        """At most `most` rows of each run that are not padded, evenly spaced."""
        count = self.valid.sum(-1, keepdim=True)  # (..., 1)
        size = max(1, min(most, int(count.max())))
        if size == self.y.shape[-1]:
            return self
        number = torch.arange(size, device=self.y.device).expand(*count.shape[:-1], -1)
        place = torch.where(count > size, number * (count - 1) // max(1, size - 1), number)
        at = torch.argsort((~self.valid).byte(), dim=-1, stable=True).gather(-1, place)

        def kept(t: Tensor) -> Tensor:
            return t.gather(-1, at) if t.ndim == at.ndim else t.take_along_dim(at[..., None], -2)

        return replace(mapped(kept, self), valid=number < count)

    @property
    def noise_at(self) -> int:
        """Where in theta σ_n² stands, if it is learned: after the length scales."""
        return 1 + self.x.shape[-1]

    @property
    def batch_at(self) -> int:
        """Where in theta σ_b² stands, if there are batches; ℓ_b follows."""
        return self.noise_at + (self.relative is not None)

    def part(self, at: Tensor | slice) -> "Rows":  # (k,)
        """Some of the rows, the same ones of every run."""
        return mapped(lambda t: t[..., at] if t.ndim == self.y.ndim else t[..., at, :], self)

    def repeat(self, times: int) -> "Rows":
        """All runs, `times` times."""
        return mapped(lambda t: t.repeat(times, *[1] * (t.ndim - 1)), self)

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs beside settings, where no row is padded."""
        names = ("x", "y", "fixed", "relative", "batch")
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    @classmethod
    def load(cls, t: dict[str, Tensor], **settings: Any) -> "Rows":
        """What `tensors` gave."""
        valid = torch.ones_like(t["y"], dtype=torch.bool)
        return cls(t["x"], t["y"], valid, t["fixed"], t["relative"], t.get("batch"), **settings)

    def masked(self, between: Tensor) -> Tensor:  # (..., l, l)
        """0 where a row is padded."""
        return between if self.pairs is None else between * self.pairs

    def prior(self, theta: Tensor, a: Tensor, b: Tensor) -> Tensor:  # (..., l, p), (..., n, p) -> (..., l, n)
        """Covariance of the truth at any points: σ_f² k(r²), the constant and the trend."""
        whole = theta[..., 0, None, None].exp() * SHAPES[self.shape](squares(a, b, theta))[0] + self.constant
        return whole.add_(a @ b.mT, alpha=self.linear) if self.linear else whole

    def prior_at(self, theta: Tensor, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        """Its diagonal."""
        level = theta[..., :1].exp() + self.constant
        return level + self.linear * (at**2).sum(-1) if self.linear else level.expand(at.shape[:-1])

    def noise(self, theta: Tensor) -> Tensor:  # (..., l)
        """Variance of every row that is its own."""
        if self.relative is None:
            return self.fixed
        return self.fixed + theta[..., self.noise_at, None].exp() * self.relative

    @cached_property
    def _mates(self) -> tuple[Tensor, Tensor]:  # (..., l, l) twice
        """1 where two rows stand in one batch, and |h − h*|."""
        assert self.batch is not None
        together = self.masked(self.batch[..., :, None] == self.batch[..., None, :]).to(self.y)
        return together, squares(self.x, self.x, self.y.new_zeros(*self.y.shape[:-1], self.noise_at)).sqrt_()

    def shared(self, theta: Tensor) -> tuple[Tensor, Tensor | None]:  # (..., l, l) twice
        """The part of the covariance that a batch shares, and |h − h*|/ℓ_b (None for a shift)."""
        together, apart = self._mates
        size = theta[..., self.batch_at, None, None].exp() * together
        if not self.fades:
            return size, None
        far = (apart / theta[..., self.batch_at + 1, None, None].exp()).clamp_max_(FAR)
        return size.mul_(torch.exp(-far)), far


def covariance(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor | None] | None]:
    # (..., l, l) each
    """K of the rows, its part σ_f² k, −2 σ_f² ∂k/∂r², and what batches share."""
    size = theta[..., 0, None, None].exp()
    k, slope = SHAPES[rows.shape](squares(rows.x, rows.x, theta))
    signal = rows.masked(size * k)
    slope = signal if slope is k else rows.masked(size * slope)
    whole = signal + rows.constant
    if rows.linear:
        whole = whole.add_(rows.x @ rows.x.mT, alpha=rows.linear)
    shared = None if rows.batch is None else rows.shared(theta)
    if shared is not None:
        whole = whole.add_(shared[0])
    whole = rows.masked(whole)
    whole.diagonal(dim1=-2, dim2=-1).add_(torch.where(rows.valid, rows.noise(theta), 1.0))
    return whole, signal, slope, shared


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
    whole, signal, slope, shared = covariance(theta, rows)
    cholesky, failed = torch.linalg.cholesky_ex(whole)
    inverse = _inverse(cholesky, failed)
    weights = (inverse @ rows.y[..., None])[..., 0]
    value = 0.5 * (rows.y * weights).sum(-1) + cholesky.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    # ∂/∂θ_j = −½ tr[(wwᵀ − K⁻¹) ∂K/∂θ_j]; for a length scale ∂K/∂log ℓ_j = −2 σ_f² ∂k/∂r² (h_j − h_j*)²/ℓ_j²,
    # where −2 ∂k/∂r² is k itself for the RBF kernel.
    core = weights[..., :, None] * weights[..., None, :] - inverse
    sloped = core * slope
    scaled = rows.x / theta[..., None, 1 : rows.noise_at].exp()
    by_length = (sloped.sum(-1)[..., None] * scaled**2).sum(-2) - (scaled * (sloped @ scaled)).sum(-2)
    by_size = (sloped if slope is signal else core * signal).sum((-1, -2))[..., None]
    parts = [-0.5 * by_size, -by_length]
    if rows.relative is not None:
        own = core.diagonal(dim1=-2, dim2=-1) * rows.relative * rows.valid
        parts.append(-0.5 * theta[..., rows.noise_at, None].exp() * own.sum(-1, keepdim=True))
    if shared is not None:
        own = core * shared[0]
        parts.append(-0.5 * own.sum((-1, -2))[..., None])
        if shared[1] is not None:
            parts.append(-0.5 * (own * shared[1]).sum((-1, -2))[..., None])
    bad = (failed > 0) | ~torch.isfinite(value)
    return torch.where(bad, torch.inf, value), torch.where(bad[..., None], 0.0, torch.cat(parts, -1))
