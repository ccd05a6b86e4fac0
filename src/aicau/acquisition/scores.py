"""Scores without a bias: random ones, disagreement of the members, and for classes the uncertainty of a label.

A label is uncertain where data are missing or labels are noisy; of the scores of classes only the mutual information
(BALD) and differences between rounds leave the noise out.

`trust` is (1 − s)·mean(u) + s·u: u (`apart`) is the variance of the members' probabilities, summed over classes, and s
(`view.skill`) the share of the entropy of unseen labels that members explain. Where labels are mostly noise s is small,
α is nearly the same everywhere, and `spread` fills the space.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from aicau.acquisition import terms
from aicau.acquisition.base import Score, View
from aicau.core import decomposition, streams
from aicau.core.errors import InputError
from aicau.core.runs import by_run
from aicau.core.streams import Purpose


def least_confidence(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """1 − the largest mean probability."""
    return 1 - members.mean(-2).amax(-1)


def entropy(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """Entropy of the mean probabilities."""
    return torch.special.entr(members.mean(-2)).sum(-1)


def margin(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """1 − the distance between the two largest mean probabilities."""
    first, second = members.mean(-2).topk(2, -1).values.unbind(-1)
    return 1 - (first - second)


def mutual_information(members: Tensor) -> Tensor:  # (..., n, K, c) -> (..., n)
    """BALD: entropy of the mean less the mean entropy; between the label and which member is right."""
    return entropy(members) - torch.special.entr(members).sum(-1).mean(-1)


def score(view: View, rule: str, function: Callable[[Tensor], Tensor]) -> Score:
    """One of these four over the pool, for classes."""
    check_classes(view, rule)
    alpha = by_run(lambda some: function(view.task.members(some)), view.members)
    return Score(alpha, note=f"{rule!r} on classes has no matrix; use top or spread batching")


def check_classes(view: View, rule: str) -> None:
    """Refuse a task without classes."""
    if not view.task.probabilities:
        raise InputError(f"{rule!r} is about classes, and this is a {view.task.name} task; use lc, bald, br or pemse")


def random(view: View) -> Score:
    return Score(streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]))


def farthest(view: View) -> Score:
    return Score(torch.ones_like(view.allowed, dtype=view.x.dtype))


def lc(view: View) -> Score:
    probable = view.task.probabilities
    return score(view, "lc", least_confidence) if probable else Score.of(decomposition.covariance(view.members))


def bald(view: View) -> Score:
    if view.task.probabilities:
        return score(view, "bald", mutual_information)
    # In double precision: there different variances keep different scores, whatever the rounding of log1p.
    return Score(0.5 * torch.log1p(decomposition.epistemic(view.members).double()))


def by_entropy(view: View) -> Score:
    return score(view, "entropy", entropy)


def by_margin(view: View) -> Score:
    return score(view, "margin", margin)


def trust(view: View) -> Score:
    check_classes(view, "trust")
    if view.skill is None:
        raise InputError("'trust' is about classes and needs View.skill, how well members predict unseen labels")
    apart = terms.epistemic(view, "brier").alpha
    s, level = view.skill.to(apart)[..., None], apart.mean(-1) if view.level is None else view.level
    note = "'trust' has no matrix; use top or spread batching"
    return Score((1 - s) * level.to(apart)[..., None] + s * apart, note=note)


def trust_level(view: View) -> Tensor:
    """mean(u), for a pool that is looked at in parts."""
    return terms.epistemic(view, "brier").alpha.mean(-1)
