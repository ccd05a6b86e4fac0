"""Farthest point: as far as possible from everything measured or already chosen. No model."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from aicau.acquisition.base import Score, View


@dataclass(frozen=True)
class Farthest:
    """α is constant; the distance is the business of the `spread` batching."""

    needs_model: ClassVar[bool] = False
    needs_bias: ClassVar[bool] = False
    batching: ClassVar[str | None] = "spread"
    meaning: ClassVar[str] = "the same everywhere"
    in_error: ClassVar[bool] = False

    def score(self, view: View) -> Score:
        return Score(torch.ones_like(view.allowed, dtype=view.x.dtype))
