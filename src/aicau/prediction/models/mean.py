"""The mean of what was measured: where nothing can be learned, nothing is better, and its weight says so."""

from dataclasses import dataclass

import torch
from torch import Tensor

from aicau.prediction.models.base import LeftOut, Points


@dataclass(frozen=True)
class MeanModel:
    """One value for all."""

    value: Tensor  # (1,)

    @classmethod
    def fit(cls, points: Points) -> "tuple[MeanModel, LeftOut]":
        """Measurements weigh alike."""
        total, count = points.y * points.count, points.count
        left = [part.sum() - torch.bincount(points.fold, part)[points.fold] for part in (total, count)]
        return cls((total.sum() / count.sum())[None]), LeftOut(left[0] / left[1])

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The same everywhere."""
        return self.value.expand(len(at))

    def tensors(self) -> dict[str, Tensor]:
        return {"value": self.value}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "MeanModel":
        return cls(tensors["value"])
