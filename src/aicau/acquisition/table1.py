"""The paper's acquisition functions (Table 1), over the pool; larger is better.

| word | α for values | for classes and counts |
|---|---|---|
| `random` | a random number | the same |
| `farthest` | constant: distances are the business of `spread` | the same |
| `lc` | σ²_F, the diagonal of Σ_F | classes: 1 − the largest mean probability |
| `bald` | ½ log(1 + σ²_F), mutual information under unit noise | classes: between the label and the member |
| `epistemic` | σ²_F | E D[F̄‖F] |
| `br` | δ², the diagonal of Δ | D[EY‖F̄], as expected from the labels |
| `pemse` | σ²_F + δ², the diagonal of Σ_F + Δ (Eq. t1_emse) | E D[F̄‖F] + D[EY‖F̄] |

σ²_Y is left out of `pemse`, as in the paper: measuring does not reduce it, and in the difference it cancels. For values
`bald` is a rising function of σ²_F: one point at a time (or by `top`) it ranks exactly like `lc`.
"""

from dataclasses import dataclass

import torch

from aicau.acquisition import terms, uncertainty
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core import decomposition, streams
from aicau.core.streams import Purpose


@dataclass(frozen=True)
class Random(Acquisition):
    needs_model = False
    batching = "top"
    meaning = "a random number"

    def score(self, view: View) -> Score:
        return Score(streams.uniform(streams.fold(view.keys, Purpose.CHOICE), view.x.shape[0]))


@dataclass(frozen=True)
class Farthest(Acquisition):
    needs_model = False
    batching = "spread"
    meaning = "the same everywhere"

    def score(self, view: View) -> Score:
        return Score(torch.ones_like(view.allowed, dtype=view.x.dtype))


@dataclass(frozen=True)
class LeastConfidence(Acquisition):
    meaning = "disagreement of the members"
    in_error = True

    def score(self, view: View) -> Score:
        if view.task.probabilities:
            return uncertainty.score(view, "lc")
        return Score.of(decomposition.covariance(view.members))


@dataclass(frozen=True)
class Bald(Acquisition):
    meaning = "disagreement of the members (mutual information)"

    def score(self, view: View) -> Score:
        if view.task.probabilities:
            return uncertainty.score(view, "bald")
        # In double precision: there different variances keep different scores, whatever the rounding of log1p.
        return Score(0.5 * torch.log1p(decomposition.epistemic(view.members).double()))


@dataclass(frozen=True)
class Epistemic(Acquisition):
    meaning = "disagreement of the members"
    in_error = True
    form: terms.Form = None  # None: the divergence of the task

    def score(self, view: View) -> Score:
        return terms.epistemic(view, self.form)


@dataclass(frozen=True)
class BiasReduction(Acquisition):
    needs_bias = True
    meaning = "expected bias of the ensemble"
    in_error = True
    form: terms.Form = None

    def score(self, view: View) -> Score:
        return terms.bias(view, self.form)


@dataclass(frozen=True)
class Pemse(Acquisition):
    needs_bias = True
    meaning = "expected error of a network (disagreement and bias)"
    in_error = True
    form: terms.Form = None

    def score(self, view: View) -> Score:
        form = None if view.belief is None else self.form
        return terms.epistemic(view, form) + terms.bias(view, form)
