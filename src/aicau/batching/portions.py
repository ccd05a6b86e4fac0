"""A score over a pool that is looked at some candidates at a time, and what a rule sees of it.

| what decides (`Batching.uses`) | what is in memory | computed again whenever it is wanted |
|---|---|---|
| the score | a number for each candidate | – |
| the matrix | sums of products of its columns | its rows (`InParts`) |
| distances | a number for each candidate | coordinates (`Rows`) |

What estimators learn they learn once, from `DRAWN` candidates and what was measured; so do averages over the pool.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import Batching, best
from aicau.core.inparts import InParts
from aicau.core.omega import Omega
from aicau.core.runs import over, written

FEW = 256  # candidates of the largest diagonal entries that modes of a matrix may sit on
DRAWN = 16_384  # candidates above which a pool is looked at in portions, of as many
Look = Callable[[Tensor], tuple[Score, View]]  # the score of some candidates (ascending), and what is known of them


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
        steps = torch.linspace(0, self.n - 1, DRAWN, dtype=torch.double, device=self.always.device).long()
        return self.look(torch.cat([steps, self.always]).unique())

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
