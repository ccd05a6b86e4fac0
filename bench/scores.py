"""Numbers of the comparison: final errors, areas, paired ratios, shares of a gain, ranks and their critical difference.

A table here is runs × methods; runs are paired.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from aicau.core.statistics import Interval, mean_interval, paired_ratio

RESAMPLES = 2000


def final(frame: pd.DataFrame, panel: str) -> pd.DataFrame:
    """MSE after the last round: runs × methods."""
    rows = frame[frame["panel"] == panel]
    rows = rows[rows["round"] == rows["round"].max()]
    return rows.pivot(index="run", columns="strategy", values="mse")


def area(frame: pd.DataFrame, panel: str) -> pd.DataFrame:
    """Area under the learning curve over its length, an average MSE on the way: runs × methods."""
    rows = frame[frame["panel"] == panel]
    table = rows.pivot(index=["strategy", "run"], columns="points", values="mse")
    x, y = table.columns.to_numpy(dtype=float), table.to_numpy()
    mean = np.trapezoid(y, x, axis=1) / (x[-1] - x[0])
    return pd.Series(mean, table.index).unstack("strategy")


def ratio(table: pd.DataFrame, word: str, against: str | None) -> Interval | None:
    """Geometric mean of the paired ratio of errors with its 95% interval; None where one of them is missing."""
    if against is None or word not in table or against not in table:
        return None
    return paired_ratio(table[word].to_numpy(), table[against].to_numpy())


def share(table: pd.DataFrame, word: str, reference: str) -> Interval | None:
    """How much of the gain random → reference a method has: of mean errors, with a paired 95% bootstrap interval.

    None where a method is missing or the reference gains nothing.
    """
    if not {word, reference, "random"} <= set(table):
        return None
    values = table[["random", word, reference]].to_numpy()

    def of(means: NDArray[np.float64]) -> NDArray[np.float64]:  # (..., 3) -> (...)
        with np.errstate(divide="ignore", invalid="ignore"):
            return (means[..., 0] - means[..., 1]) / (means[..., 0] - means[..., 2])

    means = values.mean(0)
    if means[0] <= means[2]:
        return None
    if len(values) < 2:
        return Interval(float(of(means)), float("nan"), float("nan"))
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.nanpercentile(of(values[draws].mean(1)), [2.5, 97.5])
    return Interval(float(of(means)), float(low), float(high))


def best(table: pd.DataFrame, words: tuple[str, ...]) -> str | None:
    """The method of `words` with the lowest mean; chosen after the fact, so a comparison with it is a hard one."""
    there = [word for word in words if word in table]
    return min(there, key=lambda word: float(table[word].to_numpy().mean())) if there else None


@dataclass(frozen=True)
class Ranks:
    """Average ranks over blocks (a panel and a run each), 1 is best, and how far two must lie apart to differ."""

    mean: pd.Series  # by method, best first
    blocks: int
    difference: float  # Nemenyi's critical difference at 5%
    friedman: float  # p value of no difference at all

    def with_the_best(self) -> list[str]:
        """Methods that cannot be told from the best."""
        return [str(word) for word in self.mean.index[self.mean - self.mean.iloc[0] <= self.difference]]


def ranks(tables: list[pd.DataFrame], words: list[str]) -> Ranks | None:
    """Ranks among the methods that took part in every panel; None where there are fewer than two."""
    words = [word for word in words if all(word in table for table in tables)]
    if len(words) < 2 or not tables:
        return None
    errors = np.concatenate([table[words].to_numpy() for table in tables])
    placed = stats.rankdata(errors, axis=1)
    mean = pd.Series(placed.mean(0), words).sort_values(kind="stable")
    blocks, k = placed.shape
    friedman = float(stats.friedmanchisquare(*errors.T).pvalue) if k > 2 and blocks > 1 else float("nan")
    return Ranks(mean, blocks, critical_difference(k, blocks), friedman)


def critical_difference(k: int, blocks: int) -> float:
    """Nemenyi's at 5%: q·√(k(k + 1)/6N), q the studentised range for k methods over √2 (Demšar 2006)."""
    q = float(stats.studentized_range.ppf(0.95, k, np.inf)) / np.sqrt(2)
    return float(q * np.sqrt(k * (k + 1) / (6 * blocks)))


@dataclass(frozen=True)
class Row:
    """One method in one panel."""

    panel: str
    strategy: str
    family: str
    final: Interval
    area: Interval
    to_random: Interval | None
    to_farthest: Interval | None
    to_best_peer: Interval | None
    share: Interval | None
    seconds: float


def rows(
    frame: pd.DataFrame,
    choosing: pd.DataFrame,
    families: dict[str, str],
    strong: tuple[str, ...],
    reference: str,
) -> list[Row]:
    """Every method in every panel, best first."""
    spent = choosing.set_index(["panel", "strategy"])["seconds"]
    out = []
    for panel in frame["panel"].unique():
        ends, areas = final(frame, panel), area(frame, panel)
        peer = best(ends, strong)
        for word in ends.mean().sort_values(kind="stable").index:
            out.append(
                Row(
                    panel,
                    word,
                    families[word],
                    mean_interval(ends[word].to_numpy()),
                    mean_interval(areas[word].to_numpy()),
                    ratio(ends, word, "random"),
                    ratio(ends, word, "farthest"),
                    ratio(ends, word, peer),
                    share(ends, word, reference),
                    float(spent[panel, word]),
                )
            )
    return out
