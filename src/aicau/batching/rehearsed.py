"""Rehearsed: half of the batch by `joint`; then the ensemble is trained as if that half had come out as expected, and
the other half is chosen where that ensemble would be wrong.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| δ | `bias` | (..., n) | estimated bias of the ensemble: the first column of Δ̂ |
| C | | | what is unknown of it: the other columns of Δ̂, and its diagonal |
| μ_e | `means` | (E, ..., n) | means of E ensembles trained in rehearsal |

The expected value at x is μ_F − δ, so a rehearsed ensemble has the bias δ + μ_e − μ_F, and C loses what a known value
tells about its neighbours. Networks start afresh every round; two rehearsals see what training does, not one start.

Where nothing can be rehearsed (one point, no ensemble at hand, classes and counts) it is `joint`.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import check_enough
from aicau.batching.joint import Joint
from aicau.batching.spread import measured_once
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.omega import Cobias, Omega
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Rehearsed(Joint):
    trainings: int = 2  # ensembles trained in rehearsal: 4 are no better (docs/comparison.md)

    def select(self, score: Score, view: View, m: int) -> Tensor:  # (..., m)
        check_enough(view, m)
        if m == 1 or view.lesson is None or view.belief is not None:
            return super().select(score, view, m)
        first = super().select(score, view, (m + 1) // 2)
        expected, later = self._after(view, first)
        # Whatever else the score holds (the disagreement of members) stays as it is.
        before = _known(view).diagonal()
        rest = super().select(Score(score.alpha + (expected - before)), later, m - first.shape[-1])
        return torch.cat([first, rest], -1)

    def _after(self, view: View, chosen: Tensor) -> tuple[Tensor, View]:  # (..., n)
        """The expected squared bias, and the view, once `chosen` is measured and learned."""
        cobias, lesson = _known(view), view.lesson
        assert lesson is not None
        assert view.predictions is not None
        assert view.points is not None
        bias = cobias.factor[..., 0].double()
        now = decomposition.mean(view.predictions).double()
        index = torch.cat([lesson.index, chosen], -1)
        y = torch.cat([lesson.y, (now - bias).gather(-1, chosen).to(lesson.y)], -1)
        keys = streams.fold(view.keys, Purpose.REHEARSAL)
        keys = torch.stack([streams.fold(keys, e) for e in range(self.trainings)])
        rows = view.points[index].expand(self.trainings, *index.shape, -1)
        fitted = lesson.ensemble.fit(rows, y.expand(self.trainings, *y.shape), keys)
        means = decomposition.mean(fitted.predict(view.points)).double()
        unknown, extra = _conditioned(cobias, chosen)
        square = ((bias + means - now) ** 2).mean(0) + (unknown**2).sum(-1) + extra
        return square.to(cobias.factor), _measured(view, chosen)


def _known(view: View) -> Omega:
    """Δ̂, whose first column is the mean of the bias."""
    cobias = view.cobias
    if cobias is None:
        raise InputError("rehearsed batching needs a bias: br or pemse, with posterior, direct or perfect")
    tells = cobias.factor.shape[-1] == 1 or (isinstance(cobias, Cobias) and cobias.doubt is not None)
    if not tells:
        raise InputError("rehearsed batching needs an estimate of the bias with a sign: posterior, direct or perfect")
    return cobias


def _conditioned(cobias: Omega, chosen: Tensor) -> tuple[Tensor, Tensor]:  # (..., n, r), (..., n)
    """C once the truth is known at the chosen points: its factor, and its diagonal."""
    factor = cobias.factor[..., 1:].double()
    none = torch.zeros_like(cobias.factor[..., 0])
    extra = (none if cobias.extra is None else cobias.extra).double()
    for at in chosen.unbind(-1):
        row = factor.gather(-2, at[..., None, None].expand(*at.shape, 1, factor.shape[-1]))  # (..., 1, r)
        size = (row**2).sum(-1, keepdim=True)
        whole = size + extra.gather(-1, at[..., None])[..., None]
        share = 1 - (1 - size / whole.clamp_min(1e-300)).clamp_min(0).sqrt()
        factor = factor - (factor @ row.mT) * (share / size.clamp_min(1e-300)) * row
        extra = extra.scatter(-1, at[..., None], 0.0)
    return factor, extra


def _measured(view: View, chosen: Tensor) -> View:
    """As if the chosen points had been measured: for distances, for what may be asked, for the worth of repeats."""
    taken = torch.zeros_like(view.allowed, dtype=torch.int64).scatter_add(-1, chosen, torch.ones_like(chosen))
    room = None if view.room is None else view.room - taken
    allowed = view.allowed & ((taken == 0) if room is None else (room > 0))
    cobias = view.cobias
    if isinstance(cobias, Cobias) and cobias.doubt is not None and cobias.noise is not None:
        doubt = cobias.doubt
        for at in chosen.unbind(-1):
            left = measured_once(doubt.gather(-1, at[..., None]), cobias.noise.gather(-1, at[..., None]))
            doubt = doubt.scatter(-1, at[..., None], left)
        cobias = replace(cobias, doubt=doubt)
    return replace(view, allowed=allowed, measured=view.measured | (taken > 0), room=room, cobias=cobias)
