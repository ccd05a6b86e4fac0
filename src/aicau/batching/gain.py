"""Gain: one by one the point whose measurement lowers the error that is expected over the whole pool the most.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| Δ | `delta` | (n, n) | second moment of the bias, D S Dᵀ and a diagonal: the matrix of the score |
| α | `alpha` | (n,) | its diagonal: expected squared error |
| λ | `trust` | () | how far Δ is believed: 2R² − 1, R² the share of the squared bias of left-out rows it predicts |
| c | `counts` | (n,) | how much the error of each candidate counts |
| k | `Covariance` | – | how a measurement moves predictions: mean of two kernels, each of mean variance 1 |
| φ | `Features` | (n, p) | k(x, x') ≈ φ·φ': Nyström on landmarks |
| ρ | `rest` | (n,) | k(x, x) − φ·φ, what the landmarks do not share |
| σ² | `noise` | (n,) | variance of one measurement |
| A | `inside` | (p, p) | (I + Σ_i φ_i φ_iᵀ/(σ²_i + ρ_i))⁻¹ after what was measured and chosen |
| M | `moments` | (2, p, p) | Σ_z c α φ_z φ_zᵀ and Σ_z c φ_z φ_zᵀ |
| P | `cross` | (p, r) | Σ_z c φ_z D_zᵀ |

A measurement y at x moves the prediction at z by g(z) (y − f(x)), with g(z) = k(z, x)/s, s = k(x, x) + σ², and k the
covariance after what was measured and chosen. The bias δ(z) becomes δ(z) − g(z) (δ(x) + noise). How much the expected
squared error falls depends on what is believed of the bias elsewhere. The gain is λ times the first of

    Δ is right:             Σ_z c(z) [2 g(z) Δ(z, x) − g(z)² (Δ(x, x) + σ²(x))]
    only its size α is:     Σ_z c(z) α(z) k(z, x)²/s

and 1 − λ times the second. The first asks where networks are wrong in the direction in which a measurement moves them:
it is best where the process behind Δ knows the truth well. The second is what BAIT, IVR and qNIPV look at, weighed by
α, and all there is for a score without a matrix (that of counts) and for estimators that do not say how good they are.
After a choice k and Δ are updated. A known point competes by the same formula: its k is small, and large noise makes a
new point there worth as little. Where points are wanted that are good themselves (`view.chance`), the gain is
multiplied by how likely that is, of a known one by 0.

The kernels: gradients of the networks, and a Gaussian kernel of the coordinates with a length per feature, as the
process behind the bias has learned them: features that do not matter do not count. Everything is a sum or a maximum
over points. Of a large pool only a part is looked at (aicau.batching.shortlist).
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching import shortlist
from aicau.batching.base import Batching, Selection, check_enough, take_best
from aicau.batching.work import Basis, Work, price_of, sum_of
from aicau.core.errors import InputError
from aicau.core.runs import threads_for

LANDMARKS = 512  # small pools are exact; twice as many cost four times as much


@dataclass(frozen=True)
class Gain(Batching):
    """The largest fall of the error expected over all candidates, one by one: the rule of `default` for values.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("default").batching
    Gain()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"distance", "matrix"})
    joint: ClassVar[bool] = True

    def select(self, score: Score, view: View, m: int) -> Selection:
        check_enough(view, m)
        with threads_for(len(view.x)):  # the same bits whoever calls
            found = [greedy(score[run : run + 1], view[run : run + 1], m) for run in range(len(view))]
        index, *parts = (torch.stack(part) for part in zip(*found, strict=True))
        return Selection(index, dict(zip(("worth", "score", "share", "known"), parts, strict=True)))

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        again = "a known point: one more measurement" if numbers["known"] else "a measurement here"
        return (
            f"{again} lowers the error expected over all candidates by {numbers['share']:.2%}, the most of all"
            f" ({meaning} here: {numbers['score']:.3g}); it tells most of candidates at a small distance"
        )


def greedy(score: Score, view: View, m: int) -> tuple[Tensor, ...]:  # (m,) each
    """One run: points in the order of choice, their gain, α, share of the whole and whether they were known.

    With further targets (`view.others`) the gain is the sum of theirs. With costs it counts per cost, but no point
    counts as cheaper than what is left of the budget for each point that is left: money that is left over buys nothing.
    """
    part, pairs = shortlist.of_pool(((score, view), *view.others), m)
    bases, view = [Basis(*pair, LANDMARKS) for pair in pairs], pairs[0][1]
    room = (view.allowed.long() if view.room is None else view.room)[0].clone()
    index = (room > 0).nonzero()[:, 0]
    works = [Work(base, index) for base in bases]
    known, chosen, left = view.measured[0].clone(), [], view.budget
    price = torch.ones_like(works[0].variance)
    for step in range(m):
        if view.cost is not None:
            price = price_of(view.cost[0, index].to(price), left, m - step)
            room[view.cost[0] > left] = 0
            if not bool((room > 0).any()):
                break
        gain = sum_of(work.now() for work in works)
        place, _ = take_best(gain / price, room[index] > 0)
        at = index[place]
        alpha, total = sum_of(base.alpha[at] for base in bases), sum(base.total for base in bases)
        chosen.append((at, gain[place], alpha, gain[place] / total, known[at].clone()))
        room[at] -= 1
        known[at] = True
        left -= 0.0 if view.cost is None else float(view.cost[0, at])
        for work in works:
            work.measure(place)
    if not chosen:
        raise InputError(f"no point of the next batch costs {left:g} or less; raise the budget")
    found = [torch.stack(numbers) for numbers in zip(*chosen, strict=True)]
    return found[0] if part is None else part[found[0]], *found[1:]
