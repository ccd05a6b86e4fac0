"""Scores of the paper's Table 1 that `terms` does not have."""

import torch

from aicau.acquisition import uncertainty
from aicau.acquisition.base import Score, View
from aicau.core import decomposition, streams
from aicau.core.streams import Purpose


def random(view: View) -> Score:
    return Score(streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]))


def farthest(view: View) -> Score:
    return Score(torch.ones_like(view.allowed, dtype=view.x.dtype))


def least_confidence(view: View) -> Score:
    return (
        uncertainty.score(view, "lc") if view.task.probabilities else Score.of(decomposition.covariance(view.members))
    )


def bald(view: View) -> Score:
    if view.task.probabilities:
        return uncertainty.score(view, "bald")
    # In double precision: there different variances keep different scores, whatever the rounding of log1p.
    return Score(0.5 * torch.log1p(decomposition.epistemic(view.members).double()))
