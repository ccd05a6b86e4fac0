"""Batching: from a score over the pool to m points, and why each of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.core.errors import InputError
from aicau.core.runs import over, portion

Parts = dict[str, list[Tensor]]


@dataclass(frozen=True)
class Selection:
    """Chosen points, and the numbers that decided.

    Parameters
    ----------
    index : Tensor of int64, shape (..., m)
        Pool indices in the order they were chosen.
    parts : dict of str to Tensor, shape (..., m)
        What the rule looked at, for each point when it was chosen; `worth` is what it maximised.

    Examples
    --------
    >>> import torch
    >>> Selection(torch.tensor([[3]]), {"worth": torch.tensor([[0.5]])}).numbers(0, 0)
    {'worth': 0.5}
    """

    index: Tensor
    parts: dict[str, Tensor]

    @classmethod
    def of(cls, chosen: list[Tensor], parts: Parts, some: Tensor | None = None) -> "Selection":
        """From points and numbers (...) in the order they were chosen; `some`: points stand in it."""
        index = torch.stack(chosen, -1)
        numbers = {name: torch.stack(part, -1) for name, part in parts.items()}
        return cls(index if some is None else some[index], numbers)

    def numbers(self, run: int, place: int) -> dict[str, float]:
        """The numbers behind one point."""
        return {name: float(part[run, place]) for name, part in self.parts.items()}


class Batching(Protocol):
    """A rule. Parameters only; `select` is a pure function.

    Chosen points are allowed, and distinct unless the view has room for repeats. A rule with `joint = True` looks
    at the view's weights, further targets and costs itself; any other is given one score for all of them.
    """

    uses: ClassVar[frozenset[str]]  # what decides: "score", "distance", "predictions", "matrix", "random"

    def select(self, score: Score, view: View, m: int) -> Selection:
        """The next m points of every run."""

    def reason(self, numbers: dict[str, float], meaning: str) -> str:
        """Why a point was chosen, in words, from its `Selection.numbers`; `meaning` says what the score is."""


def check_enough(view: View, m: int) -> None:
    """Every run must have m points left."""
    left = int(view.allowed.sum(-1).min())
    if left < m:
        raise InputError(f"{m} points were asked for and only {left} can still be measured")


def take_best(score: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:  # (..., n) -> (...), (..., n)
    """The best allowed point, and what is allowed after it is taken. Ties go to the smallest index."""
    # An allowed point beats a forbidden one even where its score is NaN or −∞.
    least = torch.finfo(score.dtype).min
    best = score.nan_to_num(nan=least, neginf=least).masked_fill_(~allowed, -torch.inf)
    index = best.argmax(-1)
    return index, allowed.scatter(-1, index[..., None], False)


def best(parts: Iterable[tuple[Tensor, Tensor]], each: int) -> tuple[Tensor, Tensor]:  # (s,) and (stages, s)
    """The candidates of the `each` largest values in each stage, ascending, with their values; of equal ones the first.

    Parts are joined as they come. What comes out is a part itself: lists of many machines are joined in the same way.
    """
    held: list[tuple[Tensor, Tensor]] = []
    floor: Tensor | float = -torch.inf  # what a candidate must exceed in some stage

    def joined() -> tuple[Tensor, Tensor, Tensor]:
        index, value = (torch.cat(part, -1) for part in zip(*held, strict=True))
        order = value.argsort(descending=True, stable=True)[:, :each]
        kept = order.unique()
        return index[kept], value[:, kept], value.gather(-1, order[:, -1:])

    for index, value in parts:
        kept = (value > floor).any(0)
        held.append((index[kept], value[:, kept]))
        if sum(len(one) for one, _ in held) > 4 * each * len(value):
            index, value, lowest = joined()
            held = [(index, value)]
            floor = lowest
    return joined()[:2]


def largest(values: Tensor, allowed: Tensor, most: int) -> tuple[Tensor, Tensor]:  # (n,) twice -> (k,) twice
    """Allowed candidates of the largest values, ascending, with their values; of equal ones the first."""
    step, least = portion(values.device), torch.finfo(values.dtype).min

    def entries(start: int) -> tuple[Tensor, Tensor]:
        index = start + allowed[start : start + step].nonzero()[:, 0]
        return index, values[None, index].nan_to_num(nan=least, neginf=least)

    index, value = best(over(entries, range(0, len(values), step), values.device), most)
    return index, value[0]


def positive(alpha: Tensor) -> Tensor:  # (..., n)
    """α without its negative values; 1 everywhere where nothing is positive."""
    alpha = alpha.clamp_min(0)
    return torch.where((alpha > 0).any(-1, keepdim=True), alpha, 1.0)


def at(values: Tensor, index: Tensor) -> Tensor:  # (..., n), (...) -> (...)
    """One value per run."""
    return values.take_along_dim(index[..., None], -1)[..., 0]
