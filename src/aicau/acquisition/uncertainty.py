"""The usual scores of classifiers: the uncertainty of the mean probabilities, and mutual information.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| p̄ | `mean` | (..., n, c) | arithmetic mean of the members, as is usual for these four |

All are large where a label is uncertain, because data are missing or because labels are noisy there; only the mutual
information (BALD) and differences between rounds leave the noise out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.acquisition.base import Acquisition, Score, View
from aicau.core.errors import InputError
from aicau.core.runs import by_run


def least_confidence(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """1 − the largest mean probability."""
    return 1 - members.mean(-2).amax(-1)


def entropy(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """Of the mean probabilities."""
    return torch.special.entr(members.mean(-2)).sum(-1)


def margin(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """1 − the distance between the two largest mean probabilities."""
    first, second = members.mean(-2).topk(2, -1).values.unbind(-1)
    return 1 - (first - second)


def mutual_information(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """BALD: entropy of the mean less the mean entropy; between the label and which member is right."""
    return entropy(members) - torch.special.entr(members).sum(-1).mean(-1)


def score(view: View, rule: str) -> Score:
    """One of the four over the pool of a view with classes."""
    if not view.task.probabilities:
        raise InputError(f"{rule!r} is about classes, and this is a {view.task.name} task; use lc, bald, br or pemse")
    assert view.predictions is not None
    function = {"lc": least_confidence, "entropy": entropy, "margin": margin, "bald": mutual_information}[rule]
    (alpha,) = by_run(lambda some: (function(view.task.members(some)),), view.predictions)
    return Score(alpha, note=f"{rule!r} on classes has no matrix; use top or spread batching")


@dataclass(frozen=True)
class Entropy(Acquisition):
    meaning = "entropy of the predicted probabilities"

    def score(self, view: View) -> Score:
        return score(view, "entropy")


@dataclass(frozen=True)
class Margin(Acquisition):
    meaning = "nearness of the two most probable classes"

    def score(self, view: View) -> Score:
        return score(view, "margin")
