"""Means with intervals over runs, and paired comparisons: the same run of two strategies shares points and noise."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special  # scipy.stats takes 0.4 s longer to import

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """An estimate with its two-sided confidence interval; the interval is NaN where there is one run only."""

    mean: float
    low: float
    high: float


def mean_interval(values: NDArray[np.float64]) -> Interval:  # (runs,)
    """Student's t interval of the mean."""
    centre = float(np.mean(values))
    if len(values) < 2:
        return Interval(centre, float("nan"), float("nan"))
    half = float(half_width(values))
    return Interval(centre, centre - half, centre + half)


def half_width(values: NDArray[np.float64]) -> Any:  # (runs, ...) -> (...)
    """Half the width of Student's t interval of the mean over runs."""
    runs = len(values)
    return special.stdtrit(runs - 1, 0.5 + CONFIDENCE / 2) * np.std(values, axis=0, ddof=1) / np.sqrt(runs)


def ratio(logs: NDArray[np.float64]) -> Interval:  # (runs,)
    """Geometric mean of ratios from their logarithms, with the t interval of these."""
    log = mean_interval(logs)
    return Interval(*(float(np.exp(v)) for v in (log.mean, log.low, log.high)))


def paired_ratio(values: NDArray[np.float64], baseline: NDArray[np.float64]) -> Interval:  # (runs,) each
    """Geometric mean of values/baseline, run by run."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return ratio(np.log(values) - np.log(baseline))
