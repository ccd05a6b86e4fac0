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

from aicau.bias import BiasEstimator
from aicau.prediction.base import PARTS, Check, Figures, Numbers, State, parts_at
from aicau.prediction.belief import Kept, Wanted, parts_of, said
from aicau.prediction.mixture import TINY, members_at, mix

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

    def summary(self, place: int) -> tuple[str, Numbers]:
        """One candidate in words, and as numbers."""
        parts, total, words = parts_at(self, place)
        best = int(self.probability[place].argmax())
        label, chance = self.labels[best], float(self.probability[place, best])
        words = f"predicted {label!r} ({chance:.0%}), expected log loss {total:.3g}: {words}"
        return words, {"prediction": label, "probability": chance, **parts}


@dataclass(frozen=True)
class ClassPredictor:
    """What is thought of p over the pool, what is mixed for it, and the temperature of the calibration."""

    labels: tuple[str, ...]
    said: Kept | Wanted
    weights: dict[str, float]
    temperature: float
    figures: Figures

    @classmethod
    def fit(
        cls, state: State, estimator: BiasEstimator | None = None, labels: Sequence[str] = (), combine: bool = True
    ) -> "ClassPredictor":
        """The strategy's estimator (or `posterior`) says what p is; left-out labels calibrate the probabilities."""
        mixture = mix(state, combine)
        own, tested, rows = mixture.outside.clamp_min(TINY), mixture.tested, state.observations
        index, code = rows.index[0][tested].numpy(), rows.y[0][tested].long().numpy()
        temperature, error, hits = calibrate(own[tested].numpy(), code, index, len(labels))
        figures = Figures.of(state, error, confusion=hits)
        found = cls(tuple(labels), said(state, estimator, mixture), mixture.weights, temperature, figures)
        return replace(found, figures=figures.with_parts(found, state))

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], figures: Figures) -> "ClassPredictor":
        return cls(tuple(words["labels"]), Kept.load(tensors), words["weights"], words["temperature"], figures)

    def predict(self, state: State, index: Tensor | None = None) -> ClassPrediction:
        """All candidates or some."""
        mean, variance, mixed = self.said.at(index)
        epistemic, bias, gap = parts_of(state.task, members_at(state, index).clamp_min(TINY), mean, variance)
        own = (torch.special.entr(mean).sum(-1) - gap).clamp_min(0)
        share = torch.softmax(mixed.log() / self.temperature, -1)
        return ClassPrediction(self.labels, *(part.numpy() for part in (share, epistemic, bias, own)))

    def tensors(self) -> dict[str, Tensor]:
        return self.said.tensors()

    def words(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "weights": self.weights, "temperature": self.temperature}


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
    best = int(np.argmin((np.array(losses) / count[place]).sum(-1) + prior))
    hits = np.zeros((classes, classes), dtype=int)
    np.add.at(hits, (code, log.argmax(-1)), 1)
    error = float(np.mean(losses[best])) if len(code) else None
    return float(TEMPERATURES[best]), error, tuple(map(tuple, hits.tolist()))
