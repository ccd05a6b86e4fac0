"""Measurements as a model sees them: one row each, as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.core.observations import Observations
from aicau.gp import noise

MOST_REPEATS = 16  # a mean of more values weighs no more than this many rows


@dataclass(frozen=True)
class Measured:
    """Current measurements, one row each; a mean of several values is one row with its standard error and count."""

    index: NDArray[np.int64]  # (l,) candidate
    y: NDArray[np.float64]  # (l,)
    sem: NDArray[np.float64]  # (l,) NaN for single values
    count: NDArray[np.int64]  # (l,)
    batch: NDArray[np.int64] | None = None  # (l,) −1 where unknown; None: nothing is known of batches
    labels: tuple[str, ...] = ()  # of classes, in order: y are their numbers

    @classmethod
    def of(cls, rows: Sequence[Any]) -> "Measured":
        """Current rows of a store that did not fail."""
        codes: dict[str | None, int] = {None: -1}
        batch = [codes.setdefault(row.batch, len(codes) - 1) for row in rows]
        labels = tuple(sorted({row.label for row in rows} - {None}))
        number = {label: float(code) for code, label in enumerate(labels)}
        return cls(
            np.array([row.candidate for row in rows], dtype=np.int64),
            np.array([number[row.label] if labels else row.value for row in rows], dtype=np.float64),
            np.array([np.nan if row.sem is None else row.sem for row in rows], dtype=np.float64),
            np.array([row.repeats for row in rows], dtype=np.int64),
            np.array(batch, dtype=np.int64),
            labels,
        )

    def corrected(self, x: Tensor) -> tuple["Measured", float]:  # (n, d) standardised
        """The same with the shift of each batch taken out (`noise.plate_effects`), and the variance of the shifts.

        Rows without a batch keep their value.
        """
        if self.batch is None or self.batches() < 2:
            return self, 0.0
        batch = torch.from_numpy(self.batch)
        rows, y, counts = x[torch.from_numpy(self.index)], torch.from_numpy(self.y), torch.from_numpy(self.count)
        found = noise.plate_effects(rows, y, batch, counts)
        return replace(self, y=self.y - found.of(batch).numpy()), found.variance

    def batches(self) -> int:
        """How many there are; at least one."""
        return 1 if self.batch is None else max(1, len(np.unique(self.batch[self.batch >= 0])))

    def observations(self) -> Observations:  # (1, l')
        """One row per value behind a mean, for the estimators."""
        times = np.minimum(self.count, MOST_REPEATS)
        index, y = (torch.from_numpy(np.repeat(part, times))[None] for part in (self.index, self.y))
        return Observations(index, y, torch.zeros(index.shape[1]).long())

    def batched(self) -> Observations:  # (1, l')
        """The same with the batch of each row, for estimators that take it out themselves."""
        found = self.observations()
        if self.batch is None:
            return found
        batch = torch.from_numpy(np.repeat(self.batch, np.minimum(self.count, MOST_REPEATS)))[None]
        return replace(found, batch=batch)

    def replicate_variance(self) -> tuple[float, int]:
        """Variance of measurements of the same candidate, pooled over candidates, and its degrees of freedom."""
        known = ~np.isnan(self.sem)
        within = np.where(known, self.count * (self.count - 1) * np.nan_to_num(self.sem) ** 2, 0.0).sum()
        _, place = np.unique(self.index, return_inverse=True)
        weight = self.count.astype(float)
        mean = np.bincount(place, weight * self.y) / np.bincount(place, weight)
        between = (weight * (self.y - mean[place]) ** 2).sum()
        free = int((self.count - 1)[known].sum()) + len(self.y) - len(mean)
        return (float(within + between) / free if free else 0.0), free
