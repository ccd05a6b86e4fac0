"""Eigen batching (paper Section 3.3): one point per leading mode of Ω, where the mode's eigenvector is largest.

What the paper leaves open is decided here (figures in docs/decisions.md):

- points that may not be measured are removed from Ω before the decomposition, so every mode lives on candidates only;
- modes are taken in falling order of their eigenvalue while it is positive;
- where two modes peak at one point, the later mode takes its next largest entry;
- when there are fewer positive modes than points asked for, the rest is drawn at random.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.batching.base import Batching, Parts, Selection, at, best, check_enough, take_best
from aicau.core import streams
from aicau.core.errors import InputError
from aicau.core.omega import Omega
from aicau.core.runs import over
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Eigen(Batching):
    """One point per leading mode of the error matrix Ω.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct:eigen").batching
    Eigen()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"matrix", "random"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        check_enough(view, m)
        if score.omega is None:
            cause = f": {score.note}" if score.note else " (lc, br, pemse); this one has none: use top"
            raise InputError(f"eigen batching needs an acquisition with a matrix{cause}")
        omega, n = score.omega, view.x.shape[0]
        spare = streams.uniform(streams.fold(view.keys, Purpose.CHOICE), n).to(omega.factor)
        if omega.extra is None:
            values, weights, total = omega.modes(m, view.allowed)
        else:
            omega = omega.restrict(view.allowed)
            values, vectors = omega.top_eigenpairs(m)
            total, omega, weights = omega.trace(), Omega(vectors), torch.eye(values.shape[-1]).to(vectors)
        positive = (values > 0).sum(-1)  # (...)
        parts: Parts = {"worth": [], "mode": [], "share": []}
        some, (size, spare, allowed) = peaks(omega, weights, spare, view.allowed, m)
        chosen = []
        for slot in range(m):
            known = slot < positive  # a mode is left
            mode = min(slot, size.shape[-1] - 1)
            entry = torch.where(known[..., None], size[..., mode], spare)
            index, allowed = take_best(entry, allowed)
            chosen.append(index)
            parts["worth"].append(at(entry, index))
            parts["mode"].append(torch.where(known, slot + 1, 0))
            parts["share"].append(values[..., mode] / total)
        return Selection.of(chosen, parts, some)

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        if not numbers["mode"]:
            return "drawn at random: the error matrix has no further mode"
        share = f" ({numbers['share']:.0%} of the {meaning})" if 0 < numbers["share"] <= 1 else ""
        return f"peak of mode {numbers['mode']:.0f} of the error matrix{share}"


def peaks(
    omega: Omega, weights: Tensor, spare: Tensor, allowed: Tensor, m: int
) -> tuple[Tensor | None, tuple[Tensor, Tensor, Tensor]]:  # (..., r, q), (..., n) twice
    """Points among which a batch is found (None: all), and there the size of each mode, the spare numbers and what is
    allowed: of a large pool the m largest entries of each, by one pass in portions."""
    n, step, device = omega.n, omega.step, omega.factor.device
    if n <= step or allowed.numel() > n:
        return None, ((omega.factor @ weights).abs_(), spare, allowed)
    lead, row = allowed.shape[:-1], spare.reshape(-1)
    open, width = allowed.reshape(-1), weights.reshape(*weights.shape[-2:])

    def entries(start: int) -> tuple[Tensor, Tensor]:
        part, factor = slice(start, start + step), omega.part(start)
        size = torch.cat([(factor.reshape(-1, factor.shape[-1]) @ width).abs_(), row[part, None]], -1)
        kept = open[part].nonzero()[:, 0]
        return start + kept, size[kept].mT

    index, size = best(over(entries, range(0, n, step), device), m)
    size = size.reshape(*lead, *size.shape)
    return index, (size[..., :-1, :].mT, size[..., -1, :], torch.ones_like(size[..., -1, :], dtype=torch.bool))
