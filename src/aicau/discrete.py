"""The model of a round where labels or counts are measured: probabilities or rates, and the three parts of their error.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| F_k | `members` | (n, K, c) | probabilities of c classes, or a rate (c = 1) |
| F̄ | `centre` | (n, c) | their dual mean |
| p̂, v | `belief` | (1, n, c) | what the strategy's estimator of the bias thinks of E Y |
| D | `divergence` | | Kullback-Leibler for labels, Poisson for counts (half the deviance) |

    expected error against one new measurement  =  E D[Y‖p]   +   E D[p‖F̄]  +  E D[F̄‖F]
                                                   aleatoric      bias          epistemic

For labels the sum is the expected log loss. Replicates of a candidate are trained on as one row, the shares of its
labels or its mean count, so that none of them is in the training folds of the member that is tested on it.

Probabilities are calibrated by one temperature T, p ∝ F̄^(1/T), which minimises the log loss of members on candidates
they did not see, held near 1 by a prior (log T has a standard deviation of a half). A new count is negative binomial:
its variance is φ·mean for the scatter of replicates (φ shrunk to 1, a Poisson's) and what is not known of the mean,
times how far counts lay from members that had not seen them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from aicau import bregman
from aicau.acquisition import terms
from aicau.bias import Belief, Direct, Evidence, assess, check_finite
from aicau.bias.classes import frequencies
from aicau.ensembles import MLPClassifier, MLPCounts
from aicau.ensembles.mlp import FittedMLP
from aicau.errors import InputError
from aicau.observations import Collapsed, Observations
from aicau.task import Task

if TYPE_CHECKING:
    from aicau.measured import Measured
    from aicau.strategy import Strategy

ROWS = 100_000  # predicted at a time
MOST_EVIDENCE = 1500  # measurements that an estimate of the bias sees one by one
MOST_LABELS = 800  # the same here, where every class has a process of its own
TINY = 1e-12  # smallest probability
LEAST_RATE = 1e-6  # over the mean count
PRIOR = 5.0  # measurements that a Poisson's scatter is worth
TEMPERATURES = np.geomspace(0.25, 8.0, 141)
DOUBT = 0.5  # of log T, as a standard deviation
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
        return {"predicted": best, **shares, **_parts(self)}


@dataclass(frozen=True)
class CountPrediction:
    """The expected count, the 95% interval of a new one, and the parts of the expected Poisson divergence."""

    mean: NDArray[np.float64]  # (n,), like all
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    variance: NDArray[np.float64]  # of a new count
    epistemic: NDArray[np.float64]
    bias: NDArray[np.float64]
    aleatoric: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        return {"mean": self.mean, "low": self.low, "high": self.high, **_parts(self)}


def _parts(said: ClassPrediction | CountPrediction) -> dict[str, NDArray[Any]]:
    return {name: getattr(said, name) for name in ("epistemic", "bias", "aleatoric")}


def task_of(info: dict[str, Any]) -> Task:
    return Task(KINDS[info["task"]], len(info.get("classes", ())))


def at(belief: Belief, some: Any) -> Belief:
    """At some of the points."""
    variance = belief.variance()
    return Belief(belief.mean[:, some], None, variance[:, some])


def forward(ensemble: FittedMLP, x: Tensor) -> Tensor:  # (n, d) -> (1, K, n[, c])
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
    low, high = interval(rate, spread)
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
    level: float = 0.95,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Whole numbers that hold a share `level` of a negative binomial with these moments; of a Poisson at least."""
    more = np.maximum(variance - mean, 1e-9 * mean + 1e-12)
    shape = mean**2 / more
    ends = (stats.nbinom.ppf(q, shape, mean / (mean + more)) for q in (0.5 - level / 2, 0.5 + level / 2))
    low, high = (np.nan_to_num(end, nan=0.0, posinf=2.0**62).astype(np.int64) for end in ends)
    return low, high


_RATES = np.geomspace(1e-6, 1e3, 241)
_COUNTS = np.arange(1, 1400)
_SCATTER = (stats.poisson.pmf(_COUNTS, _RATES[:, None]) * _COUNTS * np.log(_COUNTS / _RATES[:, None])).sum(-1)


def scatter(rate: NDArray[np.float64]) -> NDArray[np.float64]:
    """E D[Y‖λ] of a Poisson count Y with mean λ: E Y log(Y/λ), a half where λ is large."""
    return np.interp(np.log(np.maximum(rate, _RATES[0])), np.log(_RATES), _SCATTER)


def fit(
    x: Tensor,  # (n, d) float32, standardised
    measured: "Measured",
    keys: Tensor,  # (1,)
    strategy: "Strategy",
    kind: str,
) -> tuple[FittedMLP, Belief, dict[str, Any]]:
    """Networks on shares of labels or on mean counts; the strategy's estimator (or `direct`) says what E Y is."""
    if kind == "classification":
        check_classes(measured)
    task = Task(KINDS[kind], len(measured.labels))
    observations = measured.batched()
    if task.kind == "classes":
        seen, share = frequencies(observations, task.classes)
        targets = share[0][seen.valid[0]]  # (l, c)
    else:
        seen = observations.collapse()
        targets = seen.mean[0][seen.valid[0]][:, None]
    index, repeats = seen.index[0][seen.valid[0]], seen.count[0][seen.valid[0]]
    rows = x[index][None]
    if task.kind == "classes":
        fitted = MLPClassifier(task.classes).fit_shares(rows, targets[None], keys)
    else:
        fitted = MLPCounts().fit(rows, targets[None, :, 0], keys)
    predictions = forward(fitted, x)
    scale = float(targets.mean()) or 1.0 if task.kind == "counts" else 1.0
    belief = _belief(x, observations, predictions, keys, fitted.unseen, index, strategy, task, scale)
    members = task.members(predictions)[0][index].clamp_min(TINY)  # (l, K, c)
    apart = fitted.unseen[0].T.double()  # (l, K): at most one member did not see a point
    tested = (apart.sum(-1) > 0).numpy()
    outside = ((members * apart[..., None]).sum(-2) / apart.sum(-1, keepdim=True).clamp_min(1))[tested].numpy()
    goal, weight = targets.numpy(), repeats.double().numpy()
    info: dict[str, Any] = {
        "task": kind,
        "points": len(index),
        "measurements": len(measured.y),
        "strategy": strategy.name,
        "noise_freedom": int((weight - 1).sum()),
    }
    if task.kind == "classes":
        info |= _class_figures(measured.labels, outside, goal[tested], weight[tested])
    else:
        inside = (members, belief.mean[0][index], belief.variance()[0][index])
        info |= _count_figures(observations, seen, inside, outside[:, 0], goal[:, 0], weight, tested)
    said = predict(predictions, belief, info)
    names = {"epistemic": "mean_epistemic", "bias": "mean_bias", "aleatoric": "aleatoric"}
    return fitted, belief, info | {names[name]: float(part.mean()) for name, part in _parts(said).items()}


def _belief(
    x: Tensor,
    observations: Observations,
    predictions: Tensor,
    keys: Tensor,
    unseen: Tensor,  # (1, K, points)
    index: Tensor,  # (points,)
    strategy: "Strategy",
    task: Task,
    scale: float,  # counts over their mean: an estimator knows no units
) -> Belief:
    some = torch.linspace(0, observations.rows - 1, min(observations.rows, MOST_LABELS)).long()
    o = observations
    evidence = Observations(o.index[:, some], o.y[:, some] / scale, o.round[some], o.batch[:, some])
    place = torch.searchsorted(index, evidence.index[0])
    estimator = strategy.bias if strategy.bias is not None else Direct()
    found = assess(estimator, Evidence(x, evidence, predictions / scale, keys, unseen[..., place], task=task))
    check_finite(estimator, found)
    assert isinstance(found, Belief)
    if getattr(strategy.acquisition, "form", None) is None:  # nobody asks how points go together: keep less
        found = Belief(found.mean, None, found.variance())
    if task.kind == "classes":
        return found
    parts = (None if found.factor is None else found.factor * scale, found.rest)
    mean = found.mean.clamp_min(LEAST_RATE) * scale
    return Belief(mean, parts[0], None if parts[1] is None else parts[1] * scale**2)


def _class_figures(
    labels: tuple[str, ...],
    outside: NDArray[np.float64],  # (l, c) probabilities by members that had not seen the candidate
    share: NDArray[np.float64],  # (l, c) of its labels
    weight: NDArray[np.float64],  # (l,) its labels
) -> dict[str, Any]:
    """The temperature, and how good calibrated probabilities were on candidates that were not trained on."""
    log = np.log(outside)
    losses = []
    for temperature in TEMPERATURES:
        sharp = log / temperature
        sharp -= np.logaddexp.reduce(sharp, axis=-1, keepdims=True)
        losses.append(-float((weight[:, None] * share * sharp).sum()))
    prior = 0.5 * (np.log(TEMPERATURES) / DOUBT) ** 2
    best = int(np.argmin(np.array(losses) + prior))
    hits = np.zeros((len(labels), len(labels)))
    np.add.at(hits.T, log.argmax(-1), weight[:, None] * share)  # true class, predicted class
    return {
        "classes": list(labels),
        "temperature": float(TEMPERATURES[best]),
        "out_of_fold": losses[best] / weight.sum() if len(weight) else None,
        "confusion": np.rint(hits).astype(int).tolist(),
    }


def _count_figures(
    observations: Observations,
    seen: Collapsed,
    inside: tuple[Tensor, Tensor, Tensor],  # members, mean and variance of the belief at measured candidates
    outside: NDArray[np.float64],  # (tested,) rates by members that had not seen the candidate
    mean: NDArray[np.float64],  # (l,) of its counts
    weight: NDArray[np.float64],  # (l,) how many
    tested: NDArray[np.bool_],  # (l,)
) -> dict[str, Any]:
    """Scatter of replicates over a Poisson's, and how far counts lie from rates of members that had not seen them."""
    y, index = observations.y[0].numpy(), observations.index[0].numpy()
    place = np.searchsorted(seen.index[0][seen.valid[0]].numpy(), index)
    there = mean[place] > 0
    pearson = float(((y - mean[place])[there] ** 2 / mean[place][there]).sum())
    freedom = float((weight - 1)[mean > 0].sum())
    dispersion = (pearson + PRIOR) / (freedom + PRIOR)
    variance = count_variance(*inside, dispersion, weight)
    ratio = (mean[tested] - outside) ** 2 / np.maximum(variance[tested], TINY)
    back = np.full(len(mean), -1)
    back[tested] = np.arange(int(tested.sum()))
    rows = back[place] >= 0
    rate = torch.from_numpy(outside[back[place][rows]])[:, None]
    loss = bregman.between(bregman.POISSON, torch.from_numpy(y[rows])[:, None], rate.clamp_min(TINY))
    return {
        "dispersion": dispersion,
        "width": float(np.sqrt((ratio.sum() + PRIOR) / (len(ratio) + PRIOR))),
        "out_of_fold": float(loss.mean()) if rows.any() else None,
    }


def one_label(labels: tuple[str, ...]) -> str:
    """Why there is no model of classes yet."""
    return f"all labels so far say {labels[0]!r}"


def check_classes(measured: "Measured") -> None:
    if len(measured.labels) < 2:
        raise InputError(
            f"{one_label(measured.labels)}, so there is nothing to tell apart; tell results of a second class"
        )
