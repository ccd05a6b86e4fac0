"""What predictions of all tasks have in common: the state they start from, their parts, how they are checked.

| part | meaning |
|---|---|
| `epistemic` | how much the members disagree |
| `bias` | how far their middle is expected to be from E Y |
| `aleatoric` | how far one measurement lies from E Y |

The three add up to the expected error of a network against a new measurement: squared error for regression, log loss
for classification, Poisson divergence for counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from aicau.bias import BiasEstimator, Evidence, skill
from aicau.core.errors import InputError
from aicau.core.observations import Observations
from aicau.core.pool import Frame, Rows
from aicau.core.task import Task
from aicau.ensembles import Fitted

PARTS = ("epistemic", "bias", "aleatoric")
LEVELS = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95])  # of intervals that a report checks
MOST_SHOWN = 4096  # candidates behind averages over the pool
Numbers = dict[str, float | int | str]  # plain JSON
PRIOR_ROWS = 20.0  # left-out errors that the Gaussian quantile is worth


@dataclass(frozen=True)
class State:
    """F_k and what it was fitted to. Leading dimensions are runs; numbers are in units of (y − shift) / scale."""

    task: Task
    x: Tensor  # (n, d) the pool
    observations: Observations  # (..., l) the measurements, what plates share taken out
    fitted: Fitted
    predictions: Tensor  # (..., K, n), or (..., K, n, c) for classification
    keys: Tensor  # (...)
    shift: Tensor  # (...)
    scale: Tensor  # (...)
    shared: Tensor  # (...) variance of what a plate adds to all its values
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __getitem__(self, run: Any) -> "State":
        """Some of the runs (along the first leading dimension)."""
        names = ("observations", "fitted", "predictions", "keys", "shift", "scale", "shared")
        return replace(self, **{name: getattr(self, name)[run] for name in names}, memo={})

    def among(self, index: Tensor) -> "State":  # (s,) ascending, the measured ones among them
        """The same over a part of the pool; what was fitted and learned is shared."""
        rows = replace(self.observations, index=torch.searchsorted(index, self.observations.index))
        predictions = self.predictions.index_select(self.keys.ndim + 1, index)
        self.memo[Frame] = self.frame
        return replace(self, x=self.x[index], observations=rows, predictions=predictions)

    @property
    def frame(self) -> Frame:
        """Where the whole pool lies."""
        return self.memo.get(Frame) or Frame.of(self.x)

    def evidence(self, oracle: Callable[[int], Tensor] | None = None) -> Evidence:
        """What a bias estimator may see."""
        memo = self.memo if oracle is None else {}
        unseen = self.fitted.unseen
        return Evidence(self.x, self.observations, self.predictions, self.keys, unseen, oracle, self.task, memo)

    def in_units(self, values: Tensor) -> Tensor:  # (..., n)
        """Predictions in the target's own units."""
        return values * self.scale[..., None] + self.shift[..., None]

    def skill(self) -> Tensor:  # (...)
        """How well members predict rows they did not see, 0 to 1."""
        known = self.observations.index.unique()
        return skill((self.among(known) if isinstance(self.x, Rows) else self).evidence())


@dataclass(frozen=True)
class Figures:
    """What a report says of a fitted round: counts, its error on left-out points, the mean parts of its error."""

    points: int  # measured candidates
    measurements: int
    freedom: int  # measurements beyond the first of each candidate
    skill: float
    error: float | None  # on points left out: root mean squared error, log loss or Poisson divergence
    epistemic: float = 0.0
    bias: float = 0.0
    aleatoric: float = 0.0
    confusion: tuple[tuple[int, ...], ...] = ()  # of classes: told (rows) and predicted (columns), left out
    # Averages over the pool, as squared errors, log losses or divergences; None in models of earlier versions:
    unknown: float | None = None  # expected error of what is handed out, against the truth
    noise: float = 0.0  # of one measurement against the truth, its plate's shift not counted
    spread: float = 0.0  # error of predicting the mean of all candidates, against the truth
    shared: float = 0.0  # variance of what a plate adds
    common: float = 0.0  # part of `unknown` that all plates so far share: no left-out measurement can show it

    @classmethod
    def of(cls, state: State, error: float | None, **more: Any) -> Self:
        """Of a round, for one run."""
        rows = state.observations.rows
        points = int(state.observations.index[0].unique().numel())
        return cls(points, rows, rows - points, float(state.skill()[0]), error, **more)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Figures":
        """What `to_json` gave; JSON knows lists only."""
        return cls(**data | {"confusion": tuple(tuple(row) for row in data["confusion"])})

    def with_parts(self, predictor: "Predictor", state: State) -> "Figures":
        """With the mean parts of what is predicted of the pool, and what is expected of its own error."""
        said = predictor.predict(state, spread_over(len(state.x)))
        epistemic, bias, aleatoric = (float(getattr(said, name).mean()) for name in PARTS)
        unknown = float(getattr(said, "unknown", said.bias).mean())
        parts = replace(self, epistemic=epistemic, bias=bias, aleatoric=aleatoric)
        return replace(parts, unknown=unknown, noise=aleatoric - self.shared, spread=said.spread())


@dataclass(frozen=True)
class Check:
    """New measurements against what had been predicted of them."""

    loss: NDArray[np.float64]  # (k,) squared error, log loss or divergence of each
    stated: NDArray[np.float64]  # (k, q) probabilities that were stated, of intervals or of classes
    true: NDArray[np.bool_]  # (k, q) whether it came so


class Prediction(Protocol):
    """What is handed out for some candidates."""

    @property
    def epistemic(self) -> Any: ...
    @property
    def bias(self) -> Any: ...
    @property
    def aleatoric(self) -> Any: ...

    def columns(self) -> dict[str, NDArray[Any]]:
        """By their names in a table."""

    def check(self, y: Sequence[Any]) -> Check:
        """Against measurements of the same candidates, in their order: numbers, or labels."""

    def spread(self) -> float:
        """Expected error of predicting the mean of these candidates for each of them, against the truth."""

    def summary(self, place: int) -> tuple[str, Numbers]:
        """One candidate in words, and as numbers."""


class Predictor(Protocol):
    """What a fitted round hands out, for one run."""

    @classmethod
    def fit(cls, state: State, estimator: BiasEstimator | None, labels: Sequence[str], combine: bool) -> "Predictor":
        """After a round; by the ensemble alone where nothing is to be combined."""

    @classmethod
    def load(cls, tensors: dict[str, Tensor], words: dict[str, Any], figures: Figures) -> "Predictor":
        """What `tensors` and `words` gave."""

    @property
    def figures(self) -> Figures:
        """What a report says of it."""

    def predict(self, state: State, index: Tensor | None = None) -> Prediction:
        """All candidates or some, in the target's own units."""

    def tensors(self) -> dict[str, Tensor]:
        """What `load` needs, beside `words`."""

    def words(self) -> dict[str, Any]:
        """The rest of what `load` needs, as plain JSON."""


@dataclass(frozen=True)
class Outcome:
    """What a measurement is, and what a campaign does with it."""

    name: str  # of the task
    meaning: str
    predictor: type[Predictor]
    labelled: bool = False  # it is one of some labels

    def task(self, labels: Sequence[str]) -> Task:
        """With the classes that were seen; two at least."""
        return Task(self.name, max(2, len(labels)) if self.labelled else 0)

    def too_few(self, labels: Sequence[str]) -> str:
        """Why nothing can be fitted yet, empty where it can: labels of one class leave nothing to tell apart."""
        if not self.labelled or len(labels) > 1:
            return ""
        return f"all labels so far say {labels[0]!r}" if labels else "nothing is measured yet"


def parts_at(prediction: Prediction, place: int, aside: str = "") -> tuple[dict[str, float], float, str]:
    """The parts of a candidate's expected error, their sum, and their shares in words, `aside` behind the bias."""
    parts = {name: float(getattr(prediction, name)[place]) for name in PARTS}
    total = sum(parts.values())
    epistemic, bias, aleatoric = (part / total if total > 0 else 0.0 for part in parts.values())
    return parts, total, f"{epistemic:.0%} disagreement, {bias:.0%} bias{aside}, {aleatoric:.0%} noise"


def spread_over(n: int) -> Tensor:  # (at most MOST_SHOWN,)
    """Some candidates, evenly spaced, for averages over the pool; all where it is small."""
    return torch.linspace(0, n - 1, min(n, MOST_SHOWN), dtype=torch.double).long()


def quantile(errors: Tensor, level: float, share: Tensor | None = None) -> float:  # (l,), (l,)
    """How many standard deviations hold a share `level` of left-out errors, shrunk to the Gaussian quantile.

    Errors count by their share; few that count much are worth as many as their weights tell apart.
    """
    size, order = errors.abs().sort()
    share = torch.ones_like(size) if share is None else share
    rows = float(share.sum() ** 2 / (share**2).sum())
    below = share[order].cumsum(0) / share.sum()
    rank = int((below < level * (1 + 1 / rows) - 1e-9).sum().clamp_max(len(size) - 1))
    return (rows * float(size[rank]) + PRIOR_ROWS * gaussian(level)) / (rows + PRIOR_ROWS)


def gaussian(level: float) -> float:
    """Two-sided quantile of the standard normal distribution."""
    if not 0 < level < 1:
        raise InputError(f"the level of an interval lies between 0 and 1; got {level}")
    return float(torch.special.ndtri(torch.tensor(0.5 + level / 2, dtype=torch.double)))
