"""Bias reduction: α = δ², the diagonal of Δ; under another divergence D[EY‖F̄], as expected from the labels."""

from dataclasses import dataclass

from aicau.acquisition import terms
from aicau.acquisition.base import Acquisition, Score, View


@dataclass(frozen=True)
class BiasReduction(Acquisition):
    needs_bias = True
    meaning = "expected bias of the ensemble"
    in_error = True
    form: terms.Form = None  # None: the divergence of the task

    def score(self, view: View) -> Score:
        if view.belief is not None:
            return terms.bias(view, self.form)
        assert view.cobias is not None
        return Score.of(view.cobias)
