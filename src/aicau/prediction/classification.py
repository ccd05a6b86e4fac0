"""Labels: calibrated probabilities, and the three parts of the expected log loss of a network.

Probabilities are those of the mixture of the networks with processes and trees (`mixture`), calibrated by one
temperature T, p ∝ mixture^(1/T), which minimises the log loss of left-out candidates, each counting once; a prior holds
T near 1, more so from below (docs/decisions.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.acquisition import terms
from aicau.bias import BiasEstimator
from aicau.core import bregman
from aicau.core.task import Task
from aicau.prediction.base import PARTS, Check, Figures, State, counted, members_at, shares, spread_over
from aicau.prediction.belief import Kept, Wanted, said
from aicau.prediction.mixture import TINY, mix

LEAST = 1e-3  # probability that counts for a label which the model had never seen
TEMPERATURES = np.geomspace(0.25, 8.0, 141)
LESS, MORE = 0.15, 1.0  # prior standard deviation of log T below and above 0: sharpening needs many candidates


@dataclass(frozen=True)
class ClassPrediction:
    """Calibrated probabilities, and the parts of the expected log loss.

    Parameters
    ----------
    labels : tuple of str
        The c classes.
    probability : array, shape (n, c)
    epistemic, bias, aleatoric : array, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> from aicau import ClassPrediction
    >>> none = np.zeros(2)
    >>> said = ClassPrediction(("no", "yes"), np.array([[0.9, 0.1], [0.2, 0.8]]), none, none, none)
    >>> said.columns()["predicted"].tolist()
    ['no', 'yes']
    """

    labels: tuple[str, ...]
    probability: NDArray[np.float64]
    epistemic: NDArray[np.float64]
    bias: NDArray[np.float64]
    aleatoric: NDArray[np.float64]

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""
        best = np.array(self.labels, dtype=object)[self.probability.argmax(-1)]
        columns = {f"p_{label}": self.probability[:, c] for c, label in enumerate(self.labels)}
        return {"predicted": best, **columns, **{name: getattr(self, name) for name in PARTS}}

    def check(self, y: Sequence[Any]) -> Check:
        """Log losses, and which classes came."""
        true = np.array([[label == name for name in self.labels] for label in y])
        given = np.where(true.any(-1), (self.probability * true).sum(-1), LEAST)
        return Check(-np.log(np.maximum(given, LEAST)), self.probability, true)

    def spread(self) -> float:
        """Entropy of the mean probabilities, less that of the labels themselves."""
        share = self.probability.mean(0)
        return max(0.0, float(-(share * np.log(np.maximum(share, TINY))).sum() - self.aleatoric.mean()))

    def summary(self, place: int) -> tuple[str, dict[str, float | int | str]]:
        """One candidate in words, and as numbers."""
        total, share = shares(self, place)
        best = int(self.probability[place].argmax())
        chance = float(self.probability[place, best])
        numbers: dict[str, float | int | str] = {"prediction": self.labels[best], "probability": chance}
        numbers |= {name: float(getattr(self, name)[place]) for name in PARTS}
        words = f"predicted {self.labels[best]!r} ({chance:.0%}), expected log loss {total:.3g}: {in_words(share)}"
        return words, numbers


def in_words(share: dict[str, float]) -> str:
    """The parts of an expected error."""
    return f"{share['epistemic']:.0%} disagreement, {share['bias']:.0%} bias, {share['aleatoric']:.0%} noise"


@dataclass(frozen=True)
class ClassPredictor:
    """What is thought of p over the pool, what is mixed for it, and the temperature of the calibration."""

    labels: tuple[str, ...]
    said: Kept | Wanted
    weights: dict[str, float]
    temperature: float
    figures: Figures

    def predict(self, state: State, index: Tensor | None = None) -> ClassPrediction:
        """All candidates or some."""
        mean, variance, mixed = self.said.at(index)
        members = state.task.members(members_at(state, index)).clamp_min(TINY)  # (m, K, c)
        _, epistemic, bias, gap = parts_of(state.task, members, mean, variance)
        own = (torch.special.entr(mean).sum(-1) - gap).clamp_min(0)
        share = torch.softmax(mixed.log() / self.temperature, -1)
        return ClassPrediction(self.labels, *(part.cpu().numpy() for part in (share, epistemic, bias, own)))

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs, beside `words`."""
        return self.said.tensors()

    def words(self) -> dict[str, Any]:
        """The rest, as plain JSON."""
        return {"labels": list(self.labels), "weights": self.weights, "temperature": self.temperature}


def parts_of(
    task: Task,
    members: Tensor,  # (m, K, c)
    mean: Tensor,  # (m, c)
    variance: Tensor,  # (m, c)
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (m, c), then (m,) each
    """F̄, the epistemic part, the bias, and what of the bias is not known of E Y yet."""
    d = bregman.make(task.divergence)
    centre = bregman.mean_of(d, members)
    gap = terms.unknown(d, mean, variance)
    epistemic = bregman.epistemic_of(d, members, centre).clamp_min(0)
    return centre, epistemic, (bregman.between(d, mean, centre) + gap).clamp_min(0), gap


def outside(state: State) -> tuple[Tensor, Tensor]:  # (rows, c), (rows,)
    """Each measured row by the members that did not see it, and which rows have such a member."""
    index = state.observations.index[0]
    members = state.task.members(members_at(state, index)).clamp_min(TINY)  # (l, K, c)
    apart = state.fitted.unseen[0].T.to(members)  # (l, K)
    mean = (members * apart[..., None]).sum(-2) / apart.sum(-1, keepdim=True).clamp_min(1)
    return mean, apart.sum(-1) > 0


@dataclass(frozen=True)
class Classification:
    """A measurement is one of some labels."""

    name: str = "classification"

    def task(self, labels: Sequence[str]) -> Task:
        """With the classes that were seen; two at least."""
        return Task("classification", max(2, len(labels)))

    def too_few(self, labels: Sequence[str]) -> str:
        """Labels of one class leave nothing to tell apart."""
        if len(labels) > 1:
            return ""
        return f"all labels so far say {labels[0]!r}" if labels else "nothing is measured yet"

    def fit(
        self, state: State, estimator: BiasEstimator | None, labels: Sequence[str], combine: bool = True
    ) -> ClassPredictor:
        """The strategy's estimator (or `posterior`) says what p is; left-out labels calibrate the probabilities."""
        points, rows, freedom = counted(state)
        own, tested = outside(state)
        mixture = mix(state, own, combine)
        own, tested = mixture.outside.clamp_min(TINY).cpu(), tested.cpu()
        index, code = (part[0].cpu()[tested] for part in (state.observations.index, state.observations.y))
        temperature, error, hits = calibrate(own[tested].numpy(), code.long().numpy(), index.numpy(), len(labels))
        figures = Figures(points, rows, freedom, float(state.skill()[0]), error, confusion=hits)
        found = ClassPredictor(tuple(labels), said(state, estimator, mixture), mixture.weights, temperature, figures)
        return replace(found, figures=figures.with_parts(found.predict(state, spread_over(len(state.x)))))

    def load(self, tensors: dict[str, Tensor], words: dict[str, Any]) -> ClassPredictor:
        """What `tensors` and `words` gave."""
        figures = Figures.from_json(words["figures"])
        labels, warmth = tuple(words["labels"]), words["temperature"]
        return ClassPredictor(labels, Kept.load(tensors), words["weights"], warmth, figures)


def calibrate(
    said: NDArray[np.float64],  # (k, c) probabilities by members that had not seen the candidate
    code: NDArray[np.int64],  # (k,) the label that came
    index: NDArray[np.int64],  # (k,) its candidate
    classes: int,
) -> tuple[float, float | None, tuple[tuple[int, ...], ...]]:
    """Temperature, log loss of left-out labels at it, and how often each class was taken for each."""
    _, place, count = np.unique(index, return_inverse=True, return_counts=True)
    log = np.log(said)
    losses = []
    for temperature in TEMPERATURES:
        sharp = log / temperature
        sharp -= np.logaddexp.reduce(sharp, axis=-1, keepdims=True)
        losses.append(-sharp[np.arange(len(code)), code])  # (k,)
    sure = np.log(TEMPERATURES)
    prior = 0.5 * (sure / np.where(sure > 0, MORE, LESS)) ** 2
    best = int(np.argmin((np.array(losses) / count[place]).sum(-1) + prior)) if len(code) else len(sure) // 2
    hits = np.zeros((classes, classes), dtype=int)
    np.add.at(hits, (code, log.argmax(-1)), 1)
    error = float(np.mean(losses[best])) if len(code) else None
    return float(TEMPERATURES[best]), error, tuple(tuple(int(v) for v in row) for row in hits)
