"""The fitted model of a campaign: made from the rows of its store by `aicau.round`, kept as tensors and JSON."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aicau import ensembles
from aicau.bias import Posterior
from aicau.campaign.setup import ALONE, COMBINED, ensemble_of, is_log, strategy_of, task_of
from aicau.core.observations import Observations
from aicau.ensembles.base import predicted
from aicau.ensembles.kernels import MLPSettings
from aicau.ensembles.mlp import FittedMLP
from aicau.gp.plates import Controls
from aicau.prediction import Figures, Prediction, Predictor, State, outcome
from aicau.prediction.logarithm import LogPrediction
from aicau.prediction.regression import ValuePrediction, ValuePredictor
from aicau.round import Round

FORMAT = 5  # of `state`; models of earlier formats are fitted again
UNITS = ("shift", "scale", "shared")
ROWS = ("index", "y", "batch")
WEIGHTS = ("parameters", "unseen", "epochs")
MOST_REPEATS = 16  # a mean of more values counts as this many rows, with the same standard error


@dataclass(frozen=True)
class Told:
    """Measurements of a campaign: `observations` of one run, and the names of classes and plates."""

    observations: Observations  # (1, l)
    labels: tuple[str, ...]  # of classes, in order: y are their numbers
    batches: tuple[str, ...]  # of plates, in order: batch ids count them; rows without a plate have one of their own
    controls: Controls | None = None  # on these plates


def read(rows: Sequence[Any], controls: Sequence[Any] = (), log: bool = False) -> Told:
    """Current rows that did not fail, in the order they were told, and the controls of their plates.

    With `log` all values are logarithms.
    A mean of N values with a standard error becomes N rows with that mean and that standard error.
    """
    labels = tuple(sorted({row.label for row in rows} - {None}))
    number = {label: float(code) for code, label in enumerate(labels)}
    batches = tuple(dict.fromkeys(row.batch for row in rows if row.batch is not None))
    code = {name: at for at, name in enumerate(batches)}
    index, y, batch = [], [], []
    for at, row in enumerate(rows):
        value, sem = (number[row.label] if labels else row.value), row.sem
        value, sem = (math.log(value), None if sem is None else sem / value) if log else (value, sem)
        own = values_behind(value, sem, row.repeats)
        y.extend(own)
        index.extend([row.candidate] * len(own))
        batch.extend([len(batches) + at if row.batch is None else code[row.batch]] * len(own))
    if not batches:  # nobody said what was measured together
        batch = [0] * len(batch)
    where, together = (torch.tensor(part, dtype=torch.int64)[None] for part in (index, batch))
    values = torch.tensor(y, dtype=torch.float64)[None]
    observations = Observations(where, values, torch.zeros_like(where[0]), together)
    return Told(observations, labels, batches, _controls(controls, code, log))


def _controls(rows: Sequence[Any], code: dict[str, int], log: bool) -> Controls | None:
    """References on the plates of the candidates; None where none says how two plates differ."""
    some = [row for row in rows if row.plate in code]
    names = sorted({row.name for row in some})
    if len({row.plate for row in some}) < 2:
        return None
    name, batch = (torch.tensor(part) for part in ([names.index(r.name) for r in some], [code[r.plate] for r in some]))
    values = [math.log(r.value) if log else r.value for r in some]
    return Controls(name, torch.tensor(values, dtype=torch.float64), batch)


def values_behind(mean: float, sem: float | None, count: int) -> list[float]:
    """Values with this mean and standard error, half of them above and half below; equal ones without an error."""
    n = min(count, MOST_REPEATS)
    if n == 1 or not sem:
        return [mean] * n
    pairs = n // 2
    # n values of sample variance n·sem²: ±step in pairs, and for odd n one at the mean.
    step = sem * (n * (n - 1) / (2 * pairs)) ** 0.5
    return [mean + step] * pairs + [mean] * (n % 2) + [mean - step] * pairs


def replicates(observations: Observations) -> list[tuple[float, float, int]]:
    """(mean, standard deviation, count) of every candidate measured at least twice."""
    index, y = observations.index[0].numpy(), observations.y[0].numpy()
    numbers, counts = np.unique(index, return_counts=True)
    several = (y[index == candidate] for candidate in numbers[counts > 1])
    return [(float(values.mean()), float(values.std(ddof=1)), len(values)) for values in several]


@dataclass(frozen=True)
class Model:
    """A fitted round of one campaign."""

    how: Round
    state: State
    predictor: Predictor
    labels: tuple[str, ...]
    basis: int  # tells behind it
    log: bool  # everything is of ln y

    @property
    def figures(self) -> Figures:
        """What a report says of it."""
        return self.predictor.figures

    def predict(self, index: Any = None) -> Prediction:
        """All candidates or some, in the target's own units."""
        said = self.predictor.predict(self.state, None if index is None else torch.as_tensor(index))
        return LogPrediction(said) if self.log and isinstance(said, ValuePrediction) else said

    def columns(self, span: tuple[int, int]) -> dict[str, Any]:
        """What is predicted of the candidates from one number to before another; an engine computes it anywhere."""
        return self.predict(np.arange(*span)).columns()

    def pack(self) -> tuple[dict[str, Tensor], str]:
        """Tensors for safetensors, and the rest as JSON."""
        state = self.state
        fitted = state.fitted
        assert isinstance(fitted, FittedMLP)
        tensors = {name: getattr(fitted, name) for name in WEIGHTS}
        tensors |= {f"rows.{name}": getattr(state.observations, name) for name in ROWS}
        tensors |= {f"units.{name}": getattr(state, name) for name in UNITS} | {"keys": state.keys}
        tensors |= {f"predictor.{name}": part for name, part in self.predictor.tensors().items()}
        words = {
            "format": FORMAT,
            "ensemble": COMBINED if self.how.combine else ALONE,
            "settings": asdict(fitted.settings),
            "labels": list(self.labels),
            "basis": self.basis,
            "figures": self.figures.to_json(),
            "predictor": self.predictor.words(),
        }
        kept = {name: tensor.clone().contiguous() for name, tensor in tensors.items()}
        return kept, json.dumps(words, sort_keys=True, allow_nan=False)


def fit(x: Tensor, told: Told, keys: Tensor, settings: dict[str, Any], basis: int) -> Model:  # (n, d), -, (1,)
    """The round of a campaign with these settings after its measurements."""
    how = _round(settings, told.labels)
    state = how.fit(x, told.observations, keys, told.controls)
    predictor = how.predictor(state, strategy_of(settings).bias, told.labels)
    return Model(how, state, predictor, told.labels, basis, is_log(settings))


def unpack(tensors: dict[str, Tensor], words: str, x: Tensor, settings: dict[str, Any]) -> Model | None:
    """The model that `pack` wrote, over the same pool; None where an earlier version wrote it."""
    kept = json.loads(words)
    if kept.get("format") != FORMAT:
        return None
    how = _round(settings | {"ensemble": kept["ensemble"]}, kept["labels"])
    own = kept["settings"] | {name: tuple(kept["settings"][name]) for name in ("hidden", "betas")}
    parameters, unseen, epochs = (tensors[name] for name in WEIGHTS)
    fitted = FittedMLP(parameters, unseen, epochs, MLPSettings(**own))
    index, y, batch = (tensors[f"rows.{name}"] for name in ROWS)
    rows = Observations(index, y, torch.zeros_like(index[0]), batch)
    shift, scale, shared = (tensors[f"units.{name}"] for name in UNITS)
    state = State(how.task, x, rows, fitted, predicted(fitted, x, 1), tensors["keys"], shift, scale, shared)
    parts = {name.removeprefix("predictor."): t for name, t in tensors.items() if name.startswith("predictor.")}
    figures, bias = Figures.from_json(kept["figures"]), strategy_of(settings).bias
    predictor = outcome(task_of(settings)).predictor.load(parts, kept["predictor"], figures)
    if isinstance(bias, Posterior) and isinstance(predictor, ValuePredictor):
        state.memo[bias] = predictor.correction  # it was fitted by this very estimator
    return Model(how, state, predictor, tuple(kept["labels"]), kept["basis"], is_log(settings))


def _round(settings: dict[str, Any], labels: Sequence[str]) -> Round:
    task = outcome(task_of(settings)).task(labels)
    return Round(ensembles.make(task=task), task, combine=ensemble_of(settings) == COMBINED)
