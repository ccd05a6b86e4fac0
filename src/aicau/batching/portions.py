"""A score over a pool that is looked at some candidates at a time, and what a rule sees of it.

| what decides (`Batching.uses`) | what is in memory | computed again whenever it is wanted |
|---|---|---|
| the score | a number for each candidate | – |
| the matrix | sums of products of its columns | its rows (`InParts`) |
| distances | a number for each candidate | coordinates (`Rows`) |

What estimators learn they learn once, from `DRAWN` candidates and what was measured; so do averages over the pool.

| symbol of a matrix | name in code | shape | meaning |
|---|---|---|---|
| A, d | `factor`, `extra` | (n, r), (n,) | the matrix is A S Aᵀ + diag(d) |
| E | `few` | (n, T) | unit vectors of the T candidates with the largest d |
| C | `columns` | (n, r) or (n, 2r + T) | A; with a diagonal [A, d·A, E] |

Without a diagonal, modes are those of `Omega`. With one the rank is full, and modes are the best that can be made of
C's columns (Rayleigh and Ritz): where d is even they lie in A, where it varies d·A is the next step of a Krylov space,
and where a few d stand out modes sit on single candidates, E. Sums over portions of CᵀC and CᵀΩC are all it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import Batching, best
from aicau.batching.work import evenly
from aicau.core.omega import Omega
from aicau.core.runs import mapped, over, written

ALIKE = 1e-10  # of the largest eigenvalue of CᵀC: what is smaller adds no direction
FEW = 256  # candidates of the largest diagonal entries that modes of a matrix may sit on
DRAWN = 16_384  # candidates above which a pool is looked at in portions, of as many
Look = Callable[[Tensor], tuple[Score, View]]  # the score of some candidates (ascending), and what is known of them


@dataclass(frozen=True)
class InParts(Omega):
    """The matrix of one run: `factor` has no row, and says what kind of numbers there are."""

    n: int = 0
    step: int = 1  # rows that are looked at together
    read: Callable[[int], Omega] = field(default=lambda start: Omega(torch.zeros(0, 1)))
    few: Tensor | None = None  # (T,) ascending; None: there is no diagonal

    def __getitem__(self, index: int | slice) -> "InParts":
        return self

    def part(self, start: int) -> Tensor:  # (1, s, ·)
        return self._columns(start, self.read(start))

    def _columns(self, start: int, part: Omega) -> Tensor:
        if self.few is None or part.extra is None:
            return part.factor
        own = torch.arange(start, start + part.n, device=self.few.device)[:, None] == self.few
        further = part.extra[..., None].to(part.factor) * part.factor
        return torch.cat([part.factor, further, own[None].to(part.factor)], -1)

    def modes(self, m: int, allowed: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        # (1, n) -> (1, q), (1, ·, q), (1,)
        if self.few is None:
            return super().modes(m, allowed)

        def sums(start: int) -> tuple[Tensor, ...]:
            part = self.read(start)
            assert part.extra is not None
            columns, own = self._columns(start, part)[0].double(), part.diagonal()[0].double()
            if allowed is not None:
                open = allowed[0, start : start + part.n]
                columns, own = columns * open[:, None], own * open
            spread = columns.mT @ (part.extra[0].double()[:, None] * columns)
            return columns.mT @ columns, spread, columns.mT @ part.factor[0].double(), own.sum()

        parts = over(sums, range(0, self.n, self.step), self.factor.device)
        square, spread, cross, trace = reduce(partial(mapped, torch.add), parts)
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


@dataclass(frozen=True)
class Portions:
    """Scores of a large pool, for one run."""

    look: Look
    n: int
    always: Tensor  # (k,) ascending: candidates that every look needs, as those that were measured
    device: torch.device

    def at(self, start: int) -> Score:
        """Of the portion that begins at a candidate."""
        stop = min(start + DRAWN, self.n)
        before, after = self.always[self.always < start], self.always[self.always >= stop]
        score, _ = self.look(torch.cat([before, torch.arange(start, stop, device=before.device), after]))
        here, omega = slice(len(before), len(before) + stop - start), score.omega
        if omega is not None:
            extra = None if omega.extra is None else omega.extra[..., here]
            omega = Omega(omega.factor[..., here, :], omega.weights, extra)
        return Score(score.alpha[..., here], omega, score.note)

    def drawn(self) -> tuple[Score, View]:
        """Some candidates, evenly spaced: what they say of all."""
        return self.look(torch.cat([evenly(self.n, DRAWN, self.always), self.always]).unique())

    def seen(self, some: Score, rule: Batching, allowed: Tensor) -> Score:  # (1, n)
        """What a rule needs of the score; `some` is that of a part."""
        starts = range(0, self.n, DRAWN)
        if "matrix" not in rule.uses:
            alpha = some.alpha.new_empty(1, self.n)
            return Score(written(over(lambda start: self.at(start).alpha, starts, self.device), alpha))
        if some.omega is None:
            return some
        few = None if some.omega.extra is None else self.extreme(allowed[0])
        factor, weights = some.omega.factor[..., :0, :], some.omega.weights
        return Score(some.alpha, InParts(factor, weights, None, self.n, DRAWN, self.matrix, few))

    def matrix(self, start: int) -> Omega:
        """Rows of the matrix."""
        found = self.at(start).omega
        assert found is not None
        return found

    def extreme(self, allowed: Tensor) -> Tensor:  # (n,) -> (T,)
        """Where the diagonal is largest."""

        def entries(start: int) -> tuple[Tensor, Tensor]:
            own = self.matrix(start).extra
            assert own is not None
            open = allowed[start : start + DRAWN].nonzero()[:, 0]
            return start + open, own[:, open]

        return best(over(entries, range(0, self.n, DRAWN), self.device), FEW)[0]
