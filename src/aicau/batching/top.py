"""Top: the m points with the largest α."""

from dataclasses import dataclass
from typing import ClassVar

from aicau.acquisition.base import Score, View
from aicau.batching.base import Batching, Selection, at, check_enough, largest, take_best
from aicau.core.runs import portion


@dataclass(frozen=True)
class Top(Batching):
    """The m points with the largest score.

    Examples
    --------
    >>> from aicau import Strategy
    >>> Strategy.parse("lc:top").batching
    Top()
    """

    uses: ClassVar[frozenset[str]] = frozenset({"score"})

    def select(self, score: Score, view: View, m: int) -> Selection:
        check_enough(view, m)
        alpha, allowed, chosen, some = score.alpha, view.allowed, [], None
        if allowed.numel() == allowed.shape[-1] > portion(allowed.device):  # one run, a large pool
            some, _ = largest(alpha.reshape(-1), allowed.reshape(-1), m)
            alpha, allowed = alpha[..., some], allowed[..., some]
        for _ in range(m):
            index, allowed = take_best(alpha, allowed)
            chosen.append(index)
        worth = [at(alpha, index) for index in chosen]
        return Selection.of(chosen, {"worth": worth, "score": worth}, some)

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        return f"chosen by {meaning}: {numbers['worth']:.3g}, the largest that was left"
