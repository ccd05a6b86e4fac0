"""The contents of a report as plain numbers, and its wording for each task."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from aicau.campaign.progress import Progress
from aicau.campaign.setup import task_of
from aicau.report.platemap import Plate


@dataclass(frozen=True)
class Batch:
    """A batch (a plate, a day) and its shift against the model."""

    name: str
    count: int
    shift: float
    error: float


@dataclass(frozen=True)
class Noise:
    batches: Sequence[Batch] = ()
    replicates: Sequence[tuple[float, float, int]] = ()  # mean, standard deviation, count
    sd: float = 0.0
    freedom: int = 0
    between: float | None = None  # standard deviation between batches
    reach: tuple[float, float] = (0.0, 0.0)  # its 95% interval
    dispersion: float | None = None  # of counts: variance over a Poisson's
    predicted: Sequence[float] = ()  # standard deviation that the model expects of the same replicates


@dataclass(frozen=True)
class Labels:
    """The labels of a classification."""

    names: tuple[str, ...]
    counts: Sequence[int]  # of each label
    confusion: Sequence[Sequence[int]]  # told (rows) and predicted (columns), out of fold
    agree: Sequence[int]  # candidates with several labels that are all equal, by that label
    differ: Sequence[int]  # candidates with labels that differ, by the most frequent one
    batches: Sequence[tuple[str, Sequence[int]]]  # labels of each class in each batch

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
    predicted: NDArray[np.int64] | None  # (k,) class of each candidate drawn; values are classes then
    axes: tuple[str, str]
    moved: bool  # points at one place were moved apart


@dataclass(frozen=True)
class Contents:
    settings: dict[str, Any]
    rounds: pd.DataFrame  # of each model: round, measurements, epistemic, bias (the square of it for values), aleatoric
    calibration: list[tuple[float, float, int]]
    noise: Noise
    map: Map
    batch: tuple[pd.DataFrame | None, list[str], int | None]  # the last one, states of its points, its round
    progress: Progress
    titles: dict[str, list[str]]  # of points of figures, by the id of their group
    measured: dict[str, str]  # by id
    predicted: dict[str, str]  # of the last batch, by id
    plates: tuple[Plate, ...]
    labels: Labels | None

    @property
    def words(self) -> "Words":
        return WORDS[task_of(self.settings)]


@dataclass(frozen=True)
class Words:
    """The wording of the report that depends on the task; all other words are in the template."""

    error: str  # how the error is called
    learning: str
    parts: str  # what epistemic, bias and noise add up to
    bias: str
    decomposition: str
    observed: str  # what is drawn against the stated probability
    calibration: str  # may name the last point: {stated}, {observed}, {count}


INTERVALS = "Of {count} new measurements, {observed:.0%} fell into the {stated:.0%} interval predicted before."
WORDS = {
    "regression": Words(
        error="RMSE",
        learning="Root mean squared error of the predictions against the truth, over all candidates.",
        parts="expected squared error",
        bias="bias²",
        decomposition="The three add up to the expected squared error of one member. Predictions are better: they"
        " combine the networks with other models.",
        observed="share inside the interval",
        calibration=INTERVALS,
    ),
    "classification": Words(
        error="log loss",
        learning="Log loss of the probabilities beyond that of the true ones, over all candidates.",
        parts="expected log loss",
        bias="bias",
        decomposition="The three add up to the expected log loss.",
        observed="share of labels of that class",
        calibration="Each point is a group of similar probabilities that a model gave before the label was known; its"
        " height is how often the label then was of that class.",
    ),
    "count": Words(
        error="Poisson divergence",
        learning="Poisson divergence (half the deviance) of the predictions from the true rates, over all candidates.",
        parts="expected Poisson divergence",
        bias="bias",
        decomposition="The three add up to the expected Poisson divergence, half the deviance.",
        observed="share inside the interval",
        calibration=f"{INTERVALS} Counts are whole numbers, so narrow intervals hold more than they state.",
    ),
}
