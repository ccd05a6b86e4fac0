"""A strategy: acquisition, bias, batching (and change between rounds) side by side, named by one string.

`acquisition[:bias][:batching][:form][:change]`, e.g. `random`, `lc`, `br:perfect:top`, `pemse:direct:eigen`,
`pemse:quadratic:eigen:difference`. Batching is `top` where it is not given. A form (`brier`, `symmetric`) is for
classes: another divergence than Kullback-Leibler, one that has a matrix. A change is `difference` (of this round and
the one before) or `slope` (over the last four).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.acquisition import ACQUISITIONS, CHANGES, CLASS_ACQUISITIONS, FORMS, Acquisition, Lesson, Score, View
from aicau.batching import BATCHINGS, Batching
from aicau.bias import BIASES, BiasEstimator, Evidence, assess, check_finite, skill
from aicau.core import checks, streams
from aicau.core.errors import InputError, unknown
from aicau.core.observations import Observations
from aicau.core.pool import coordinates
from aicau.core.runs import by_run
from aicau.core.task import VALUES, Task
from aicau.ensembles import MLP, Ensemble

DEFAULT = "br:posterior:rehearsed"  # what the word `default` stands for: docs/comparison.md
CLASS_DEFAULT = "trust:spread"  # and for classes: docs/classification.md
FIRST_CHANGE = 2  # the first two rounds use the plain score: two changes of the model must have been seen


class Chooser(Protocol):
    """What a lane of a simulation needs: a `Strategy`, or the method of another package."""

    @property
    def name(self) -> str: ...

    @property
    def bias(self) -> BiasEstimator | None: ...

    def choose(
        self, view: View, m: int, history: Sequence[Score] = (), round: int = 0
    ) -> tuple[Tensor, Tensor, Score | None]: ...


@dataclass(frozen=True)
class Strategy:
    """How the next batch is chosen. Build one with `Strategy.parse("pemse:direct:eigen")`, or part by part."""

    name: str
    acquisition: Acquisition
    batching: Batching
    bias: BiasEstimator | None = None
    change: str | None = None  # look at how the score changes between rounds: `difference` or `slope`
    ensemble: Ensemble = field(default_factory=MLP)  # used by `query` only
    random_state: int = 0  # used by `query` only
    task: Task = VALUES  # used by `query` only

    @classmethod
    def parse(cls, text: str, **parts: Any) -> "Strategy":
        """From its string; `parts` replaces parts by objects, e.g. `batching=Eigen(fill="top")`.

        The word `default` stands for what measures best without cheating: `br:posterior:rehearsed`, and `trust:spread`
        where `task` says that classes are measured.
        """
        if str(text).strip().lower() == "default":
            word = CLASS_DEFAULT if parts.get("task", VALUES).kind == "classes" else DEFAULT
            return replace(cls.parse(word, **parts), name="default")
        head, *words = (word.strip().lower() for word in str(text).split(":"))
        known = {**ACQUISITIONS, **CLASS_ACQUISITIONS}
        if head not in known:
            raise unknown("acquisition", head, [*known, "default"])
        acquisition = known[head]()
        kinds: dict[str, Collection[str]] = {"bias": BIASES, "batching": BATCHINGS, "form": FORMS, "change": CHANGES}
        found: dict[str, str] = {}
        for word in words:
            kind = next((kind for kind, group in kinds.items() if word in group), None)
            if kind is None:
                raise unknown("strategy word", word, [w for group in kinds.values() for w in group])
            if kind in found:
                raise InputError(f"strategy {text!r} names its {kind} twice: {found[kind]!r} and {word!r}")
            found[kind] = word
        if acquisition.needs_bias and "bias" not in found and "bias" not in parts:
            raise InputError(
                f"{head!r} needs a bias estimator, e.g. '{head}:direct'; known: {', '.join(sorted(BIASES))}"
            )
        if "bias" in found and not acquisition.needs_bias:
            raise InputError(f"{head!r} does not use the bias; leave out {found['bias']!r}")
        if "change" in found and not acquisition.needs_model:
            raise InputError(f"{head!r} does not change between rounds, so it has no {found['change']} version")
        if "change" in found and found.get("batching") == "rehearsed":
            raise InputError(f"a rehearsal looks at the next round, not at changes; leave out {found['change']!r}")
        if "form" in found:
            if not hasattr(acquisition, "form"):
                raise InputError(f"{head!r} has no form {found['form']!r}; br, pemse and epistemic have")
            acquisition = replace(acquisition, form=found["form"])  # type: ignore[type-var]
        fixed = acquisition.batching
        word = found.get("batching", fixed or "top")
        if fixed is not None and word != fixed:
            raise InputError(f"{head!r} always uses {fixed!r} batching; leave out {word!r}")
        strategy = cls(
            name=":".join([head, *words]),
            acquisition=acquisition,
            batching=BATCHINGS[word](),
            bias=BIASES[found["bias"]]() if "bias" in found else None,
            change=found.get("change"),
        )
        return replace(strategy, **parts) if parts else strategy

    def __str__(self) -> str:
        return self.name

    @property
    def needs_model(self) -> bool:
        return self.acquisition.needs_model

    def choose(
        self,
        view: View,  # leading dimension: runs
        m: int,
        history: Sequence[Score] = (),  # the plain scores of the rounds before, the latest last
        round: int = 0,  # 0 is the first batch chosen by a strategy
    ) -> tuple[Tensor, Tensor, Score | None]:  # chosen (runs, m), α used (runs, n), plain score to keep
        """The next batch of every run; run by run on the CPU, all at once elsewhere."""
        plain = self.acquisition.score(view)
        score = plain
        if self.change is not None and round >= FIRST_CHANGE and history:
            score = plain.change(self.change, history)
        order = torch.arange(view.allowed.shape[0], device=view.allowed.device)

        def select(runs: Tensor) -> tuple[Tensor]:
            some = slice(int(runs[0]), int(runs[-1]) + 1)
            return (self.batching.select(score[some], view[some], m),)

        (chosen,) = by_run(select, order, points=view.allowed.shape[-1])
        return chosen, score.alpha, plain if self.change else None

    def query(
        self,
        X: Any,  # (n, d)
        y: Any,  # (n,), NaN where unlabelled
        candidates: Any = None,
        batch_size: int = 1,
        return_utilities: bool = False,
    ) -> NDArray[np.int64] | tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Choose from a table, with the signature and the meaning of scikit-activeml.

        `candidates` are all unlabelled rows of X (None), rows of X by index, or features (then indices point into
        them). Rows of X with the same features are replicates of one point. One call sees one round, so a strategy
        of changes answers with its plain version here; `simulate` keeps rounds.
        """
        features = checks.features(X, "X")
        labels = torch.as_tensor(np.array(y, dtype=float))
        if labels.shape != features.shape[:1]:
            raise InputError(f"y needs one entry per row of X: {features.shape[0]}; got shape {tuple(labels.shape)}")
        labelled = ~torch.isnan(labels)
        checks.numbers(labels[labelled], "y")
        rows, extra = _candidate_rows(candidates, features, labelled)
        batch_size = checks.positive(batch_size, "batch_size")
        points, place = torch.unique(torch.cat([features, extra]), dim=0, return_inverse=True)
        asked = place[features.shape[0] :] if len(extra) else place[rows]
        measured = torch.zeros(1, len(points), dtype=torch.bool)
        measured[0, place[: features.shape[0]][labelled]] = True
        allowed = torch.zeros_like(measured)
        allowed[0, asked] = True
        keys = streams.runs(self.random_state, 1)
        view = View(coordinates(points), allowed, measured, keys, task=self.task)
        if self.needs_model:
            if not bool(labelled.any()):
                raise InputError(f"{self.name!r} needs at least one labelled row; start with 'random' or 'farthest'")
            seen = place[: features.shape[0]][labelled][None]
            observations = Observations(seen, labels[labelled][None], torch.zeros(seen.shape[1], dtype=torch.int64))
            fitted = self.ensemble.fit(points[seen], observations.y, keys)
            predictions = fitted.predict(points)
            lesson = Lesson(self.ensemble, seen, observations.y)
            evidence = Evidence(points, observations, predictions, keys, fitted.unseen, task=self.task)
            view = replace(view, predictions=predictions, points=points, lesson=lesson, skill=skill(evidence))
            if self.bias is not None:
                estimate = assess(self.bias, evidence)
                check_finite(self.bias, estimate)
                view = view.told(estimate)
        chosen, alpha, _ = self.choose(view, batch_size)
        first = {int(point): i for i, point in reversed(list(enumerate(asked)))}
        places = [first[int(point)] for point in chosen[0]]
        into_x = not len(extra)
        index = np.array([int(rows[i]) if into_x else i for i in places], dtype=np.int64)
        if not return_utilities:
            return index
        utilities = np.full((batch_size, features.shape[0] if into_x else len(extra)), np.nan)
        columns = rows.numpy() if into_x else np.arange(len(extra))
        for step in range(batch_size):
            utilities[step, columns] = alpha[0, asked].numpy()
            utilities[step, index[:step]] = np.nan
        return index, utilities


def _candidate_rows(candidates: Any, features: Tensor, labelled: Tensor) -> tuple[Tensor, Tensor]:
    """Indices into X, or features of their own (one of the two is empty)."""
    none = features[:0]
    if candidates is None:
        rows = (~labelled).nonzero()[:, 0]
    else:
        array = np.asarray(candidates)
        if array.ndim == 2:
            extra = checks.features(array, "candidates")
            if extra.shape[1] != features.shape[1]:
                raise InputError(f"candidates need {features.shape[1]} features, as X; got {extra.shape[1]}")
            return torch.zeros(0, dtype=torch.int64), extra
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise InputError("candidates are row numbers of X or a table of features")
        rows = torch.as_tensor(array).long()
        if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= features.shape[0]):
            raise InputError(f"candidates point outside X, which has {features.shape[0]} rows")
    if len(rows) == 0:
        raise InputError("there is no candidate to choose from")
    return rows, none
