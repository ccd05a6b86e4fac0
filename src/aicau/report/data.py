"""What a report shows, as plain numbers, and how it speaks of each task."""

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
class Story:
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
    note: str = ""  # about the predictions

    @property
    def task(self) -> str:
        return str(self.settings.get("task", "regression"))


@dataclass(frozen=True)
class Words:
    """How the error of a task is called and explained."""

    error: str
    parts: str  # what the three parts add up to
    bias: str
    learning: str
    out_of_fold: str
    decomposition: str
    calibration: str  # what share is drawn against the stated probability
    note: str  # below the last batch


MEMBERS = "Out of fold: each member on the points it was not trained on."
PARTS = (
    "Averages over candidates. Epistemic: the members of the ensemble disagree. Bias: all of them are off in the same"
    " direction, as far as measured points tell. Noise: what repeating a measurement would change."
)
WORDS = {
    "regression": Words(
        "RMSE",
        "expected squared error",
        "bias²",
        "Root mean squared error against measurements, so noise is in it.",
        "Out of fold: each measurement, predicted without those of its candidate.",
        f"{PARTS} Together they are the expected error of one member; predictions are means of them with the estimated"
        " bias taken out.",
        "share inside the interval",
        "epistemic, bias and aleatoric are parts of the expected squared error of a network.",
    ),
    "classification": Words(
        "log loss",
        "expected log loss",
        "bias",
        "Log loss of the calibrated probabilities against labels, so the randomness of labels is in it.",
        MEMBERS,
        PARTS,
        "share of labels that said so",
        "epistemic, bias and aleatoric are parts of the expected log loss.",
    ),
    "count": Words(
        "Poisson divergence",
        "expected Poisson divergence",
        "bias",
        "Poisson divergence (half the deviance) of counts, so their scatter is in it.",
        MEMBERS,
        PARTS,
        "share inside the interval",
        "epistemic, bias and aleatoric are parts of the expected Poisson divergence, half the deviance.",
    ),
}
