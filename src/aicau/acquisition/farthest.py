"""Farthest point: as far as possible from everything measured or already chosen. No model."""

from dataclasses import dataclass

import torch

from aicau.acquisition.base import Acquisition, Score, View


@dataclass(frozen=True)
class Farthest(Acquisition):
    """α is constant; the distance is the business of the `spread` batching."""

    needs_model = False
    batching = "spread"
    meaning = "the same everywhere"

    def score(self, view: View) -> Score:
        return Score(torch.ones_like(view.allowed, dtype=view.x.dtype))
