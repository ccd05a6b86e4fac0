"""The part of a large pool that `gain` looks at closely, found in one pass over the whole of it.

Two parts are bounded, whatever the size of the pool: the candidates that the expected error is summed over, drawn
evenly (`draw`), and those that compete, of the largest gain by a cheaper form of the same formula (`best`). The pass
is a function of a portion that gives a small list; lists are joined as they come. Portions have the same size and begin
at the same candidates however the pool is read, so the result is the same to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aicau.batching.features import SAMPLED
from aicau.batching.gain import Screen, most, sum_of
from aicau.bias import Correction
from aicau.core.pool import Frame
from aicau.core.runs import PORTION, over

LARGE = 2 * SAMPLED  # candidates above which a pool is not looked at as a whole


@dataclass(frozen=True)
class Drawn:
    """Candidates drawn with replacement in proportion to a weight."""

    hits: Tensor  # (s,) ascending
    stands: Tensor  # (s,) how many candidates each hit stands for

    def among(self, known: Tensor, more: Tensor | None = None) -> tuple[Tensor, Tensor]:  # (1, n), (k,) -> (r,) twice
        """These and what is known (and more), ascending; and how many candidates each stands for."""
        parts = [self.hits, known[0].nonzero()[:, 0]] + ([] if more is None else [more])
        index = torch.cat(parts).unique()
        place = torch.searchsorted(index, self.hits)
        return index, torch.zeros_like(index, dtype=self.stands.dtype).index_add(0, place, self.stands)


def draw(n: int, weight: Tensor | None) -> Drawn:  # (1, n)
    """At most `SAMPLED` of n candidates, evenly spaced along the sum of their weights."""
    steps = (torch.arange(SAMPLED, dtype=torch.double) + 0.5) / SAMPLED
    if weight is None:
        return Drawn((steps * n).long(), torch.full_like(steps, n / SAMPLED))
    along = weight[0].double().cumsum(0)
    hits = torch.searchsorted(along, steps * along[-1]).clamp_max(n - 1)
    return Drawn(hits, along[-1] / SAMPLED / weight[0][hits].double())


def best(
    screens: Sequence[tuple[Screen, Tensor | None, Any]],  # of every target, with chance (1, n) and correction
    x: Tensor,  # (n, d)
    frame: Frame,
    room: Tensor,  # (n,)
    price: Tensor | None,  # (n,)
) -> Tensor:  # (k,) ascending
    """Candidates of the largest gain by the screens."""

    def gains(part: tuple[int, Tensor]) -> tuple[Tensor, Tensor]:  # of a portion: indices, gains
        start, points = part
        at, found = slice(start, start + len(points)), []
        for screen, chance, correction in screens:
            local = isinstance(correction, Correction) and not correction.even
            gain = screen.gains(frame.coordinates(points), points, None, correction.noise(points) if local else None)
            found.append(gain if chance is None else gain * chance[0, at].to(gain))
        gain = sum_of(found) if price is None else sum_of(found) / price[at].to(points)
        open = (room[at] > 0).nonzero()[:, 0]
        return start + open, gain[:, open]

    return most(over(gains, portions(x)))


def portions(x: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The pool piece by piece, each with the number of its first candidate."""
    for place, part in enumerate(x.split(PORTION)):
        yield place * PORTION, part
