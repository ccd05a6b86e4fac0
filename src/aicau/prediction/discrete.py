"""The model of a round where labels or counts are measured: probabilities or rates, and the three parts of their error.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F_k | `members` | (n, K, c) | probabilities of c classes, or a rate (c = 1) |
| F̄ | `centre` | (n, c) | their dual mean |
| p̂, v | `belief` | (1, n, c) | what the strategy's estimator of the bias thinks of E Y |
| D | `divergence` | | Kullback-Leibler for labels, Poisson for counts (half the deviance) |

    expected error against one new measurement  =  E D[Y‖p]   +   E D[p‖F̄]  +  E D[F̄‖F]
                                                   aleatoric      bias          epistemic

For labels the sum is the expected log loss. How they are fitted and calibrated is in
`aicau.prediction.discrete_fit`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from aicau.acquisition import terms
from aicau.bias import Belief
from aicau.core import bregman
from aicau.core.task import Task
from aicau.ensembles import Fitted
from aicau.prediction.values import PARTS

ROWS = 100_000  # predicted at a time
TINY = 1e-12  # smallest probability
KINDS = {"classification": "classes", "count": "counts"}


@dataclass(frozen=True)
class ClassPrediction:
    """Calibrated probabilities, and the parts of the expected log loss."""

    labels: tuple[str, ...]  # c
    probability: NDArray[np.float64]  # (n, c)
    epistemic: NDArray[np.float64]  # (n,), like the next two
    bias: NDArray[np.float64]
    aleatoric: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        best = np.array(self.labels, dtype=object)[self.probability.argmax(-1)]
        shares = {f"p_{label}": self.probability[:, c] for c, label in enumerate(self.labels)}
        return {"predicted": best, **shares, **parts_of(self)}


@dataclass(frozen=True)
class CountPrediction:
    """The expected count, the 95% interval of a new one, and the parts of the expected Poisson divergence."""

    mean: NDArray[np.float64]  # (n,), like all
    new_low: NDArray[np.int64]
    new_high: NDArray[np.int64]
    variance: NDArray[np.float64]  # of a new count
    epistemic: NDArray[np.float64]
    bias: NDArray[np.float64]
    aleatoric: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        return {"mean": self.mean, "new_low": self.new_low, "new_high": self.new_high, **parts_of(self)}


def parts_of(said: ClassPrediction | CountPrediction) -> dict[str, NDArray[Any]]:
    return {name: getattr(said, name) for name in PARTS}


def task_of(info: dict[str, Any]) -> Task:
    return Task(KINDS[info["task"]], len(info.get("classes", ())))


def at(belief: Belief, some: Any) -> Belief:
    """At some of the points."""
    variance = belief.variance()
    return Belief(belief.mean[:, some], None, variance[:, some])


def forward(ensemble: Fitted, x: Tensor) -> Tensor:  # (n, d) -> (1, K, n[, c])
    """Members at points, some at a time: the same bits however the model came to be here."""
    return torch.cat([ensemble.predict(part) for part in x.split(ROWS)], 2)


def predict(predictions: Tensor, belief: Belief, info: dict[str, Any]) -> ClassPrediction | CountPrediction:
    """What members and belief say of points."""
    task = task_of(info)
    d = bregman.make(task.divergence)
    members = task.members(predictions)[0].clamp_min(TINY)  # (n, K, c)
    centre = bregman.mean_of(d, members)
    mean, variance = belief.mean[0], belief.variance()[0]
    gap = terms.unknown(d, mean, variance)
    epistemic = bregman.epistemic_of(d, members, centre).clamp_min(0)
    bias = (bregman.between(d, mean, centre) + gap).clamp_min(0)
    if task.kind == "classes":
        own = (torch.special.entr(mean).sum(-1) - gap).clamp_min(0)
        share = torch.softmax(centre.log() / info["temperature"], -1)
        parts = (part.numpy() for part in (share, epistemic, bias, own))
        return ClassPrediction(tuple(info["classes"]), *parts)
    rate = centre[:, 0].numpy()
    spread = info["width"] ** 2 * count_variance(members, mean, variance, info["dispersion"])
    low, high = interval(rate, spread, info["measurements"])
    own = info["dispersion"] * scatter(mean[:, 0].numpy())
    return CountPrediction(rate, low, high, spread, epistemic.numpy(), bias.numpy(), own)


def count_variance(
    members: Tensor,  # (n, K, 1)
    mean: Tensor,  # (n, 1) of the belief
    variance: Tensor,  # (n, 1)
    dispersion: float,
    repeats: Any = 1.0,  # (n,) counts that a mean is of
) -> NDArray[np.float64]:  # (n,)
    """Of a new count (or the mean of several) around the rate: its own scatter, and what is not known of the rate."""
    rate = bregman.mean_of(bregman.POISSON, members)
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

    more = np.maximum(variance - mean, 1e-9 * mean + 1e-12)
    shape = mean**2 / more
    ends = (stats.nbinom.ppf(q, shape, mean / (mean + more)) for q in (0.5 - level / 2, 0.5 + level / 2))
    low, high = (np.nan_to_num(end, nan=0.0, posinf=2.0**62).astype(np.int64) for end in ends)
    whole = np.floor(mean).astype(np.int64)  # inside, also where a few huge counts make the mean
    return np.minimum(low, whole), np.maximum(high, np.maximum(whole, after_zeros(count, level)))


def after_zeros(count: int, level: float = 0.95) -> int:
    """Upper end of the interval of a new count when `count` counts were all zero (a Poisson, Jeffreys prior)."""
    from scipy import stats

    return int(stats.nbinom.ppf(0.5 + level / 2, 0.5, count / (count + 1)))


_RATES = np.geomspace(1e-6, 1e3, 241)
_COUNTS = np.arange(1, 1400)
# The chance of each count under each rate: a Poisson's, without importing scipy.stats.
_CHANCE = np.exp(special.xlogy(_COUNTS, _RATES[:, None]) - special.gammaln(_COUNTS + 1) - _RATES[:, None])
_SCATTER = (_CHANCE * _COUNTS * np.log(_COUNTS / _RATES[:, None])).sum(-1)


def scatter(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """E D[Y‖λ] of a Poisson count Y with mean λ: E Y log(Y/λ), a half where λ is large."""
    return np.interp(np.log(np.maximum(rate, _RATES[0])), np.log(_RATES), _SCATTER)


def one_label(labels: tuple[str, ...]) -> str:
    """Why there is no model of classes yet."""
    return f"all labels so far say {labels[0]!r}"
