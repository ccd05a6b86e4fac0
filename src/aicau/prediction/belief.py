"""What is thought of E Y over the pool, and what is handed out for it, of labels and counts.

Of a pool in memory it is computed once and kept; of one that is read when it is wanted (`Rows`), whenever candidates
are asked for, and nothing of it is kept: who opens such a campaign again fits again.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.bias import Belief, BiasEstimator, Posterior, assess
from aicau.core.pool import Rows
from aicau.prediction.base import State, spread_over
from aicau.prediction.mixture import TINY, Mixture

NAMES = ("mean", "variance", "mixed")


@dataclass(frozen=True)
class Kept:
    """Of every candidate."""

    mean: Tensor  # (n, c) of E Y
    variance: Tensor  # (n, c)
    mixed: Tensor  # (n, c) what is handed out, before it is calibrated

    def at(self, index: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:  # (m, c) each
        """Of some candidates, or of all."""
        mean, variance, mixed = self.mean, self.variance, self.mixed
        return (mean, variance, mixed) if index is None else (mean[index], variance[index], mixed[index])

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs."""
        return {name: getattr(self, name) for name in NAMES}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "Kept":
        """What `tensors` gave; an error where nothing was kept."""
        return cls(*(tensors[name] for name in NAMES))


@dataclass(frozen=True)
class Wanted:
    """Of the candidates that are asked for."""

    state: State
    estimator: BiasEstimator | None
    mixture: Mixture

    def at(self, index: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:  # (m, c) each
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
    found = assess(Posterior() if estimator is None else estimator, state.evidence())
    assert isinstance(found, Belief)
    centre = state.evidence().centre()[0].clamp_min(TINY)  # the dual mean of the members
    return Kept(found.mean[0], found.variance()[0], mixture.mean(centre, state.x).clamp_min(TINY))
