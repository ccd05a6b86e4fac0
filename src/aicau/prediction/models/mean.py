"""The mean of what was measured: where nothing can be learned, nothing is better, and its weight says so."""

from dataclasses import dataclass

from torch import Tensor

from aicau.prediction.models.base import LeftOut, Points


@dataclass(frozen=True)
class MeanModel:
    """One value for all."""

    value: Tensor  # (1,)

    @classmethod
    def fit(cls, points: Points) -> "tuple[MeanModel, LeftOut]":
        """Measurements weigh alike."""
        total, count = (points.y * points.count).sum(), points.count.sum()
        out = points.fold[:, None] == points.fold  # (l, l)
        left = total - (out * (points.y * points.count)).sum(-1), count - (out * points.count).sum(-1)
        return cls((total / count)[None]), LeftOut(left[0] / left[1])

    def mean(self, at: Tensor) -> Tensor:  # (m, p) -> (m,)
        """The same everywhere."""
        return self.value.expand(len(at))

    def tensors(self) -> dict[str, Tensor]:
        """All that `load` needs."""
        return {"value": self.value}

    @classmethod
    def load(cls, tensors: dict[str, Tensor]) -> "MeanModel":
        """What `tensors` gave."""
        return cls(tensors["value"])
