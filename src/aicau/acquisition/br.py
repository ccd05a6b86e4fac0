"""Bias reduction: α = δ², the diagonal of Δ."""

from dataclasses import dataclass
from typing import ClassVar

from aicau.acquisition.base import Score, View


@dataclass(frozen=True)
class BiasReduction:
    needs_model: ClassVar[bool] = True
    needs_bias: ClassVar[bool] = True
    batching: ClassVar[str | None] = None

    def score(self, view: View) -> Score:
        assert view.cobias is not None
        return Score.of(view.cobias)
