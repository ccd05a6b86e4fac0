"""The part of a large pool that `gain` looks at closely, found in one pass over the whole of it.

Two parts are bounded, whatever the size of the pool: the candidates that the expected error is summed over, drawn
evenly (`draw`), and those that compete, of the largest gain by a cheaper form of the same formula (`best`). The pass
is a function of a portion that gives a small list; lists are joined as they come. Portions have the same size and begin
at the same candidates however the pool is read, so the result is the same to the last bit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from aicau.batching.features import SAMPLED
from aicau.batching.gain import Screen, most, sum_of
from aicau.bias import Correction
from aicau.core.engine import HERE, Engine
from aicau.core.pool import Frame
from aicau.core.runs import PORTION, over

SHARD = 64  # portions that go to another machine together
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


@dataclass(frozen=True)
class Part:
    """Some candidates that follow each other."""

    start: int  # number of the first
    points: Tensor  # (s, d)
    open: Tensor  # (s,) whether each may be chosen
    chances: Sequence[Tensor | None]  # (s,) for every target
    price: Tensor | None  # (s,)


@dataclass(frozen=True)
class Pass:
    """Gains of candidates by the screens: what is done with every one of them, here or on another machine."""

    screens: Sequence[tuple[Screen, Any]]  # of every target, with its correction
    frame: Frame

    def gains(self, part: Part) -> tuple[Tensor, Tensor]:  # (k,), (stages, k)
        """Candidates of a portion that may be chosen, and their gains."""
        points, found = part.points, []
        for (screen, correction), chance in zip(self.screens, part.chances, strict=True):
            local = isinstance(correction, Correction) and not correction.even
            own = correction.noise(points) if local else None
            gain = screen.gains(self.frame.coordinates(points), points, None, own)
            found.append(gain if chance is None else gain * chance.to(gain))
        gain = sum_of(found) if part.price is None else sum_of(found) / part.price.to(points)
        kept = part.open.nonzero()[:, 0]
        return part.start + kept, gain[:, kept]

    def __call__(self, parts: Sequence[Part]) -> tuple[Tensor, Tensor]:
        """The short list of some portions."""
        return most(map(self.gains, parts))


def best(
    screens: Sequence[tuple[Screen, Tensor | None, Any]],  # of every target, with chance (1, n) and correction
    x: Tensor,  # (n, d)
    frame: Frame,
    room: Tensor,  # (n,)
    price: Tensor | None,  # (n,)
    engine: Engine = HERE,
) -> Tensor:  # (k,) ascending
    """Candidates of the largest gain by the screens."""

    def portions() -> Iterator[Part]:
        for start in range(0, len(x), PORTION):
            at = slice(start, start + PORTION)
            chances = [None if chance is None else chance[0, at] for _, chance, _ in screens]
            yield Part(start, x[at], room[at] > 0, chances, None if price is None else price[at])

    work, rest = Pass([(screen, correction) for screen, _, correction in screens], frame), portions()
    if engine.here:
        return most(over(work.gains, rest))[0]
    return most(engine.over(work, iter(lambda: list(islice(rest, SHARD)), [])))[0]
