"""Estimators of the bias δ = μ_F − μ_Y over the pool, as a cobias matrix Δ̂ in signed factors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from aicau import decomposition
from aicau.errors import TrainingError
from aicau.observations import Collapsed, Observations
from aicau.omega import Omega


@dataclass(frozen=True)
class Evidence:
    """What an estimator may see after round k."""

    x: Tensor  # (n, d) the pool
    observations: Observations  # (..., l)
    predictions: Tensor  # (..., K, n)
    keys: Tensor  # (...) one stream per run, for this round
    unseen: Tensor | None = None  # (..., K, l) True where a member was not trained on a row of the observations
    oracle: Callable[[int], Tensor] | None = None  # count -> mean of as many realisations (..., n); simulation only

    def side_information(self) -> Tensor:  # (..., n, d + 2)
        """h = [x, μ_F, σ²_F] (Appendix A)."""
        mean, spread = decomposition.mean(self.predictions), decomposition.epistemic(self.predictions)
        x = self.x.to(mean).expand(*mean.shape, self.x.shape[-1])
        return torch.cat([x, mean[..., None], spread[..., None]], -1)

    def residuals(self) -> tuple[Collapsed, Tensor]:  # (..., l)
        """Measured points and δ there: mean over members minus mean over measurements (Appendix D.3)."""
        seen = self.observations.collapse()
        mean = decomposition.mean(self.predictions).gather(-1, seen.index)
        return seen, torch.where(seen.valid, mean.double() - seen.mean, 0.0)

    def crossfitted(self) -> Tensor:  # (..., l)
        """Residual of every measurement under the members that never saw it; without folds, under all."""
        o = self.observations
        inside = decomposition.mean(self.predictions).double().gather(-1, o.index)
        if self.unseen is None:
            return inside - o.y
        apart = self.unseen.double()
        at = o.index[..., None, :].expand(self.unseen.shape)
        outside = (self.predictions.gather(-1, at).double() * apart).sum(-2) / apart.sum(-2).clamp_min(1)
        return torch.where(apart.sum(-2) > 0, outside, inside) - o.y


class BiasEstimator(Protocol):
    """Parameters only; `estimate` is a pure function of the evidence."""

    waits: ClassVar[bool]  # True: on a GPU the host waits for it step by step, so it is started after the others

    def estimate(self, evidence: Evidence) -> Omega: ...


def check_finite(estimator: BiasEstimator, estimate: Omega) -> None:
    """What an estimator made of the evidence must be numbers."""
    if not bool(torch.isfinite(estimate.diagonal()).all()):
        name = type(estimator).__name__.lower()
        raise TrainingError(f"the {name} estimate of the bias diverged; scale the target or the features")


def place(values: Tensor, seen: Collapsed, onto: Tensor) -> Tensor:  # (..., l), (..., n) -> (..., n)
    """`onto` with `values` written at the measured points."""
    # Padded entries point at index 0: send them to an extra slot and drop it.
    n = onto.shape[-1]
    index = torch.where(seen.valid, seen.index, n)
    wide = torch.cat([onto, onto.new_zeros(*onto.shape[:-1], 1)], -1)
    return wide.scatter(-1, index, values.to(onto))[..., :n]
