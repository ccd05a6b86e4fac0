"""How much the members disagree: E D[F̄‖F] under the divergence of the task; for values σ²_F, as `lc`."""

from dataclasses import dataclass

from aicau.acquisition import terms
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import decomposition


@dataclass(frozen=True)
class Epistemic(Acquisition):
    meaning = "disagreement of the members"
    in_error = True
    form: terms.Form = None

    def score(self, view: View) -> Score:
        assert view.predictions is not None
        if self.form is None and view.task.squared:
            return Score.of(decomposition.covariance(view.predictions))
        return terms.epistemic(view, self.form)
