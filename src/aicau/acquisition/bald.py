"""BALD for a regression ensemble: ½·log(1 + σ²_F), the mutual information under unit noise.

It is a rising function of σ²_F, so one point at a time (or by `top`) it ranks exactly like least confidence. For
classes it is the mutual information between the label and the member, and differs from least confidence.
"""

from dataclasses import dataclass

import torch

from aicau.acquisition import uncertainty
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import decomposition


@dataclass(frozen=True)
class Bald(Acquisition):
    meaning = "disagreement of the members (mutual information)"

    def score(self, view: View) -> Score:
        assert view.predictions is not None
        if view.task.probabilities:
            return uncertainty.score(view, "bald")
        # In double precision: there different variances keep different scores, whatever the rounding of log1p.
        return Score(0.5 * torch.log1p(decomposition.epistemic(view.predictions).double()))
