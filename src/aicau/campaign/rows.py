"""Rows of a store as the numbers a round works with."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from aicau.core.observations import Observations
from aicau.gp.plates import Controls

MOST_REPEATS = 16  # a mean of more values counts as this many rows, with the same standard error


@dataclass(frozen=True)
class Told:
    """Measurements of a campaign: `observations` of one run, and the names of classes and plates."""

    observations: Observations  # (1, l)
    labels: tuple[str, ...]  # of classes, in order: y are their numbers
    batches: tuple[str, ...]  # of plates, in order: batch ids count them; rows without a plate have one of their own
    controls: Controls | None = None  # on these plates


def read(rows: Sequence[Any], controls: Sequence[Any] = (), log: bool = False) -> Told:
    """Current rows that did not fail, in the order they were told, and the controls of their plates.

    With `log` all values are logarithms.
    A mean of N values with a standard error becomes N rows with that mean and that standard error.
    """
    labels = tuple(sorted({row.label for row in rows} - {None}))
    number = {label: float(code) for code, label in enumerate(labels)}
    batches = tuple(dict.fromkeys(row.batch for row in rows if row.batch is not None))
    code = {name: at for at, name in enumerate(batches)}
    index, y, batch = [], [], []
    for at, row in enumerate(rows):
        value, sem = (number[row.label] if labels else row.value), row.sem
        value, sem = (math.log(value), None if sem is None else sem / value) if log else (value, sem)
        own = values_behind(value, sem, row.repeats)
        y.extend(own)
        index.extend([row.candidate] * len(own))
        batch.extend([len(batches) + at if row.batch is None else code[row.batch]] * len(own))
    if not batches:  # nobody said what was measured together
        batch = [0] * len(batch)
    where, together = (torch.tensor(part, dtype=torch.int64)[None] for part in (index, batch))
    values = torch.tensor(y, dtype=torch.float64)[None]
    return Told(
        Observations(where, values, torch.zeros_like(where[0]), together),
        labels,
        batches,
        _controls(controls, code, log),
    )


def _controls(rows: Sequence[Any], code: dict[str, int], log: bool) -> Controls | None:
    """References on the plates of the candidates; None where none says how two plates differ."""
    some = [row for row in rows if row.plate in code]
    names = sorted({row.name for row in some})
    if len({row.plate for row in some}) < 2:
        return None
    name, batch = (torch.tensor(part) for part in ([names.index(r.name) for r in some], [code[r.plate] for r in some]))
    return Controls(
        name, torch.tensor([math.log(r.value) if log else r.value for r in some], dtype=torch.float64), batch
    )


def values_behind(mean: float, sem: float | None, count: int) -> list[float]:
    """Values with this mean and standard error, half of them above and half below; equal ones without an error."""
    n = min(count, MOST_REPEATS)
    if n == 1 or not sem:
        return [mean] * n
    pairs = n // 2
    # n values of sample variance n·sem²: ±step in pairs, and for odd n one at the mean.
    step = sem * (n * (n - 1) / (2 * pairs)) ** 0.5
    return [mean + step] * pairs + [mean] * (n % 2) + [mean - step] * pairs


def replicates(observations: Observations) -> list[tuple[float, float, int]]:
    """(mean, standard deviation, count) of every candidate measured at least twice."""
    index, y = observations.index[0].numpy(), observations.y[0].numpy()
    found = []
    for candidate, count in zip(*np.unique(index, return_counts=True), strict=True):
        if count > 1:
            values: NDArray[np.float64] = y[index == candidate]
            found.append((float(values.mean()), float(values.std(ddof=1)), int(count)))
    return found
