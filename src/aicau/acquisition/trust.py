"""Disagreement of classifiers, as far as they are to be trusted: α = (1 − s)·mean(u) + s·u.

| symbol | name in code | shape | meaning |
|---|---|---|---|
| u | `apart` | (..., n) | variance of the members' probabilities, summed over classes (`epistemic:brier`) |
| s | `view.skill` | (...) | share of the labels' entropy that members explain of labels they did not see |

Where labels can be learned, members disagree where their middle is wrong. Where labels are mostly noise they disagree
because each has learned its own noise; then s is small, α is nearly the same everywhere, and `spread` fills the space.
"""

from dataclasses import dataclass

from aicau.acquisition import terms
from aicau.acquisition.base import Acquisition, Score, View
from aicau.core.errors import InputError


@dataclass(frozen=True)
class Trust(Acquisition):
    meaning = "disagreement of the members, as far as they predict labels they did not see"

    def score(self, view: View) -> Score:
        if not view.task.probabilities:
            raise InputError(f"'trust' is about classes, and this is a {view.task.name} task; use br or pemse")
        if view.skill is None:
            raise InputError("'trust' is about classes and needs View.skill, how well members predict unseen labels")
        apart = terms.epistemic(view, "brier").alpha
        s = view.skill.to(apart)[..., None]
        note = "'trust' has no matrix; use top or spread batching"
        return Score((1 - s) * apart.mean(-1, keepdim=True) + s * apart, note=note)
