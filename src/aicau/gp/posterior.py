"""A fitted process: means, variances and factors of its covariance over a pool, what batches share, rows left out."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from aicau.core.runs import mapped
from aicau.gp.likelihood import SHAPES, Rows, covariance, squares

PIVOTS = 4096  # points a factor's pivots are sought among
CELLS = 10**6  # entries of a cross-covariance held at once on the CPU: about what its cache holds
CELLS_CUDA = 2 * 10**7
STEADY = 2e-2  # least standard deviation of a row given the others, in units of the target's, for single precision
HEAVY = 2e3  # largest norm of the weights times σ_f² for single precision: rounding is 1e-7 of it
BLOCK = 128  # rows of an inverse factor


def chunks(at: Tensor, rows: int) -> tuple[Tensor, ...]:  # (..., n, p)
    """Points in portions whose covariance with `rows` measurements fits into the cache (into memory on CUDA)."""
    cells = CELLS_CUDA if at.is_cuda else CELLS if at.dtype == torch.double else CELLS // 4
    return at.split(max(1, cells // max(1, rows)), dim=-2)


def _solve(theta: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:  # (runs, l, l), (runs, l)
    """The Cholesky factor of K and K⁻¹ y; with a larger diagonal where K is singular to rounding."""
    whole = covariance(theta, rows)[0]
    cholesky, failed = torch.linalg.cholesky_ex(whole)
    if bool((failed > 0).any()):
        jitter = torch.where(failed > 0, 1e-4, 0.0)[..., None].expand(*failed.shape, whole.shape[-1])
        cholesky = torch.linalg.cholesky(whole + torch.diag_embed(jitter))
    return cholesky, torch.cholesky_solve(rows.y[..., None], cholesky)[..., 0]


@dataclass(frozen=True)
class Solved:
    """A fitted process; its answers are in the units of the target, noise and batch effects left out."""

    theta: Tensor  # (..., q)
    rows: Rows
    shift: Tensor  # (...)
    scale: Tensor  # (...)

    def mean(self, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        return self.both(at, False)[0]

    def variance(self, at: Tensor) -> Tensor:  # (..., n, p) -> (..., n)
        return self.both(at)[1]

    def both(self, at: Tensor, spread: bool = True) -> tuple[Tensor, Tensor]:  # (..., n, p) -> (..., n) twice
        """Mean and variance; without `spread` any second tensor."""
        mean, variance = self._normalised(at, spread)
        return mean * self.scale[..., None] + self.shift[..., None], variance.clamp_min(0) * self.scale[..., None] ** 2

    def _normalised(self, at: Tensor, spread: bool) -> tuple[Tensor, Tensor]:
        """Mean and variance in units of the normalised target."""
        raise NotImplementedError

    def noise(self) -> Tensor:  # (...)
        """σ_n², the variance of one measurement (of relative weight 1)."""
        assert self.rows.relative is not None
        return self.theta[..., self.rows.noise_at].exp() * self.scale**2

    def lengths(self) -> Tensor:  # (..., p)
        """ℓ_j, the length scale of every feature."""
        return self.theta[..., 1 : self.rows.noise_at].exp()


@dataclass(frozen=True)
class Posterior(Solved):
    """The process itself: every row sees every other."""

    cholesky: Tensor  # (..., l, l)
    weights: Tensor  # (..., l) K⁻¹ y

    @classmethod
    def of(cls, theta: Tensor, rows: Rows, shift: Tensor, scale: Tensor) -> "Posterior":
        """With parameters that were found before; on the CPU run by run, so that a run does not depend on others."""
        each = [slice(None)] if theta.is_cuda else [slice(run, run + 1) for run in range(len(theta))]
        solved = mapped(lambda *parts: torch.cat(parts), *(_solve(theta[run], rows[run]) for run in each))
        return cls(theta, rows, shift, scale, *solved)

    def _normalised(self, at: Tensor, spread: bool) -> tuple[Tensor, Tensor]:
        if at.dtype == torch.float and self._single is not None:
            return self._in_single(at, spread)
        means, variances = [], []
        for some in self._chunks(at.to(self.theta)):
            cross = self._cross(some)
            means.append((cross @ self.weights[..., None])[..., 0])
            if spread:
                half = torch.linalg.solve_triangular(self.cholesky, cross.mT, upper=False)
                variances.append(self.rows.prior_at(self.theta, some) - (half**2).sum(-2))
        mean = torch.cat(means, -1)
        return mean, torch.cat(variances, -1) if spread else mean

    @cached_property
    def _single(self) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor, Tensor]]] | None:
        """σ_f², weights, and rows of L⁻¹ without their zeros, each with what constant and trend give there, in single
        precision; None where rounding would matter: hardly any noise, or weights that cancel."""
        steady = float(self.cholesky.diagonal(dim1=-2, dim2=-1).amin()) > STEADY
        size = float((self.theta[..., 0].exp() * self.weights.norm(dim=-1)).max())
        if not steady or size >= HEAVY:
            return None
        rows, blocks = self.rows, []
        whole = torch.diag_embed(rows.valid.to(self.theta))
        inverse = torch.linalg.solve_triangular(self.cholesky, whole, upper=False)  # (..., l, l)
        for start in range(0, self.cholesky.shape[-1], BLOCK):
            part = inverse[..., start : start + BLOCK, : start + BLOCK]
            there = rows.linear * (part @ rows.x[..., : start + BLOCK, :]).mT
            blocks.append((part.mT.float(), (rows.constant * part.sum(-1))[..., None, :].float(), there.float()))
        weights = (self.weights * rows.valid)[..., None]
        return self.theta[..., :1, None].exp().float(), weights.float(), blocks

    def _in_single(self, at: Tensor, spread: bool) -> tuple[Tensor, Tensor]:
        """For very large pools. What is large and cancels, the constant and the trend, is taken out first."""
        assert self._single is not None
        rows, means, variances = self.rows, [], []
        size, weights, blocks = self._single
        for some in self._chunks(at):
            square = squares(some.to(rows.x), rows.x, self.theta).float()  # small differences of large numbers
            smooth = size * SHAPES[rows.shape](square)[0]
            means.append((smooth @ weights)[..., 0])
            if spread:
                taken = torch.zeros_like(means[-1])
                for part, constant, slope in blocks:
                    half = (smooth[..., : part.shape[-2]] @ part).add_(constant)
                    half = half.add_(some @ slope) if rows.linear else half
                    taken += half.square_().sum(-1)
                variances.append(rows.prior_at(self.theta, some.to(rows.x)).float() - taken)
        own = self.weights * rows.valid
        trend = (own[..., None, :] @ rows.x).mT * rows.linear  # (..., p, 1)
        mean = torch.cat(means, -1).to(own) + rows.constant * own.sum(-1, keepdim=True) + (at.to(own) @ trend)[..., 0]
        return mean, torch.cat(variances, -1).to(own) if spread else mean

    def pivots(self, at: Tensor, rank: int) -> Tensor:  # (..., n, p) -> (..., rank, p)
        """Points of a pivoted Cholesky decomposition of C over at most `PIVOTS` points, evenly spaced rows of `at`."""
        n = at.shape[-2]
        some = at if n <= PIVOTS else at[..., torch.linspace(0, n - 1, PIVOTS, device=at.device).long(), :]
        half = self._half(some)  # (..., l, s)
        left = self.rows.prior_at(self.theta, some) - (half**2).sum(-2)  # (..., s)
        columns: list[Tensor] = []
        points = [some[..., :0, :]]
        for _ in range(min(rank, some.shape[-2])):
            best = left.argmax(-1, keepdim=True)  # (..., 1)
            size = left.gather(-1, best).clamp_min(1e-300).sqrt()
            point = some.take_along_dim(best[..., None], -2)
            own = half.take_along_dim(best[..., None, :], -1)
            column = self.rows.prior(self.theta, some, point)[..., 0] - (half * own).sum(-2)
            for earlier in columns:
                column = column - earlier * earlier.gather(-1, best)
            column = column / size
            columns.append(column)
            left = (left - column**2).scatter(-1, best, -torch.inf)
            points.append(point)
        return torch.cat(points, -2)

    def factor(self, at: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:  # (..., n, p) -> (..., n, rank), (..., n)
        """The covariance C as F Fᵀ + diag(d), at a cost linear in n: Nyström on pivots, and d ≥ 0."""
        if not chosen.shape[-2]:
            variance = self.variance(at)
            return variance[..., None][..., :0], variance
        half = self._half(chosen)  # (..., l, r)
        core = self.rows.prior(self.theta, chosen, chosen) - half.mT @ half
        floor = 1e-10 * (self.theta[..., :1, None].exp() + self.rows.constant)
        root = torch.linalg.cholesky(core + floor * torch.eye(core.shape[-1], dtype=core.dtype, device=core.device))
        factors, rests = [], []
        for part in self._chunks(at):
            own = self._half(part)
            cross = self.rows.prior(self.theta, part, chosen) - own.mT @ half
            low = torch.linalg.solve_triangular(root, cross.mT, upper=False).mT
            factors.append(low)
            rests.append((self.rows.prior_at(self.theta, part) - (own**2).sum(-2) - (low**2).sum(-1)).clamp_min(0))
        scale = self.scale[..., None]
        return torch.cat(factors, -2) * scale[..., None], torch.cat(rests, -1) * scale**2

    def batch_shift(self) -> tuple[Tensor, Tensor]:  # (..., l) twice
        """What each row has from its batch, and its standard error: the best linear unbiased prediction."""
        shared = self.rows.shared(self.theta)[0]
        half = torch.linalg.solve_triangular(self.cholesky, shared, upper=False)
        variance = shared.diagonal(dim1=-2, dim2=-1) - (half**2).sum(-2)
        scale = self.scale[..., None]
        return (shared @ self.weights[..., None])[..., 0] * scale, variance.clamp_min(0).sqrt() * scale

    def left_out(self) -> tuple[Tensor, Tensor]:  # (..., l), (..., l)
        """Each row predicted from the others: mean and variance of its value (Rasmussen & Williams 5.12)."""
        own = torch.cholesky_inverse(self.cholesky).diagonal(dim1=-2, dim2=-1)
        mean = (self.rows.y - self.weights / own) * self.scale[..., None] + self.shift[..., None]
        return mean, self.scale[..., None] ** 2 / own

    def left_out_groups(self, group: Tensor) -> tuple[Tensor, Tensor]:  # (l,) -> (l,), (l,)
        """Rows of the first run predicted without their whole group: value minus mean, and the variance of a value."""
        inverse, weights = torch.cholesky_inverse(self.cholesky[0]), self.weights[0]
        own = inverse.diagonal()
        error, variance = weights / own, 1 / own
        _, place, count = group.unique(return_inverse=True, return_counts=True)
        for name in (count > 1).nonzero()[:, 0].tolist():
            at = (place == name).nonzero()[:, 0]
            block = torch.linalg.inv(inverse[at][:, at])
            error[at], variance[at] = block @ weights[at], block.diagonal()
        return error * self.scale[0], variance * self.scale[0] ** 2

    def _cross(self, at: Tensor) -> Tensor:  # (..., n, l)
        return self.rows.prior(self.theta, at, self.rows.x) * self.rows.valid[..., None, :]

    def _half(self, at: Tensor) -> Tensor:  # (..., l, n)
        return torch.linalg.solve_triangular(self.cholesky, self._cross(at).mT, upper=False)

    def _chunks(self, at: Tensor) -> tuple[Tensor, ...]:
        return chunks(at, self.rows.y.numel())
