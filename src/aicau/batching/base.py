"""Batching: from a score over the pool to m points."""

from typing import Protocol

import torch
from torch import Tensor

from aicau.acquisition.base import Score, View
from aicau.core.errors import InputError
from aicau.core.omega import Omega


class Batching(Protocol):
    """Parameters only; `select` is a pure function. Chosen points are allowed, and distinct unless the view has room
    for repeats."""

    def select(self, score: Score, view: View, m: int) -> Tensor: ...  # (..., m)


def check_enough(view: View, m: int) -> None:
    """Every run must have m points left."""
    left = int(view.allowed.sum(-1).min())
    if left < m:
        raise InputError(f"{m} points were asked for and only {left} can still be measured")


def matrix(score: Score, rule: str) -> Omega:
    """The matrix of a score, or one sentence about why there is none."""
    if score.omega is None:
        why = f": {score.note}" if score.note else " (lc, br, pemse); this one has none: use top"
        raise InputError(f"{rule} batching needs an acquisition with a matrix{why}")
    return score.omega


def take_best(score: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:  # (..., n) -> (...), (..., n)
    """The best allowed point, and what is allowed after it is taken. Ties go to the smallest index."""
    # An allowed point beats a forbidden one even where its score is NaN or −∞.
    least = torch.finfo(score.dtype).min
    best = score.nan_to_num(nan=least, neginf=least).masked_fill_(~allowed, -torch.inf)
    index = best.argmax(-1)
    return index, allowed.scatter(-1, index[..., None], False)
