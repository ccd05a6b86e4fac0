"""PEMSE: the part of the error that can be reduced, α = σ²_F + δ², the diagonal of Σ_F + Δ (Eq. t1_emse).

σ²_Y is left out, as in the paper: measuring does not reduce it, and in the difference it cancels. Under another
divergence it is E D[F̄‖F] + D[EY‖F̄].
"""

from dataclasses import dataclass

from aicau.acquisition import terms
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import decomposition


@dataclass(frozen=True)
class Pemse(Acquisition):
    needs_bias = True
    meaning = "expected error of a network (disagreement and bias)"
    in_error = True
    form: terms.Form = None  # None: the divergence of the task

    def score(self, view: View) -> Score:
        if view.belief is not None:
            return terms.epistemic(view, self.form) + terms.bias(view, self.form)
        assert view.predictions is not None
        assert view.cobias is not None
        return Score.of(decomposition.covariance(view.predictions) + view.cobias)
