"""Positive values: everything is fitted to ln y, and what is handed out is brought back by exp.

`mean` is then exp of the mean of ln y: the median of what the truth may be, half of it above and half below. The mean
of a skewed distribution lies above it, is carried by its tail, and would not sit in the middle of any interval. Ends of
intervals are exp of theirs, so they stay positive. Parts of the error are squares of ln y: 0.1 is about 10%.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from aicau.prediction.base import PARTS, Check, Numbers, parts_at
from aicau.prediction.regression import ValuePrediction


@dataclass(frozen=True)
class LogPrediction:
    """A prediction of ln y, in units of y."""

    inner: ValuePrediction

    @property
    def epistemic(self) -> Tensor:
        return self.inner.epistemic

    @property
    def bias(self) -> Tensor:
        return self.inner.bias

    @property
    def aleatoric(self) -> Tensor:
        return self.inner.aleatoric

    def columns(self) -> dict[str, NDArray[np.float64]]:
        """By their names in a table."""
        found = self.inner.columns()
        return {name: part if name in PARTS else np.exp(part) for name, part in found.items()}

    def check(self, y: Sequence[Any]) -> Check:
        """Squared errors of ln y, and which intervals held."""
        return self.inner.check(np.log(np.asarray(y, dtype=float)).tolist())

    def spread(self) -> float:
        """Variance of ln y over these candidates."""
        return self.inner.spread()

    def summary(self, place: int) -> tuple[str, Numbers]:
        """One candidate in words, and as numbers; `prediction`, `new_low` and `new_high` are of y."""
        _, total, words = parts_at(self, place)
        _, numbers = self.inner.summary(place)
        numbers |= {name: exp(float(numbers[name])) for name in ("prediction", "new_low", "new_high")}
        words = (
            f"predicted {numbers['prediction']:.3g} ({numbers['new_low']:.3g} to {numbers['new_high']:.3g}), expected"
            f" error of a network a factor {exp(total**0.5):.2f}: {words}"
        )
        return words, numbers
