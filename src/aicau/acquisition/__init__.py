"""Acquisition functions by name; a new one is a function in one file and one entry here.

| word | α for values | for classes and counts |
|---|---|---|
| `random` | a random number | a random number |
| `farthest` | constant: `spread` looks at distances only | constant |
| `lc` | σ²_F, the diagonal of Σ_F | classes: 1 − the largest mean probability |
| `bald` | ½ log(1 + σ²_F), mutual information under unit noise | classes: between the label and the member |
| `epistemic` | σ²_F | E D[F̄‖F] |
| `br` | δ², the diagonal of Δ | D[EY‖F̄], as expected from the labels |
| `pemse` | σ²_F + δ², the diagonal of Σ_F + Δ (Eq. t1_emse) | E D[F̄‖F] + D[EY‖F̄] |

These are the paper's Table 1; `entropy`, `margin` and `trust` are for classes only. σ²_Y is left out of `pemse`, as in
the paper: measuring does not reduce it, and it cancels in the difference. For values `bald` is a rising function of
σ²_F: one point at a time (or by `top`) it ranks exactly like `lc`.
"""

from functools import partial

from aicau.acquisition import scores, terms
from aicau.acquisition.base import Acquisition, Score, View
from aicau.acquisition.terms import FORMS

BIAS, ERROR = "expected bias of the ensemble", "expected error of a network (disagreement and bias)"
MEMBERS = "disagreement of the members"
TRUSTED = f"{MEMBERS}, as far as they predict labels they did not see"
ACQUISITIONS = {
    "random": partial(Acquisition, scores.random, "a random number", needs_model=False, batching="top"),
    "farthest": partial(Acquisition, scores.farthest, "the same everywhere", needs_model=False, batching="spread"),
    "lc": partial(Acquisition, scores.lc, MEMBERS, in_error=True),
    "bald": partial(Acquisition, scores.bald, f"{MEMBERS} (mutual information)"),
    "epistemic": partial(Acquisition, terms.epistemic, MEMBERS, in_error=True, has_forms=True),
    "br": partial(Acquisition, terms.bias, BIAS, needs_bias=True, in_error=True, has_forms=True),
    "pemse": partial(Acquisition, terms.pemse, ERROR, needs_bias=True, in_error=True, has_forms=True),
    "entropy": partial(Acquisition, scores.by_entropy, "entropy of the predicted probabilities"),
    "margin": partial(Acquisition, scores.by_margin, "nearness of the two most probable classes"),
    "trust": partial(Acquisition, scores.trust, TRUSTED, level=scores.trust_level),
}
