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

from aicau.acquisition.base import Score, View
from aicau.batching.base import Selection, at, check_enough, matrix, take_best
from aicau.core import streams
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Eigen:
    """One point per leading mode of the error matrix Ω.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("pemse:direct:eigen").batching
    Eigen()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"matrix", "random"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        """The next m points of every run."""
        check_enough(view, m)
        omega = matrix(score, "eigen").restrict(view.allowed)
        spare = streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]).to(omega.factor)
        values, vectors = omega.top_eigenpairs(m)
        size = vectors.abs_()  # (..., n, q)
        positive = (values > 0).sum(-1)  # (...)
        total = omega.trace()
        allowed, chosen = view.allowed, []
        parts: dict[str, list[torch.Tensor]] = {"worth": [], "mode": [], "share": []}
        for slot in range(m):
            known = slot < positive  # a mode is left
            mode = min(slot, size.shape[-1] - 1)
            entry = torch.where(known[..., None], size[..., mode], spare)
            index, allowed = take_best(entry, allowed)
            chosen.append(index)
            parts["worth"].append(at(entry, index))
            parts["mode"].append(torch.where(known, slot + 1, 0))
            parts["share"].append(values[..., mode] / total)
        return Selection(torch.stack(chosen, -1), {name: torch.stack(part, -1) for name, part in parts.items()})

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words."""
        if not numbers["mode"]:
            return "drawn at random: the error matrix has no further mode"
        share = f" ({numbers['share']:.0%} of the {meaning})" if 0 < numbers["share"] <= 1 else ""
        return f"peak of mode {numbers['mode']:.0f} of the error matrix{share}"
