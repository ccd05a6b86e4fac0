"""What a report shows, as plain numbers, and its wording for each task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray


@dataclass(frozen=True)
class Round:
    """The model before one batch."""

    round: int
    measurements: int
    out_of_fold: float | None
    held_out: float | None  # on what was measured next
    held_out_count: int
    epistemic: float
    bias: float  # the square of it for values
    aleatoric: float


@dataclass(frozen=True)
class Batch:
    """What was measured together, against the model."""

    name: str
    count: int
    shift: float
    error: float | None


@dataclass(frozen=True)
class Noise:
    batches: tuple[Batch, ...]
    replicates: tuple[tuple[float, float, int], ...]  # mean, standard deviation, count
    sd: float
    freedom: int
    between: float | None  # standard deviation between batches
    dispersion: float | None = None  # of counts: variance over a Poisson's


@dataclass(frozen=True)
class Labels:
    """What labels said, where classes are measured."""

    names: tuple[str, ...]
    counts: tuple[int, ...]  # labels of each
    confusion: tuple[tuple[int, ...], ...]  # told (rows) and predicted (columns), out of fold
    agree: tuple[int, ...]  # candidates with several labels that all say the same, by that label
    differ: tuple[int, ...]  # ... that do not, by the most frequent label
    batches: tuple[tuple[str, tuple[int, ...]], ...]  # labels of each class in each batch

    @property
    def tested(self) -> int:
        return sum(map(sum, self.confusion))

    @property
    def right(self) -> int:
        return sum(row[at] for at, row in enumerate(self.confusion))


@dataclass(frozen=True)
class Map:
    candidates: NDArray[np.float64]  # (k, 2)
    measured: NDArray[np.float64]
    values: NDArray[np.float64]
    pending: NDArray[np.float64]
    shares: Sequence[float]  # of the variance, per axis
    features: int
    total: int
    predicted: NDArray[np.int64] | None = None  # (k,) class of each candidate drawn; values are classes then


@dataclass(frozen=True)
class Contents:
    settings: dict[str, Any]
    status: dict[str, Any]
    rounds: list[Round]
    calibration: list[tuple[float, float, int]]
    noise: Noise
    map: Map
    batch: pd.DataFrame | None
    batch_round: int | None
    states: list[str]
    labels: Labels | None = None

    @property
    def task(self) -> str:
        return str(self.settings.get("task", "regression"))

    @property
    def words(self) -> "Words":
        return WORDS[self.task]


@dataclass(frozen=True)
class Words:
    """What the report says about one task and only about it; everything else is in the template."""

    error: str  # how the error is called
    learning: str
    parts: str  # what epistemic, bias and noise add up to
    bias: str
    decomposition: str
    observed: str  # what is drawn against the stated probability
    calibration: str  # may name the last point: {stated}, {observed}, {count}
    root: bool = False  # the error is the root of the mean loss
    labelled: bool = False  # results are labels

    def mean_error(self, loss: NDArray[np.float64]) -> float:
        """The error of several measurements."""
        mean = float(loss.mean())
        return mean**0.5 if self.root else mean


MEMBERS = "Out of fold: each member of the ensemble predicts the points that it was not trained on."
INTERVALS = "Of {count} new measurements, {observed:.0%} fell into the {stated:.0%} interval predicted before."
WORDS = {
    "regression": Words(
        error="RMSE",
        learning="Root mean squared error against measurements, which includes their noise. Out of fold: each"
        " measurement is predicted without the measurements of its candidate.",
        parts="expected squared error",
        bias="bias²",
        decomposition="The three add up to the expected squared error of one member. Predictions are better: they are"
        " the mean of the members minus the estimated bias.",
        observed="share inside the interval",
        calibration=INTERVALS,
        root=True,
    ),
    "classification": Words(
        error="log loss",
        learning=f"Log loss of the calibrated probabilities against labels, which includes their randomness. {MEMBERS}",
        parts="expected log loss",
        bias="bias",
        decomposition="The three add up to the expected log loss.",
        observed="share of labels of that class",
        calibration="Each point is a group of similar probabilities that a model gave before the label was known; its"
        " height is how often the label then was of that class.",
        labelled=True,
    ),
    "count": Words(
        error="Poisson divergence",
        learning=f"Poisson divergence (half the deviance) against counts, which includes their scatter. {MEMBERS}",
        parts="expected Poisson divergence",
        bias="bias",
        decomposition="The three add up to the expected Poisson divergence, half the deviance.",
        observed="share inside the interval",
        calibration=f"{INTERVALS} Counts are whole numbers, so narrow intervals hold more than they state.",
    ),
}
