"""A score over a pool that is looked at some candidates at a time, and what a rule sees of it.

| what decides (`Batching.uses`) | what is in memory | computed again whenever it is wanted |
|---|---|---|
| the score | a number for each candidate | – |
| the matrix, without a diagonal | its Gram matrix | rows of its factor (`InParts`) |
| distances | a number for each candidate | coordinates (`Rows`) |

What estimators learn they learn once, from `DRAWN` candidates and what was measured; so do averages over the pool.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import Batching
from aicau.core.omega import InParts, Omega
from aicau.core.runs import over, written

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

    def seen(self, some: Score, rule: Batching) -> Score:
        """What a rule needs of the score; `some` is that of a part."""
        starts = range(0, self.n, DRAWN)
        if "matrix" not in rule.uses:
            alpha = some.alpha.new_empty(1, self.n)
            return Score(written(over(lambda start: self.at(start).alpha, starts, self.device), alpha))
        omega = some.omega
        if omega is None:
            return some
        if omega.extra is not None:  # every number of such a matrix is needed many times
            parts = [self.at(start).omega for start in starts]
            factor, extra = (torch.cat([getattr(part, name) for part in parts], dim) for name, dim in NUMBERS)
            return Score(some.alpha, Omega(factor, omega.weights, extra))

        def rows(start: int) -> Tensor:
            found = self.at(start).omega
            assert found is not None
            return found.factor

        return Score(some.alpha, InParts(omega.factor[..., :0, :], omega.weights, None, self.n, DRAWN, rows))


NUMBERS = (("factor", -2), ("extra", -1))  # of a matrix, and along which dimension candidates stand
