"""Symmetric matrices as signed factors, A S Aᵀ + diag(d): Σ_F, Δ, Σ_Y, their sum Ω and its difference between rounds.

Only `dense()` forms an n × n matrix.
"""

import functools
import inspect
from dataclasses import dataclass

import torch
from scipy.sparse.linalg import LinearOperator, eigsh
from torch import Tensor

from aicau.core.errors import InputError
from aicau.core.runs import OfRuns, mapped, over, portion

# Where eigenvalues are equal Lanczos goes on from a random vector: of older SciPy the same in every process.
SEEDED = {"rng": 0} if "rng" in inspect.signature(eigsh).parameters else {}


@dataclass(frozen=True)
class Omega(OfRuns):
    """The matrix A S Aᵀ + diag(extra), never formed.

    Parameters
    ----------
    factor : Tensor, shape (..., n, r)
        A: few columns over the pool.
    signs : Tensor, shape (r,) or (..., r), optional
        S, the weight of each column; all +1 where it is not given.
    extra : Tensor, shape (..., n), optional
        A diagonal on top.

    Raises
    ------
    InputError
        Shapes that do not belong together.

    Examples
    --------
    >>> import torch
    >>> from aicau import Omega
    >>> difference = Omega(torch.tensor([[2.0], [0.0]])) - Omega(torch.tensor([[0.0], [1.0]]))
    >>> difference.diagonal()
    tensor([ 4., -1.])
    """

    factor: Tensor
    signs: Tensor | None = None
    extra: Tensor | None = None

    def __post_init__(self) -> None:
        factor = torch.as_tensor(self.factor)
        if not factor.is_floating_point():
            factor = factor.double()
        if factor.ndim < 2:
            raise InputError(f"a factor has shape (..., n, r); got {tuple(factor.shape)}")
        signs = factor.new_ones(factor.shape[-1]) if self.signs is None else torch.as_tensor(self.signs).to(factor)
        if signs.shape[-1] != factor.shape[-1]:
            raise InputError(f"{factor.shape[-1]} columns need as many signs; got {signs.shape[-1]}")
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "signs", signs.expand(*factor.shape[:-2], factor.shape[-1]))

    @property
    def n(self) -> int:
        return self.factor.shape[-2]

    @property
    def step(self) -> int:
        """How many rows of the factor are read at a time."""
        return portion(self.factor.device)

    def part(self, start: int) -> Tensor:  # (..., s, r)
        """`step` rows of the factor, from `start` on."""
        return self.factor[..., start : start + self.step, :]

    @property
    def weights(self) -> Tensor:  # (..., r)
        assert self.signs is not None
        return self.signs

    def dense(self) -> Tensor:  # (..., n, n)
        """The matrix itself: n² numbers, for tests and small pools."""
        matrix = (self.factor * self.weights[..., None, :]) @ self.factor.mT
        return matrix if self.extra is None else matrix + torch.diag_embed(self.extra)

    def diagonal(self) -> Tensor:  # (..., n)
        total = self.factor.new_zeros(self.factor.shape[:-1])
        for column in range(self.factor.shape[-1]):  # one column at a time: no copy of the factor, one order of adding
            square = self.factor[..., column] ** 2
            square *= self.weights[..., column, None]
            total += square
        return total if self.extra is None else total + self.extra

    def trace(self) -> Tensor:  # (...)
        return self.diagonal().sum(-1)

    def matmul(self, v: Tensor) -> Tensor:  # (..., n, c) -> (..., n, c)
        out = self.factor @ (self.weights[..., :, None] * (self.factor.mT @ v))
        return out if self.extra is None else out + self.extra[..., None] * v

    def top_eigenpairs(self, m: int) -> tuple[Tensor, Tensor]:  # (..., q), (..., n, q) with q = min(m, r)
        """The `m` largest eigenvalues in falling order, and their unit eigenvectors (0 where λ is 0)."""
        if self.extra is not None:
            return self._iterated(m)
        values, weights, _ = self.modes(m)
        return values, self.factor @ weights

    def modes(self, m: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        # (..., n) -> (..., q), (..., r, q), (...)
        """The `m` largest eigenvalues over some rows (None: all), the weights of columns that give unit eigenvectors
        there, and the trace; without a diagonal. With A = QR, A S Aᵀ = Q (R S Rᵀ) Qᵀ; if (R S Rᵀ) u = λ u then
        A S Rᵀ u / λ is an eigenvector, so Q is never formed. A large factor is read in portions, once."""
        if m < 1:
            raise InputError(f"at least one eigenpair must be asked for; got {m}")
        r_matrix = self._triangle(allowed)
        weights = self.weights.double()
        small = (r_matrix * weights[..., None, :]) @ r_matrix.mT
        values, vectors = torch.linalg.eigh(small)
        m = min(m, values.shape[-1])
        values, vectors = values.flip(-1)[..., :m], vectors.flip(-1)[..., :m]
        # Rounding is relative to what was added, not to what is left of it: A − A has no mode.
        square = (r_matrix**2).sum(-2)
        added = (square * weights.abs()).sum(-1)[..., None]
        zero = values.abs() <= added * torch.finfo(self.factor.dtype).eps
        weighted = weights[..., :, None] * (r_matrix.mT @ vectors) / torch.where(zero, torch.inf, values)[..., None, :]
        weighted /= torch.linalg.vector_norm(r_matrix @ weighted, dim=-2, keepdim=True).clamp_min(1e-300)
        trace = (square * weights).sum(-1)
        return torch.where(zero, 0.0, values).to(self.factor), weighted.to(self.factor), trace.to(self.factor)

    def _triangle(self, allowed: Tensor | None) -> Tensor:  # (..., min(n, r), r)
        """R of A = QR in double precision; of single precision from AᵀA, which is exact enough in double."""
        if self.factor.dtype == torch.double and self.factor.shape[-2] == self.n:
            return torch.linalg.qr((self if allowed is None else self.restrict(allowed)).factor, mode="r").R

        def gram(start: int) -> Tensor:
            part = self.part(start).double()
            part = part if allowed is None else part * allowed[..., start : start + self.step, None]
            return part.mT @ part

        total = functools.reduce(torch.add, over(gram, range(0, self.n, self.step), self.factor.device))
        values, vectors = torch.linalg.eigh(total)
        return values.clamp_min(0).sqrt()[..., :, None] * vectors.mT

    def _iterated(self, m: int) -> tuple[Tensor, Tensor]:
        """Lanczos on products with the matrix, run by run: a diagonal makes the rank full."""
        if self.factor.ndim > 2:
            found = (self[run]._iterated(m) for run in range(len(self.factor)))
            return mapped(lambda *parts: torch.stack(parts), *found)
        m = min(m, self.n)

        def product(v: object) -> object:
            return self.matmul(torch.as_tensor(v).to(self.factor).reshape(self.n, -1)).cpu().double().numpy()

        if m >= self.n - 1:
            w, v = torch.linalg.eigh(self.dense().double())
        elif not bool(self.diagonal().any()):  # all 0, which Lanczos refuses
            w, v = torch.zeros(m), torch.eye(self.n, m)
        else:
            operator = LinearOperator((self.n, self.n), matvec=product, matmat=product, dtype=float)
            found = eigsh(operator, k=m, which="LA", v0=torch.ones(self.n, dtype=torch.double).numpy(), **SEEDED)
            w, v = (torch.from_numpy(part) for part in found)
        order = torch.argsort(w, descending=True)[:m]
        return w[order].to(self.factor), v[:, order].to(self.factor)

    def restrict(self, allowed: Tensor) -> "Omega":  # (..., n) bool
        """Rows and columns outside `allowed` set to zero."""
        if bool(allowed.all()):
            return self
        extra = None if self.extra is None else torch.where(allowed, self.extra, 0.0)
        return Omega(torch.where(allowed[..., None], self.factor, 0.0), self.signs, extra)

    def weigh(self, weight: Tensor) -> "Omega":  # (..., n)
        """√w on both sides."""
        extra = None if self.extra is None else self.extra * weight.to(self.extra)
        return Omega(self.factor * weight.to(self.factor).sqrt()[..., None], self.weights, extra)

    def scale(self, by: Tensor) -> "Omega":  # (..., 1)
        """The matrix times a number."""
        extra = None if self.extra is None else self.extra * by.to(self.extra)
        return Omega(self.factor, self.weights * by.to(self.factor), extra)

    def __neg__(self) -> "Omega":
        return self.scale(-self.factor.new_ones(1))

    def __add__(self, other: "Omega") -> "Omega":
        if self.n != other.n:
            raise InputError(f"matrices over {self.n} and {other.n} points cannot be combined")
        lead = torch.broadcast_shapes(self.factor.shape[:-2], other.factor.shape[:-2])
        dtype = torch.promote_types(self.factor.dtype, other.factor.dtype)
        factor = torch.cat([one.factor.to(dtype).expand(*lead, -1, -1) for one in (self, other)], -1)
        signs = torch.cat([one.weights.to(dtype).expand(*lead, -1) for one in (self, other)], -1)
        some = [one.extra for one in (self, other) if one.extra is not None]
        return Omega(factor, signs, functools.reduce(torch.add, some) if some else None)

    def __sub__(self, other: "Omega") -> "Omega":
        return self + -other


@dataclass(frozen=True)
class Cobias(Omega):
    """Δ̂ as an estimator gives it, with what it learned of truth and noise on the way."""

    noise: Tensor | None = None  # (..., n) variance of one measurement
    lengths: Tensor | None = None  # (..., d) over which the truth changes, by feature
    trust: Tensor | None = None  # (...) share of the squared bias at left-out measurements that it predicts, 0 to 1
