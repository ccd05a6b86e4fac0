"""How the model of labels or counts is fitted, and how its probabilities and intervals are calibrated.

Replicates of a candidate are trained on as one row, the shares of its labels or its mean count, so that none of them is
in the training folds of the member that is tested on it.

Probabilities are calibrated by one temperature T, p ∝ F̄^(1/T), which minimises the log loss of members on candidates
they did not see, each candidate counting once; a prior holds T near 1, more so from below (docs/decisions.md).

A new count is negative binomial: its variance is φ·mean for the scatter of replicates (φ shrunk to 1, a Poisson's) and
what is not known of the mean, times how far counts lay from members that had not seen them.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.bias import Belief, Direct, Evidence, Posterior, assess, check_finite, skill
from aicau.bias.classes import frequencies
from aicau.core import bregman
from aicau.core.errors import InputError
from aicau.core.observations import Collapsed, Observations
from aicau.core.task import Task
from aicau.ensembles import MLPClassifier, MLPCounts
from aicau.ensembles.mlp import FittedMLP
from aicau.prediction.discrete import KINDS, TINY, count_variance, forward, one_label, parts_of, predict
from aicau.prediction.measured import Measured
from aicau.strategy import Strategy

MOST_LABELS = 800  # measurements that an estimate of the bias sees: every class has a process of its own
LARGE = 20_000  # candidates from which a strategy without an estimator has the cheaper `direct` for the parts
LEAST_RATE = 1e-6  # over the mean count
PRIOR = 5.0  # measurements that a Poisson's scatter is worth
TEMPERATURES = np.geomspace(0.25, 8.0, 141)
LESS, MORE = 0.15, 1.0  # prior standard deviation of log T below and above 0: sharpening needs many candidates


def fit(
    x: Tensor,  # (n, d) float32, standardised
    measured: Measured,
    keys: Tensor,  # (1,)
    strategy: Strategy,
    kind: str,
) -> tuple[FittedMLP, Belief, dict[str, Any]]:
    """Networks on shares of labels or on mean counts; the strategy's estimator (or `posterior`) says what E Y is."""
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
    evidence = _evidence(x, observations, predictions, keys, fitted.unseen, index, task, scale)
    belief = _belief(evidence, strategy, scale)
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
        "skill": float(skill(evidence)),
    }
    if task.kind == "classes":
        info |= class_figures(measured.labels, outside, goal[tested], weight[tested])
    else:
        inside = (members, belief.mean[0][index], belief.variance()[0][index])
        info |= _count_figures(observations, seen, inside, outside[:, 0], goal[:, 0], weight, tested)
    said = predict(predictions, belief, info)
    names = {"epistemic": "mean_epistemic", "bias": "mean_bias", "aleatoric": "aleatoric"}
    return fitted, belief, info | {names[name]: float(part.mean()) for name, part in parts_of(said).items()}


def _evidence(
    x: Tensor,
    observations: Observations,
    predictions: Tensor,
    keys: Tensor,
    unseen: Tensor,  # (1, K, points)
    index: Tensor,  # (points,)
    task: Task,
    scale: float,  # counts over their mean: an estimator knows no units
) -> Evidence:
    some = torch.linspace(0, observations.rows - 1, min(observations.rows, MOST_LABELS)).long()
    o = observations
    rows = Observations(o.index[:, some], o.y[:, some] / scale, o.round[some], o.batch[:, some])
    place = torch.searchsorted(index, rows.index[0])
    return Evidence(x, rows, predictions / scale, keys, unseen[..., place], task=task)


def _belief(evidence: Evidence, strategy: Strategy, scale: float) -> Belief:
    usual = Posterior() if len(evidence.x) <= LARGE else Direct()
    estimator = strategy.bias if strategy.bias is not None else usual
    found = assess(estimator, evidence)
    check_finite(estimator, found)
    assert isinstance(found, Belief)
    if getattr(strategy.acquisition, "form", None) is None:  # nobody asks how points go together: keep less
        found = Belief(found.mean, None, found.variance())
    if evidence.task.kind == "classes":
        return found
    parts = (None if found.factor is None else found.factor * scale, found.rest)
    mean = found.mean.clamp_min(LEAST_RATE) * scale
    return Belief(mean, parts[0], None if parts[1] is None else parts[1] * scale**2)


def class_figures(
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
        losses.append(-(share * sharp).sum(-1))  # (l,)
    sure = np.log(TEMPERATURES)
    prior = 0.5 * (sure / np.where(sure > 0, MORE, LESS)) ** 2
    best = int(np.argmin(np.sum(losses, -1) + prior))
    hits = np.zeros((len(labels), len(labels)))
    np.add.at(hits.T, log.argmax(-1), weight[:, None] * share)  # true class, predicted class
    return {
        "classes": list(labels),
        "temperature": float(TEMPERATURES[best]),
        "out_of_fold": float(np.average(losses[best], weights=weight)) if len(weight) else None,
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


def check_classes(measured: Measured) -> None:
    if len(measured.labels) < 2:
        raise InputError(
            f"{one_label(measured.labels)}, so there is nothing to tell apart; tell results of a second class"
        )
