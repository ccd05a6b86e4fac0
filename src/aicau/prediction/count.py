"""Counts: the expected count, an interval of whole numbers, and the three parts of the expected Poisson divergence.

The expected count is that of the mixture of the networks with processes and trees (`mixture`). A new count is negative
binomial: its variance is φ·mean for the scatter of replicates (φ shrunk to 1, a Poisson's) and what is not known of the
mean, times how far counts lay from models that had not seen them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from aicau.bias import BiasEstimator
from aicau.core import bregman
from aicau.prediction.base import LEVELS, PARTS, Check, Figures, Numbers, State, parts_at
from aicau.prediction.belief import Kept, Wanted, parts_of, said
from aicau.prediction.mixture import TINY, Mixture, members_at, mix

LEAST_RATE = 1e-6  # over the mean count
PRIOR = 5.0  # measurements that a Poisson's scatter is worth


@dataclass(frozen=True)
class CountPrediction:
    """The expected count, the 95% interval of a new one, and the parts of the expected Poisson divergence.

    Parameters
    ----------
    mean, variance : array, shape (n,)
        Of a new count.
    epistemic, bias, aleatoric : array, shape (n,)
    measured : int
        Counts behind the model: no candidate is known better than from that many zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from aicau import CountPrediction
    >>> none = np.zeros(1)
    >>> said = CountPrediction(np.array([4.0]), np.array([4.0]), none, none, none, measured=10)
    >>> float(said.columns()["new_low"][0]), float(said.columns()["new_high"][0])
    (1.0, 8.0)
    """

    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    epistemic: NDArray[np.float64]
    bias: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    measured: int

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        low, high = interval(self.mean, self.variance, self.measured)
        return {"mean": self.mean, "new_low": low, "new_high": high, **{name: getattr(self, name) for name in PARTS}}

    def check(self, y: Sequence[Any]) -> Check:
        """Poisson divergences, and which intervals held."""
        new = np.asarray(y, dtype=float)
        ends = [interval(self.mean, self.variance, self.measured, float(level)) for level in LEVELS]
        true = np.stack([(low <= new) & (new <= high) for low, high in ends], -1)
        loss = bregman.divergence("poisson", new[:, None], self.mean[:, None]).numpy()
        return Check(loss, np.broadcast_to(LEVELS, (len(new), len(LEVELS))), true)

    def spread(self) -> float:
        """Mean divergence of the rates from their mean."""
        share = np.maximum(self.mean, TINY) / max(float(self.mean.mean()), TINY)
        return float((self.mean * np.log(share)).mean() + self.bias.mean())

    def summary(self, place: int) -> tuple[str, Numbers]:
        """One candidate in words, and as numbers."""
        parts, total, words = parts_at(self, place)
        some, mean = slice(place, place + 1), float(self.mean[place])
        low, high = (int(end[0]) for end in interval(self.mean[some], self.variance[some], self.measured))
        words = f"predicted count {mean:.3g} ({low} to {high}), expected Poisson divergence {total:.3g}: {words}"
        return words, {"prediction": mean, "new_low": low, "new_high": high, **parts}


@dataclass(frozen=True)
class CountPredictor:
    """What is thought of the rate over the pool, and how counts scatter around rates."""

    said: Kept | Wanted  # in units
    weights: dict[str, float]
    dispersion: float  # φ
    width: float  # how much wider than the parts say
    figures: Figures

    @classmethod
    def fit(
        cls, state: State, estimator: BiasEstimator | None = None, labels: Sequence[str] = (), combine: bool = True
    ) -> "CountPredictor":
        """The strategy's estimator (or `posterior`) says what the rate is; left-out counts set the width."""
        mixture = mix(state, combine)
        every, tested, scale = said(state, estimator, mixture), mixture.tested, state.scale[0]
        y, rate = state.observations.y[0][tested] * scale, (mixture.outside[tested] * scale).clamp_min(TINY)
        error = float(bregman.between(bregman.POISSON, y[:, None], rate).mean()) if bool(tested.any()) else None
        figures = Figures.of(state, error)
        found = cls(every, mixture.weights, *_scatter_and_width(state, every, mixture), figures)
        return replace(found, figures=figures.with_parts(found, state))

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], figures: Figures) -> "CountPredictor":
        return cls(Kept.load(tensors), words["weights"], words["dispersion"], words["width"], figures)

    def predict(self, state: State, index: Tensor | None = None) -> CountPrediction:
        """All candidates or some, as counts."""
        scale = float(state.scale[0])
        mean, variance, mixed = self.said.at(index)
        mean, variance, mixed = mean.clamp_min(LEAST_RATE) * scale, variance * scale**2, mixed * scale
        members = (members_at(state, index) * scale).clamp_min(TINY)
        epistemic, bias, _ = parts_of(state.task, members, mean, variance)
        spread = self.width**2 * count_variance(mixed, members, mean, variance, self.dispersion)
        own = self.dispersion * scatter(mean[:, 0].numpy())
        rate, apart, off = (part.numpy() for part in (mixed[:, 0], epistemic, bias))
        return CountPrediction(rate, spread, apart, off, own, self.figures.measurements)

    def tensors(self) -> dict[str, Tensor]:
        return self.said.tensors()

    def words(self) -> dict[str, Any]:
        return {"weights": self.weights, "dispersion": self.dispersion, "width": self.width}


def _scatter_and_width(state: State, said: Kept | Wanted, mixture: Mixture) -> tuple[float, float]:
    """Scatter of replicates over a Poisson's, and how far counts lie from rates of models that had not seen them."""
    scale = float(state.scale[0])
    seen = state.observations.collapse()
    kept = seen.valid[0]
    index, level, count = (part[0][kept] for part in (seen.index, seen.mean * scale, seen.count))
    y, place = state.observations.y[0] * scale, torch.searchsorted(index, state.observations.index[0])
    there = level[place] > 0
    pearson = float(((y - level[place])[there] ** 2 / level[place][there]).sum())
    dispersion = (pearson + PRIOR) / (float((count - 1)[level > 0].sum()) + PRIOR)
    first = torch.stack([(place == i).nonzero()[0, 0] for i in range(len(index))])  # replicates stand in one fold
    rate, known = mixture.outside[first, 0] * scale, mixture.tested[first].numpy()
    members = (members_at(state, index) * scale).clamp_min(TINY)
    mean, variance, mixed = said.at(index)
    own = (mean.clamp_min(LEAST_RATE) * scale, variance * scale**2)
    expected = count_variance(mixed * scale, members, *own, dispersion, count.double().numpy())
    ratio = ((level - rate) ** 2).numpy()[known] / np.maximum(expected[known], TINY)
    return dispersion, float(np.sqrt((ratio.sum() + PRIOR) / (len(ratio) + PRIOR)))


def count_variance(
    rate: Tensor,  # (n, 1)
    members: Tensor,  # (n, K, 1)
    mean: Tensor,  # (n, 1) of E Y
    variance: Tensor,  # (n, 1)
    dispersion: float,
    repeats: Any = 1.0,  # (n,) counts that a mean is of
) -> NDArray[np.float64]:  # (n,)
    """Of a new count (or the mean of several) around the rate: its own scatter, and what is not known of the rate."""
    spread = members.var(-2, correction=0) + (mean - rate) ** 2 + variance
    return np.asarray(dispersion * rate[:, 0].numpy() / repeats + spread[:, 0].numpy())


def interval(
    mean: NDArray[np.float64],  # (n,)
    variance: NDArray[np.float64],  # (n,)
    count: int,  # counts that were measured: no candidate is known better than from that many zeros
    level: float = 0.95,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whole numbers that hold a share `level` of a negative binomial with these moments; of a Poisson at least."""
    from scipy import stats  # late: it takes long to import

    more = np.maximum(variance - mean, 1e-9 * mean + np.finfo(float).tiny)
    shape = mean**2 / more
    ends = (stats.nbinom.ppf(q, shape, mean / (mean + more)) for q in (0.5 - level / 2, 0.5 + level / 2))
    low, high = (np.nan_to_num(end, nan=0.0, posinf=2.0**62).astype(np.int64) for end in ends)
    whole = np.floor(mean).astype(np.int64)  # inside, also where a few huge counts make the mean
    # After zeros only: the upper end for a Poisson with Jeffreys' prior.
    least = int(stats.nbinom.ppf(0.5 + level / 2, 0.5, count / (count + 1)))
    return np.minimum(low, whole), np.maximum(high, np.maximum(whole, least))


_RATES = np.geomspace(1e-6, 1e3, 241)
_COUNTS = np.arange(1, 1400)
# The chance of each count under each rate: a Poisson's, without importing scipy.stats.
_CHANCE = np.exp(special.xlogy(_COUNTS, _RATES[:, None]) - special.gammaln(_COUNTS + 1) - _RATES[:, None])
_SCATTER = (_CHANCE * _COUNTS * np.log(_COUNTS / _RATES[:, None])).sum(-1)


def scatter(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """E D[Y‖λ] of a Poisson count Y with mean λ: E Y log(Y/λ), a half where λ is large."""
    return np.interp(np.log(np.maximum(rate, _RATES[0])), np.log(_RATES), _SCATTER)
