"""Least confidence: α = σ²_F, the diagonal of Σ_F; for classes 1 − the largest mean probability."""

from dataclasses import dataclass

from aicau.acquisition import uncertainty
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import decomposition


@dataclass(frozen=True)
class LeastConfidence(Acquisition):
    meaning = "disagreement of the members"
    in_error = True

    def score(self, view: View) -> Score:
        assert view.predictions is not None
        if view.task.probabilities:
            return uncertainty.score(view, "lc")
        return Score.of(decomposition.covariance(view.predictions))
