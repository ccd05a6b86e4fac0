"""What is thought of E Y over the pool, and what is handed out for it, of labels and counts.

Of a pool in memory it is computed once and kept; of one that is read when it is wanted (`Rows`), whenever candidates
are asked for, and nothing of it is kept: who opens such a campaign again fits again.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from aicau.acquisition import terms
from aicau.bias import Belief, BiasEstimator, Posterior, assess
from aicau.core import bregman
from aicau.core.pool import Rows
from aicau.core.task import Task
from aicau.prediction.base import State, spread_over
from aicau.prediction.mixture import TINY, Mixture


class Kept(NamedTuple):
    """Of every candidate."""

    mean: Tensor  # (n, c) of E Y
    variance: Tensor  # (n, c)
    mixed: Tensor  # (n, c) what is handed out, before it is calibrated

    def at(self, index: Tensor | None) -> "Kept":
        """Of some candidates, or of all."""
        return self if index is None else Kept(*(part[index] for part in self))

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs."""
        return self._asdict()

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "Kept":
        """What `tensors` gave; an error where nothing was kept."""
        return cls(*(tensors[name] for name in cls._fields))


@dataclass(frozen=True)
class Wanted:
    """Of the candidates that are asked for."""

    state: State
    estimator: BiasEstimator | None
    mixture: Mixture

    def at(self, index: Tensor | None) -> Kept:
        """Of some candidates, or of all."""
        index = torch.arange(len(self.state.x)) if index is None else index
        part = torch.cat([self.state.observations.index[0], index]).unique()
        return _said(self.state.among(part), self.estimator, self.mixture).at(torch.searchsorted(part, index))

    def tensors(self) -> dict[str, Tensor]:
        """Nothing."""
        return {}


def said(state: State, estimator: BiasEstimator | None, mixture: Mixture) -> Kept | Wanted:
    """By the strategy's estimator or `posterior`, and by all models together."""
    if not isinstance(state.x, Rows):
        return _said(state, estimator, mixture)
    found = Wanted(state, estimator, mixture)
    found.at(spread_over(len(state.x)))  # what estimators learn of the pool they learn from these
    return found


def _said(state: State, estimator: BiasEstimator | None, mixture: Mixture) -> Kept:
    evidence = state.evidence()
    found = assess(estimator or Posterior(), evidence)
    assert isinstance(found, Belief)
    centre = evidence.centre()[0].clamp_min(TINY)  # the dual mean of the members
    return Kept(found.mean[0], found.variance()[0], mixture.mean(centre, state.x).clamp_min(TINY))


def parts_of(
    task: Task,
    members: Tensor,  # (m, K, c)
    mean: Tensor,  # (m, c)
    variance: Tensor,  # (m, c)
) -> tuple[Tensor, Tensor, Tensor]:  # (m,) each
    """The epistemic part, the bias, and what of the bias is not known of E Y yet."""
    d = bregman.make(task.divergence)
    centre = bregman.mean_of(d, members)
    gap = terms.unknown(d, mean, variance)
    epistemic = bregman.epistemic_of(d, members, centre).clamp_min(0)
    return epistemic, (bregman.between(d, mean, centre) + gap).clamp_min(0), gap
