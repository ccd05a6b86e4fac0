"""A matrix over a large pool, whose rows are computed whenever they are wanted; nothing of it is kept.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| A, d | `factor`, `extra` | (n, r), (n,) | the matrix is A S Aᵀ + diag(d) |
| E | `few` | (n, T) | unit vectors of the T candidates with the largest d |
| C | `columns` | (n, r) or (n, 2r + T) | A; with a diagonal [A, d·A, E] |

Without a diagonal, modes are those of `Omega`. With one the rank is full, and modes are the best that can be made of
C's columns (Rayleigh and Ritz): where d is even they lie in A, where it varies d·A is the next step of a Krylov space,
and where a few d stand out modes sit on single candidates, E. Sums over portions of CᵀC and CᵀΩC are all it needs.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from aicau.core.omega import Omega
from aicau.core.runs import over

ALIKE = 1e-10  # of the largest eigenvalue of CᵀC: what is smaller adds no direction


@dataclass(frozen=True)
class InParts(Omega):
    """The matrix of one run: `factor` has no row, and says what kind of numbers there are."""

    rows: int = 0
    together: int = 1
    read: Callable[[int], Omega] = field(default=lambda start: Omega(torch.zeros(0, 1)))
    few: Tensor | None = None  # (T,) ascending; None: there is no diagonal

    @property
    def n(self) -> int:
        return self.rows

    @property
    def step(self) -> int:
        return self.together

    def __getitem__(self, index: int | slice) -> "InParts":
        return self

    def part(self, start: int) -> Tensor:  # (1, s, ·)
        return self._columns(start, self.read(start))

    def _columns(self, start: int, part: Omega) -> Tensor:
        if self.few is None or part.extra is None:
            return part.factor
        own = torch.arange(start, start + part.n, device=self.few.device)[:, None] == self.few
        return torch.cat(
            [part.factor, part.extra[..., None].to(part.factor) * part.factor, own[None].to(part.factor)], -1
        )

    def modes(self, m: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        # (1, n) -> (1, q), (1, ·, q), (1,)
        if self.few is None:
            return super().modes(m, allowed)

        def sums(start: int) -> tuple[Tensor, ...]:
            part = self.read(start)
            columns, factor, own = (
                self._columns(start, part)[0].double(),
                part.factor[0].double(),
                part.diagonal()[0].double(),
            )
            assert part.extra is not None
            if allowed is not None:
                open = allowed[0, start : start + part.n]
                columns, own = columns * open[:, None], own * open
            return (
                columns.mT @ columns,
                columns.mT @ (part.extra[0].double()[:, None] * columns),
                columns.mT @ factor,
                own.sum(),
            )

        def both(a: tuple[Tensor, ...], b: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return tuple(x + y for x, y in zip(a, b, strict=True))

        found = over(sums, range(0, self.n, self.step), self.factor.device)
        square, spread, cross, trace = functools.reduce(both, found)
        size = square.diagonal().sqrt()
        size = torch.where(size > 0, size, 1.0)
        values, vectors = torch.linalg.eigh(square / size / size[:, None])
        kept = values > ALIKE * values[-1]
        basis = vectors[:, kept] / values[kept].sqrt() / size[:, None]
        inside = basis.mT @ ((cross * self.weights[0].double()) @ cross.mT + spread) @ basis
        values, vectors = torch.linalg.eigh(inside)
        m = min(m, len(values))
        weights = basis @ vectors.flip(-1)[:, :m]
        return tuple(part[None].to(self.factor) for part in (values.flip(0)[:m], weights, trace))  # type: ignore[return-value]
